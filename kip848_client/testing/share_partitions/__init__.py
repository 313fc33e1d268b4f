"""Share partitions (KIP-932): which record is delivered to which member of a share group, and how often. Pure.

`share_partition`: the records in flight of one partition and group. `share_state`: what is kept of them.
`share_sessions`: which partitions a member reads. `settings`: what a group may configure.
"""
