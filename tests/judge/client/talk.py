"""A client that says what a test tells it to, and is answered so; the referee listens. No expectations here."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kip848_client.testing.judge.client.referee import Referee
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    encode_assignment,
    encode_subscription,
)
from kip848_client.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kip848_client.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from kip848_client.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kip848_client.wire.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kip848_client.wire.messages.share_fetch import (
    FetchPartition as ShareFetchPartition,
)
from kip848_client.wire.messages.share_fetch import FetchTopic as ShareFetchTopic
from kip848_client.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kip848_client.wire.schema import Request, Response

ORDERS: Final = uuid.UUID(int=1)
INTERVAL_MS: Final = 1000
READER: Final = 2
"""The connection on which the client fetches; it asks its coordinator on the first."""
_ACCEPTANCE: Final = ConsumerGroupHeartbeatResponse(error_message="stands for an acceptance")


class Talk:
    """One client: member ``m`` of group ``g``, whose topic is ``orders``."""

    def __init__(self) -> None:
        self.referee: Final = Referee(topic_name={ORDERS: "orders"}.get)
        self.now_ms = 1_000_000
        self.connection = 1
        self._number = 0

    @property
    def broken(self) -> list[int]:
        """The rules that were broken, in order."""
        return [found.rule for found in self.referee.findings.broken]

    def wait(self, ms: int = INTERVAL_MS) -> None:
        """Let time pass."""
        self.now_ms += ms

    def ask(self, request: Request[Any], *, connection: int | None = None, version: int = 1) -> tuple[int, int]:
        """Send a request; what `answer` wants."""
        self._number += 1
        place = connection or self.connection, self._number
        self.referee.asked(
            request,
            connection_id=place[0],
            correlation_id=place[1],
            client_id="client",
            api_version=version,
            now_ms=self.now_ms,
        )
        return place

    def answer(self, place: tuple[int, int], response: Response | None) -> None:
        """Answer it."""
        self.referee.answered(response, connection_id=place[0], correlation_id=place[1], now_ms=self.now_ms)

    def tell(
        self, request: Request[Any], response: Response | None, *, connection: int | None = None, version: int = 1
    ) -> None:
        """Send a request that is answered at once."""
        self.answer(self.ask(request, connection=connection, version=version), response)

    # --- groups of KIP-848

    def joins(self, epoch: int = 1, assigned: Sequence[int] | None = (0, 1), *, instance: str | None = None) -> None:
        """Join, and acknowledge what was assigned."""
        self.tell(join(instance_id=instance), accepted(epoch, assigned))
        self.wait(10)
        if assigned is not None:
            self.beat(epoch, owned=assigned)

    def beat(
        self,
        epoch: int,
        *,
        owned: Sequence[int] | None = None,
        told: Response | None = _ACCEPTANCE,
        after_ms: int = INTERVAL_MS,
        **fields: Any,
    ) -> None:
        """Send a heartbeat after the interval."""
        self.wait(after_ms)
        self.tell(heartbeat(epoch, owned=owned, **fields), accepted(epoch) if told is _ACCEPTANCE else told)

    def commits(self, epoch: int, partition: int = 0, *, offset: int = 5, code: int = 0, group: str = "g") -> None:
        """Commit an offset."""
        topic = OffsetCommitRequestTopic(
            name="orders",
            partitions=(OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset),),
        )
        self.tell(
            OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=epoch, member_id="m", topics=(topic,)),
            OffsetCommitResponse(
                topics=(
                    OffsetCommitResponseTopic(
                        name="orders",
                        partitions=(OffsetCommitResponsePartition(partition_index=partition, error_code=code),),
                    ),
                )
            ),
        )

    def looks_up_offsets(self, epoch: int, *, code: int = 0) -> None:
        """Ask for committed offsets."""
        group = OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=epoch, topics=None)
        answer = OffsetFetchResponseGroup(group_id="g", error_code=code)
        self.tell(OffsetFetchRequest(groups=(group,)), OffsetFetchResponse(groups=(answer,)), version=9)

    def looks_up_coordinator(self, *, code: int = 0) -> None:
        """Ask for the coordinator."""
        self.tell(
            FindCoordinatorRequest(coordinator_keys=("g",)),
            FindCoordinatorResponse(coordinators=(Coordinator(key="g", node_id=1, error_code=code),)),
        )

    def fetches(self, *partitions: int) -> None:
        """Fetch partitions, without a session."""
        topic = FetchTopic(topic="orders", partitions=tuple(FetchPartition(partition=index) for index in partitions))
        self.tell(FetchRequest(session_epoch=-1, topics=(topic,)), FetchResponse(), connection=READER)

    # --- classic groups

    def classic_joins(
        self,
        generation: int = 1,
        *,
        leads: bool = True,
        owned: Sequence[int] = (),
        others: Mapping[str, Sequence[int]] | None = None,
        protocol: str = "cooperative-sticky",
        assigned: Sequence[int] | None = (0, 1),
        member: str = "m",
    ) -> None:
        """Join with an id that was given, and take an assignment."""
        members = {member: owned} | dict(others or {})
        told = tuple(JoinGroupResponseMember(member_id=one, metadata=subscription(has)) for one, has in members.items())
        self.tell(
            classic_join(member, owned=owned, protocol=protocol),
            JoinGroupResponse(
                generation_id=generation,
                protocol_name=protocol,
                leader=member if leads else "other",
                member_id=member,
                members=told if leads else (),
            ),
        )
        if assigned is not None:
            self.syncs(generation, {member: assigned} if leads else {}, assigned)

    def is_given_an_id(self, member: str = "m") -> None:
        """Join without an id, and be told one."""
        self.tell(classic_join(""), JoinGroupResponse(error_code=79, member_id=member))

    def syncs(
        self, generation: int, plan: Mapping[str, Sequence[int]], assigned: Sequence[int] = (), *, member: str = "m"
    ) -> None:
        """Send an assignment, or ask for one."""
        sent = tuple(SyncGroupRequestAssignment(member_id=one, assignment=assignment(has)) for one, has in plan.items())
        self.tell(
            SyncGroupRequest(group_id="g", generation_id=generation, member_id=member, assignments=sent),
            SyncGroupResponse(assignment=assignment(assigned)),
        )

    def classic_beat(self, generation: int, *, code: int = 0, after_ms: int = 3000) -> None:
        """Send a heartbeat of the classic protocol."""
        self.wait(after_ms)
        self.tell(
            HeartbeatRequest(group_id="g", generation_id=generation, member_id="m"), HeartbeatResponse(error_code=code)
        )

    def classic_leaves(self) -> None:
        """Send LeaveGroup."""
        self.tell(LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id="m"),)), LeaveGroupResponse())

    # --- share groups

    def share_beat(
        self, epoch: int, *, names: tuple[str, ...] | None = None, told: int | None = -9, code: int = 0
    ) -> None:
        """Send a heartbeat of a share group; *told* is another epoch for its answer, None if that is lost."""
        self.wait()
        request = ShareGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=epoch, subscribed_topic_names=names
        )
        if told is None:
            self.tell(request, None)
            return
        self.tell(
            request,
            ShareGroupHeartbeatResponse(
                error_code=code, member_epoch=epoch if told == -9 else told, heartbeat_interval_ms=INTERVAL_MS
            ),
        )

    def share_joins(self) -> None:
        """Join a share group."""
        self.share_beat(0, names=("orders",), told=1)

    def share_fetches(
        self, epoch: int, *, acquired: range | None = None, said: range | None = None, code: int = 0, kind: int = 1
    ) -> None:
        """Fetch in a share session, and acknowledge *said* on the way."""
        self.wait(100)
        place = self.ask(share_fetch(epoch, said, kind=kind), connection=READER)
        self.answer(place, share_answer(acquired, code=code))

    def share_acknowledges(self, epoch: int, said: range) -> None:
        """Acknowledge in a share session."""
        request = share_fetch(epoch, said)
        self.tell(
            ShareAcknowledgeRequest(
                group_id="g",
                member_id="m",
                share_session_epoch=epoch,
                topics=request.topics,  # type: ignore[arg-type]
            ),
            ShareAcknowledgeResponse(),
            connection=READER,
        )


# --- messages


def join(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    """A join with all fields, and changes."""
    values: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ("orders",),
        "topic_partitions": (),
    }
    return ConsumerGroupHeartbeatRequest(**(values | fields))


def heartbeat(epoch: int, *, owned: Sequence[int] | None = None, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat with what changed."""
    values: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": epoch,
        "topic_partitions": None if owned is None else held(owned),
    }
    return ConsumerGroupHeartbeatRequest(**(values | fields))


