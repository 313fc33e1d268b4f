"""Committed offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, and how long offsets are kept.

Belongs here: requests about offsets, whatever the kind of their group. Does not: the offsets themselves, which are part
of the state (`core.offset_store`), and the rules of one kind for its members.
"""
