"""The calls of the control port: those of the test kit, with arguments and results that JSON can hold.

A call is ``room/method``: ``topics/create`` is ``broker.topics.create``, and takes its arguments by the same names. A
method that is added to the test kit is a call as well; the functions here are for those whose arguments or results JSON
cannot express.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import re
from collections import OrderedDict
from collections.abc import Callable
from types import GenericAlias
from typing import Annotated, Any, Final, get_args, get_type_hints

import msgspec

from kip848_client.errors import ConfigError
from kip848_client.testing import faults
from kip848_client.testing.broker.broker import EmbeddedBroker
from kip848_client.testing.broker.cluster.nodes import NodeSnapshot
from kip848_client.testing.broker.controls.acls import BrokerAcls
from kip848_client.testing.broker.controls.clock import BrokerClock
from kip848_client.testing.broker.controls.groups import BrokerGroups
from kip848_client.testing.broker.controls.nodes import BrokerNodes
from kip848_client.testing.broker.controls.quotas import BrokerQuotas, ClientQuota
from kip848_client.testing.broker.controls.shares import BrokerShares
from kip848_client.testing.broker.controls.topics import BrokerTopics
from kip848_client.testing.broker.controls.transactions import BrokerTransactions
from kip848_client.testing.broker.coordinators.snapshots import GroupSnapshot
from kip848_client.testing.broker.coordinators.transaction_host import TransactionSnapshot
from kip848_client.testing.broker.metadata.acls import Acl
from kip848_client.testing.broker.net.faults import FaultRule
from kip848_client.testing.broker.net.logged_request import LoggedRequest
from kip848_client.testing.broker.share.share_partition_manager import SharePartitionSnapshot
from kip848_client.testing.serving.control_faults import ACTIONS, FaultAction, action_of
from kip848_client.testing.serving.control_results import (
    CommittedOffset,
    Encoding,
    FaultRuleState,
    Header,
    PartitionOffset,
    PartitionOffsets,
    PartitionRecords,
    Push,
    StoredRecord,
    content,
    jsonable,
    push_of,
    record_of,
    result_type,
    rule_of,
)

_ROOMS: Final[dict[str, type]] = {
    "topics": BrokerTopics,
    "groups": BrokerGroups,
    "transactions": BrokerTransactions,
    "shares": BrokerShares,
    "nodes": BrokerNodes,
    "acls": BrokerAcls,
    "quotas": BrokerQuotas,
    "clock": BrokerClock,
}
_NOT_IN_JSON: Final = {"acls/remove"}
"""Methods of these rooms that take objects."""


class Call(msgspec.Struct, frozen=True):
    """One call of the control port.

    Attributes:
        path: ``room/method``.
        arguments: what the JSON object of a request holds.
        result: the type of the answer; None if it is null.
        text: what the call does, for the description.
    """

    path: str
    arguments: type[msgspec.Struct]
    result: Any
    text: str
    function: Callable[..., object]
    room: str | None
    """The part of the broker that the function is a method of; None if it is a method of `Controls`."""

    def run(self, controls: Controls, body: bytes) -> object:
        """Decode the arguments, call, and return a result that JSON can hold.

        Raises:
            ConfigError: *body* is no JSON; or an argument is missing, unknown or of the wrong type: says which.
            Kip848Error: as the call.
        """
        given = msgspec.structs.asdict(self._decoded(body or b"{}"))
        target = controls if self.room is None else getattr(controls.broker, self.room)
        signature = inspect.signature(self.function)
        own = next(iter(signature.parameters))
        bound = inspect.BoundArguments(signature, OrderedDict({own: target, **given}))
        return jsonable(self.function(*bound.args, **bound.kwargs))

    def _decoded(self, body: bytes) -> msgspec.Struct:
        try:
            return msgspec.json.decode(body, type=self.arguments)
        except msgspec.ValidationError as error:
            taken = f"actions are {ACTIONS}" if "`$.script" in str(error) else _taken(self.arguments)
            raise ConfigError(f"{self.path}: {error}; {taken}") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path}: the body must be a JSON object: {error}") from None


class Controls:
    """What the calls act on: a broker, and the fault rules that were made through this port."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker: Final = broker
        self._rules: Final[dict[int, FaultRule]] = {}
        self._numbers: Final = itertools.count(1)

    # --- the broker

    def start(self) -> None:
        """Serve again after stop or crash, on the same port, with topics, records, groups and offsets."""
        self.broker.start()

    def stop(self) -> None:
        """Stop serving and close every connection. The control port goes on."""
        self.broker.stop()

    def crash(self) -> None:
        """Stop like a killed process: connections break. The control port goes on."""
        self.broker.crash()

    def metrics(self) -> dict[str, float]:
        """The current values of the coordinator's metrics."""
        return self.broker.metrics()

    # --- records

    def produce(
        self,
        topic: str,
        value: str | None,
        key: str | None = None,
        headers: list[Header] = [],  # noqa: B006  # never changed, and shown in the description
        partition: int | None = None,
        timestamp_ms: int | None = None,
        *,
        encoding: Encoding = "utf-8",
    ) -> StoredRecord:
        """Write one record, without a client; a value of null is a tombstone.

        Args:
            encoding: how value, key and headers are given, and returned.
        """
        pairs = [(each.name, content(each.value, encoding, "headers")) for each in headers]
        value_bytes, key_bytes = content(value, encoding, "value"), content(key, encoding, "key")
        record = self.broker.produce(topic, value_bytes, key_bytes, pairs, partition, timestamp_ms)
        return record_of(record, encoding)

    def records(
        self, topic: str, partition: int | None = None, *, committed: bool = True, encoding: Encoding = "utf-8"
    ) -> list[StoredRecord]:
        """All records of a topic, or of one partition, by partition and offset.

        Args:
            committed: leave out those of open and aborted transactions.
            encoding: of values, keys and headers; take base64 if they are not texts.
        """
        records = self.broker.records(topic, partition, committed=committed)
        return [record_of(record, encoding) for record in records]

    def wait_for_records(
        self,
        topic: str,
        count: int,
        partition: int | None = None,
        *,
        committed: bool = True,
        encoding: Encoding = "utf-8",
        timeout_s: float = 30.0,
    ) -> list[StoredRecord]:
        """Wait until a topic, or one partition, has at least *count* records, and return all that it has."""
        records = self.broker.wait_for_records(topic, count, partition, committed=committed, timeout_s=timeout_s)
        return [record_of(record, encoding) for record in records]

    # --- topics, groups, transactions, share groups, nodes, ACLs, quotas, telemetry

    def list_topics(self) -> dict[str, int]:
        """All topics: name to number of partitions."""
        return dict(self.broker.topics)

    def offsets(self, name: str) -> list[PartitionOffsets]:
        """First and next offset of each partition of a topic."""
        return [PartitionOffsets(number, *each) for number, each in self.broker.topics.offsets(name).items()]

    def apply_retention(self, name: str | None = None) -> list[PartitionOffset]:
        """Delete the records that a topic, or each topic, keeps no longer; return the partitions that lost records.

        They are those of ``retention.ms`` and ``retention.bytes``.
        """
        return [PartitionOffset(*place, start) for place, start in self.broker.topics.apply_retention(name).items()]

    def compact(self, name: str) -> list[PartitionRecords]:
        """Keep the last record of each key, as compaction does; return the partitions that lost records."""
        return [PartitionRecords(*place, count) for place, count in self.broker.topics.compact(name).items()]

    def committed(self, group_id: str) -> list[CommittedOffset]:
        """The committed offsets of a group; empty if there is no such group."""
        return [CommittedOffset(*place, offset) for place, offset in self.broker.groups.committed(group_id).items()]

    def set_racks(self, name: str, racks: list[list[str]]) -> None:
        """Set the racks of the replicas of a topic's partitions: one list of racks a partition; the list repeats."""
        self.broker.topics.set_racks(name, racks)

    def wait_for_group(
        self,
        group_id: str,
        *,
        state: str | None = None,
        members: int | None = None,
        epoch: int | None = None,
        assignor: str | None = None,
        timeout_s: float = 30.0,
    ) -> GroupSnapshot:
        """Wait until a group matches; all given conditions must hold at once.

        Args:
            state: as Kafka names it: ``Empty``, ``Assigning``, ``Reconciling``, ``Stable``, or one of classic groups.
            members: the exact number of members.
            epoch: the group epoch, or the generation of a classic group, is at least this.
        """
        return self.broker.wait_for_group(
            group_id, state=state, members=members, epoch=epoch, assignor=assignor, timeout_s=timeout_s
        )

    def list_transactions(self) -> list[TransactionSnapshot]:
        """All transactional ids that producers have used."""
        return list(self.broker.transactions)

    def wait_for_shares(
        self, group_id: str, *, unfinished: int = 0, timeout_s: float = 30.0
    ) -> list[SharePartitionSnapshot]:
        """Wait until a share group reads partitions and has at most *unfinished* records left in them; return them."""

        def holds(partitions: tuple[SharePartitionSnapshot, ...]) -> bool:
            return bool(partitions) and sum(each.unfinished for each in partitions) <= unfinished

        what = f"at most {unfinished} unfinished records"
        return list(self.broker.shares.wait_for(group_id, holds, what=what, timeout_s=timeout_s))

    def list_nodes(self) -> list[NodeSnapshot]:
        """Each node, running or not: its address, its state, and the partitions that it leads."""
        return list(self.broker.nodes)

    def list_acls(self) -> list[Acl]:
        """All ACLs."""
        return list(self.broker.acls)

    def remove_acls(self) -> None:
        """Remove all ACLs."""
        self.broker.acls.remove()

    def list_quotas(self) -> list[ClientQuota]:
        """The quotas of each user, client id and address that has some."""
        return list(self.broker.quotas)

    def subscribe_telemetry(
        self, name: str, metrics: list[str], *, interval_ms: int = 300_000, match: str = ""
    ) -> None:
        """Ask clients for metrics, as a CLIENT_METRICS resource of that name does.

        The broker takes them with ``--set kip848.client.telemetry.enable=true``.

        Args:
            metrics: prefixes of their names; ``*`` for all.
            interval_ms: how often, from 100 to 3,600,000.
            match: ``client_id=shop.*,client_software_name=librdkafka``; empty for all clients.
        """
        self.broker.telemetry.subscribe(name, metrics, interval_ms=interval_ms, match=match)

    def wait_for_push(
        self, metric: str = "", *, client_id: str | None = None, terminating: bool = False, timeout_s: float = 30.0
    ) -> Push:
        """Wait until a client pushes metrics, and return the first push that matches; earlier ones count.

        Args:
            metric: how the name of one of its metrics begins.
            terminating: only the last push of a client that ends.
        """
        return push_of(
            self.broker.telemetry.wait_for(metric, client_id=client_id, terminating=terminating, timeout_s=timeout_s)
        )

    def list_pushes(self) -> list[Push]:
        """The last 1,000 pushes of clients, oldest first."""
        return [push_of(each) for each in self.broker.telemetry]

    # --- faults

    def add_fault(
        self,
        script: list[FaultAction],
        api: str | list[str] | None = None,
        *,
        group: str | None = None,
        member: str | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        node_id: int | None = None,
        nth: int = 1,
        times: int | None = 1,
        probability: float = 1.0,
    ) -> int:
        """Apply actions to requests that match all arguments, from now on; return the number of the rule.

        Args:
            api: Kafka's name, such as ``OffsetCommit``, or several; null for any.
            script: what is done to the first request, the second one, and so on: each an object with one action and
                its arguments, such as ``{"error": {"code": "NOT_COORDINATOR"}}``, ``{"delay": {"ms": 500}}`` or
                ``{"lose_reply": {}}``.
            nth: the first matching request that counts.
            times: how often the script is played; null has no limit.
        """
        if node_id is not None:
            self.broker.nodes[node_id]  # a rule for a node that is not there would never act
        rule = self.broker.faults.on(
            api,
            *map(action_of, script),
            group=group,
            member=member,
            client_id=client_id,
            topic=topic,
            partition=partition,
            node_id=node_id,
            nth=nth,
            times=faults.ALWAYS if times is None else times,
            probability=probability,
        )
        number = next(self._numbers)
        self._rules[number] = rule
        return number

    def list_faults(self) -> list[FaultRuleState]:
        """The rules that were made through this port and not cancelled."""
        active = {id(rule) for rule in self.broker.faults}
        return [rule_of(number, rule) for number, rule in list(self._rules.items()) if id(rule) in active]

    def wait_for_fault(self, rule: int, hits: int = 1, timeout_s: float = 30.0) -> FaultRuleState:
        """Wait until a rule has done something to *hits* requests."""
        return rule_of(rule, self._rule(rule).wait(timeout_s, hits=hits))

    def release_fault(self, rule: int) -> int:
        """Let the requests go on that a rule with ``hold`` holds now; return how many these are."""
        return self._rule(rule).release()

    def cancel_fault(self, rule: int) -> None:
        """Take a rule out and release the requests that it holds."""
        self._rule(rule).cancel()

    def clear_faults(self) -> None:
        """Take all rules out, and let everything go on that they hold."""
        self.broker.faults.clear()

    def seed_faults(self, seed: int) -> None:
        """Let rules with a probability act on the same requests in every run."""
        self.broker.faults.seed(seed)

    def _rule(self, number: int) -> FaultRule:
        if number not in self._rules:
            raise ConfigError(f"there is no fault rule {number}; faults/on returns the number of each")
        return self._rules[number]

    # --- requests

    def requests(
        self,
        api: str | list[str] | None = None,
        *,
        group: str | None = None,
        member: str | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        node_id: int | None = None,
        since: int = 0,
    ) -> list[LoggedRequest]:
        """The requests of clients that match all arguments, oldest first, with their answers.

        Args:
            since: only those with a greater number (``requests/mark``).
        """
        found = self.broker.requests.of(
            api,
            group=group,
            member=member,
            client_id=client_id,
            topic=topic,
            partition=partition,
            node_id=node_id,
            since=since,
        )
        return list(found)

    def wait_for_request(
        self,
        api: str | list[str] | None = None,
        *,
        group: str | None = None,
        member: str | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        node_id: int | None = None,
        since: int = 0,
        count: int = 1,
        answered: bool = False,
        timeout_s: float = 30.0,
    ) -> LoggedRequest:
        """Wait until *count* such requests have come, and return the last of these.

        Args:
            since: only those with a greater number (``requests/mark``) count.
            answered: only those count that have their answer.
        """
        return self.broker.requests.wait_for(
            api,
            group=group,
            member=member,
            client_id=client_id,
            topic=topic,
            partition=partition,
            node_id=node_id,
            since=since,
            count=count,
            answered=answered,
            timeout_s=timeout_s,
        )

    def mark_requests(self) -> int:
        """The number of the newest request: *since* for requests that come after now."""
        return self.broker.requests.mark()