def accepted(epoch: int, assigned: Sequence[int] | None = None) -> ConsumerGroupHeartbeatResponse:
    """An acceptance, with an assignment or without."""
    return ConsumerGroupHeartbeatResponse(
        member_id="m",
        member_epoch=epoch,
        heartbeat_interval_ms=INTERVAL_MS,
        assignment=None if assigned is None else Assignment(topic_partitions=held(assigned)),
    )


def refused(code: int) -> ConsumerGroupHeartbeatResponse:
    """A refusal."""
    return ConsumerGroupHeartbeatResponse(error_code=code)


def held(partitions: Sequence[int]) -> tuple[TopicPartitions, ...]:
    """Partitions of ``orders``, as heartbeats have them."""
    return (TopicPartitions(topic_id=ORDERS, partitions=tuple(partitions)),) if partitions else ()


def classic_join(
    member: str, *, owned: Sequence[int] = (), protocol: str = "cooperative-sticky", **fields: Any
) -> JoinGroupRequest:
    """A JoinGroup with all fields, and changes."""
    values: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": (JoinGroupRequestProtocol(name=protocol, metadata=subscription(owned)),),
    }
    return JoinGroupRequest(**(values | fields))


def subscription(owned: Sequence[int]) -> bytes:
    """What a member of a classic group tells its assignor."""
    topics = (TopicPartition(topic="orders", partitions=tuple(owned)),) if owned else ()
    return encode_subscription(ConsumerProtocolSubscription(topics=("orders",), owned_partitions=topics))


def assignment(partitions: Sequence[int]) -> bytes:
    """An assignment of a classic group."""
    topics = (TopicPartition(topic="orders", partitions=tuple(partitions)),) if partitions else ()
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=topics))


def share_fetch(epoch: int, said: range | None = None, *, kind: int = 1) -> ShareFetchRequest:
    """A ShareFetch of ``orders-0``, which acknowledges *said*."""
    batches = () if said is None else (AcknowledgementBatch(said.start, said.stop - 1, (kind,)),)
    part = ShareFetchPartition(partition_index=0, acknowledgement_batches=batches)
    return ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        topics=(ShareFetchTopic(topic_id=ORDERS, partitions=(part,)),),
    )


def share_answer(acquired: range | None = None, *, code: int = 0) -> ShareFetchResponse:
    """An answer with records that the member has now."""
    batches = () if acquired is None else (AcquiredRecords(acquired.start, acquired.stop - 1, 1),)
    part = PartitionData(partition_index=0, acquired_records=batches)
    return ShareFetchResponse(
        error_code=code,
        acquisition_lock_timeout_ms=30_000,
        responses=(ShareFetchableTopicResponse(topic_id=ORDERS, partitions=(part,)),),
    )
