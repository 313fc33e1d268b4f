"""What several commands share: how they find a cluster, options, and tables.

Here belongs what no command owns. Not here: requests to a cluster (`kip848_client.admin`).
"""
