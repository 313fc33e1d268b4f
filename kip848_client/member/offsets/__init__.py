"""Commits, committed offsets, and where each partition starts.

Here belongs what deals in offsets. Not here: which partitions a member owns.
"""
