"""Parts that several commands share: finding a cluster, options, and tables.

Here belongs what no command owns. Not here: requests to a cluster (`kip848_client.admin`).
"""
