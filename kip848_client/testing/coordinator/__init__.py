"""The reference group coordinator of KIP-848. Pure: no socket, clock or disk; `group_coordinator` says how to drive it.

Belongs here: the dispatch (`group_coordinator`) and the list of kinds (`kinds`). Everything else is in the folder of
its subject: `core` knows no kind of group; each kind registers its requests, records and timers.
"""
