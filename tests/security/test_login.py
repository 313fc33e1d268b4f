"""Logging in over a connection, against a broker that answers as a test says: refusals, renewals, and what waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.errors import AuthenticationError, ConnectionLostError, RequestTimeoutError
from kip848_client.wire.codec import RequestHeader, decode_request
from kip848_client.wire.connection import Connection, open_connection
from kip848_client.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kip848_client.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kip848_client.wire.sasl import session
from kip848_client.wire.sasl.mechanism import MakeSaslClient, SaslClient
from kip848_client.wire.sasl.plain import PlainClient
from kip848_client.wire.sasl.scram import ScramClient
from tests.wire.fake_server import VERSIONS, Peer, serving

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

PASSWORD = "canary"
HEARTBEAT = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
LONG_MS = 10_000
WITH_SASL = ApiVersionsResponse(
    api_keys=(
        *VERSIONS.api_keys,
        ApiVersion(api_key=17, min_version=0, max_version=1),
        ApiVersion(api_key=36, min_version=0, max_version=2),
    )
)

Script = Callable[[Peer], Awaitable[None]]


class Broker:
    """Lets everybody in, unless told otherwise; writes down what it was asked.

    Attributes:
        lifetime_ms: of sessions.
        refusals: what logins are answered with, the next one first; then they succeed.
        open: logins are answered only while this is set.
    """

    def __init__(self, *, lifetime_ms: int = 0) -> None:
        self.asked: list[str] = []
        self.lifetime_ms = lifetime_ms
        self.refusals: list[SaslAuthenticateResponse | None] = []
        self.handshake = SaslHandshakeResponse(mechanisms=("PLAIN",))
        self.versions = WITH_SASL
        self.open = anyio.Event()
        self.open.set()
        self.logins = 0
        self.begun = 0

    async def __call__(self, peer: Peer) -> None:
        while True:
            header, request = decode_request(await peer.frame())
            await self.answer(peer, header, request)

    async def answer(self, peer: Peer, header: RequestHeader, request: object) -> None:
        self.asked.append(type(request).__name__.removesuffix("Request"))
        match request:
            case SaslHandshakeRequest():
                self.begun += 1
                await peer.answer(header, self.handshake)
            case SaslAuthenticateRequest():
                await self.open.wait()
                refusal = self.refusals.pop(0) if self.refusals else None
                self.logins += refusal is None
                await peer.answer(header, refusal or SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms))
            case ConsumerGroupHeartbeatRequest():
                await peer.answer(header, ConsumerGroupHeartbeatResponse(member_epoch=request.member_epoch))
            case _:
                await peer.answer(header, self.versions)


@pytest.fixture(autouse=True)
def no_pause_between_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka demands a second between two logins; these tests have shorter sessions."""
    monkeypatch.setattr(session, "LOGIN_INTERVAL_MIN_S", 0.0)


async def plain() -> SaslClient:
    return PlainClient(username="alice", password=PASSWORD)


@asynccontextmanager
async def connected(broker: Broker, make_client: MakeSaslClient = plain) -> AsyncIterator[Connection]:
    async with (
        serving(broker) as port,
        open_connection("127.0.0.1", port, client_id="c", sasl_client=make_client) as connection,
    ):
        yield connection


async def refused(script: Script, make_client: MakeSaslClient = plain) -> ConnectionLostError:
    async with serving(script) as port:
        with pytest.raises(ConnectionLostError) as failure:
            async with open_connection("127.0.0.1", port, client_id="c", sasl_client=make_client):
                pass
    return failure.value


async def ended(connection: Connection) -> ConnectionLostError:
    """The connection ends; what the next request raises."""
    with anyio.fail_after(60):
        await connection.wait_closed()
    with pytest.raises(ConnectionLostError) as failure:
        await connection.send(HEARTBEAT, timeout_ms=LONG_MS)
    return failure.value


