"""The nodes of one cluster: where they listen, whether they run, and the steps when one dies or comes back.

Here belongs what concerns several nodes. Not here: who leads what, which is decided in `metadata`.
"""
