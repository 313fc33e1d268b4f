"""One of the two brokers under comparison: its connections, its topic ids, and what its members were told.

Owns the way from names that both sides share (`g`, `a`, `t0`) to what one broker knows them by, and the view that each
member has of itself: its epoch and its partitions, as this broker answered them. Sends what a step says; which steps,
and whether two answers agree, is decided elsewhere.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from kip848_client.common.addresses import BootstrapServer
from kip848_client.errors import ErrorCode
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.messages import Fields, Json, message
from kip848_client.wire.api_keys import ApiKey

Partitions = dict[str, list[int]]
"""Topic id -> partitions, ascending."""

JOIN_EPOCH: Final = 0
SETTLE_TIMEOUT_S: Final = 60.0
PROBE_GROUP: Final = "probe"
GROUPS: Final = ("g", "h", "", PROBE_GROUP)
"""Every group that a sequence may bring into being. The one without a name is the same for all runs."""
GROUP_RESOURCE: Final = 32
SHARE_TOPIC: Final = "s0"
"""The topic whose records share groups read in conversations."""


class KnownMember(msgspec.Struct):
    """What a client of this broker would know of itself."""

    member_id: str
    epoch: int = 0
    epoch_before: int = 0
    assigned: Partitions = msgspec.field(default_factory=dict)
    """The last assignment that it was sent."""
    held: Partitions = msgspec.field(default_factory=dict)
    """What it uses: the assignment, and what it has not given up yet."""


class Shared(msgspec.Struct, frozen=True):
    """Topics that are there before a conversation begins, for many of them.

    Args:
        prefix: in front of their names.
        topic_ids: topic -> its id.
    """

    prefix: str = ""
    topic_ids: Mapping[str, str] = {}


class Side:
    """One broker.

    Args:
        name: for transcripts.
        address: `host:port`.
        prefix: in front of every group and topic name, so that two runs never meet.
        shared: topics that are there already.
        versions: highest version of each API that the broker serves; a request is sent in no higher one. Without it,
            requests are sent as they are.
        finds_coordinators: send requests about a group to its coordinator, as clients do, and not to *address*.
        settle_timeout_s: how long the coordinator may take to hear of a topic or a setting.
    """

    def __init__(
        self,
        name: str,
        address: str,
        *,
        prefix: str,
        shared: Shared | None = None,
        versions: Mapping[int, int] | None = None,
        finds_coordinators: bool = False,
        settle_timeout_s: float = SETTLE_TIMEOUT_S,
    ) -> None:
        self.name: Final = name
        self.address: Final = address
        self.port: Final = int(address.rpartition(":")[2])
        self.epoch_offset: dict[str, int] = {}
        """Group -> how far its epochs are ahead of the other side's."""
        self.sessions: dict[tuple[str, str], int] = {}
        """Share group and member -> epoch of its share session."""
        self.last: tuple[Any, Any] | None = None
        """The last request and its answer."""
        self._shared: Final = shared or Shared()
        self.topic_ids: dict[str, str] = dict(self._shared.topic_ids)
        self._labels: dict[str, str] = {topic_id: topic for topic, topic_id in self.topic_ids.items()}
        self.prefix: Final = prefix
        self._versions: Final = versions or {}
        self._finds_coordinators: Final = finds_coordinators
        self._settle_timeout_s: Final = settle_timeout_s
        self._coordinators: dict[str, str] = {}
        self._connections: dict[str, RawConnection] = {address: RawConnection(address, client_id="wire")}
        self._members: dict[tuple[str, str], KnownMember] = {}
        self._created: dict[str, int] = {}
        self._interval_ms = 1_000

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def ask(self, api: str, version: int, fields: Fields) -> dict[str, Json]:
        """Send one request, with defaults for what is not in *fields*, and wait for the answer."""
        key = ApiKey[api.upper()]
        version = min(version, self._versions.get(key, version))
        request = message(key, fields)
        answer: Any = self.connection(self._address_for(key, fields)).ask(request, version=version)
        if self._finds_coordinators and getattr(answer, "error_code", 0) == ErrorCode.NOT_COORDINATOR:
            self._coordinators.clear()
            answer = self.connection(self._address_for(key, fields)).ask(request, version=version)
        self.last = request, answer
        answered: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(answer))
        return answered

    def connection(self, address: str) -> RawConnection:
        """The connection to a broker at *address*; one is opened at first, and after it broke."""
        if address not in self._connections:
            self._connections[address] = RawConnection(address, client_id="wire")
        return self._connections[address]

    def drop_connections(self) -> None:
        """Forget connections and coordinators: the broker was restarted."""
        self.close()
        self._coordinators.clear()

    def _address_for(self, key: ApiKey, fields: Fields) -> str:
        """The broker that a request is for."""
        if not self._finds_coordinators:
            return self.address
        match key:
            case ApiKey.SHARE_FETCH | ApiKey.SHARE_ACKNOWLEDGE:
                return self._leader(self.topic_name(SHARE_TOPIC))
            case ApiKey.PRODUCE:
                return self._leader(fields["topic_data"][0]["name"])
            case ApiKey.LIST_GROUPS:
                return self._coordinator(self.group_id("g"))
            case _:
                group = _group_of(fields)
                return self.address if group is None else self._coordinator(group)

    def _coordinator(self, group: str) -> str:
        """Address of a group's coordinator; a coordinator that is not available yet is waited for."""

        def found() -> bool:
            version = self._versions.get(ApiKey.FIND_COORDINATOR, 4)
            fields: Fields = {"key": group} if version < 4 else {"coordinator_keys": [group]}
            answer: Any = self.connection(self.address).ask(
                message(ApiKey.FIND_COORDINATOR, fields), version=min(version, 4)
            )
            row = answer if version < 4 else answer.coordinators[0]
            if not row.error_code:
                self._coordinators[group] = str(BootstrapServer(row.host, row.port))
            return group in self._coordinators

        if group not in self._coordinators:
            wait_until(found, self._settle_timeout_s, f"{self.name}: a coordinator of {group}")
        return self._coordinators[group]

    def _leader(self, topic: str) -> str:
        """Address of the leader of a topic's first partition."""
        version = min(9, self._versions.get(ApiKey.METADATA, 9))
        answer = self.connection(self.address).call(ApiKey.METADATA, version, topics=[{"name": topic}])
        leaders = [part.leader_id for found in answer.topics for part in found.partitions if not part.partition_index]
        of = {node.node_id: str(BootstrapServer(node.host, node.port)) for node in answer.brokers}
        return next((of[leader] for leader in leaders if leader in of), self.address)

    # --- names

    def group_id(self, group: str) -> str:
        """The id of a group; blank ones are sent as they are."""
        return f"{self.prefix}{group}" if group.strip() else group

    def topic_name(self, topic: str) -> str:
        """The name of a topic."""
        return f"{self._shared.prefix if topic in self._shared.topic_ids else self.prefix}{topic}"

    def pattern(self, regex: str | None) -> str | None:
        """A pattern of topics of this run. A dot of the prefix matches itself, among others."""
        prefix = self._shared.prefix if self._shared.topic_ids and not self._created else self.prefix
        return f"{prefix}{regex}" if regex else regex

    def topic_id(self, topic: str) -> str:
        """The id of the topic that has this name now; for an unknown name, an unused id."""
        return self.topic_ids.get(topic) or str(uuid.uuid5(uuid.NAMESPACE_OID, topic))

    def label(self, text: str) -> str:
        """Text of an answer, with this side's ids and names replaced by the shared ones."""
        if text in self._labels:
            return self._labels[text]
        for (_, member), view in self._members.items():
            if view.member_id and view.member_id != member:
                text = text.replace(view.member_id, member)
        text = text.replace(self.prefix, "")
        return text.replace(self._shared.prefix, "") if self._shared.prefix else text

    def call(self, text: str, label: str) -> None:
        """Let *text*, an id that this side made, be known under a shared name."""
        self._labels[text] = label

    # --- members

    def view(self, group: str, member: str) -> KnownMember:
        """What a member knows of itself. Its id is its name; `new...` is for ids that the broker makes."""
        known = self._members.get((group, member))
        if known is None:
            known = self._members[group, member] = KnownMember("" if member.startswith("new") else member)
        return known

    def hear_heartbeat(self, group: str, member: str, *, sent_epoch: int, answer: Mapping[str, Json]) -> None:
        """Let a member take note of the answer to its heartbeat."""
        view = self.view(group, member)
        if answer["error_code"]:
            return
        if sent_epoch < 0:
            self._members[group, member] = KnownMember(view.member_id, epoch=sent_epoch)
            return
        member_id, epoch = answer["member_id"], answer["member_epoch"]
        assert isinstance(member_id, str)
        assert isinstance(epoch, int)
        if sent_epoch == JOIN_EPOCH:
            view = self._members[group, member] = KnownMember(member_id)
        if epoch != view.epoch:
            view.epoch_before, view.epoch = view.epoch, epoch
        assignment = answer["assignment"]
        if assignment is not None:
            assert isinstance(assignment, dict)
            view.assigned = read_partitions(assignment["topic_partitions"])
            view.held = union(view.held, view.assigned)

    # --- topics

    def create_topic(self, topic: str, *, partitions: int) -> int:
        """Create a topic and wait until the coordinator knows it; the error code."""
        created = {"name": self.topic_name(topic), "num_partitions": partitions, "replication_factor": 1}
        (answer,) = rows(self.ask("create_topics", 7, {"topics": [created], "timeout_ms": 20_000})["topics"])
        if not answer["error_code"]:
            topic_id = str(answer["topic_id"])
            self.topic_ids[topic] = topic_id
            incarnation = sum(label.rstrip("'") == topic for label in self._labels.values())
            self._labels[topic_id] = topic + "'" * incarnation
            self._created[topic] = partitions
            self._await_coordinator()
        return as_int(answer["error_code"])

    def grow_topic(self, topic: str, *, partitions: int) -> int:
        """Give a topic more partitions and wait until the coordinator knows it; the error code."""
        grown = {"name": self.topic_name(topic), "count": partitions, "assignments": None}
        (answer,) = rows(self.ask("create_partitions", 3, {"topics": [grown], "timeout_ms": 20_000})["results"])
        if not answer["error_code"]:
            self._created[topic] = partitions
            self._await_coordinator()
        return as_int(answer["error_code"])

    def delete_topic(self, topic: str) -> int:
        """Delete a topic and wait until the coordinator knows it; the error code."""
        (answer,) = self._delete_topics(topic)
        if not answer["error_code"]:
            del self._created[topic]
            del self.topic_ids[topic]
            self._await_coordinator()
        return as_int(answer["error_code"])

    def _delete_topics(self, *topics: str) -> list[dict[str, Json]]:
        named = [{"name": self.topic_name(topic)} for topic in topics]
        return rows(self.ask("delete_topics", 6, {"topics": named, "timeout_ms": 20_000})["responses"])

    def prepare(self) -> None:
        """Avoid time-outs on a slow machine, and forget what another run left under the one name they share."""
        for group in GROUPS:
            if group:
                self._configure(group, "consumer.session.timeout.ms", "60000")
        self.ask("delete_groups", 2, {"groups_names": [""]})

    def clear(self) -> None:
        """Remove every group and topic of this run."""
        for (group, _), view in self._members.items():
            leaving = {"group_id": self.group_id(group), "member_id": view.member_id, "member_epoch": -1}
            self.ask("consumer_group_heartbeat", 1, leaving)
        self.ask("delete_groups", 2, {"groups_names": [self.group_id(group) for group in GROUPS]})
        if self._created:
            self._delete_topics(*self._created)

    def clear_all(self) -> list[str]:
        """Remove every group and topic that this side made, whatever its members were told; what could not be."""
        groups = sorted({self.group_id(group) for group, _ in self._members} | {self.group_id("g")})
        left = []
        for group in (group for group in groups if group.startswith(self.prefix)):
            for (name, _), view in self._members.items():
                if self.group_id(name) == group and view.member_id:
                    self._remove(group, view.member_id)
            (row,) = rows(self.ask("delete_groups", 2, {"groups_names": [group]})["results"])
            if row["error_code"] not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                left.append(f"group {group} ({row['error_code']})")
        if self._created:
            self._delete_topics(*self._created)
        return left

    def _remove(self, group: str, member_id: str) -> None:
        """Have a member leave, of whichever kind its group is."""
        gone = {"group_id": group, "member_id": member_id, "member_epoch": -1}
        for api, version, fields in (
            ("consumer_group_heartbeat", 1, gone),
            ("share_group_heartbeat", 1, gone),
            ("leave_group", 4, {"group_id": group, "members": [{"member_id": member_id}]}),
        ):
            if not self._versions or ApiKey[api.upper()] in self._versions:
                self.ask(api, version, fields)

    def await_settings(self) -> None:
        """Wait until the coordinator acts on the settings of groups that were changed so far.

        It hears of them a moment after the answer, in the order in which they were made: a change for the probe group
        that shows in an answer comes after all others.
        """
        self._interval_ms += 1
        self._configure(PROBE_GROUP, "consumer.heartbeat.interval.ms", str(self._interval_ms))
        self._await_probe(lambda answer: answer["heartbeat_interval_ms"] == self._interval_ms)

    def _configure(self, group: str, name: str, value: str) -> None:
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": self.group_id(group)}
        configs = [{"name": name, "config_operation": 0, "value": value}]
        answer = self.ask("incremental_alter_configs", 1, {"resources": [{**resource, "configs": configs}]})
        assert not rows(answer["responses"])[0]["error_code"], answer

    def _await_coordinator(self) -> None:
        """Wait until a member of the probe group is assigned exactly what there is.

        The coordinator hears of a topic a moment after the answer to who made it. All groups share one partition of
        __consumer_offsets on the test broker, so what one of them sees all see.
        """
        wanted = {self.topic_ids[topic]: list(range(count)) for topic, count in self._created.items()}
        self._await_probe(lambda _: self.view(PROBE_GROUP, "p").assigned == wanted)

    def _await_probe(self, is_seen: Callable[[Mapping[str, Json]], bool]) -> None:
        names = sorted({self.topic_name(x.rstrip("'")) for x in self._labels.values()})

        def sees() -> bool:
            view = self.view(PROBE_GROUP, "p")
            answer = self.ask(
                "consumer_group_heartbeat",
                1,
                {
                    "group_id": self.group_id(PROBE_GROUP),
                    "member_id": "p",
                    "member_epoch": view.epoch,
                    "rebalance_timeout_ms": 60_000,
                    "subscribed_topic_names": names,
                    "topic_partitions": write_partitions(view.assigned) if view.epoch else [],
                },
            )
            if answer["error_code"]:
                view.epoch = JOIN_EPOCH
            self.hear_heartbeat(PROBE_GROUP, "p", sent_epoch=view.epoch, answer=answer)
            return not answer["error_code"] and is_seen(answer)

        wait_until(sees, self._settle_timeout_s, f"{self.name}: the coordinator's view of a change")


