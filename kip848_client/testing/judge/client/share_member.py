"""A member of a share group, as its heartbeats, its sessions and its acknowledgements show it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final

import msgspec

from kip848_client.common.error_codes import ErrorCode, error_name
from kip848_client.testing.judge.client.epoch_member import EpochMember, Lookups, NameOf, epochs_text
from kip848_client.testing.judge.client.findings import Exchange, Findings, was_heard
from kip848_client.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kip848_client.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from kip848_client.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

_Partition = tuple[uuid.UUID, int]

_NO_SESSION: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
_EPOCH_MAX: Final = 2**31 - 1
_PIPELINED_MS: Final = 1000
_RENEW: Final = 4


class _Session(msgspec.Struct):
    """A share session on one connection.

    Args:
        next_epochs: those that the next request may have.
        last: the last request.
    """

    next_epochs: tuple[int, ...]
    last: Exchange


class JudgedShareMember(EpochMember):
    """One member of one share group."""

    def __init__(self, findings: Findings, *, member_id: str, name_of: NameOf, looked_up: Lookups) -> None:
        super().__init__(findings, member_id=member_id, name_of=name_of, looked_up=looked_up)
        self._names: tuple[str, ...] | None = None
        self._sessions: Final[dict[int, _Session]] = {}
        self._acquired: Final[dict[_Partition, dict[int, int]]] = {}
        """Partition -> offsets that the member may acknowledge, with when their lock ends."""

    # --- heartbeats

    def heartbeat(self, exchange: Exchange) -> None:
        """The member sends one."""
        request = exchange.request
        assert isinstance(request, ShareGroupHeartbeatRequest)
        check, epoch = self._findings.check, request.member_epoch
        heard = was_heard(self._last, exchange)
        self._learn(heard=heard)
        if epoch == 0:
            missing = [
                *(["MemberId"] if not request.member_id else []),
                *(["SubscribedTopicNames"] if not request.subscribed_topic_names else []),
            ]
            check(
                320,
                not missing,
                exchange,
                expected="a join has the client's own member id and all topics",
                seen=f"a join without {' and '.join(missing)}",
            )
            if heard and self._left is None and self._removed is None:
                check(
                    325,
                    0 in self._epochs,
                    exchange,
                    expected=f"epoch {epochs_text(self._epochs)}: the member is in the group, and nobody removed it",
                    seen="epoch 0, which joins",
                )
            if self._removed is not None:
                check(325, True, exchange, expected="", seen="")
            self._epochs, self._removed, self._left = {0}, None, None
        elif epoch > 0:
            self._check_epoch(exchange, epoch, heard=heard)
            if full_due := self._full_due():
                check(
                    322,
                    request.subscribed_topic_names is not None,
                    exchange,
                    expected=f"the topics, because the heartbeat before it {full_due}",
                    seen="a heartbeat without SubscribedTopicNames",
                )
            elif request.subscribed_topic_names is not None and self._names == request.subscribed_topic_names:
                self._findings.note(321, exchange, "repeats its subscription although it has not changed")
        else:
            check(
                329,
                epoch == -1,
                exchange,
                expected="a member of a share group leaves with epoch -1",
                seen=f"epoch {epoch}",
            )
            self._left, self._epochs, self._removed = exchange, {0}, None
        if request.subscribed_topic_names is not None:
            self._names = request.subscribed_topic_names
        self._last = exchange

    def _full_due(self) -> str:
        """Why this heartbeat has to have all fields, if it has to."""
        if self._unanswered:
            return "had no answer"
        refused = self._refused
        if refused is None or getattr(refused.request, "subscribed_topic_names", None) is None:
            return ""
        return f"was answered with {error_name(refused.error_code)}"

    def _check_epoch(self, exchange: Exchange, epoch: int, *, heard: bool) -> None:
        check = self._findings.check
        if self._removed is not None:
            check(
                325,
                False,
                exchange,
                expected="a removed member joins again with epoch 0",
                seen=f"epoch {epoch} after {error_name(self._removed.error_code)}",
            )
        elif self._left is not None:
            check(
                329,
                self._left.connection_id != exchange.connection_id,
                exchange,
                expected="nothing follows the heartbeat that leaves, unless it is a join",
                seen=f"epoch {epoch} after it",
            )
        else:
            check(
                325,
                epoch in self._epochs,
                exchange,
                expected=f"the epoch of the last answer: {epochs_text(self._epochs - {0}) or 'none was given yet'}",
                seen=f"epoch {epoch}",
            )
            self._check_moved(326, exchange, heard=heard)

    # --- sessions and records

    def talks(self, exchange: Exchange) -> None:
        """The member sends ShareFetch or ShareAcknowledge."""
        request = exchange.request
        assert isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest)
        check, epoch, connection = self._findings.check, request.share_session_epoch, exchange.connection_id
        session = self._sessions.get(connection)
        if session is not None:
            last = session.last
            waiting = last.response is None and not last.lost and exchange.asked_ms - last.asked_ms < _PIPELINED_MS
            check(
                330,
                not waiting or epoch < 0,
                exchange,
                expected="at most one request of a share session is under way",
                seen="another one before the last was answered",
            )
            allowed = self._next_epochs(session)
            if not waiting:
                rule = 336 if last.error_code in _NO_SESSION else 330
                check(
                    rule,
                    epoch in allowed or epoch < 0,
                    exchange,
                    expected=f"share session epoch {epochs_text(allowed)}",
                    seen=f"share session epoch {epoch}",
                )
        has_said = any(part.acknowledgement_batches for topic in request.topics for part in topic.partitions)
        if epoch == 0:
            check(
                330,
                not has_said,
                exchange,
                expected="the request that opens a share session acknowledges nothing",
                seen="acknowledgements in it",
            )
        self._sessions[connection] = _Session(next_epochs=(), last=exchange)
        while len(self._sessions) > 100:
            del self._sessions[next(iter(self._sessions))]
        self._check_acknowledged(exchange, request)

    def told(self, exchange: Exchange) -> None:
        """ShareFetch or ShareAcknowledge was answered."""
        response = exchange.response
        if isinstance(response, ShareFetchResponse):
            now_ms = exchange.answered_ms or exchange.asked_ms
            ends_ms = now_ms + response.acquisition_lock_timeout_ms
            for topic in response.responses:
                for part in topic.partitions:
                    known = self._acquired.setdefault((topic.topic_id, part.partition_index), {})
                    for batch in part.acquired_records:
                        known.update(dict.fromkeys(range(batch.first_offset, batch.last_offset + 1), ends_ms))
        if isinstance(response, ShareFetchResponse | ShareAcknowledgeResponse):
            refused = {
                (topic.topic_id, part.partition_index)
                for topic in response.responses
                for part in topic.partitions
                if part.error_code or getattr(part, "acknowledge_error_code", 0)
            }
            if response.error_code or refused:
                self._may_say_again(exchange, None if response.error_code else refused, ends_ms=exchange.asked_ms)

    def _next_epochs(self, session: _Session) -> tuple[int, ...]:
        last = session.last
        request = last.request
        assert isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest)
        epoch = request.share_session_epoch
        following = 1 if epoch >= _EPOCH_MAX else epoch + 1
        if epoch < 0 or last.error_code in _NO_SESSION:
            return (0,)
        if last.response is None or last.error_code:
            return (0, epoch, following)
        return (following,)

    def _check_acknowledged(self, exchange: Exchange, request: ShareFetchRequest | ShareAcknowledgeRequest) -> None:
        for (topic_id, index), offset, kind in _acknowledged(request):
            known = self._acquired.get((topic_id, index), {})
            if not self._findings.check(
                334,
                offset in known,
                exchange,
                expected="a member acknowledges records that it acquired, each of them once",
                seen=f"offset {offset} of {self._name_of(topic_id)}-{index}, "
                "which it did not acquire, or has acknowledged before",
            ):
                return
            if exchange.asked_ms > known[offset]:
                self._findings.note(338, exchange, "acknowledges records whose lock has ended")
            if kind != _RENEW:
                del known[offset]

    def _may_say_again(self, exchange: Exchange, partitions: set[_Partition] | None, *, ends_ms: int) -> None:
        request = exchange.request
        assert isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest)
        for partition, offset, _ in _acknowledged(request):
            if partitions is None or partition in partitions:
                self._acquired.setdefault(partition, {}).setdefault(offset, ends_ms)

    def lost(self, exchange: Exchange) -> None:
        """The answer to ShareFetch or ShareAcknowledge was lost: the client cannot know what became of it."""
        self._may_say_again(exchange, None, ends_ms=exchange.asked_ms)


def _acknowledged(request: ShareFetchRequest | ShareAcknowledgeRequest) -> Iterator[tuple[_Partition, int, int]]:
    """(partition, offset, kind) of everything that a request acknowledges."""
    for topic in request.topics:
        for part in topic.partitions:
            for batch in part.acknowledgement_batches:
                kinds = batch.acknowledge_types
                for place, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
                    kind = kinds[place] if place < len(kinds) else kinds[0] if kinds else 0
                    yield (topic.topic_id, part.partition_index), offset, kind