async def until(predicate: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not predicate():  # noqa: ASYNC110  what is awaited has no event
            await anyio.sleep(0.002)  # asked again until the limit


async def test_a_login_comes_before_the_first_request() -> None:
    """Versions, mechanism, proof; then the connection is like any other."""
    broker = Broker()
    async with connected(broker) as connection:
        assert (await connection.send(HEARTBEAT, timeout_ms=LONG_MS)).member_epoch == 3
    assert broker.asked == ["ApiVersions", "SaslHandshake", "SaslAuthenticate", "ConsumerGroupHeartbeat"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.SASL_AUTHENTICATION_FAILED, AuthenticationError),
        (ErrorCode.ILLEGAL_SASL_STATE, AuthenticationError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, AuthenticationError),
        (ErrorCode.NETWORK_EXCEPTION, ConnectionLostError),
    ],
)
async def test_a_refused_login_names_user_mechanism_and_reason(code: int, kind: type[Exception]) -> None:
    """Fatal, unless the broker itself says that it passes."""
    broker = Broker()
    broker.refusals = [SaslAuthenticateResponse(error_code=code, error_message="no such luck")]
    error = await refused(broker)
    assert type(error) is kind
    assert "refused user 'alice' (PLAIN)" in str(error)
    assert "no such luck" in str(error)


async def test_a_broker_that_repeats_the_password_is_not_quoted() -> None:
    """PLAIN tells it the password; our log must not learn it from the answer."""
    broker = Broker()
    told = f"password '{PASSWORD}' is wrong"
    broker.refusals = [SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=told)]
    error = await refused(broker)
    assert "is not shown" in str(error)
    assert PASSWORD not in str(error)


@pytest.mark.parametrize(
    ("handshake", "told"),
    [
        (
            SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=("B", "A")),
            "does not take PLAIN; set sasl.mechanism to one of: A, B",
        ),
        (SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE), "expects no SASL on this port"),
        (SaslHandshakeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), "UNKNOWN_SERVER_ERROR"),
    ],
)
async def test_a_refused_mechanism_says_what_to_set(handshake: SaslHandshakeResponse, told: str) -> None:
    """The error names the setting, and no secret was sent to a broker that does not offer the mechanism."""
    broker = Broker()
    broker.handshake = handshake
    error = await refused(broker)
    assert isinstance(error, AuthenticationError)
    assert told in str(error)
    assert "SaslAuthenticate" not in broker.asked


@pytest.mark.parametrize(("highest", "told"), [(None, "offers no SASL"), (0, "before 1.0")])
async def test_a_broker_without_sasl_is_told_apart(highest: int | None, told: str) -> None:
    """None at all, or as it was in 2016."""
    broker = Broker()
    sasl = () if highest is None else (ApiVersion(api_key=17, min_version=0, max_version=highest),)
    broker.versions = ApiVersionsResponse(api_keys=(*VERSIONS.api_keys, *sasl))
    error = await refused(broker)
    assert isinstance(error, AuthenticationError)
    assert told in str(error)


async def test_a_broker_that_skips_its_own_proof_is_not_believed() -> None:
    """An impostor that says "well done" to everything is what SCRAM is there to find out."""

    async def scram() -> SaslClient:
        return ScramClient("SCRAM-SHA-256", username="alice", password=PASSWORD, nonce="n")

    broker = Broker()
    error = await refused(broker, scram)
    assert isinstance(error, AuthenticationError)
    assert "cannot be trusted" in str(error)
    assert broker.logins == 1


async def test_a_broker_that_hangs_up_in_the_middle_of_a_login_is_tried_again() -> None:
    """It may be stopping; a refusal would have been told."""

    async def script(peer: Peer) -> None:
        await peer.answer(await peer.request(), WITH_SASL)
        await peer.request()

    error = await refused(script)
    assert type(error) is ConnectionLostError
    assert "in the middle of the login" in str(error)


async def test_a_broker_that_hangs_up_on_the_first_request_may_want_sasl() -> None:
    """Kafka does not say so itself: it closes the connection."""

    async def script(peer: Peer) -> None:
        await peer.answer(await peer.request(), VERSIONS)
        await peer.request()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        with pytest.raises(ConnectionLostError, match=r"may demand SASL \(security\.protocol"):
            await connection.send(HEARTBEAT, timeout_ms=LONG_MS)


# --- sessions that end (KIP-368)


