"""The referee of clients: whether what members of groups send keeps the rules that everybody can see on the wire.

`Referee` is pure: it is told of requests and answers, with the time, and tells which rule was broken first. A rule of
docs/protocol.md is checked where `Findings.check` is called with its number; `JUDGED` (`referee`) lists them all.
Rules that only say how our member decides (callbacks, positions, its own haste) are not here: another client may do
otherwise.

What a client knows is judged in its favour. An answer that was written may have been lost, so a member counts as told
only if its next request comes on the same connection; and what it sent on one connection says nothing about the order
on another.
"""
