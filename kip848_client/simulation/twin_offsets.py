"""What a member would do about each answer to committed(), and about none: R91 to R95, R98, R153 and R154.

Asked of twins; see `twins`. Does not own: look-ups of the member itself (`twin_positions`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from kip848_client.errors import (
    BrokerError,
    ErrorCode,
    FencedError,
    Kip848Error,
    RequestTimeoutError,
    TopicAuthorizationError,
)
from kip848_client.member.events import (
    CallAbandoned,
    FailureKind,
    FetchOffsetsRequested,
    OffsetsFetched,
    RequestFailed,
    ResponseReceived,
    SendRequest,
    SurfaceError,
)
from kip848_client.member.positions import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kip848_client.member.settings import ResetPolicy
from kip848_client.member.states import FATAL, IN_GROUP
from kip848_client.model import OffsetAndMetadata, TopicPartition
from kip848_client.simulation.twin_heartbeats import REASON, calm_down, expect_heartbeat, heartbeat_of
from kip848_client.simulation.twins import Twin
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

PASSES: Final = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS)
_ELSEWHERE: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
REFUSED: Final = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID)
RESETS: Final = {ResetPolicy.EARLIEST: EARLIEST_TIMESTAMP, ResetPolicy.LATEST: LATEST_TIMESTAMP}
"""Policy -> the timestamp that finds what it wants."""
_LIMIT_MS: Final = 60_000
_UNASKED: Final = 99


def group_of(sent: SendRequest) -> OffsetFetchRequestGroup:
    """What a request for committed offsets asks for."""
    assert isinstance(sent.request, OffsetFetchRequest)
    return sent.request.groups[0]


def partitions_of(sent: SendRequest) -> list[TopicPartition]:
    """The same, as partitions."""
    return [
        TopicPartition(topic.name, index) for topic in group_of(sent).topics or () for index in topic.partition_indexes
    ]


def answer_fetch(
    twin: Twin,
    sent: SendRequest,
    *,
    code: int = 0,
    found: Mapping[TopicPartition, OffsetAndMetadata | int | None] | None = None,
    by_name: bool = False,
) -> None:
    """Answer with a code for the group, or for each partition with an offset, an error code, or no offset.

    The answer says more than was asked for: offsets of another group, and of partitions that nobody asked for.

    Args:
        found: the partitions that the answer has; others are left out.
    """
    group = group_of(sent)
    topics, elsewhere = [], []
    for topic in group.topics or ():
        items = [OffsetFetchResponsePartitions(_UNASKED, 998, 1, "", 0)]
        for index in topic.partition_indexes:
            partition = TopicPartition(topic.name, index)
            if found is None or partition not in found:
                continue
            value = found[partition]
            if isinstance(value, OffsetAndMetadata):
                items.append(OffsetFetchResponsePartitions(index, value.offset, value.leader_epoch, value.metadata, 0))
            else:
                items.append(OffsetFetchResponsePartitions(index, -1, -1, "", value or 0))
        name, topic_id = (topic.name, topic.topic_id) if by_name or not topic.topic_id.int else ("", topic.topic_id)
        topics.append(OffsetFetchResponseTopics(name, topic_id, tuple(items)))
        others = tuple(OffsetFetchResponsePartitions(index, 999, 1, "", 0) for index in topic.partition_indexes)
        elsewhere.append(OffsetFetchResponseTopics(name, topic_id, others))
    answered = OffsetFetchResponseGroup(group.group_id, () if code else tuple(topics), code)
    other = OffsetFetchResponseGroup("another group", tuple(elsewhere), 0)
    twin.tell(ResponseReceived(sent.request_id, OffsetFetchResponse(groups=(answered, other))))


def ask_about_committed(twin: Twin, rng: random.Random) -> bool:
    """R91 to R95, R98, R153, R154: committed() of the application. False if there is no coordinator."""
    view = twin.member.view()
    if twin.member.coordinator is None or twin.is_in(*FATAL) or twin.closing:
        return False
    calm_down(twin)
    owned = sorted(tip.topic_partition for tip in view.assigned)
    asked = frozenset({*owned[: rng.randint(0, 2)], TopicPartition("a twin asks", 0), TopicPartition("a twin asks", 3)})
    number = twin.next_number()
    twin.tell(FetchOffsetsRequested(number, asked, twin.now_ms + _LIMIT_MS))
    sent = twin.asked(OffsetFetchRequest)
    if len(sent) != 1 or set(partitions_of(sent[0])) != asked:
        twin.wrong(f"must ask for {sorted(asked)}")
    _expect_question(twin, sent[0])
    choice = rng.choice(
        (_finds, _finds, _lacks, _is_unstable, _passes, _hurries, _moves, _is_refused, _is_stale, _fails, _ends)
    )
    choice(twin, _Question(number, sent[0], asked), rng)
    return True


class _Question:
    """One call of committed()."""

    def __init__(self, number: int, sent: SendRequest, asked: frozenset[TopicPartition]) -> None:
        self.number: Final = number
        self.sent: Final = sent
        self.asked: Final = asked


def _expect_question(twin: Twin, sent: SendRequest) -> None:
    """R91, R114: as whom, and by which names."""
    request, group, view = sent.request, group_of(sent), twin.member.view()
    assert isinstance(request, OffsetFetchRequest)
    wanted = (twin.config.group_id, view.member_id if view.member_epoch > 0 else None, view.member_epoch)
    if (group.group_id, group.member_id, group.member_epoch) != wanted or not request.require_stable:
        twin.wrong(f"must ask for stable offsets as {wanted}")
    ids = {tip.topic: tip.topic_id for tip in view.assigned}
    unknown = any(topic.name not in ids for topic in group.topics or ())
    if sent.max_version != (9 if unknown else None) or sent.timeout_ms != twin.config.request_timeout_ms:
        twin.wrong("must ask by name where it knows no id")
    if any(topic.topic_id.int and topic.topic_id != ids.get(topic.name) for topic in group.topics or ()):
        twin.wrong("asks for another topic")


def _told(twin: Twin, question: _Question) -> list[OffsetsFetched]:
    return [effect for effect in twin.did(OffsetsFetched) if effect.fetch_id == question.number]


def _error(twin: Twin, question: _Question) -> Kip848Error:
    told = _told(twin, question)
    if len(told) != 1 or told[0].error is None or told[0].offsets:
        twin.wrong("must fail, and find nothing")
    return told[0].error


def _finds(twin: Twin, question: _Question, rng: random.Random) -> None:
    """Offset 0 is one; a partition without an offset is no error; others are none of its business."""
    found: dict[TopicPartition, OffsetAndMetadata | int | None] = {
        partition: rng.choice((OffsetAndMetadata(0, 0, "told"), OffsetAndMetadata(5, 2, ""), None))
        for partition in sorted(question.asked)
    }
    answer_fetch(twin, question.sent, found=found, by_name=rng.random() < 0.5)
    told = _told(twin, question)
    wanted = {partition: value for partition, value in found.items() if value is not None}
    if len(told) != 1 or told[0].error is not None or told[0].offsets != wanted:
        twin.wrong(f"must find {wanted}")


def _lacks(twin: Twin, question: _Question, rng: random.Random) -> None:
    """R92: a partition that the answer leaves out, or that has an error, is not one without an offset."""
    first = min(question.asked)
    code = rng.choice((None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    found: dict[TopicPartition, OffsetAndMetadata | int | None] = {
        partition: OffsetAndMetadata(5, 0) for partition in question.asked if partition != first
    }
    if code is not None:
        found[first] = int(code)
    answer_fetch(twin, question.sent, found=found)
    error = _error(twin, question)
    if not isinstance(error, BrokerError) or error.code != (ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code):
        twin.wrong(f"must say that {first} failed with {code}")
    if isinstance(error, TopicAuthorizationError) and error.topics != (first.topic,):
        twin.wrong(f"must name the topic {first.topic}")
    if first.topic not in str(error):
        twin.wrong(f"must name {first}")


def _is_unstable(twin: Twin, question: _Question, rng: random.Random) -> None:
    """R95: one partition waits for a transaction."""
    found: dict[TopicPartition, OffsetAndMetadata | int | None] = dict.fromkeys(question.asked, OffsetAndMetadata(5, 0))
    found[max(question.asked)] = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
    answer_fetch(twin, question.sent, found=found)
    _expect_retry(twin, question, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _passes(twin: Twin, question: _Question, rng: random.Random) -> None:
    code = rng.choice(PASSES)
    answer_fetch(twin, question.sent, code=code)
    if twin.member.coordinator is None:
        twin.wrong("must keep the coordinator")
    _expect_retry(twin, question, code)


def _hurries(twin: Twin, question: _Question, rng: random.Random) -> None:
    """Another call has less time than the back-off takes: nothing is asked for it any more."""
    hurried, limit_ms = twin.next_number(), max(1, twin.least_backoff_ms // 2)
    partition = TopicPartition("a twin asks", 7)
    twin.tell(FetchOffsetsRequested(hurried, frozenset({partition}), twin.now_ms + limit_ms))
    sent = twin.asked(OffsetFetchRequest)
    if len(sent) != 1 or partitions_of(sent[0]) != [partition]:
        twin.wrong(f"must ask for {partition}")
    answer_fetch(twin, sent[0], code=rng.choice(PASSES))
    twin.wait(limit_ms - 1)
    if twin.did_any(OffsetsFetched):
        twin.wrong("must wait until the deadline")
    twin.wait(1)
    told = [(effect.fetch_id, type(effect.error)) for effect in twin.did(OffsetsFetched)]
    if told != [(hurried, RequestTimeoutError)]:
        twin.wrong("must say that time is over, however long the back-off takes")
    twin.wait(twin.longest_backoff_ms)
    if any(partitions_of(one) == [partition] for one in twin.asked(OffsetFetchRequest)):
        twin.wrong("must not ask again for somebody who does not wait any more")


def _expect_retry(twin: Twin, question: _Question, code: int) -> None:
    if _told(twin, question) or twin.asked(OffsetFetchRequest) or twin.did_any(SurfaceError):
        twin.wrong("must wait, and ask again")
    twin.wait(twin.least_backoff_ms - 1)
    if any(set(partitions_of(one)) == question.asked for one in twin.asked(OffsetFetchRequest)):
        twin.wrong("asks again before its back-off is over")
    twin.wait(int(1.2 * twin.config.retry_backoff_ms) - twin.least_backoff_ms + 2)
    again = [one for one in twin.asked(OffsetFetchRequest) if set(partitions_of(one)) == question.asked]
    if twin.is_in(*FATAL):
        return
    if len(again) != 1:
        twin.wrong("must ask again")
    twin.wait(_LIMIT_MS)
    error = _error(twin, question)
    cause = error.__cause__
    if not isinstance(error, RequestTimeoutError) or not isinstance(cause, BrokerError) or cause.code != code:
        twin.wrong(f"must say that time is over, and why: {code}")
    if str(cause) not in str(error):
        twin.wrong(f"must name the last error, {cause}")
    answer_fetch(twin, again[0], code=PASSES[0])
    twin.wait(twin.longest_backoff_ms)
    if any(set(partitions_of(one)) == question.asked for one in twin.asked(OffsetFetchRequest)):
        twin.wrong("must not ask again for somebody who does not wait any more")


def _moves(twin: Twin, question: _Question, rng: random.Random) -> None:
    view = twin.member.view()
    answer_fetch(twin, question.sent, code=rng.choice(_ELSEWHERE))
    if twin.member.coordinator is not None or twin.member.view() is not view or _told(twin, question):
        twin.wrong("must forget the coordinator, and ask the next one")


def _is_refused(twin: Twin, question: _Question, rng: random.Random) -> None:
    code = rng.choice(REFUSED)
    answer_fetch(twin, question.sent, code=code)
    error = _error(twin, question)
    if not isinstance(error, BrokerError) or error.code != code or twin.config.group_id not in str(error):
        twin.wrong(f"must raise {code}")
    if error.fatal or twin.did_any(SurfaceError):
        twin.wrong("must go on")


def _is_stale(twin: Twin, question: _Question, rng: random.Random) -> None:
    """R37, R93: another epoch may do; without one, none will."""
    member = twin.member.view().member_epoch > 0
    code = rng.choice((ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID))
    before, idle = twin.membership, heartbeat_of(twin) is None
    answer_fetch(twin, question.sent, code=code)
    if twin.membership != before:
        twin.wrong("must hear from a heartbeat alone what became of its membership")
    if code == ErrorCode.STALE_MEMBER_EPOCH and member:
        if _told(twin, question):
            twin.wrong("must ask again with the next epoch")
    elif not isinstance(error := _error(twin, question), FencedError) or error.code != code:
        twin.wrong(f"must raise {code}")
    if idle and twin.is_in(*IN_GROUP):
        expect_heartbeat(twin)


def _fails(twin: Twin, question: _Question, rng: random.Random) -> None:
    kind = rng.choice(list(FailureKind))
    twin.tell(RequestFailed(question.sent.request_id, kind, REASON))
    if twin.member.coordinator is not None:
        twin.wrong("must not go on with a connection of no use")
    if kind in {FailureKind.TIMED_OUT, FailureKind.DISCONNECTED}:
        if _told(twin, question):
            twin.wrong("must ask again")
        twin.wait(_LIMIT_MS - 1)
        if _told(twin, question):
            twin.wrong("must try until the deadline")
        twin.wait(1)
        if not isinstance(_error(twin, question), RequestTimeoutError):
            twin.wrong("must say that time is over")
    if REASON not in str(_error(twin, question)):
        twin.wrong("must tell what went wrong")


def _ends(twin: Twin, question: _Question, rng: random.Random) -> None:
    """R98, R153: who asks for the same shares the answer; who does not wait any more is not told."""
    other, later = twin.next_number(), twin.next_number()
    twin.tell(FetchOffsetsRequested(other, question.asked, twin.now_ms + _LIMIT_MS))
    asked = twin.asked(OffsetFetchRequest)
    twin.tell(FetchOffsetsRequested(later, frozenset(), twin.now_ms + _LIMIT_MS))
    asked += twin.asked(OffsetFetchRequest)
    if asked or [effect.fetch_id for effect in twin.did(OffsetsFetched)] != [later]:
        twin.wrong("must share the answer, and answer at once whoever asks for nothing")
    twin.tell(CallAbandoned(question.number))
    both = rng.random() < 0.3
    if both:
        twin.tell(CallAbandoned(other))
    answer_fetch(twin, question.sent, found=dict.fromkeys(question.asked))
    told = [effect.fetch_id for effect in twin.did(OffsetsFetched)]
    if told != [other] * (not both):
        twin.wrong("must tell those who still wait, and nobody else")
