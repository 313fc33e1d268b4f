"""Answers with bytes behind their last field, from a live peer."""

from __future__ import annotations

import pytest

from kip848_client.wire.codec import encode_response, frame
from kip848_client.wire.connection import open_connection
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.wire.fake_server import Peer, agree, serving


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_byte_behind_the_last_field_does_not_end_the_connection() -> None:
    """librdkafka's mock cluster sends one with Metadata; no other client looks there, so ours must not fail on it."""

    async def script(peer: Peer) -> None:
        await agree(peer)
        asked = await peer.request()
        data = encode_response(MetadataResponse(cluster_id="c"), api_version=12, correlation_id=asked.correlation_id)
        await peer.send(frame(data + b"\0"))
        await peer.until_closed()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        answer = await connection.send(MetadataRequest(topics=None), timeout_ms=5_000)

    assert answer.cluster_id == "c"
