"""`Referee`: is told of every request and answer, and hands each to the member, session and pace that it concerns."""

from __future__ import annotations

import uuid
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Final

from kip848_client.testing.judge.client.classic_member import JudgedClassicGroup
from kip848_client.testing.judge.client.consumer_member import JudgedConsumerMember
from kip848_client.testing.judge.client.fetches import Fetches
from kip848_client.testing.judge.client.findings import BrokenRule, Exchange, Findings
from kip848_client.testing.judge.client.pace import Pace
from kip848_client.testing.judge.client.share_member import JudgedShareMember
from kip848_client.testing.judge.verdicts import BROKER, Said
from kip848_client.testing.judge.wording import Wording
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_protocol import CONSUMER_PROTOCOL
from kip848_client.wire.messages.fetch import FetchRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from kip848_client.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from kip848_client.wire.messages.share_fetch import ShareFetchRequest
from kip848_client.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kip848_client.wire.messages.sync_group import SyncGroupRequest
from kip848_client.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from kip848_client.wire.schema import Request, Response

JUDGED: Final = {
    6: "no member left",
    10: "no member joined a group with group.protocol=consumer",
    11: "no member joined with version 1 of the heartbeat",
    21: "no lookup of a coordinator was refused",
    27: "no member was in a group for two heartbeats",
    28: "no member was in a group for two heartbeats",
    29: "no member was in a group for two heartbeats",
    33: "no heartbeat or join was refused with a code that may be tried again",
    36: "no member was in a group for two heartbeats",
    40: "no heartbeat failed",
    42: "no member reported partitions",
    46: "no member left",
    48: "no coordinator moved",
    50: "no heartbeat followed another one on the same connection",
    57: "no member was removed",
    68: "no member gave a partition away while its process went on reading",
    72: "no member acknowledged an assignment",
    91: "no member looked up committed offsets with its epoch",
    92: "no lookup of offsets was refused",
    102: "no member committed",
    104: "no member committed",
    105: "no commit was refused with a code that may be tried again",
    131: "no member left while its process went on reading",
    132: "no member left",
    143: "no member was static",
    200: "no member joined a classic group",
    201: "no member joined a classic group",
    203: "no cooperative member of a classic group joined again",
    204: "no eager member of a classic group heard of a rebalance",
    205: "no assignment of a classic group took something from a member",
    207: "no member of a classic group sent heartbeats",
    210: "no member of a classic group committed",
    211: "no member left a classic group",
    212: "no member led a classic group",
    275: "no member committed",
    320: "no member joined a share group",
    322: "no heartbeat to a share group failed",
    325: "no member was in a share group for two heartbeats",
    326: "no coordinator of a share group moved",
    329: "no member left a share group",
    330: "no member of a share group asked for records twice",
    334: "no member of a share group acknowledged records",
    336: "no share session was lost",
}
"""Rules of docs/protocol.md that the referee judges -> why one of them was not put to the test."""

_OF_ALL: Final = frozenset({21, 33, 92, 105})

_STORY_MAX: Final = 16
"""Requests of each member that are remembered."""
_PENDING_MAX: Final = 20_000
_ALIVE_EVERY_MS: Final = 200
_ALIVE_MAX: Final = 500


_Sender = tuple[str, str]
"""Group and member id."""


