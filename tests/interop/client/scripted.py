"""A coordinator that does what a test says, before a broker that holds the records: the outside view of a member.

The public `Consumer` connects here over TCP. Heartbeats, commits, offset fetches and coordinator lookups are answered
by the test's script, or else by a small model of a group with one member; everything else goes to an `EmbeddedBroker`
unread. What was heard and what was told to the listener stand in one `story`, in the order in which they happened.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace

from kip848_client import EmbeddedBroker
from kip848_client.model import TopicPartition
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import decode_request, decode_response, encode_response, frame, peek_request_header
from kip848_client.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kip848_client.wire.messages.metadata import MetadataResponse
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kip848_client.wire.schema import Request, Response
from tests.support.offset_answers import NO_OFFSET, commit_answer, fetch_answer

__all__ = ["CLOSE", "COMMIT", "FETCH", "FIND", "HEARTBEAT", "HOLD", "Heard", "ScriptedCoordinator"]

HEARTBEAT: Final = ConsumerGroupHeartbeatRequest
COMMIT: Final = OffsetCommitRequest
FETCH: Final = OffsetFetchRequest
FIND: Final = FindCoordinatorRequest
_SCRIPTED: Final = {int(cls.WIRE.api_key) for cls in (HEARTBEAT, COMMIT, FETCH, FIND)}
_NODE_ID: Final = 77

Parts: TypeAlias = Mapping[str, Iterable[int]]
"""Topic -> partitions."""


class _Special:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


HOLD: Final = _Special("HOLD")
"""Answer later, by `Heard.answer`, or never."""
CLOSE: Final = _Special("CLOSE")
"""Close the connection instead of answering."""

Reply: TypeAlias = "Response | int | _Special | Callable[[Any], Response | int | _Special | None] | None"
"""An answer, an error code, or None for what the model answers."""


class Heard(msgspec.Struct, eq=False):
    """One request that came."""

    at_s: float
    connection: _Connection
    version: int
    correlation_id: int
    client_id: str | None
    request: Any
    answered: bool = False

    def answer(self, response: Response | int) -> None:
        """Answer, now; more than once if a test wants that."""
        self.answered = True
        if isinstance(response, int):
            response = refusal(self.request, response)
        self.connection.write(encode_response(response, api_version=self.version, correlation_id=self.correlation_id))


class _Connection:
    def __init__(self, stream: socket.socket, coordinator: ScriptedCoordinator) -> None:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream: Final = stream
        self._coordinator: Final = coordinator
        self._upstream: socket.socket | None = None
        self._ending = False
        self._writing = threading.Lock()

    def write(self, payload: bytes) -> None:
        with self._writing, contextlib.suppress(OSError):
            self.stream.sendall(frame(payload))

    def serve(self) -> None:
        try:
            while (data := _read_frame(self.stream)) is not None:
                self._take(data)
        finally:
            self.end()
            for one in (self.stream, self._upstream):
                if one is not None:
                    one.close()

    def end(self) -> None:
        """End the conversation; the thread that serves it closes the sockets.

        No other thread may: a descriptor that is closed under a thread which waits for it can be another socket's
        before the thread looks, and then it takes that one's bytes and waits for more.
        """
        self._ending = True
        for one in (self.stream, self._upstream):
            if one is not None:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _take(self, data: bytes) -> None:
        header = peek_request_header(data)
        if header.api_key in _SCRIPTED and self._coordinator.speaks(header.api_key, header.api_version):
            _, request = decode_request(data)
            heard = Heard(time.monotonic(), self, header.api_version, header.correlation_id, header.client_id, request)
            self._coordinator.hear(heard)
            return
        answer = self._forward(data)
        if answer is None:
            self.end()
        elif header.api_key in (ApiKey.API_VERSIONS, ApiKey.METADATA):
            _, response = decode_response(header.api_key, answer, api_version=header.api_version)
            if isinstance(response, ApiVersionsResponse):
                offered = self._coordinator.offered(response.api_keys)
                response = replace(response, api_keys=offered)
            elif isinstance(response, MetadataResponse):  # clients must not find the broker behind us
                brokers = tuple(replace(one, port=self._coordinator.port) for one in response.brokers)
                response = replace(response, brokers=brokers)
            self.write(encode_response(response, api_version=header.api_version, correlation_id=header.correlation_id))
        else:
            self.write(answer)

    def _forward(self, data: bytes) -> bytes | None:
        if self._upstream is None:
            self._upstream = socket.create_connection(("127.0.0.1", self._coordinator.broker.port), timeout=60)
            if self._ending:  # it was told so while there was nothing to shut down yet
                return None
        try:
            self._upstream.sendall(frame(data))
            return _read_frame(self._upstream)
        except OSError:
            return None


def _read_frame(stream: socket.socket) -> bytes | None:
    head = _read_exactly(stream, 4)
    return None if head is None else _read_exactly(stream, int.from_bytes(head))


def _read_exactly(stream: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        try:
            piece = stream.recv(count - len(data))
        except OSError:
            return None
        if not piece:
            return None
        data += piece
    return data


class ScriptedCoordinator:
    """The coordinator of one group with one member, and the bootstrap server.

    Args:
        broker: has the records; its topics are the cluster's.

    Attributes:
        interval_ms: heartbeat interval of the model's answers.
        epoch: of the group; `give` raises it.
        committed: what the model's offset fetches answer, and commits change.
        versions: API key -> versions offered instead of the broker's; None offers the API not at all.
        heard: every scripted request, in order.
        story: requests and `note`d events, as words.
    """

    def __init__(self, broker: EmbeddedBroker, *, interval_ms: int = 40) -> None:
        self.broker: Final = broker
        self.interval_ms = interval_ms
        self.epoch = 1
        self.committed: dict[TopicPartition, int] = {}
        self.versions: dict[int, tuple[int, int] | None] = {}
        self.heard: Final[list[Heard]] = []
        self.story: Final[list[str]] = []
        self._target: tuple[TopicPartitions, ...] = ()
        self._news = False
        self._scripts: dict[type[Request[Any]], deque[Reply]] = {}
        self._rules: dict[type[Request[Any]], Reply] = {}
        self._lock = threading.RLock()
        self._connections: list[_Connection] = []
        self._threads: list[threading.Thread] = []
        self._topic_names: dict[UUID, str] = {}
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: Final[int] = self._listening.getsockname()[1]
        self._start(self._accept)

    @property
    def address(self) -> str:
        """For bootstrap.servers."""
        return f"127.0.0.1:{self.port}"

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=f"scripted-{self.port}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listening.accept()
            except OSError:
                return
            connection = _Connection(stream, self)
            with self._lock:
                self._connections.append(connection)
            self._start(connection.serve)

    def disconnect(self) -> None:
        """Close every connection; new ones are served."""
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            connection.end()

    def stop(self) -> None:
        """Be gone: nothing listens any more."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(60)  # from here on no connection is added
        self._listening.close()
        self.disconnect()
        for thread in self._threads:
            thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ------------------------------------------------------------------------------------------------- the script

    def script(self, cls: type[Request[Any]], *replies: Reply) -> None:
        """The next requests of this class get these answers, in order."""
        with self._lock:
            self._scripts.setdefault(cls, deque()).extend(replies)

    def always(self, cls: type[Request[Any]], reply: Reply) -> None:
        """All requests of this class get this answer when the script for it is over; None for the model's."""
        with self._lock:
            self._rules[cls] = reply

    def give(self, parts: Parts, *, epoch: int | None = None) -> None:
        """The target of the member from now on, told with the next answer."""
        with self._lock:
            self._target = tuple(
                TopicPartitions(topic_id=self.topic_id(topic), partitions=tuple(partitions))
                for topic, partitions in parts.items()
            )
            self.epoch = self.epoch + 1 if epoch is None else epoch
            self._news = True

    def start_with(self, parts: Parts) -> None:
        """What a join is answered with, at epoch 1."""
        self.give(parts, epoch=1)

    def topic_id(self, topic: str) -> UUID:
        """The id that the cluster has for a topic now."""
        found = self.broker._on_loop(lambda state: state.topics.get(topic))
        assert found is not None, f"the cluster has no topic {topic}"
        self._topic_names[found.topic_id] = topic
        return found.topic_id

    def note(self, words: str) -> None:
        """Put an event into the story."""
        with self._lock:
            self.story.append(words)

    # --------------------------------------------------------------------------------------------- what was heard

    def of(self, cls: type[Request[Any]], *, since: int = 0) -> list[Heard]:
        """Requests of one class, from number *since* of `heard` on; lookups of the record fetcher are left out."""
        with self._lock:
            return [
                one
                for one in self.heard[since:]
                if isinstance(one.request, cls) and not (cls is FIND and one.version < 4)
            ]

    @property
    def heartbeats(self) -> list[Any]:
        """Every heartbeat request."""
        return [one.request for one in self.of(HEARTBEAT)]

    @property
    def commits(self) -> list[Any]:
        """Every OffsetCommit request."""
        return [one.request for one in self.of(COMMIT)]

    # -------------------------------------------------------------------------------------------------- answering

    def speaks(self, api_key: int, version: int) -> bool:
        """Whether a scripted API is served in this version."""
        return api_key not in (int(COMMIT.WIRE.api_key), int(FETCH.WIRE.api_key)) or version >= 8

    def offered(self, api_keys: tuple[ApiVersion, ...]) -> tuple[ApiVersion, ...]:
        """What ApiVersions says."""
        kept = [item for item in api_keys if item.api_key not in self.versions]
        for key, versions in self.versions.items():
            if versions is not None:
                kept.append(ApiVersion(api_key=key, min_version=versions[0], max_version=versions[1]))
        return tuple(kept)

    def hear(self, heard: Heard) -> None:
        """Note a request and answer it."""
        cls = type(heard.request)
        with self._lock:
            self.heard.append(heard)
            if cls is not FIND and cls is not FETCH:
                self.story.append(self._words(heard.request))
            if cls is FIND and heard.version < 4:  # the record fetcher's
                heard.answer(self.model(heard.request))
                return
            script = self._scripts.get(cls)
            reply = script.popleft() if script else self._rules.get(cls)
            if callable(reply):
                reply = reply(heard.request)
            if reply is None:
                reply = self.model(heard.request)
        if reply is CLOSE:
            heard.answered = True
            heard.connection.end()
        elif not isinstance(reply, _Special):
            heard.answer(reply)

    def model(self, request: Any) -> Response:
        """What an ordinary coordinator answers."""
        if isinstance(request, FIND):
            return _found(request, node_id=_NODE_ID, host="127.0.0.1", port=self.port)
        if isinstance(request, COMMIT):
            return self._commit(request)
        if isinstance(request, FETCH):
            return self._fetch(request)
        return self.heartbeat(request)

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """The model's answer to a heartbeat, with *changes*."""
        leaving = request.member_epoch < 0
        full = request.rebalance_timeout_ms != -1 and request.topic_partitions is not None
        told = not leaving and (full or self._news or request.member_epoch == 0)
        if told:
            self._news = False
        fields: dict[str, Any] = {
            "member_id": request.member_id,
            "member_epoch": request.member_epoch if leaving else self.epoch,
            "heartbeat_interval_ms": 0 if leaving else self.interval_ms,
            "assignment": assignment(self._target) if told else None,
        }
        return ConsumerGroupHeartbeatResponse(**{**fields, **changes})

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        for topic in request.topics:
            for one in topic.partitions:
                self.committed[self._named(topic, one.partition_index)] = one.committed_offset
        return commit_answer(request)

    def _fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        return fetch_answer(request, lambda topic, index: self.committed.get(self._named(topic, index), NO_OFFSET))

    def _named(self, topic: OffsetCommitRequestTopic | OffsetFetchRequestTopics, index: int) -> TopicPartition:
        return TopicPartition(topic.name or self._topic_names.get(topic.topic_id, ""), index)

    def _words(self, request: Any) -> str:
        if isinstance(request, COMMIT):
            return f"commit {request.generation_id_or_member_epoch}"
        epoch, parts = request.member_epoch, request.topic_partitions
        if epoch <= 0:
            return "join" if epoch == 0 else f"leave {epoch}"
        if parts is None:
            return f"heartbeat {epoch}"
        return f"report {epoch} {self.names(parts)}"

    def names(self, parts: Iterable[TopicPartitions]) -> str:
        """Partitions as a text such as ``orders-0 orders-1``."""
        named = [
            f"{self._topic_names.get(part.topic_id, part.topic_id)}-{index}"
            for part in parts
            for index in part.partitions
        ]
        return " ".join(sorted(named)) or "nothing"


def assignment(parts: tuple[TopicPartitions, ...]) -> Assignment:
    """An assignment without the private fields."""
    return Assignment(topic_partitions=parts)


def refusal(request: Any, code: int, message: str | None = "words of the coordinator") -> Response:
    """A well-formed answer with an error code everywhere that the request's API has one."""
    if isinstance(request, COMMIT):
        return commit_answer(request, lambda _topic, _index: code)
    if isinstance(request, FETCH):
        return fetch_answer(request, error=code)
    if isinstance(request, FIND):
        return _found(request, node_id=-1, port=-1, error_code=code, error_message=message)
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def _found(request: FindCoordinatorRequest, **fields: Any) -> FindCoordinatorResponse:
    if not request.coordinator_keys:  # below version 4
        return FindCoordinatorResponse(**fields)
    return FindCoordinatorResponse(
        coordinators=tuple(Coordinator(key=key, **fields) for key in request.coordinator_keys)
    )
