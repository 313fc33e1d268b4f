"""The calls of the control port: those of the test kit, with arguments and results that JSON can hold.

A call is ``room/method``: ``topics/create`` is ``broker.topics.create``, and takes its arguments by the same names. A
method that is added to the test kit is a call as well; the functions here are for those whose arguments or results JSON
cannot express.
"""

from __future__ import annotations

import inspect
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from types import GenericAlias
from typing import Any, Final, get_type_hints

import msgspec

from kip848_client import faults
from kip848_client.broker.broker import EmbeddedBroker
from kip848_client.broker.controls.acls import BrokerAcls
from kip848_client.broker.controls.clock import BrokerClock
from kip848_client.broker.controls.groups import BrokerGroups
from kip848_client.broker.controls.nodes import BrokerNodes
from kip848_client.broker.controls.shares import BrokerShares
from kip848_client.broker.controls.topics import BrokerTopics
from kip848_client.broker.controls.transactions import BrokerTransactions
from kip848_client.broker.net.faults import FaultRule
from kip848_client.broker.net.logged_request import LoggedRequest
from kip848_client.broker.topics.records import BrokerRecord
from kip848_client.errors import ConfigError, ErrorCode

__all__ = ["Call", "Controls", "calls"]

_ROOMS: Final[dict[str, type]] = {
    "topics": BrokerTopics,
    "groups": BrokerGroups,
    "transactions": BrokerTransactions,
    "shares": BrokerShares,
    "nodes": BrokerNodes,
    "acls": BrokerAcls,
    "clock": BrokerClock,
}
_NOT_IN_JSON: Final = {"acls/remove", "shares/wait_for"}
"""Methods of these rooms that take objects."""


