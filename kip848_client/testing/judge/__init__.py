"""``kip848 judge``: whether a broker, or a client, keeps the rules of docs/protocol.md.

What both judges share: `rulebook` (the numbered rules, read from the page), `verdicts` (what was found about a rule)
and `reports` (verdicts as text, JSON, JUnit or HTML). A judge looks rules up by number and hands over a `Report`::

    rule = rulebook()[57]
    Verdict(rule, Outcome.HOLDS)
    Verdict(rule, Outcome.DIFFERS, asked=..., expected=..., seen=..., exchange=(Said("m", "broker", "heartbeat: ..."),))
    Verdict(rule, Outcome.CANNOT_BE_TRIED, why="the broker does not offer ShareGroupHeartbeat")

`broker/` holds conversations with a broker, `client/` the rules of a member, replayed on what a client sends. How each
of them registers a check is said in its own docstring.
"""
