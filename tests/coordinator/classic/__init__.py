"""Classic groups, by the numbered scenarios of how Kafka behaves: `s01` and so on are those numbers."""