class Call(msgspec.Struct, frozen=True):
    """One call of the control port.

    Attributes:
        path: ``room/method``.
        arguments: what the JSON object of a request holds.
        text: what the call does, for the description.
    """

    path: str
    arguments: type[msgspec.Struct]
    text: str
    function: Callable[..., object]
    room: str | None
    """The part of the broker that the function is a method of; None if it is a method of `Controls`."""

    def run(self, controls: Controls, body: bytes) -> object:
        """Decode the arguments, call, and return a result that JSON can hold.

        Raises:
            msgspec.ValidationError: an argument is missing, unknown or of the wrong type; says which.
            msgspec.DecodeError: *body* is no JSON.
            Kip848Error: as the call.
        """
        given = msgspec.structs.asdict(msgspec.json.decode(body or b"{}", type=self.arguments))
        target = controls if self.room is None else getattr(controls.broker, self.room)
        signature = inspect.signature(self.function)
        own = next(iter(signature.parameters))
        bound = inspect.BoundArguments(signature, OrderedDict({own: target, **given}))
        return jsonable(self.function(*bound.args, **bound.kwargs))


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
        headers: dict[str, str] = {},  # noqa: B006  # never changed, and shown in the description
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> dict[str, object]:
        """Write one record, without a client; texts are UTF-8, and a value of null is a tombstone."""
        record = self.broker.produce(topic, value, key, headers, partition, timestamp_ms)
        return _record(record)

    def records(self, topic: str, partition: int | None = None, *, committed: bool = True) -> list[dict[str, object]]:
        """All records of a topic, or of one partition, by partition and offset.

        Args:
            committed: leave out those of open and aborted transactions.
        """
        return [_record(record) for record in self.broker.records(topic, partition, committed=committed)]

    def wait_for_records(
        self,
        topic: str,
        count: int,
        partition: int | None = None,
        *,
        committed: bool = True,
        timeout_s: float = 30.0,
    ) -> list[dict[str, object]]:
        """Wait until a topic, or one partition, has at least *count* records, and return all that it has."""
        records = self.broker.wait_for_records(topic, count, partition, committed=committed, timeout_s=timeout_s)
        return [_record(record) for record in records]

    # --- topics, groups, transactions, nodes, ACLs

    def list_topics(self) -> dict[str, int]:
        """All topics: name to number of partitions."""
        return dict(self.broker.topics)

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
    ) -> object:
        """Wait until a group matches; all given conditions must hold at once.

        Args:
            state: as Kafka names it: ``Empty``, ``Assigning``, ``Reconciling``, ``Stable``, or one of classic groups.
            members: the exact number of members.
            epoch: the group epoch, or the generation of a classic group, is at least this.
        """
        return self.broker.wait_for_group(
            group_id, state=state, members=members, epoch=epoch, assignor=assignor, timeout_s=timeout_s
        )

    def list_transactions(self) -> list[object]:
        """All transactional ids that producers have used."""
        return list(self.broker.transactions)

    def list_nodes(self) -> list[object]:
        """Each node, running or not: its address, its state, and the partitions that it leads."""
        return list(self.broker.nodes)

    def list_acls(self) -> list[object]:
        """All ACLs."""
        return list(self.broker.acls)

    def remove_acls(self) -> None:
        """Remove all ACLs."""
        self.broker.acls.remove()

    # --- faults

    def add_fault(
        self,
        api: str | list[str] | None = None,
        script: list[dict[str, dict[str, Any]]] = [],  # noqa: B006  # never changed, and shown in the description
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
            script: what is done to the first request, the second one, and so on: each an object with the name of the
                action and its arguments, such as ``{"error": {"code": "NOT_COORDINATOR"}}``, ``{"delay": {"ms": 500}}``
                or ``{"lose_reply": {}}``.
            nth: the first matching request that counts.
            times: how often the script is played; null has no limit.
        """
        rule = self.broker.faults.on(
            api,
            *map(_action, script),
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

    def list_faults(self) -> list[dict[str, object]]:
        """The rules that were made through this port and not cancelled."""
        active = {id(rule) for rule in self.broker.faults}
        return [_rule(number, rule) for number, rule in tuple(self._rules.items()) if id(rule) in active]

    def wait_for_fault(self, rule: int, hits: int = 1, timeout_s: float = 30.0) -> dict[str, object]:
        """Wait until a rule has done something to *hits* requests."""
        return _rule(rule, self._rule(rule).wait(timeout_s, hits=hits))

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
    ) -> list[object]:
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
    ) -> object:
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
    "topics/set_racks": Controls.set_racks,
    "groups/wait_for": Controls.wait_for_group,
    "transactions/list": Controls.list_transactions,
    "nodes/list": Controls.list_nodes,
    "acls/list": Controls.list_acls,
    "acls/clear": Controls.remove_acls,
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


def _call(path: str, function: Callable[..., object], room: str | None) -> Call:
    hints = get_type_hints(function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        kind = hints[parameter.name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            fields.append((parameter.name, GenericAlias(list, (kind,)), msgspec.field(default_factory=list)))
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, parameter.default))
    name = path.replace("/", " ").title().replace(" ", "").replace("_", "")
    arguments = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    text = (inspect.getdoc(function) or "").partition("\nRaises:")[0].strip()
    return Call(path, arguments, text, function, room)


_ACTIONS: Final = {
    each.__name__: each
    for each in (
        faults.error,
        faults.coordinator_not_here,
        faults.drop,
        faults.close,
        faults.lose_reply,
        faults.cut_reply,
        faults.delay,
        faults.hold,
        faults.duplicate,
        faults.pass_through,
    )
}


def _action(described: Mapping[str, dict[str, Any]]) -> faults.Action:
    """The action that ``{"delay": {"ms": 500}}`` stands for."""
    if len(described) != 1 or not described.keys() <= _ACTIONS.keys():
        raise ConfigError(f"{dict(described)} is no action: give one of {', '.join(_ACTIONS)} and its arguments")
    [(name, given)] = described.items()
    arguments = dict(given)
    if "then" in arguments:
        arguments["then"] = _action(arguments["then"])
    if isinstance(code := arguments.get("code"), str):
        if code not in ErrorCode.__members__:
            raise ConfigError(f"{code!r} is no error code; give Kafka's name for it, or its number")
        arguments["code"] = ErrorCode[code]
    try:
        return _ACTIONS[name](**arguments)
    except TypeError as error:
        raise ConfigError(f"{name}: {error}") from error


def _rule(number: int, rule: FaultRule) -> dict[str, object]:
    return {"rule": number, "hits": rule.hits, "held": rule.held, "spent": rule.spent, "text": str(rule)}


def _record(record: BrokerRecord) -> dict[str, object]:
    """A record with its bytes as text; what is not UTF-8 gets replacement characters."""
    return {
        **msgspec.structs.asdict(record),
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": {name: _text(value) for name, value in record.headers},
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "replace")


def jsonable(value: object) -> object:
    """*value* for JSON: a mapping by partition becomes a list, as an object has only texts as keys."""
    if isinstance(value, LoggedRequest):
        return msgspec.json.decode(value.to_json())
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: jsonable(each) for key, each in value.items()}
        return [_row(key, each) for key, each in value.items()]
    if isinstance(value, msgspec.Struct):
        return {name: jsonable(each) for name, each in _attributes(value)}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(each) for each in value]
    return msgspec.to_builtins(value)


def _attributes(value: msgspec.Struct) -> Iterator[tuple[str, object]]:
    return ((name, getattr(value, name)) for name in value.__struct_fields__)


def _row(key: object, value: object) -> dict[str, object]:
    """``(topic, partition) -> value`` as one object; a partition alone has no topic."""
    topic, partition = key if isinstance(key, tuple) else (None, key)
    where = {"partition": partition} if topic is None else {"topic": topic, "partition": partition}
    return {**where, "value": jsonable(value)}
