"""What happened in a group, from the events of a log.

`lanes` builds a `timeline`: who owned and read each partition when. Beside it stand the trackers that it feeds with
events (`lives`, `unread`, `pauses`, `changes`), and what is read from the finished timeline (`outages`, `deploys`).
"""
