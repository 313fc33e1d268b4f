"""Conversations with a broker, told to the reference coordinator and to the broker that is judged, and compared.

`conversations.py` has them as data: a rule of docs/protocol.md, steps, and what must hold before. To add one, write the
rule into the chapter *The coordinator's answers* there, a `Story` with its number into `conversations.py`, and a fault
that breaks it into tests/judge/faults.py: a test fails while one of the three is missing. What a step can say is in
`steps.py`, `classic_steps.py` and `share_steps.py`; `side.py` is a broker with the members that talk to it; `trial.py`
plays a story on the reference, then on the broker, and says where they part; `judge.py` plays all of them.
"""
