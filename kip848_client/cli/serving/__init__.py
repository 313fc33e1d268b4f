"""The control port of ``kip848 broker``: the test kit over HTTP, for programs in other languages.

Here belongs what is particular to HTTP and JSON. Not here: what a call does (`kip848_client.broker.controls`).
"""
