"""The data folder: the files in which a broker keeps what survives its process, and their repair.

Here belongs what knows bytes on disk. Not here: what the bytes mean to a topic or a group.
"""
