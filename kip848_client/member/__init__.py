"""One member of a consumer group, pure: events and the time go in, effects come out.

Owns every rule of the consumer's side of KIP-848. Opens no socket, reads no clock, starts no thread. `Member` is the
way in; `events` is its vocabulary.
"""
