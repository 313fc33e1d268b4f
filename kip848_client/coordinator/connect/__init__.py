"""Connect groups: workers that share named units, each unit with one worker. Part of the coordinator, and as pure.

`group` is the state, `heartbeat` what a worker does to it; members, epochs and reconciliation are those of
`..group` and `..current_assignment`.
"""