class Referee:
    """Judges the members of all groups that one broker, or one proxy, hears of.

    Args:
        topic_name: the name of a topic id; None if it is not known.
        ignore: numbers of rules that are not judged.

    Attributes:
        findings: what was found so far.
    """

    def __init__(self, *, topic_name: Callable[[uuid.UUID], str | None], ignore: Iterable[int] = ()) -> None:
        self._topic_name: Final = topic_name
        self.findings: Final = Findings(self._describe, ignore=frozenset(ignore))
        self._wording: Final = Wording(topic_name)
        self._number = 0
        self._pending: Final[OrderedDict[tuple[int, int], Exchange]] = OrderedDict()
        self._consumers: Final[dict[tuple[str, str], JudgedConsumerMember]] = {}
        self._shares: Final[dict[tuple[str, str], JudgedShareMember]] = {}
        self._classics: Final[dict[str, JudgedClassicGroup]] = {}
        self._clients: Final[defaultdict[str, dict[tuple[str, str], JudgedConsumerMember]]] = defaultdict(dict)
        """Client id -> its members of KIP-848 groups."""
        self._lookups: Final[dict[str, int]] = {}
        self._lookup_ms: Final[dict[str, int]] = {}
        self._alive: Final[defaultdict[object, deque[int]]] = defaultdict(lambda: deque(maxlen=_ALIVE_MAX))
        """Connection, or client id -> when it sent something other than heartbeats."""
        self._stories: Final[defaultdict[_Sender, deque[Exchange]]] = defaultdict(lambda: deque(maxlen=_STORY_MAX))
        self._fetches: Final = Fetches(
            self.findings,
            members_of=lambda client_id: self._clients.get(client_id, {}).values(),
            name_of=self._name_of,
        )
        self._pace: Final = Pace(self.findings)

    @property
    def broken(self) -> BrokenRule | None:
        """The first request that broke a rule."""
        return next(iter(self.findings.broken), None)

    @property
    def members(self) -> int:
        """How many members of groups were seen."""
        return len(self._stories)

    def untried(self) -> dict[int, str]:
        """Rules that were not put to the test -> why; those of a protocol that nobody used are left out."""
        used = {
            "consumer": bool(self._consumers),
            "classic": bool(self._classics),
            "share": bool(self._shares),
        }
        anybody = any(used.values())
        return {
            number: why
            for number, why in JUDGED.items()
            if number not in self.findings.kept and (not anybody or any(used[kind] for kind in _kinds_of(number)))
        }

    def asked(
        self,
        request: Request[Response],
        *,
        connection_id: int,
        correlation_id: int,
        client_id: str | None,
        api_version: int,
        now_ms: int,
    ) -> None:
        """A request was read, as the client sent it."""
        self._number += 1
        exchange = Exchange(
            number=self._number,
            connection_id=connection_id,
            client_id=client_id or "",
            api_version=api_version,
            request=request,
            asked_ms=now_ms,
        )
        sender = _sender(request)
        if not isinstance(request, ConsumerGroupHeartbeatRequest | HeartbeatRequest | ShareGroupHeartbeatRequest):
            self._is_alive(exchange)
        if not sender and not isinstance(request, FetchRequest | FindCoordinatorRequest | JoinGroupRequest):
            return
        self._pending[connection_id, correlation_id] = exchange
        if len(self._pending) > _PENDING_MAX:
            self._pending.popitem(last=False)
        if sender:
            self._stories[sender].append(exchange)
        self._judge(exchange)
        self._pace.asked(exchange, sender=sender)

    def answered(self, response: Response | None, *, connection_id: int, correlation_id: int, now_ms: int) -> None:
        """The answer was written; None if it was lost on purpose."""
        exchange = self._pending.pop((connection_id, correlation_id), None)
        if exchange is None:
            return
        request = exchange.request
        if response is None:
            exchange.lost = True
            if isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest):
                self._share(request).lost(exchange)
            return
        exchange.response, exchange.answered_ms = response, now_ms
        match request:
            case ConsumerGroupHeartbeatRequest():
                member = self._consumer(exchange, request)
                if not request.member_id and isinstance(response, ConsumerGroupHeartbeatResponse):
                    self._adopt(exchange, request, response, member)
                member.answered(exchange)
            case ShareFetchRequest() | ShareAcknowledgeRequest():
                self._share(request).told(exchange)
            case JoinGroupRequest() if request.protocol_type == CONSUMER_PROTOCOL:
                self._classic(request.group_id).joined(exchange)
                if not request.member_id and (member_id := getattr(response, "member_id", "")):
                    self._stories[request.group_id, member_id].append(exchange)
            case SyncGroupRequest():
                self._classic(request.group_id).synced(exchange)
            case HeartbeatRequest():
                self._classic(request.group_id).heard(exchange)
            case FetchRequest():
                self._fetches.answered(exchange)
            case _:
                pass

    def missed(self, rule: int, sender: _Sender, *, expected: str, seen: str) -> None:
        """A member did not do in time what a rule demands."""
        story = self._stories.get(sender)
        if story:
            self.findings.check(rule, False, story[-1], expected=expected, seen=seen)

    # --- who is concerned

    def _judge(self, exchange: Exchange) -> None:
        request = exchange.request
        match request:
            case ConsumerGroupHeartbeatRequest():
                self._consumer(exchange, request).heartbeat(exchange)
            case OffsetCommitRequest() | TxnOffsetCommitRequest():
                consumer = self._consumers.get((request.group_id, request.member_id))
                if consumer is not None:
                    partitions = {
                        (topic.name or self._name_of(topic.topic_id), part.partition_index)
                        for topic in request.topics
                        for part in topic.partitions
                    }
                    consumer.commit(exchange, request, partitions=partitions)
                elif request.group_id in self._classics:
                    self._classics[request.group_id].commit(exchange, request)
            case OffsetFetchRequest():
                for group in request.groups:
                    asking = self._consumers.get((group.group_id, group.member_id or ""))
                    if asking is not None:
                        asking.look_up(exchange, epoch=group.member_epoch)
            case FindCoordinatorRequest():
                self._lookups[exchange.client_id] = exchange.number
                self._lookup_ms[exchange.client_id] = exchange.asked_ms
            case FetchRequest():
                self._fetches.asked(exchange)
            case JoinGroupRequest() if request.protocol_type in {CONSUMER_PROTOCOL, ""}:
                self._classic(request.group_id).join(exchange)
            case SyncGroupRequest():
                self._classic(request.group_id).sync(exchange)
            case HeartbeatRequest():
                self._classic(request.group_id).heartbeat(exchange)
            case LeaveGroupRequest():
                self._classic(request.group_id).leave(exchange)
            case ShareGroupHeartbeatRequest():
                self._share(request).heartbeat(exchange)
            case ShareFetchRequest() | ShareAcknowledgeRequest():
                self._share(request).talks(exchange)
            case _:
                pass

    def _consumer(self, exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> JudgedConsumerMember:
        # Up to version 0 the coordinator makes the id, and the first joins of a connection have none.
        member_id = request.member_id or f"connection {exchange.connection_id}"
        key = (request.group_id, member_id)
        member = self._consumers.get(key)
        if member is None:
            member = self._consumers[key] = JudgedConsumerMember(
                self.findings,
                member_id=member_id,
                name_of=self._name_of,
                looked_up=lambda client_id: self._lookups.get(client_id, 0),
                was_alive=self._was_alive,
            )
            self._clients[exchange.client_id][key] = member
        return member

    def _adopt(
        self,
        exchange: Exchange,
        request: ConsumerGroupHeartbeatRequest,
        response: ConsumerGroupHeartbeatResponse,
        member: JudgedConsumerMember,
    ) -> None:
        """A member goes on under the id that the coordinator has made."""
        if response.member_id and not response.error_code:
            key = (request.group_id, f"connection {exchange.connection_id}")
            self._consumers.pop(key, None)
            self._clients[exchange.client_id].pop(key, None)
            self._consumers[request.group_id, response.member_id] = member
            self._clients[exchange.client_id][request.group_id, response.member_id] = member

    def _classic(self, group_id: str) -> JudgedClassicGroup:
        group = self._classics.get(group_id)
        if group is None:
            group = self._classics[group_id] = JudgedClassicGroup(self.findings)
        return group

    def _share(
        self, request: ShareGroupHeartbeatRequest | ShareFetchRequest | ShareAcknowledgeRequest
    ) -> JudgedShareMember:
        key = (request.group_id or "", request.member_id or "")
        member = self._shares.get(key)
        if member is None:
            member = self._shares[key] = JudgedShareMember(
                self.findings,
                member_id=key[1],
                name_of=self._name_of,
                looked_up=lambda client_id: self._lookups.get(client_id, 0),
            )
        return member

    # --- what is remembered

    def _is_alive(self, exchange: Exchange) -> None:
        for who in (exchange.connection_id, exchange.client_id):
            times = self._alive[who]
            if not times or exchange.asked_ms - times[-1] >= _ALIVE_EVERY_MS:
                times.append(exchange.asked_ms)

    def _was_alive(self, exchange: Exchange, since_ms: int) -> bool:
        """Whether the client sent other requests in each third of the time since *since_ms*, and knows where to."""
        if self._lookup_ms.get(exchange.client_id, since_ms) > since_ms:
            return False
        who: object = exchange.connection_id
        if len(self._clients.get(exchange.client_id, {})) == 1:
            who = exchange.client_id
        third_ms = (exchange.asked_ms - since_ms) / 3
        thirds = {int((at - since_ms) // third_ms) for at in self._alive.get(who, ()) if at > since_ms}
        return thirds >= {0, 1, 2}

    def _name_of(self, topic_id: uuid.UUID) -> str:
        return self._topic_name(topic_id) or str(topic_id)

    # --- in words

    def _describe(self, exchange: Exchange) -> tuple[str, str, tuple[Said, ...]]:
        sender = _sender(exchange.request)
        story = self._stories.get(sender, deque()) if sender else deque([exchange])
        name = _named(sender, exchange)
        said: list[tuple[int, Said]] = []
        for one in story:
            said.append((one.asked_ms, Said(name, BROKER, self._wording.message(one.request))))
            if one is exchange:
                break
            if one.response is not None and one.answered_ms is not None:
                said.append((one.answered_ms, Said(BROKER, name, self._wording.message(one.response))))
        last = said.pop()
        said.sort(key=lambda item: item[0])
        said.append(last)
        told = tuple(
            Said(one.sender, one.receiver, f"{_ago(exchange.asked_ms - at_ms)}{one.text}") for at_ms, one in said
        )
        return name, self._wording.message(exchange.request), told


def _kinds_of(rule: int) -> tuple[str, ...]:
    """The protocols whose members a rule is about."""
    if rule in _OF_ALL:
        return "consumer", "classic", "share"
    return ("classic",) if 200 <= rule <= 212 else ("share",) if 320 <= rule <= 336 else ("consumer",)


def _sender(request: Request[Response]) -> _Sender | None:
    """Group and member of a request; None for one that is not a member's."""
    match request:
        case OffsetFetchRequest(groups=(group, *_)):
            return (group.group_id, group.member_id) if group.member_id else None
        case LeaveGroupRequest(members=(member, *_)):
            return request.group_id, member.member_id
        case JoinGroupRequest() | ConsumerGroupHeartbeatRequest():
            return request.group_id, request.member_id
        case _:
            member_id = getattr(request, "member_id", "")
            return (getattr(request, "group_id", "") or "", member_id) if member_id else None


def _named(sender: _Sender | None, exchange: Exchange) -> str:
    """A member in words: its client, and as much of its id as tells it apart."""
    client = exchange.client_id or f"connection {exchange.connection_id}"
    if sender is None or not sender[1]:
        return client
    return f"{client} ({sender[1].removeprefix(f'{client}-')[:8]}) of {sender[0]}"


def _ago(ms: int) -> str:
    return f"{ms / 1000:.3f} s before: " if ms else ""
