"""Which partitions each connection fetches: a member must not read on what it has given away."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from kip848_client.testing.judge.client.consumer_member import JudgedConsumerMember
from kip848_client.testing.judge.client.findings import Exchange, Findings
from kip848_client.wire.messages.fetch import FetchRequest, FetchResponse, FetchTopic

_Named = tuple[str, int]

_STILL_UNDER_WAY_MS: Final = 2000
"""A fetch that is read so long after its partition was given away was sent afterwards."""
_NO_SESSION: Final = (0, -1)
_READERS_MAX: Final = 1000


class _Reader(msgspec.Struct):
    """One connection that fetches.

    Args:
        partitions: those of its fetch session, or of its last fetch.
        session_id: of the session; 0 without one.
        owner: the member of whose partitions it read; None as long as it is not sure.
    """

    partitions: set[_Named]
    session_id: int = 0
    owner: JudgedConsumerMember | None = None


class Fetches:
    """All connections that fetch.

    Args:
        members_of: the members of KIP-848 groups that a client id has.
        name_of: the name of a topic id, or the id as text.
    """

    def __init__(
        self,
        findings: Findings,
        *,
        members_of: Callable[[str], Iterable[JudgedConsumerMember]],
        name_of: Callable[[uuid.UUID], str],
    ) -> None:
        self._findings: Final = findings
        self._members_of: Final = members_of
        self._name_of: Final = name_of
        self._readers: Final[OrderedDict[int, _Reader]] = OrderedDict()

    def asked(self, exchange: Exchange) -> None:
        """Fetch, as it was sent: one of a session names only what is new."""
        request = exchange.request
        assert isinstance(request, FetchRequest)
        reader = self._readers.get(exchange.connection_id)
        named = self._named(request.topics)
        before: set[_Named] = set() if reader is None else set(reader.partitions)
        if reader is None:
            reader = self._readers[exchange.connection_id] = _Reader(named)
            if len(self._readers) > _READERS_MAX:
                self._readers.popitem(last=False)
        elif request.session_epoch in _NO_SESSION or request.session_id != reader.session_id:
            reader.partitions = named
        else:
            forgotten = {
                (topic.topic or self._name_of(topic.topic_id), index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            }
            reader.partitions = (reader.partitions - forgotten) | named
        owner = reader.owner
        if owner is None:
            members = list(self._members_of(exchange.client_id))
            if len(members) == 1 and reader.partitions and all(map(members[0].owns, reader.partitions)):
                reader.owner = members[0]
            return
        # What the connection has read all along; a partition that comes anew may be another reader's of this client.
        late: dict[int, list[_Named]] = {57: [], 68: [], 131: []}
        for partition in reader.partitions & before:
            gone = owner.gave_away(partition)
            if gone is not None and exchange.asked_ms - gone[0] > _STILL_UNDER_WAY_MS:
                late[gone[1]].append(partition)
        for rule, partitions in late.items():
            if partitions or rule == 68:
                self._findings.check(
                    rule,
                    not partitions,
                    exchange,
                    expected="a member stops reading what it gives up, before it says that it gave it up",
                    seen=f"a fetch of {', '.join(f'{topic}-{index}' for topic, index in sorted(partitions))}",
                )
        if any(late.values()):
            reader.owner = None

    def answered(self, exchange: Exchange) -> None:
        """Fetch was answered."""
        reader, response = self._readers.get(exchange.connection_id), exchange.response
        if reader is not None and isinstance(response, FetchResponse):
            reader.session_id = response.session_id

    def _named(self, topics: Iterable[FetchTopic]) -> set[_Named]:
        return {
            (topic.topic or self._name_of(topic.topic_id), part.partition)
            for topic in topics
            for part in topic.partitions
        }
