"""The identity of a client, and its permissions: logins, users, and the judgement of requests by ACLs.

Here belongs what needs a principal. Not here: TLS of a listener (`net`), and the permissions that each API needs, which
stand in its file (`apis`).
"""
