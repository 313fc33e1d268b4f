"""What several commands for a cluster share: the admin client, partitions as text, tables of workers."""
