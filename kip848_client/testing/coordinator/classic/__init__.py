"""Classic groups: members that speak JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

* `classic_group`: a group as one frozen value, and the arithmetic on it;
* `rebalance`: the phases of a rebalance, the timers, and the answers to requests that wait;
* `join`, `sync`, `classic_heartbeat`, `leave`: one request each;
* `classic_lookup`: which member a request is about, and whether it may speak for it.

Does not belong here: classic members of a group of another kind (`migration.mixed_group`). Only GroupMetadata records
are hard state. As in Kafka, everything between two of them is lost with the process.
"""
