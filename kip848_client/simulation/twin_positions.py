"""What a member would do about each answer to a question for positions, and about none: R90 to R101.

Asked of twins; see `twins`. Does not own: committed() of the application (`twin_offsets`).
"""

from __future__ import annotations

import random

from kip848_client.errors import (
    BrokerError,
    ErrorCode,
    NoOffsetForPartitionError,
    ProtocolError,
    TopicAuthorizationError,
)
from kip848_client.member.events import (
    FailureKind,
    FetchOffsetsRequested,
    ListOffsets,
    OffsetsListed,
    PositionLost,
    PositionSet,
    RequestFailed,
    SendRequest,
    StartFetching,
    SurfaceError,
)
from kip848_client.member.positions import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kip848_client.member.states import IN_GROUP
from kip848_client.model import OffsetAndMetadata, TopicIdPartition, TopicPartition
from kip848_client.simulation.twin_heartbeats import REASON
from kip848_client.simulation.twin_offsets import PASSES, REFUSED, RESETS, answer_fetch, group_of, partitions_of
from kip848_client.simulation.twins import Twin
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest


def ask_about_a_start(twin: Twin, rng: random.Random) -> bool:
    """R90 to R95, R99: the member's own look-up. False if none is under way."""
    own = [
        one
        for one in twin.waits_for_answer(OffsetFetchRequest)
        if {topic.name for topic in group_of(one).topics or ()} <= {tip.topic for tip in twin.member.view().assigned}
    ]
    waiting = any(isinstance(call, FetchOffsetsRequested) for call in twin.calls.values())
    if not own or waiting or not twin.is_in(*IN_GROUP) or len(twin.waits_for_answer(OffsetFetchRequest)) > 1:
        return False
    sent, asked = own[0], partitions_of(own[0])
    rng.choice((_starts, _starts, _is_withheld, _is_withheld, _start_fails, _is_sought))(twin, sent, asked, rng)
    return True


def _named(twin: Twin) -> dict[TopicPartition, TopicIdPartition]:
    return {tip.topic_partition: tip for tip in twin.member.view().assigned}


def _starts(twin: Twin, sent: SendRequest, asked: list[TopicPartition], rng: random.Random) -> None:
    found: dict[TopicPartition, OffsetAndMetadata | int | None] = {
        partition: rng.choice((OffsetAndMetadata(0, 1, ""), OffsetAndMetadata(41, 2, "told"), None))
        for partition in asked
    }
    answer_fetch(twin, sent, found=found)
    begun = {tip: position for effect in twin.did(StartFetching) for tip, position in effect.positions.items()}
    live = [one for one, value in found.items() if value is not None and one in twin.member.view().readable]
    wrong = {tip: position for tip, position in begun.items() if found.get(tip.topic_partition) != position}
    if wrong or len(begun) > len(live):
        twin.wrong(f"must start at {found}")
    readable = twin.member.view().readable
    unset = [partition for partition, value in found.items() if value is None and partition in readable]
    policy = RESETS.get(twin.config.auto_offset_reset)
    listed = [dict(effect.timestamps) for effect in twin.did(ListOffsets)]
    if policy is not None:
        for timestamps in listed:
            if set(timestamps.values()) != {policy} or not set(timestamps) <= set(unset):
                twin.wrong(f"must look for {policy} of {unset}")
        if begun and unset and not listed:
            twin.wait(0)
            if not twin.did_any(ListOffsets):
                twin.wrong(f"must look for {policy} of {unset}")
    elif listed:
        twin.wrong("has no reset policy, and looks where partitions begin")
    if (
        policy is None
        and begun
        and unset
        and not any(isinstance(effect.error, NoOffsetForPartitionError) for effect in twin.did(SurfaceError))
    ):
        twin.wrong(f"must tell that nobody committed {unset}")


def _is_sought(twin: Twin, sent: SendRequest, asked: list[TopicPartition], rng: random.Random) -> None:
    """R97: the application seeks meanwhile; nobody needs the answer any more, and nothing is asked again for it."""
    sought = [partition for partition in asked if partition in twin.member.view().readable]
    position = OffsetAndMetadata(12, 1)
    for partition in sought:
        twin.tell(PositionSet(partition, position))
        begun = {key: one for effect in twin.did(StartFetching) for key, one in effect.positions.items()}
        if begun != {_named(twin)[partition]: position}:
            twin.wrong(f"must start {partition} at {position}")
    if sought != asked:
        return
    answer_fetch(twin, sent, code=rng.choice(PASSES))
    twin.wait(twin.longest_backoff_ms)
    if any(set(partitions_of(one)) & set(sought) for one in twin.asked(OffsetFetchRequest)):
        twin.wrong(f"must not ask for the offsets of {sought}, where it was told to start elsewhere")


