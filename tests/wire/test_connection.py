"""The client's connection: versions, requests and time-outs against a scripted server."""

from __future__ import annotations

import anyio
import anyio.abc
import pytest

from kip848_client.errors import ConnectionLostError, MessageValueError, RequestTimeoutError, UnsupportedVersionError
from kip848_client.wire.codec import decode_request, encode_response, frame
from kip848_client.wire.connection import open_connection
from kip848_client.wire.connection_end import Answer
from kip848_client.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.describe_cluster import DescribeClusterRequest
from kip848_client.wire.messages.fetch import FetchRequest
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataResponse
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.messages.produce import ProduceRequest
from tests.wire.fake_server import HEARTBEAT, LONG_MS, VERSIONS, Peer, agree, echo_epochs, heartbeat, serving

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


# --- agreeing on versions


async def test_versions_are_agreed_on_in_one_round_trip_with_a_current_broker() -> None:
    """Every further round trip delays each start and each fail-over."""
    asked: list[tuple[int, ApiVersionsRequest]] = []

    async def script(peer: Peer) -> None:
        header, message = decode_request(await peer.frame())
        assert isinstance(message, ApiVersionsRequest)
        asked.append((header.api_version, message))
        await peer.answer(header, VERSIONS)
        await peer.until_closed()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        assert connection.api_versions[8] == (2, 9)
        assert connection.api_versions[68] == (0, 1)

    ((version, message),) = asked
    assert version == 5
    assert message.client_software_name == "kip848-client"
    assert message.client_software_version


@pytest.mark.parametrize(
    ("listed", "asked"),
    [
        ((ApiVersion(18, 0, 3),), [5, 3]),
        ((), [5, 0]),
        ((ApiVersion(18, 0, 0),), [5, 0]),
        ((ApiVersion(18, 0, 9),), [5, 4]),
    ],
    ids=["listed", "empty list", "only version 0", "a list that contradicts the refusal"],
)
async def test_an_older_broker_is_asked_again_in_its_own_version(
    listed: tuple[ApiVersion, ...], asked: list[int]
) -> None:
    """KIP-511: a newer client must still talk to an older broker."""
    seen = []

    async def script(peer: Peer) -> None:
        first = await peer.request()
        seen.append(first.api_version)
        refusal = ApiVersionsResponse(error_code=35, api_keys=listed)
        await peer.send(frame(encode_response(refusal, api_version=0, correlation_id=first.correlation_id)))
        second = await peer.request()
        seen.append(second.api_version)
        await peer.answer(second, ApiVersionsResponse(api_keys=VERSIONS.api_keys))
        await peer.until_closed()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        assert connection.api_versions[3] == (0, 12)
    assert seen == asked


async def test_a_broker_that_refuses_every_version_is_reported() -> None:
    """A broker without a common version is an error; it is not retried for ever as a network fault."""

    async def script(peer: Peer) -> None:
        for _ in range(2):
            header = await peer.request()
            refusal = ApiVersionsResponse(error_code=35)
            await peer.send(frame(encode_response(refusal, api_version=0, correlation_id=header.correlation_id)))
        await peer.until_closed()

    async with serving(script) as port:
        with pytest.raises(UnsupportedVersionError, match="refuses ApiVersions"):
            async with open_connection("127.0.0.1", port, client_id="c"):
                pass


# --- sending


async def test_the_highest_common_version_is_used_unless_told_otherwise() -> None:
    """Fields of newer versions (leader epochs, topic ids) are only safe when both sides know them."""
    seen = []

    async def script(peer: Peer) -> None:
        await agree(peer)
        while True:
            header = await peer.request()
            seen.append(header.api_version)
            await peer.answer(header, MetadataResponse() if header.api_key == 3 else OffsetCommitResponse())

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        answer = await connection.send(MetadataRequest(), timeout_ms=LONG_MS)
        await connection.send(OffsetCommitRequest(), timeout_ms=LONG_MS)
        await connection.send(OffsetCommitRequest(), timeout_ms=LONG_MS, max_version=7)

    assert isinstance(answer, MetadataResponse)
    assert seen == [12, 9, 7]


async def test_an_api_that_is_not_served_is_refused_before_anything_is_sent() -> None:
    """A broker closes the connection on an unknown API; that would look like a network fault."""
    async with serving(echo_epochs) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        with pytest.raises(UnsupportedVersionError, match="does not serve DescribeClusterRequest"):
            await connection.send(DescribeClusterRequest(), timeout_ms=LONG_MS)
        with pytest.raises(UnsupportedVersionError, match="versions 99-100; 4-18 is spoken here"):
            await connection.send(FetchRequest(), timeout_ms=LONG_MS)
        with pytest.raises(UnsupportedVersionError, match="at most 1 is wanted"):
            await connection.send(OffsetCommitRequest(), timeout_ms=LONG_MS, max_version=1)
        with pytest.raises(MessageValueError, match="acks=0"):
            await connection.send(ProduceRequest(acks=0), timeout_ms=LONG_MS)

        assert (await connection.send(heartbeat(4), timeout_ms=LONG_MS)).member_epoch == 4


