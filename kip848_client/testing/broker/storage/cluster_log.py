"""The content of cluster.log: topics, deletions, settings, reserved producer ids; as entries and as a state.

An entry is a JSON object. `ClusterState.replay` is the only way that the state changes, at a start and afterwards.
Files, and the repair of lost entries, are the business of `data_dir`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias
from uuid import UUID

import msgspec

from kip848_client.errors import DataDirError
from kip848_client.testing.broker.metadata.acls import Acl
from kip848_client.testing.broker.metadata.placement import COORDINATOR_TOPICS, PlacedPartition, TopicKey
from kip848_client.wire.sasl.scram import ScramCredential

CredentialKey: TypeAlias = tuple[str, str]
"""A user and a SCRAM mechanism."""

ConfigKind: TypeAlias = Literal["group", "broker", "client_metrics", "client_quota"]
"""A kind of resource whose settings are kept."""

_ENTRIES: Final = {
    "topic_created",
    "topic_deleted",
    "topic_lost",
    "partitions_added",
    "configs_changed",
    "resource_configs_changed",
    "acls_changed",
    "scram_changed",
    "scram_changes_forgotten",
    "leaders_elected",
    "partitions_placed",
    "producer_ids_reserved",
}
"""Kinds of entries of cluster.log."""


class StoredTopic(msgspec.Struct):
    """A topic as the folder knows it.

    Attributes:
        leader_epoch: grows with every start of a broker; the same for all partitions.
    """

    name: str
    topic_id: UUID
    partition_count: int
    configs: dict[str, str] = {}
    leader_epoch: int = 0


class ClusterState:
    """The sum of all entries.

    Attributes:
        topics: by id, in the order in which they were created.
        deleted: ids of topics that were deleted.
        configs: kind of a resource -> its name -> what was set for it.
        acls: who may do what.
        scram: what AlterUserScramCredentials set; None for what it deleted.
        producer_id_end: no producer id from here on was ever handed out.
        placements: topic id, or name of a coordinators' topic -> where its partitions are. Only clusters of several
            nodes write them.
    """

    def __init__(self) -> None:
        self.topics: dict[UUID, StoredTopic] = {}
        self.deleted: set[UUID] = set()
        self.configs: defaultdict[ConfigKind, dict[str, dict[str, str]]] = defaultdict(dict)
        self.acls: dict[Acl, None] = {}
        self.scram: dict[CredentialKey, ScramCredential | None] = {}
        self.producer_id_end: int = 0
        self.placements: dict[TopicKey, tuple[PlacedPartition, ...]] = {}

    def entries(self) -> Iterator[dict[str, object]]:
        """The fewest entries that lead to this state."""
        for topic in self.topics.values():
            yield topic_created(topic)
        for topic_id in sorted(self.deleted):
            yield topic_deleted(topic_id)
        for resource, named in self.configs.items():
            for name, configs in named.items():
                yield resource_configs_changed(resource, name, configs)
        if self.acls:
            yield acls_changed(added=self.acls, removed=())
        for (user, mechanism), credential in self.scram.items():
            yield scram_changed(user, mechanism, credential)
        for key, placed in self.placements.items():
            yield partitions_placed(key, placed)
        yield producer_ids_reserved(self.producer_id_end)

    def replay(self, entry: Mapping[str, object]) -> None:
        """Apply one entry of `decode_entry`.

        Raises:
            DataDirError: it lacks a field, or a field has another type.
        """
        try:
            self._apply(entry)
        except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise _newer(entry, f"cannot be applied ({error!r})") from error

    def _apply(self, entry: Mapping[str, object]) -> None:
        kind = entry["entry"]
        if kind == "producer_ids_reserved":
            self.producer_id_end = max(self.producer_id_end, _integer(entry["end"]))
            return
        if kind == "leaders_elected":
            for elected in self.topics.values():
                elected.leader_epoch += 1
            return
        if kind == "resource_configs_changed":
            of_kind = self.configs[msgspec.convert(entry["resource"], ConfigKind)]
            of_kind.pop(str(entry["name"]), None)
            if configs := _texts(entry["configs"]):
                of_kind[str(entry["name"])] = configs
            return
        if kind == "acls_changed":
            self.acls.update(dict.fromkeys(msgspec.convert(entry["added"], list[Acl])))
            for acl in msgspec.convert(entry["removed"], list[Acl]):
                self.acls.pop(acl, None)
            return
        if kind == "scram_changed":
            self.scram[str(entry["user"]), str(entry["mechanism"])] = msgspec.convert(
                entry["credential"], ScramCredential | None
            )
            return
        if kind == "scram_changes_forgotten":
            self.scram.clear()
            return
        if kind == "partitions_placed":
            self.placements[_topic_key(entry["topic"])] = msgspec.convert(
                entry["partitions"], tuple[PlacedPartition, ...]
            )
            return
        topic_id = UUID(str(entry["topic_id"]))
        topic = self.topics.get(topic_id)
        if kind == "topic_created":
            self.deleted.discard(topic_id)
            self.topics[topic_id] = StoredTopic(
                name=str(entry["topic"]),
                topic_id=topic_id,
                partition_count=_integer(entry["partitions"]),
                configs=_texts(entry["configs"]),
                leader_epoch=_integer(entry.get("leader_epoch", 0)),
            )
        elif kind == "topic_deleted":
            self.topics.pop(topic_id, None)
            self.placements.pop(topic_id, None)
            self.deleted.add(topic_id)
        elif kind == "topic_lost":
            self.topics.pop(topic_id, None)
        elif topic is None:
            pass  # its creation was in a damaged stretch; the topic's folder says all of it
        elif kind == "partitions_added":
            topic.partition_count = _integer(entry["partitions"])
        else:
            topic.configs = _texts(entry["configs"])


def encode_entry(entry: Mapping[str, object]) -> bytes:
    """The bytes of an entry."""
    return json.dumps(entry, separators=(",", ":")).encode()


def decode_entry(payload: bytes | memoryview) -> Mapping[str, object]:
    """Read an entry back.

    Raises:
        ValueError: it is not JSON.
        DataDirError: this version does not know what to do with it.
    """
    entry = json.loads(bytes(payload))
    if not isinstance(entry, dict) or entry.get("entry") not in _ENTRIES:
        raise _newer(entry, "cannot be understood")
    return entry


def topic_created(topic: StoredTopic) -> dict[str, object]:
    """A topic is there, with its whole description."""
    return {
        "entry": "topic_created",
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "partitions": topic.partition_count,
        "configs": topic.configs,
        "leader_epoch": topic.leader_epoch,
    }


def partitions_added(topic_id: UUID, partition_count: int) -> dict[str, object]:
    """A topic has that many partitions now."""
    return {"entry": "partitions_added", "topic_id": str(topic_id), "partitions": partition_count}


def topic_lost(topic_id: UUID) -> dict[str, object]:
    """A topic has no folder any more. If one comes back, the topic is restored from it; no file may be removed."""
    return {"entry": "topic_lost", "topic_id": str(topic_id)}


def configs_changed(topic_id: UUID, configs: Mapping[str, str]) -> dict[str, object]:
    """The whole configuration of a topic."""
    return {"entry": "configs_changed", "topic_id": str(topic_id), "configs": dict(configs)}


def producer_ids_reserved(end: int) -> dict[str, object]:
    """Producer ids below *end* may be in use."""
    return {"entry": "producer_ids_reserved", "end": end}


def leaders_elected() -> dict[str, object]:
    """A broker started, and leads every partition that was there with the next epoch."""
    return {"entry": "leaders_elected"}


def partitions_placed(key: TopicKey, placed: Sequence[PlacedPartition]) -> dict[str, object]:
    """Where all partitions of a topic are, who leads them, and with which epoch."""
    return {"entry": "partitions_placed", "topic": str(key), "partitions": msgspec.to_builtins(tuple(placed))}


def topic_deleted(topic_id: UUID) -> dict[str, object]:
    """A topic is gone, and its files may be removed."""
    return {"entry": "topic_deleted", "topic_id": str(topic_id)}


def resource_configs_changed(resource: ConfigKind, name: str, configs: Mapping[str, str]) -> dict[str, object]:
    """All that is set for a group, a broker, metrics of clients, or as a quota."""
    return {"entry": "resource_configs_changed", "resource": resource, "name": name, "configs": dict(configs)}


def acls_changed(*, added: Iterable[Acl], removed: Iterable[Acl]) -> dict[str, object]:
    """ACLs that are new, and ACLs that are gone."""
    return {
        "entry": "acls_changed",
        "added": msgspec.to_builtins(list(added)),
        "removed": msgspec.to_builtins(list(removed)),
    }


def scram_changed(user: str, mechanism: str, credential: ScramCredential | None) -> dict[str, object]:
    """The entry for a user's new credential; None if it was deleted."""
    return {
        "entry": "scram_changed",
        "user": user,
        "mechanism": mechanism,
        "credential": msgspec.to_builtins(credential),
    }


def scram_changes_forgotten() -> dict[str, object]:
    """The users themselves are the broker's."""
    return {"entry": "scram_changes_forgotten"}


def _newer(entry: object, what: str) -> DataDirError:
    return DataDirError(
        f"cluster.log: the entry {json.dumps(entry)[:80]} {what}; was it written by a newer version of kip848_client? "
        "Nothing was changed; use that version"
    )


def _topic_key(value: object) -> TopicKey:
    for name in COORDINATOR_TOPICS:
        if value == name:
            return name
    return UUID(str(value))


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return {str(name): str(text) for name, text in value.items()}