async def test_a_session_is_renewed_before_it_ends_and_again() -> None:
    """On the same connection: what waits for an answer does not notice."""
    broker = Broker(lifetime_ms=500)
    async with connected(broker) as connection:
        await until(lambda: broker.logins >= 3)
        assert (await connection.send(HEARTBEAT, timeout_ms=LONG_MS)).member_epoch == 3
    assert broker.asked.count("ApiVersions") == 1


async def test_a_session_without_an_end_is_not_renewed() -> None:
    """Lifetime 0: the connection is left alone once the broker stops asking for it."""
    broker = Broker(lifetime_ms=400)
    async with connected(broker) as connection:
        broker.lifetime_ms = 0
        await until(lambda: broker.logins == 2)
        for _ in range(30):
            await connection.send(HEARTBEAT, timeout_ms=LONG_MS)
            await anyio.sleep(0.005)  # time in which another login would come
    assert broker.logins == 2


async def test_requests_wait_while_the_connection_logs_in_again() -> None:
    """In between the broker takes nothing else: it would close the connection."""
    broker = Broker(lifetime_ms=500)
    async with connected(broker) as connection, anyio.create_task_group() as tasks:
        broker.open = anyio.Event()
        await until(lambda: broker.begun == 2)
        epochs: list[int] = []

        async def ask(epoch: int) -> None:
            request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
            epochs.append((await connection.send(request, timeout_ms=LONG_MS)).member_epoch)

        for epoch in range(5):
            tasks.start_soon(ask, epoch)
        with pytest.raises(RequestTimeoutError, match="to authenticate again"):
            await connection.send(HEARTBEAT, timeout_ms=20)
        assert "ConsumerGroupHeartbeat" not in broker.asked
        broker.lifetime_ms = 0
        broker.open.set()
        await until(lambda: len(epochs) == 5)
    assert sorted(epochs) == [0, 1, 2, 3, 4]


async def test_a_renewal_that_is_refused_ends_the_connection_as_a_refusal() -> None:
    """The user was removed, or has a new password: the next call raises that, and not a lost connection."""
    broker = Broker(lifetime_ms=400)
    broker.refusals = [None, SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)]
    async with connected(broker) as connection:
        error = await ended(connection)
    assert isinstance(error, AuthenticationError)
    assert "authenticating again failed" in str(error)


async def test_a_session_that_is_too_short_to_be_renewed_ends_in_a_new_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka refuses two logins within a second; a token that is almost spent makes such sessions."""
    monkeypatch.setattr(session, "LOGIN_INTERVAL_MIN_S", 0.5)
    broker = Broker(lifetime_ms=400)
    async with connected(broker) as connection:
        assert type(await ended(connection)) is ConnectionLostError
    assert broker.begun == 1


async def test_a_broker_that_refuses_to_begin_again_is_not_taken_for_one_without_sasl() -> None:
    """ILLEGAL_SASL_STATE in a renewal passes with a new connection; before the first login it is final."""
    broker = Broker(lifetime_ms=400)
    async with connected(broker) as connection:
        broker.handshake = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        error = await ended(connection)
    assert type(error) is ConnectionLostError
    assert "does not let a connection authenticate again" in str(error)


async def test_a_token_that_cannot_be_fetched_is_fetched_again_while_the_session_lasts() -> None:
    """The token server may be away for a moment; the old session is good until its end."""
    broker = Broker(lifetime_ms=1_500)
    calls = 0

    async def sometimes() -> SaslClient:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ConnectionLostError("oauth_cb raised OSError")
        return PlainClient(username="alice", password=PASSWORD)

    async with connected(broker, sometimes) as connection:
        await until(lambda: broker.logins >= 2)
        assert (await connection.send(HEARTBEAT, timeout_ms=LONG_MS)).member_epoch == 3
    assert calls >= 3


async def test_a_session_that_cannot_be_renewed_ends_the_connection() -> None:
    """A new one begins with a new token, or tells why there is none."""
    broker = Broker(lifetime_ms=600)
    calls = 0

    async def once() -> SaslClient:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise RequestTimeoutError("oauth_cb did not return")
        return PlainClient(username="alice", password=PASSWORD)

    async with connected(broker, once) as connection:
        error = await ended(connection)
    assert type(error) is ConnectionLostError
    assert "session with the broker is over" in str(error)