async def test_a_value_that_does_not_fit_leaves_the_connection_usable() -> None:
    """A caller's mistake is no reason to drop everybody's requests."""
    async with serving(echo_epochs) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        with pytest.raises(MessageValueError):
            await connection.send(heartbeat(2**40), timeout_ms=LONG_MS)

        assert connection.outstanding == 0
        assert (await connection.send(heartbeat(4), timeout_ms=LONG_MS)).member_epoch == 4


async def test_overlapping_requests_get_their_own_answers() -> None:
    """A heartbeat must not wait for a commit, and must never get its answer."""
    got: dict[int, int] = {}

    async with serving(echo_epochs) as port, open_connection("127.0.0.1", port, client_id="c") as connection:

        async def ask(epoch: int) -> None:
            got[epoch] = (await connection.send(heartbeat(epoch), timeout_ms=LONG_MS)).member_epoch

        async with anyio.create_task_group() as tasks:
            for epoch in range(200):
                tasks.start_soon(ask, epoch)

    assert got == {epoch: epoch for epoch in range(200)}


async def test_a_second_answer_to_the_same_request_is_dropped() -> None:
    """A proxy or a broker that repeats itself must cost no connection, and no later request its answer."""

    async def script(peer: Peer) -> None:
        await agree(peer)
        while True:
            header, message = decode_request(await peer.frame())
            assert isinstance(message, ConsumerGroupHeartbeatRequest)
            for epoch in (message.member_epoch, 99):
                await peer.answer(header, ConsumerGroupHeartbeatResponse(member_epoch=epoch))

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        for epoch in range(5):
            answer = await connection.send(heartbeat(epoch), timeout_ms=LONG_MS)
            assert answer.member_epoch == epoch
        assert not connection.closed


@pytest.mark.parametrize("piece", [1, 3, 7, 10_000])
async def test_answers_may_arrive_in_any_pieces(piece: int) -> None:
    """TCP has no message boundaries. The broker has seen the second request before it answers the first."""

    async def script(peer: Peer) -> None:
        await agree(peer)
        first, second = await peer.request(), await peer.request()
        data = b""
        for epoch, header in ((1, first), (2, second)):
            answer = ConsumerGroupHeartbeatResponse(member_epoch=epoch)
            data += frame(encode_response(answer, api_version=1, correlation_id=header.correlation_id))
        for start in range(0, len(data), piece):
            await peer.send(data[start : start + piece])
            await anyio.lowlevel.checkpoint()
        await peer.until_closed()

    answers = []
    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:

        async def ask() -> None:
            answers.append((await connection.send(HEARTBEAT, timeout_ms=LONG_MS)).member_epoch)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
    assert sorted(answers) == [1, 2]


async def test_a_large_answer_arrives_whole() -> None:
    """Answers of several reads are the rule for Fetch and for Metadata of large clusters."""
    name = "n" * 30_000

    async def script(peer: Peer) -> None:
        await agree(peer)
        header = await peer.request()
        await peer.answer(header, ConsumerGroupHeartbeatResponse(error_message=name, member_id=name))
        await peer.until_closed()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        answer = await connection.send(HEARTBEAT, timeout_ms=LONG_MS)
    assert (answer.error_message, answer.member_id) == (name, name)


async def test_correlation_ids_start_anew_after_the_largest() -> None:
    """A connection that lives for years must not fail on an int32."""
    async with serving(echo_epochs) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        connection._next_correlation_id = 2**31 - 1
        for epoch in (1, 2):
            assert (await connection.send(heartbeat(epoch), timeout_ms=LONG_MS)).member_epoch == epoch
        assert connection._next_correlation_id == 1


# --- without a task


async def test_a_request_that_was_started_is_told_its_answer() -> None:
    """A heartbeat needs no task that waits: what it ends with comes where the bytes arrive."""
    answers: list[Answer] = []
    told = anyio.Event()

    def on_end(answer: Answer) -> None:
        answers.append(answer)
        told.set()

    async with serving(echo_epochs) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        assert connection.start(heartbeat(7), timeout_ms=LONG_MS, on_end=on_end)
        assert not answers, "the caller is in the middle of something"
        with anyio.fail_after(60):
            await told.wait()
    [answer] = answers
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    assert answer.member_epoch == 7


@pytest.mark.parametrize(
    ("closes", "expected"), [(True, ConnectionLostError), (False, RequestTimeoutError)], ids=["closed", "late"]
)
async def test_a_request_that_was_started_is_told_why_there_is_no_answer(
    closes: bool, expected: type[Exception]
) -> None:
    """The member decides by the kind of the failure; one that is never told would wait for ever."""
    answers: list[Answer] = []

    async def script(peer: Peer) -> None:
        await agree(peer)
        await peer.request()
        if not closes:
            await peer.until_closed()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        assert connection.start(HEARTBEAT, timeout_ms=LONG_MS if closes else 50, on_end=answers.append)
        with anyio.fail_after(60):
            await connection.wait_closed()
        with pytest.raises(ConnectionLostError):
            connection.start(HEARTBEAT, timeout_ms=LONG_MS, on_end=answers.append)
    assert [type(answer) for answer in answers] == [expected]


