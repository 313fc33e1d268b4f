"""Fetch sessions (KIP-227): what a client of a session is told, and which sessions there are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.net.logged_request import LoggedRequest
from kip848_client.testing.broker.topics.fetch_sessions import PARTITIONS_MAX, STALE_MS, FetchSessions, OpenedOut
from kip848_client.testing.faults import error
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from tests.support.waiting import wait_until

TOPIC = "foo"

pytestmark = pytest.mark.kip848_broker(topics={TOPIC: 3})


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    with RawConnection(broker.bootstrap_servers) as connection:
        yield Client(connection)


class Client:
    """One client with one session at most, which names topics by name."""

    def __init__(self, connection: RawConnection) -> None:
        self.connection = connection
        self.session_id = 0

    def fetch(
        self, epoch: int, offsets: Mapping[int, int] | None = None, **arguments: Any
    ) -> dict[int, tuple[int, int]]:
        """Partition -> (error, bytes of records), in the order of the answer; keeps the session's id."""
        answer = self.ask(epoch, offsets, **arguments)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        self.session_id = answer.session_id
        return {
            data.partition_index: (data.error_code, len(data.records or b""))
            for answered in answer.responses
            for data in answered.partitions
        }

    def ask(
        self,
        epoch: int,
        offsets: Mapping[int, int] | None = None,
        *,
        forgotten: tuple[int, ...] = (),
        topic: str = TOPIC,
        session_id: int | None = None,
        version: int = 12,
        max_bytes: int = 1_000_000,
    ) -> FetchResponse:
        """The answer to a fetch that does not wait."""
        named = {"topic": topic} if version < 13 else {"topic_id": uuid.uuid4()}
        session_id = self.session_id if session_id is None else session_id
        request = fetch_request(session_id, epoch, offsets, named, forgotten, min_bytes=1, max_bytes=max_bytes)
        return self.connection.ask(request, version=version)


def fetch_request(
    session_id: int,
    epoch: int,
    offsets: Mapping[int, int] | None,
    named: Mapping[str, Any],
    forgotten: tuple[int, ...],
    **fields: int,
) -> FetchRequest:
    """A Fetch of a session, of one topic."""
    asked = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1000}
        for number, offset in (offsets or {}).items()
    ]
    return build(
        FetchRequest,
        session_id=session_id,
        session_epoch=epoch,
        topics=[{**named, "partitions": asked}] if asked else [],
        forgotten_topics_data=[{**named, "partitions": forgotten}] if forgotten else [],
        **fields,
    )


def test_a_session_answers_with_what_has_changed(broker: EmbeddedBroker, client: Client) -> None:
    """A client of thousands of partitions is told of all of them in each answer, which is what sessions save."""
    broker.produce(TOPIC, "v", partition=0)
    opened = client.fetch(0, {0: 0, 1: 0, 2: 0})
    size = opened[0][1]
    assert opened == {0: (0, size), 1: (0, 0), 2: (0, 0)}
    assert size
    assert client.session_id

    assert client.fetch(1) == {0: (0, size)}, "its offset has not moved"
    assert client.fetch(2, {0: 1}) == {}
    broker.produce(TOPIC, "v", partition=1)
    assert client.fetch(3) == {1: (0, size)}
    assert client.fetch(4, forgotten=(1,)) == {}
    broker.produce(TOPIC, "v", partition=2)
    assert client.fetch(5, max_bytes=0) == {2: (0, size)}, "the first batch comes whatever its size"
    broker.topics.delete_records(TOPIC, 2, before_offset=1)
    assert client.fetch(6, {2: 1}) == {2: (0, 0)}, "the log begins elsewhere"


