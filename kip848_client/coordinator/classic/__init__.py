"""Classic groups: members that speak JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

* `group`: a group as one frozen value, and the arithmetic on it;
* `rebalance`: the phases of a rebalance, the timers, and the answers to requests that wait;
* `join`, `sync`, `heartbeat`, `leave`: one request each;
* `membership`: which member a request is about, and whether it may speak for it.

Only GroupMetadata records are hard state. As in Kafka, everything between two of them is lost with the process.
"""
