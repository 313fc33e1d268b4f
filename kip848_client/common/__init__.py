"""What all houses share: values, time, threads, error codes, and the names of log events and metrics.

Here belongs what knows nothing of groups, connections or records. Not here: `errors`, `journal`, which users import.
"""
