"""The bytes of Kafka Connect's classic workers."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kip848_client.errors import ProtocolError
from kip848_client.wire.messages.classic_connect_protocol import (
    ClassicAssignment,
    ClassicWorker,
    ConnectorTasks,
    decode_classic_assignment,
    decode_classic_worker,
    encode_classic,
)


def test_the_golden_bytes_are_read_and_written() -> None:
    """A worker of Kafka Connect is understood, and understands us."""
    worker = ClassicWorker(url="http://w1:8083/", config_offset=42)
    told = bytes.fromhex("0001000f687474703a2f2f77313a383038332f000000000000002affffffff")
    assert (encode_classic(worker, version=1), decode_classic_worker(told)) == (told, worker)
    units = (ConnectorTasks("A", (-1, 0)),)
    assignment = ClassicAssignment(leader="L", leader_url="u", config_offset=42, assigned=units)
    told = bytes.fromhex("0001000000014c000175000000000000002a0000000100014100000002ffffffff000000000000000000000000")
    assert (encode_classic(assignment, version=1), decode_classic_assignment(told)) == (told, assignment)


def test_arrays_may_be_null_from_version_1_on() -> None:
    """As Java writes an increment that assigns or revokes nothing."""
    told = bytes.fromhex("00020000" + "00014c" + "000175" + "000000000000002a" + "ffffffff" + "ffffffff" + "000493e0")
    read = decode_classic_assignment(told)
    assert (read.assigned, read.revoked, read.delay_ms) == (None, None, 300_000)


@given(st.binary(max_size=40))
def test_foreign_bytes_are_a_protocol_error(data: bytes) -> None:
    """One worker with other bytes must not stop the group."""
    for decode in (decode_classic_worker, decode_classic_assignment):
        try:
            decode(data)
        except ProtocolError:
            continue
    with pytest.raises(ProtocolError):
        decode_classic_worker(data[:1])
