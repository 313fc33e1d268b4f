"""Parts of ``kip848 broker``: the options of its security; its control port, the test kit over HTTP.

Here belongs what is particular to the command line, HTTP and JSON. Not here: what a call does
(`kip848_client.testing.broker.controls`).
"""
