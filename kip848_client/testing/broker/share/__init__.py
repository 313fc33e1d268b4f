"""Share groups' records in flight: the partitions that members share, what is kept of them, and dead letters.

Does not own: the members of share groups, which are the group coordinator's.
"""