def test_a_wrong_epoch_or_id_is_refused_and_leaves_the_session_as_it_is(client: Client) -> None:
    """A repeated request would move the session on without its client."""
    client.fetch(0, {0: 0})
    client.fetch(1)
    for wrong in (1, 9):
        answer = client.ask(wrong)
        assert (answer.error_code, answer.session_id, answer.responses) == (71, 0, ())
    assert client.ask(2, session_id=client.session_id ^ 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.ask(1, session_id=0).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.ask(2, version=13).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert client.fetch(2) == {}


def test_a_session_ends_with_its_last_partition_and_at_its_clients_will(client: Client) -> None:
    """Unused sessions would take the place of others."""
    client.fetch(0, {0: 0})
    first = client.session_id
    assert client.fetch(1, forgotten=(0,)) == {}
    assert client.session_id == 0
    assert client.ask(2, session_id=first).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    client.fetch(0, {0: 0})
    second = client.session_id
    assert client.fetch(0, {0: 0}) == {0: (0, 0)}, "closed, and another one opened"
    assert client.session_id not in (0, second)
    third = client.session_id
    assert client.fetch(-1, {1: 0}) == {1: (0, 0)}
    assert client.session_id == 0
    for gone in (second, third):
        assert client.ask(1, session_id=gone).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.kip848_broker(config={"max.incremental.fetch.session.cache.slots": 0})
def test_without_slots_every_answer_is_a_full_one(client: Client) -> None:
    """Without room for a session a client reads on with full fetches, and is not refused."""
    assert client.fetch(0, {0: 0}) == {0: (0, 0)}
    assert client.session_id == 0


def test_partitions_with_records_go_to_the_end(broker: EmbeddedBroker, client: Client) -> None:
    """The first partitions of a session would starve the others whenever an answer is full."""
    for partition in range(3):
        broker.produce(TOPIC, "v" * 300, partition=partition)
    read = [next(iter(client.fetch(0, {0: 0, 1: 0, 2: 0}, max_bytes=400)))]
    for epoch in (1, 2):
        answer = client.fetch(epoch, max_bytes=400)
        read += [partition for partition, (_, size) in answer.items() if size]
    assert sorted(read) == [0, 1, 2]


def test_a_waiting_fetch_of_a_session_is_woken_by_any_of_its_partitions(broker: EmbeddedBroker, client: Client) -> None:
    """The request names no partition, and waits for all that the session has."""
    client.fetch(0, {0: 0, 1: 0, 2: 0})
    waiting = FetchRequest(
        session_id=client.session_id, session_epoch=1, max_wait_ms=60_000, min_bytes=1, max_bytes=1_000
    )
    client.connection.send(waiting, version=12)
    broker.requests.wait_for("Fetch", topic=TOPIC, partition=2, when=_continues)
    broker.produce(TOPIC, "v", partition=2)
    (topic,) = client.connection.read(waiting).responses
    assert [data.partition_index for data in topic.partitions] == [2]


def test_fault_rules_and_acls_judge_every_partition_of_a_session(broker: EmbeddedBroker, client: Client) -> None:
    """The requests of a session name no topics: a rule for a topic would never match."""
    client.fetch(0, {0: 0, 1: 0})
    with broker.faults.on("Fetch", error(ErrorCode.NOT_LEADER_OR_FOLLOWER), topic=TOPIC, partition=1) as rule:
        assert client.fetch(1) == {1: (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)}
        assert rule.hits == 1
    assert client.fetch(2) == {1: (0, 0)}
    assert client.fetch(3) == {}
    with broker.faults.on("Fetch", error(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)):
        assert client.ask(4).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.kip848_broker(acls=True)
def test_a_permission_that_is_withdrawn_ends_the_reading_of_a_session(broker: EmbeddedBroker, client: Client) -> None:
    """A session must not let a user read on after an operator took the permission away."""
    broker.acls.allow("ANONYMOUS", "READ", topic=TOPIC)
    assert client.fetch(0, {0: 0}) == {0: (0, 0)}
    broker.acls.deny("ANONYMOUS", "READ", topic=TOPIC)
    assert client.fetch(1) == {0: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)}


