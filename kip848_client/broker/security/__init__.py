"""Who a client is, and what it may do: logins, users, and the judgement of requests by ACLs.

Here belongs what needs a principal. Not here: TLS of a listener (`net`), and the permissions that each API needs, which
stand in its file (`apis`).
"""