_OWN: Final[dict[str, Callable[..., object]]] = {
    "broker/start": Controls.start,
    "broker/stop": Controls.stop,
    "broker/crash": Controls.crash,
    "broker/metrics": Controls.metrics,
    "records/produce": Controls.produce,
    "records/list": Controls.records,
    "records/wait_for": Controls.wait_for_records,
    "topics/list": Controls.list_topics,
    "topics/offsets": Controls.offsets,
    "topics/apply_retention": Controls.apply_retention,
    "topics/compact": Controls.compact,
    "topics/set_racks": Controls.set_racks,
    "groups/committed": Controls.committed,
    "groups/wait_for": Controls.wait_for_group,
    "transactions/list": Controls.list_transactions,
    "shares/wait_for": Controls.wait_for_shares,
    "nodes/list": Controls.list_nodes,
    "acls/list": Controls.list_acls,
    "acls/clear": Controls.remove_acls,
    "quotas/list": Controls.list_quotas,
    "telemetry/subscribe": Controls.subscribe_telemetry,
    "telemetry/wait_for": Controls.wait_for_push,
    "telemetry/list": Controls.list_pushes,
    "faults/on": Controls.add_fault,
    "faults/list": Controls.list_faults,
    "faults/wait": Controls.wait_for_fault,
    "faults/release": Controls.release_fault,
    "faults/cancel": Controls.cancel_fault,
    "faults/clear": Controls.clear_faults,
    "faults/seed": Controls.seed_faults,
    "requests/list": Controls.requests,
    "requests/wait_for": Controls.wait_for_request,
    "requests/mark": Controls.mark_requests,
}


