"""Behind ``kip848 simulate`` and ``sweep``: many seeds at once, smaller failures, runs told as stories.

Here belongs what shows runs. Not here: how a run is played (`kip848_client.testing.simulation`).
"""
