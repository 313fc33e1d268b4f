"""Workers: processes that share named units of work, each unit with one of them at a time.

`core` is the protocol (pure), `host` its thread and its connections, `worker` what users see.
"""