def calls() -> dict[str, Call]:
    """Every call by its path, sorted."""
    found = {path: _call(path, function, None) for path, function in _OWN.items()}
    for room, kind in _ROOMS.items():
        for name, function in vars(kind).items():
            path = f"{room}/{name}"
            if inspect.isfunction(function) and not name.startswith("_") and path not in _NOT_IN_JSON | found.keys():
                found[path] = _call(path, function, room)
    return dict(sorted(found.items()))


_LEAST: Final = {
    **dict.fromkeys(
        ("timeout_s", "members", "epoch", "since", "partition", "timestamp_ms", "probability", "unfinished"), 0
    ),
    **dict.fromkeys(("count", "hits", "nth", "times"), 1),
}
"""Argument -> its smallest value. A wait for less would be over at once, or never."""
_MOST: Final = {"timeout_s": 1_000_000}
"""Argument -> its largest value. Threads cannot wait for ever."""


def _call(path: str, function: Callable[..., object], room: str | None) -> Call:
    hints = get_type_hints(function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        name, kind = parameter.name, hints[parameter.name]
        if name in _LEAST:
            meta = msgspec.Meta(ge=_LEAST[name], le=_MOST.get(name))
            kind = functools.reduce(
                operator.or_,
                (Annotated[each, meta] if each in (int, float) else each for each in get_args(kind) or (kind,)),
            )
        if parameter.kind is parameter.VAR_POSITIONAL:
            fields.append((name, GenericAlias(list, (kind,)), msgspec.field(default_factory=list)))
        elif parameter.default is parameter.empty:
            fields.append((name, kind))
        else:
            fields.append((name, kind, parameter.default))
    title = path.replace("/", " ").title().replace(" ", "").replace("_", "")
    arguments = msgspec.defstruct(title, fields, kw_only=True, forbid_unknown_fields=True)
    text = (inspect.getdoc(function) or "").partition("\nRaises:")[0].strip()
    text = re.sub(r"\bNone\b", "null", text)
    return Call(path, arguments, result_type(hints["return"]), text, function, room)


def _taken(arguments: type[msgspec.Struct]) -> str:
    """What a call takes, for an error."""
    fields = msgspec.structs.fields(arguments)
    return f"it takes {', '.join(field.name for field in fields)}" if fields else "it takes no arguments"