async def test_nothing_is_started_while_the_connection_authenticates_again() -> None:
    """The broker takes no request in between, and would end the connection."""
    async with serving(echo_epochs) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        answers: list[Answer] = []
        with connection.only_login():
            assert not connection.start(HEARTBEAT, timeout_ms=LONG_MS, on_end=answers.append)
        assert connection.outstanding == 0


# --- time-outs


async def test_a_request_without_an_answer_times_out_and_closes_the_connection() -> None:
    """Answers come in order: what waits behind a lost answer would wait for ever."""

    async def script(peer: Peer) -> None:
        await agree(peer)
        await peer.request()
        await peer.until_closed()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        with pytest.raises(RequestTimeoutError, match=r"no answer to ConsumerGroupHeartbeatRequest .* in 50 ms"):
            await connection.send(HEARTBEAT, timeout_ms=50)

        assert connection.closed
        with pytest.raises(ConnectionLostError, match="not answered in time"):
            await connection.send(HEARTBEAT, timeout_ms=50)
        await connection.wait_closed()


async def test_the_others_learn_that_the_connection_is_lost_when_one_request_times_out() -> None:
    """They may be sent again elsewhere at once, instead of waiting for their own time-out."""
    seen: list[type[BaseException]] = []

    async def script(peer: Peer) -> None:
        await agree(peer)
        await peer.until_closed()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:

        async def ask(timeout_ms: int) -> None:
            try:
                await connection.send(HEARTBEAT, timeout_ms=timeout_ms)
            except (RequestTimeoutError, ConnectionLostError) as failure:
                seen.append(type(failure))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, LONG_MS)
            tasks.start_soon(ask, 50)
    assert sorted(kind.__name__ for kind in seen) == ["ConnectionLostError", "RequestTimeoutError"]


async def test_a_shorter_time_out_is_kept_beside_a_longer_one_and_after_it() -> None:
    """One alarm serves all requests; it must go off for the earliest."""

    async def script(peer: Peer) -> None:
        await agree(peer)
        header, _ = decode_request(await peer.frame())
        await peer.answer(header, ConsumerGroupHeartbeatResponse())
        await peer.until_closed()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        await connection.send(HEARTBEAT, timeout_ms=60_000)
        with anyio.fail_after(60):
            with pytest.raises(RequestTimeoutError):
                await connection.send(HEARTBEAT, timeout_ms=30)


async def test_an_answered_request_leaves_no_alarm_behind() -> None:
    """An idle connection that closes itself would look like a broker fault."""
    async with serving(echo_epochs) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        await connection.send(heartbeat(1), timeout_ms=LONG_MS)
        assert connection._alarm is None
        for epoch in (2, 3):
            assert (await connection.send(heartbeat(epoch), timeout_ms=LONG_MS)).member_epoch == epoch
        assert not connection.closed


async def test_a_peer_that_does_not_read_cannot_hold_a_request_for_ever() -> None:
    """The time-out covers writing too: a full socket buffer would otherwise stop the heartbeat thread."""

    async def script(peer: Peer) -> None:
        await agree(peer)
        await anyio.sleep_forever()

    huge = ConsumerGroupHeartbeatRequest(subscribed_topic_names=("n" * 30_000,) * 2_000)
    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        with anyio.fail_after(60):
            with pytest.raises(RequestTimeoutError):
                await connection.send(huge, timeout_ms=100)


async def test_a_cancelled_request_drops_its_answer_and_keeps_the_connection() -> None:
    """Closing one consumer's wait must not disturb the others on the connection."""
    release = anyio.Event()

    async def script(peer: Peer) -> None:
        await agree(peer)
        first = await peer.request()
        await release.wait()
        await peer.answer(first, ConsumerGroupHeartbeatResponse(member_epoch=1))
        await peer.answer(await peer.request(), ConsumerGroupHeartbeatResponse(member_epoch=2))
        await peer.until_closed()

    async with serving(script) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        with anyio.move_on_after(0.05):
            await connection.send(HEARTBEAT, timeout_ms=LONG_MS)
        assert connection.outstanding == 1
        release.set()
        assert (await connection.send(HEARTBEAT, timeout_ms=LONG_MS)).member_epoch == 2
        assert connection.outstanding == 0


async def test_a_request_cancelled_while_it_is_written_does_not_harm_the_others() -> None:
    """Half a frame on the wire would make the broker misread every later request."""
    async with serving(echo_epochs) as port, open_connection("127.0.0.1", port, client_id="c") as connection:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await connection.send(heartbeat(4), timeout_ms=LONG_MS)

        assert scope.cancelled_caught
        assert (await connection.send(heartbeat(5), timeout_ms=LONG_MS)).member_epoch == 5