@pytest.mark.kip848_broker(nodes=2, config={"default.replication.factor": "2"})
def test_a_session_belongs_to_one_life_of_one_node(broker: EmbeddedBroker) -> None:
    """A client that comes back with its session must hear that it is gone, and not wait for changes."""

    def at(node_id: int) -> Client:
        return Client(RawConnection(broker.nodes[node_id].bootstrap_server))

    first = at(1)
    first.fetch(0, {0: 0})
    other = at(2)
    assert other.ask(1, session_id=first.session_id).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    broker.nodes.kill(1)
    broker.nodes.start(1)
    again = at(1)
    assert again.ask(1, session_id=first.session_id).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    again.fetch(0, {0: 0})
    broker.nodes.move_leader(TOPIC, 0, 2)
    wait_until(lambda: broker.nodes.leader(TOPIC, 0) == 2)
    assert again.fetch(1, version=10)[0][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for client in (first, other, again):
        client.connection.close()


def _continues(logged: LoggedRequest) -> bool:
    return isinstance(logged.request, FetchRequest) and logged.request.session_epoch == 1


# --- which sessions there are


def some_sessions(slots: int = 2) -> FetchSessions:
    numbers = iter(range(10_000))  # the first is 0, which is no id
    return FetchSessions(slots=slots, new_id=lambda: next(numbers))


def opened(sessions: FetchSessions, size: int, *, now_ms: int) -> int:
    """Open a session of *size* partitions; its id, or 0."""
    return serve(sessions, 0, 0, dict.fromkeys(range(size), 0), now_ms=now_ms).session_id


def serve(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    offsets: Mapping[int, int] | None = None,
    *,
    forgotten: tuple[int, ...] = (),
    logs: Mapping[int, PartitionData] | None = None,
    now_ms: int = 0,
) -> FetchResponse:
    """What a client gets of a broker whose partitions answer with *logs*, or with nothing new."""
    request = fetch_request(session_id, epoch, offsets, {"topic": TOPIC}, forgotten)
    outcome = sessions.open_out(request, by_id=False, now_ms=now_ms)
    if isinstance(outcome, FetchResponse):
        return outcome
    full = request if outcome is None else outcome.request
    answered = [
        (logs or {}).get(item.partition) or PartitionData(partition_index=item.partition, records=b"")
        for topic in full.topics
        for item in topic.partitions
    ]
    response = build(FetchResponse, responses=[{"topic": TOPIC, "partitions": answered}] if answered else [])
    return outcome.complete(response) if isinstance(outcome, OpenedOut) else response


def test_a_full_cache_gives_up_what_is_stale_then_what_is_small_and_old() -> None:
    """A broker would grow with each client that comes and goes, or a passer-by would end a session in use."""
    sessions = some_sessions()
    small, large = opened(sessions, 2, now_ms=0), opened(sessions, 5, now_ms=0)
    assert small
    assert large
    assert opened(sessions, 9, now_ms=STALE_MS) == 0, "both are young"

    later = STALE_MS + 1
    for session in (small, large):
        assert serve(sessions, session, 1, now_ms=STALE_MS).error_code == ErrorCode.NONE
    assert opened(sessions, 2, now_ms=later) == 0, "not smaller than the smallest"
    third = opened(sessions, 3, now_ms=later)
    assert third
    assert serve(sessions, small, 2, now_ms=later).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    assert serve(sessions, third, 1, now_ms=2 * later).error_code == ErrorCode.NONE
    assert opened(sessions, 1, now_ms=2 * later), "the large one was idle for too long"
    assert serve(sessions, large, 2, now_ms=2 * later).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 2


def test_sessions_hold_a_bounded_number_of_partitions() -> None:
    """A client could fill the memory of the broker by adding partitions in many small requests."""
    sessions = some_sessions(20)
    growing = opened(sessions, 1, now_ms=0)
    tenth = PARTITIONS_MAX // 10
    assert all(opened(sessions, tenth, now_ms=0) for _ in range(9))
    assert opened(sessions, tenth, now_ms=0) == 0
    assert serve(sessions, growing, 1, {1: 0}).error_code == ErrorCode.NONE
    beyond = serve(sessions, growing, 2, dict.fromkeys(range(tenth + 1), 0))
    assert (beyond.error_code, len(sessions)) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 9)


def test_the_epoch_after_the_last_is_1() -> None:
    """A session of a busy client lives for years; -1 and 0 mean something else."""
    sessions = some_sessions()
    session_id = opened(sessions, 1, now_ms=0)
    sessions._sessions[session_id].epoch = 2**31 - 1
    for epoch in (2**31 - 1, 1, 2):
        assert serve(sessions, session_id, epoch).error_code == ErrorCode.NONE


_LOGS = st.builds(
    lambda error, high, low, size: (
        PartitionData(error_code=error, high_watermark=-1, records=b"")
        if error
        else PartitionData(high_watermark=high, log_start_offset=low, records=bytes(size))
    ),
    st.sampled_from([0, 0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER]),
    st.integers(0, 2),
    st.integers(0, 1),
    st.sampled_from([0, 0, 1]),
)


@hypothesis.given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 3), st.integers(0, 9), max_size=2),
            st.sets(st.integers(0, 3), max_size=1),
            st.fixed_dictionaries(dict.fromkeys(range(4), _LOGS)),
        ),
        max_size=12,
    )
)
def test_what_a_client_was_told_is_what_a_full_answer_says(steps: list[Any]) -> None:
    """A client that keeps what it is told would otherwise show a watermark, or an error, that has passed."""
    sessions = some_sessions()
    session_id = serve(sessions, 0, 0, dict.fromkeys(range(4), 0)).session_id
    wanted, told = set(range(4)), dict.fromkeys(range(4), (0, 0, -1))
    for epoch, (changed, forgotten, logs) in enumerate(steps, start=1):
        by_number = {n: PartitionData(**{**_fields(data), "partition_index": n}) for n, data in logs.items()}
        answer = serve(sessions, session_id, epoch, changed, forgotten=tuple(forgotten), logs=by_number)
        wanted = (wanted | changed.keys()) - forgotten
        if not wanted:
            assert answer.session_id == 0
            return
        assert answer.session_id == session_id
        for topic in answer.responses:
            told |= {data.partition_index: _state(data) for data in topic.partitions}
        assert {n: told[n] for n in wanted} == {n: _state(by_number[n]) for n in wanted}
        with_records = {n for n in wanted if by_number[n].records}
        assert with_records <= {data.partition_index for topic in answer.responses for data in topic.partitions}


def _fields(data: PartitionData) -> dict[str, Any]:
    return {name: getattr(data, name) for name in data.__struct_fields__}


def _state(data: PartitionData) -> tuple[int, int, int]:
    return data.error_code, data.high_watermark, data.log_start_offset
