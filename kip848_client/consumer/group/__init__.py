"""One member at work: its threads, listeners, commits, assignors, and the values of the public calls.

Here belongs what connects the pure member with the application. Not here: how bytes travel (`network`, `records`).
"""
