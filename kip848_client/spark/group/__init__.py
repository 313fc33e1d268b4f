"""A query as a member of its group, and the offsets that it begins at.

Here belongs what deals with a group or a broker on the driver. Not here: batches and tasks.
"""
