"""Groups that change between the classic protocol and a newer one while they are live, and groups of both.

Belongs here: what every kind of group does alike when it is converted, or has classic members. Does not: the bytes that
members of one kind exchange; those are with the kind (`consumer`, `connect`).
"""
