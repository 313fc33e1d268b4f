"""AsyncConsumer logs in as Consumer does, on asyncio and trio."""

from __future__ import annotations

import anyio
import pytest

from kip848_client.aio import AsyncConsumer
from kip848_client.broker import BrokerSasl, BrokerTls, EmbeddedBroker
from kip848_client.errors import AuthenticationError
from kip848_client.member.states import MemberState
from tests.security.certificates import Authority, Identity

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("password", ["canary-right", "canary-wrong"])
async def test_an_async_consumer_logs_in(server_identity: Identity, authority: Authority, password: str) -> None:
    """One assembly for both: what holds for the synchronous consumer holds here, the fatal refusal included."""
    tls = BrokerTls(server_identity.certificate, server_identity.key)
    sasl = BrokerSasl({"alice": "canary-right"})
    with EmbeddedBroker({"orders": 2}, tls=tls, sasl=sasl) as broker:
        conf = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "security.protocol": broker.security_protocol,
            "ssl.ca.location": str(authority.ca_file),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": password,
            "log_level": 0,
        }
        async with AsyncConsumer(conf) as consumer:
            await consumer.subscribe(["orders"])

            async def until_assigned() -> None:
                with anyio.fail_after(60):
                    while not await consumer.assignment():
                        await consumer.poll(0.1)

            if password == "canary-right":
                await until_assigned()
            else:
                with pytest.raises(AuthenticationError, match="refused user 'alice'") as refusal:
                    await until_assigned()
                assert "canary" not in str(refusal.value)
                assert consumer.state is MemberState.FATAL