def _is_withheld(twin: Twin, sent: SendRequest, asked: list[TopicPartition], rng: random.Random) -> None:
    """R92, R94: told, unless it passes; asked again, and never taken for no offset."""
    code = rng.choice((*PASSES, *REFUSED, ErrorCode.UNKNOWN_MEMBER_ID, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    whole = code is not None and code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
    heard = code in twin.codes
    waits = twin.asking.get(asked[0]) == sent.request_id > twin.life_began
    live, complained = waits and asked[0] in twin.member.view().readable, twin.complained
    if whole:
        assert code is not None
        answer_fetch(twin, sent, code=code)
    else:
        found: dict[TopicPartition, OffsetAndMetadata | int | None] = dict.fromkeys(
            asked[1:], OffsetAndMetadata(41, 2, "")
        )
        if code is not None:
            found[asked[0]] = int(code)
        answer_fetch(twin, sent, found=found)
    if twin.did_any(ListOffsets):
        twin.wrong("takes an error for no offset")
    if any(asked[0] == tip.topic_partition for effect in twin.did(StartFetching) for tip in effect.positions):
        twin.wrong("starts where nobody knows the offset")
    told = [effect.error for effect in twin.did(SurfaceError)]
    if whole and (code in PASSES or code == ErrorCode.UNKNOWN_MEMBER_ID) and told:
        twin.wrong("must tell nobody of what passes")
    wanted = ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code
    if not told and (code in REFUSED or code is None) and live and not complained:
        twin.wrong(f"must tell of {wanted}")
    if any(not isinstance(error, BrokerError) or error.code != wanted for error in told):
        twin.wrong(f"must tell of {wanted}")
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and told and told[0].topics != (asked[0].topic,):  # type: ignore[attr-defined]
        twin.wrong(f"must name {asked[0].topic}")
    if told and str(asked[0]) not in str(told[0]) and len(asked) <= 1 and code is None:
        twin.wrong(f"must name {asked[0]}")
    if heard:
        return
    again_at_ms = twin.now_ms + twin.longest_backoff_ms
    twin.wait(twin.least_backoff_ms - 1)
    if any(partitions_of(one) == asked for one in twin.asked(OffsetFetchRequest)):  # an older one may have more
        twin.wrong("asks for offsets before its back-off is over")
    twin.wait(again_at_ms - twin.now_ms)
    if told and not twin.asked(OffsetFetchRequest) and twin.member.coordinator is not None:
        twin.wrong("must ask for offsets again")
    again = [one for one in twin.asked(OffsetFetchRequest) if asked[0] in partitions_of(one)]
    if again and live and twin.is_in(*IN_GROUP):
        _fails_anew(twin, again[0], asked[0])


def _fails_anew(twin: Twin, sent: SendRequest, partition: TopicPartition) -> None:
    """R101: that its offset was asked for in vain does not make the look-up of the beginning or the end slower."""
    answer_fetch(twin, sent, found=dict.fromkeys(partitions_of(sent)))
    listed = [one for one in twin.did(ListOffsets) if partition in one.timestamps]
    if not listed:
        return
    twin.tell(RequestFailed(listed[0].request_id, FailureKind.TIMED_OUT, REASON))
    twin.wait(int(1.2 * twin.config.retry_backoff_ms) + 1)
    if twin.is_in(*IN_GROUP) and not any(partition in one.timestamps for one in twin.did(ListOffsets)):
        twin.wrong(f"must ask again for {partition}, after the shortest back-off")


def _start_fails(twin: Twin, sent: SendRequest, asked: list[TopicPartition], rng: random.Random) -> None:
    kind = rng.choice(list(FailureKind))
    heard = kind in twin.kinds
    twin.tell(RequestFailed(sent.request_id, kind, REASON))
    told = [effect.error for effect in twin.did(SurfaceError)]
    if twin.did_any(StartFetching) or twin.did_any(ListOffsets):
        twin.wrong("takes silence for no offset")
    if kind in {FailureKind.TIMED_OUT, FailureKind.DISCONNECTED}:
        if told:
            twin.wrong("must tell nobody of what passes")
    elif told and not heard and REASON not in str(told[0]):
        twin.wrong("must tell what went wrong")


def ask_about_an_end(twin: Twin, rng: random.Random) -> bool:
    """R100, R101: where a partition begins or ends. False unless that is asked for."""
    asked = twin.waits_for(ListOffsets)
    if not asked or not twin.is_in(*IN_GROUP):
        return False
    sent = asked[-1]
    live = [partition for partition in sent.timestamps if partition in twin.member.view().readable]
    if rng.random() < 0.4:
        kind = rng.choice(list(FailureKind))
        heard = kind in twin.kinds
        twin.tell(RequestFailed(sent.request_id, kind, REASON))
        passing = kind in {FailureKind.TIMED_OUT, FailureKind.DISCONNECTED}
        errors = [effect.error for effect in twin.did(SurfaceError)]
        if passing == bool(errors) and not heard:
            twin.wrong("must tell of what does not pass by itself, and of nothing else")
        if kind is FailureKind.MALFORMED and errors and not isinstance(errors[0], ProtocolError):
            twin.wrong("must tell that an answer cannot be read")
    else:
        code = rng.choice((ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))
        first, *rest = sorted(sent.timestamps)
        offsets = {partition: OffsetAndMetadata(17, 4) for partition in rest}
        if rng.random() < 0.5:
            offsets[first] = OffsetAndMetadata(-1, 0)
        codes = {} if code is None else {first: int(code)}
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and rest:
            codes[rest[-1]] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            del offsets[rest[-1]]
        twin.tell(OffsetsListed(sent.request_id, offsets, codes))
        begun = {
            tip.topic_partition: one for effect in twin.did(StartFetching) for tip, one in effect.positions.items()
        }
        if first in begun or not begun.items() <= offsets.items():
            twin.wrong(f"must start at {offsets}, and not {first}")
        told = [effect.error for effect in twin.did(SurfaceError)]
        forbidden = [error for error in told if isinstance(error, TopicAuthorizationError)]
        if len(told) != len(forbidden) or any(error.topics != (first.topic,) for error in forbidden):
            twin.wrong(f"must tell at most that {first.topic} is forbidden")
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and first in live and code not in twin.codes and not forbidden:
            twin.wrong(f"must tell that {first.topic} is forbidden")
        live = [first] if first in live else []
    if not live:
        return True
    twin.wait(twin.least_backoff_ms - 1)
    if twin.did_any(ListOffsets):
        twin.wrong("asks again before its back-off is over")
    twin.wait(int(1.2 * twin.config.retry_backoff_ms) - twin.least_backoff_ms + 2)
    if twin.is_in(*IN_GROUP) and not any(
        first in effect.timestamps for effect in twin.did(ListOffsets) for first in live
    ):
        if twin.longest_backoff_ms:
            twin.wait(twin.longest_backoff_ms)
        if not any(first in effect.timestamps for effect in twin.did(ListOffsets) for first in live):
            twin.wrong(f"must ask again for {live}")
    return True


def ask_about_a_seek(twin: Twin, rng: random.Random) -> bool:
    """R90, R97, R100: the application seeks, or the broker has no such record. False if it reads nothing."""
    readable = sorted(twin.member.view().readable)
    if not readable or not twin.is_in(*IN_GROUP):
        return False
    partition = rng.choice(readable)
    tip = _named(twin)[partition]
    position = OffsetAndMetadata(rng.choice((0, 12, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)), 1)
    twin.tell(PositionSet(TopicPartition("a twin asks", 0), position))
    if twin.effects:
        twin.wrong("must not mind a partition that is not its own")
    twin.tell(PositionSet(partition, position))
    begun = {key: one for effect in twin.did(StartFetching) for key, one in effect.positions.items()}
    if position.offset >= 0:
        if begun != {tip: position}:
            twin.wrong(f"must start {tip} at {position}")
        lost_at = OffsetAndMetadata(99, 1)
        twin.tell(PositionLost(partition, lost_at))
        policy = RESETS.get(twin.config.auto_offset_reset)
        if policy is None:
            told = [effect.error for effect in twin.did(SurfaceError)]
            known = len(told) == 1 and isinstance(told[0], BrokerError)
            if not known or told[0].code != ErrorCode.OFFSET_OUT_OF_RANGE or str(partition) not in str(told[0]):  # type: ignore[attr-defined]
                twin.wrong(f"must tell that {partition} has no record there")
            return True
        _expect_listed(twin, tip, policy)
    else:
        if begun:
            twin.wrong("must look where the partition begins or ends")
        listed = twin.effects
        for late in (partition, TopicPartition("a twin asks", 0)):
            twin.tell(PositionLost(late, OffsetAndMetadata(99, 1)))
            if twin.effects:
                twin.wrong("must not mind that there is no record where nobody reads any more")
        twin.effects = listed
        _expect_listed(twin, tip, position.offset)
    return True


def _expect_listed(twin: Twin, tip: TopicIdPartition, timestamp: int) -> None:
    partition = tip.topic_partition
    asked = [effect for effect in twin.did(ListOffsets) if effect.timestamps.get(partition) == timestamp]
    if len(asked) != 1 or asked[0].timeout_ms != twin.config.request_timeout_ms:
        twin.wrong(f"must look for {timestamp} of {partition}")
    found = OffsetAndMetadata(23, 5)
    twin.tell(OffsetsListed(asked[0].request_id, {partition: found}, {}))
    begun = {key: one for effect in twin.did(StartFetching) for key, one in effect.positions.items()}
    if begun.get(tip) != found:
        twin.wrong(f"must start {tip} at {found}")
