"""Kafka's bytes: API keys, messages, their codec and record batches.

Owns everything between a frozen struct and the bytes of a frame. Knows no protocol rule. Import what is needed from
the modules; nothing is loaded here, so that a core which only wants one message pays for one message.
`connection` (the only module here that knows anyio) is never imported by the others.
"""