def wait_until(is_true: Callable[[], object], timeout_s: float, what: str, *, every_s: float = 0.005) -> None:
    """Ask *is_true* again and again.

    Raises:
        TimeoutError: it did not become true; the message says *what* was awaited.
    """
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what} did not come about within {timeout_s:g} s")
        time.sleep(every_s)  # a broker does not tell when it has got there


def _group_of(fields: Fields) -> str | None:
    """The group that a request is about, if it is one for a coordinator."""
    match fields:
        case {"group_id": str(group)}:
            return group
        case {"group_ids": [str(group), *_]} | {"groups_names": [str(group), *_]} | {"groups": [str(group), *_]}:
            return group
        case {"groups": [{"group_id": str(group)}, *_]}:
            return group
        case _:
            return None


def rows(value: Json) -> list[dict[str, Json]]:
    """A list of structures in an answer."""
    assert isinstance(value, list)
    return [row for row in value if isinstance(row, dict)]


def as_int(value: Json) -> int:
    """A number in an answer."""
    assert isinstance(value, int)
    return value


def read_partitions(value: Json) -> Partitions:
    """Partitions of an answer."""
    found: Partitions = {}
    for row in rows(value):
        partitions = row["partitions"]
        assert isinstance(partitions, list)
        found[str(row["topic_id"])] = sorted(as_int(partition) for partition in partitions)
    return found


def write_partitions(partitions: Mapping[str, Iterable[int]]) -> list[Fields]:
    """Partitions for a request."""
    return [
        {"topic_id": uuid.UUID(topic_id), "partitions": sorted(found)} for topic_id, found in sorted(partitions.items())
    ]


def union(one: Partitions, other: Partitions) -> Partitions:
    """What is in either."""
    return {key: sorted({*one.get(key, ()), *other.get(key, ())}) for key in one.keys() | other.keys()}
