"""The classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the leader's plan.

Here belongs what only classic groups have. Not here: steps that consumer groups take, too (`group`).
"""
