"""Kafka's bytes: API keys, messages, their codec and record batches.

`messages` declares each API, `compiler` turns declarations into code, `codec` adds headers, `record_batch` and
`compression` are records. None of them knows a rule of a protocol. Nothing is loaded here: import from the modules, so
that a core that wants one message loads one message.

Only a connection to a broker does I/O: `connection`, with `dialling`, `name_lookups` and `tls`. The modules above never
import these. `sasl` holds the mechanisms to log in.
"""
