"""One well-formed request for every version of every served API: what a newcomer's client would send first.

`ROWS` has one function per API; it makes the request of a version on a `Scene`, whose topic has records and whose
groups have a member and offsets, so that the answers carry as many fields as they can. The same rows are played against
the embedded broker and against a real Kafka. Of the protocol's rules it knows only what a first request needs.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kip848_client.broker.apis import ApiTable
from kip848_client.errors import ErrorCode
from kip848_client.model import ZERO_UUID
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages import alter_configs
from kip848_client.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kip848_client.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kip848_client.wire.messages.api_versions import ApiVersionsRequest
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentRequest
from kip848_client.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from kip848_client.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kip848_client.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kip848_client.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kip848_client.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kip848_client.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kip848_client.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kip848_client.wire.messages.describe_acls import DescribeAclsRequest
from kip848_client.wire.messages.describe_cluster import DescribeClusterRequest
from kip848_client.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kip848_client.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from kip848_client.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kip848_client.wire.messages.describe_transactions import DescribeTransactionsRequest
from kip848_client.wire.messages.end_txn import EndTxnRequest
from kip848_client.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kip848_client.wire.messages.list_transactions import ListTransactionsRequest
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kip848_client.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kip848_client.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kip848_client.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kip848_client.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kip848_client.wire.messages.sasl_handshake import SaslHandshakeRequest
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kip848_client.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kip848_client.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kip848_client.wire.record_batch import Record, build_batch
from kip848_client.wire.schema import Request
from tests.support.raw_connection import RawConnection
from tests.support.waiting import wait_until

SETTLE_TIMEOUT_S: Final = 30.0
NOW_MS: Final = int(time.time() * 1000)
TOPIC_RESOURCE: Final = 2
STATIC_VERSION: Final = 5
"""The first version of JoinGroup with static members; the one before asks newcomers to come back with an id."""
PROTOCOL_VERSION: Final = 5
"""The first version of SyncGroup that names the protocol."""
BATCHED_TRANSACTIONS_VERSION: Final = 4
"""The first version of AddPartitionsToTxn that names several transactions."""
BATCH_VERSION: Final = 3
"""The first version of LeaveGroup that names several members."""
MOVED_ON: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""What a real Kafka answers for a moment after a topic was created or a coordinator was asked for the first time."""


class Scene(msgspec.Struct):
    """What the requests speak of.

    Attributes:
        topic: name of a topic with one partition and two records; `topic_id` is its id.
        offsets_group: a group that has committed offset 1 of the topic, and no members.
        members_group: a group with the member `member_id`, which is subscribed to the topic.
        exists: False if nothing of that is there; see `of_nothing`.
    """

    connection: RawConnection
    prefix: str
    topic: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    offsets_group: str = ""
    members_group: str = ""
    member_id: str = "member"
    exists: bool = True
    _made: int = 0

    @classmethod
    def arrange(cls, bootstrap_servers: str) -> Scene:
        """Connect, and make the topic, the records and the groups."""
        scene = cls(RawConnection(bootstrap_servers), prefix=f"s{uuid.uuid4().hex[:8]}.")
        scene.topic, scene.topic_id = scene.create_topic()
        scene.offsets_group, scene.members_group = f"{scene.prefix}offsets", f"{scene.prefix}members"
        scene.settled(_produce(scene, 9), version=9)
        for group in (scene.offsets_group, scene.members_group):
            scene.settled(FindCoordinatorRequest(coordinator_keys=(group,)), version=4)
        scene.settled(_init_producer_id(scene, 4), version=4)
        scene.settled(commit(scene, scene.offsets_group, version=9), version=9)
        scene.settled(_heartbeat(scene, 0), version=0)
        return scene

    @classmethod
    def of_nothing(cls, bootstrap_servers: str) -> Scene:
        """A scene in which nothing of what is asked for exists."""
        prefix = f"s{uuid.uuid4().hex[:8]}."
        return cls(
            RawConnection(bootstrap_servers),
            prefix=prefix,
            topic=f"{prefix}missing",
            topic_id=uuid.uuid4(),
            offsets_group=f"{prefix}nobody",
            members_group=f"{prefix}nobody",
            exists=False,
        )

    def create_topic(self) -> tuple[str, uuid.UUID]:
        """Create a topic of its own; its name and id. Where nothing exists, those of the topic that does not."""
        if not self.exists:
            return self.topic, self.topic_id
        self._made += 1
        name = f"{self.prefix}t{self._made}"
        answer = self.settled(_create_topics(name), version=7)
        wanted = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False)
        self.settled(wanted, version=9)
        topic_id: uuid.UUID = answer.topics[0].topic_id
        return name, topic_id

    def group_with_offsets(self) -> str:
        """A group of its own with an offset and no members. Where nothing exists, the group that does not."""
        if not self.exists:
            return self.offsets_group
        self._made += 1
        group = f"{self.prefix}g{self._made}"
        self.settled(commit(self, group, version=9), version=9)
        return group

    def classic_member(self) -> tuple[str, str]:
        """A classic group of its own at generation 1, and its member. Where nothing exists, a member of nothing."""
        if not self.exists:
            return self.members_group, self.member_id
        self._made += 1
        group = f"{self.prefix}c{self._made}"
        answer = self.settled(join_group(self, group, version=3), version=3)
        return group, answer.member_id

    def transactional_producer(self) -> tuple[str, int, int]:
        """A transactional id of its own, its producer id and epoch. Where nothing exists, those of no producer."""
        if not self.exists:
            return f"{self.prefix}nobody", 10**9, 0
        self._made += 1
        name = f"{self.prefix}x{self._made}"
        self.settled(FindCoordinatorRequest(coordinator_keys=(name,), key_type=1), version=4)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        answer = self.settled(request, version=4)
        return name, answer.producer_id, answer.producer_epoch

    def settled(self, request: Request[Any], *, version: int) -> Any:
        """The answer to *request*, asked again while Kafka still makes what it speaks of."""
        answers: list[Any] = []

        def is_settled() -> bool:
            answers.append(self.connection.ask(request, version=version))
            return MOVED_ON.isdisjoint(error_codes(answers[-1]))

        wait_until(is_settled, SETTLE_TIMEOUT_S, f"a settled answer to {type(request).__name__} v{version}")
        assert not error_codes(answers[-1]), answers[-1]
        return answers[-1]


Row = Callable[[Scene, int], Request[Any]]


def error_codes(message: object) -> set[int]:
    """Every error code of an answer but 0, however deep it stands."""
    return {code for code in _error_codes(message) if code}


def _error_codes(message: object) -> Iterator[int]:
    if isinstance(message, tuple):
        for item in message:
            yield from _error_codes(item)
        return
    for name in getattr(message, "__struct_fields__", ()):
        found = getattr(message, name)
        if name.endswith("error_code"):
            yield found
        else:
            yield from _error_codes(found)


def commit(scene: Scene, group: str, *, version: int) -> OffsetCommitRequest:
    """A commit of offset 1 by a sender outside the group."""
    partition = OffsetCommitRequestPartition(committed_offset=1, committed_metadata="m")
    topic = OffsetCommitRequestTopic(name=scene.topic, topic_id=scene.topic_id, partitions=(partition,))
    return OffsetCommitRequest(group_id=group, topics=(topic,))


def _produce(scene: Scene, version: int) -> ProduceRequest:
    del version
    records = build_batch([Record(b"one", b"k", timestamp=NOW_MS), Record(b"two", b"k", timestamp=NOW_MS)])
    topic = TopicProduceData(
        name=scene.topic, topic_id=scene.topic_id, partition_data=(PartitionProduceData(records=records),)
    )
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,))


def _fetch(scene: Scene, version: int) -> FetchRequest:
    del version
    asked = FetchPartition(partition_max_bytes=1_000_000)
    topic = FetchTopic(topic=scene.topic, topic_id=scene.topic_id, partitions=(asked,))
    return FetchRequest(max_wait_ms=100, min_bytes=1, isolation_level=1, topics=(topic,))


def _list_offsets(scene: Scene, version: int) -> ListOffsetsRequest:
    del version
    topic = ListOffsetsTopic(name=scene.topic, partitions=(ListOffsetsPartition(timestamp=-1),))
    return ListOffsetsRequest(replica_id=-1, topics=(topic,))


def _metadata(scene: Scene, version: int) -> MetadataRequest:
    return MetadataRequest(
        topics=(MetadataRequestTopic(name=scene.topic),),
        include_cluster_authorized_operations=8 <= version <= 10,
        include_topic_authorized_operations=version >= 8,
    )


def _offset_commit(scene: Scene, version: int) -> OffsetCommitRequest:
    return commit(scene, scene.offsets_group, version=version)


def _offset_fetch(scene: Scene, version: int) -> OffsetFetchRequest:
    if version < 8:
        old = OffsetFetchRequestTopic(name=scene.topic, partition_indexes=(0,))
        return OffsetFetchRequest(group_id=scene.offsets_group, topics=(old,))
    topic = OffsetFetchRequestTopics(name=scene.topic, topic_id=scene.topic_id, partition_indexes=(0,))
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=scene.offsets_group, topics=(topic,)),))


def _find_coordinator(scene: Scene, version: int) -> FindCoordinatorRequest:
    if version < 4:
        return FindCoordinatorRequest(key=scene.offsets_group)
    return FindCoordinatorRequest(coordinator_keys=(scene.offsets_group,))


def join_group(scene: Scene, group: str, *, version: int) -> JoinGroupRequest:
    """A join that is answered at once in an empty group; in version 4 that takes an id that was asked for before."""
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=(scene.topic,)), version=0)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        group_instance_id="static" if version >= STATIC_VERSION else None,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=subscription),),
    )
    if version == STATIC_VERSION - 1:
        return replace(request, member_id=scene.connection.ask(request, version=version).member_id)
    return request


def _join_group(scene: Scene, version: int) -> JoinGroupRequest:
    return join_group(scene, f"{scene.prefix}joined-by-v{version}", version=version)


def _sync_group(scene: Scene, version: int) -> SyncGroupRequest:
    group, member_id = scene.classic_member()
    named = "consumer" if version >= PROTOCOL_VERSION else None
    return SyncGroupRequest(
        group_id=group,
        generation_id=1,
        member_id=member_id,
        protocol_type=named,
        protocol_name="range" if named else None,
        assignments=(SyncGroupRequestAssignment(member_id=member_id, assignment=b"given"),),
    )


def _classic_heartbeat(scene: Scene, version: int) -> HeartbeatRequest:
    del version
    group, member_id = scene.classic_member()
    return HeartbeatRequest(group_id=group, generation_id=1, member_id=member_id)


def _leave_group(scene: Scene, version: int) -> LeaveGroupRequest:
    group, member_id = scene.classic_member()
    if version < BATCH_VERSION:
        return LeaveGroupRequest(group_id=group, member_id=member_id)
    return LeaveGroupRequest(group_id=group, members=(MemberIdentity(member_id=member_id),))


def _describe_groups(scene: Scene, version: int) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=(scene.offsets_group,), include_authorized_operations=version >= 3)


def _list_groups(scene: Scene, version: int) -> ListGroupsRequest:
    del scene, version
    return ListGroupsRequest()


def _sasl_handshake(scene: Scene, version: int) -> SaslHandshakeRequest:
    del scene, version
    return SaslHandshakeRequest(mechanism="PLAIN")


def _api_versions(scene: Scene, version: int) -> ApiVersionsRequest:
    del scene, version
    return ApiVersionsRequest(client_software_name="a-client", client_software_version="1.0")


def _create_topics(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=(topic,), timeout_ms=20_000)


def _delete_topics(scene: Scene, version: int) -> DeleteTopicsRequest:
    name, _ = scene.create_topic()
    if version < 6:
        return DeleteTopicsRequest(topic_names=(name,), timeout_ms=20_000)
    return DeleteTopicsRequest(topics=(DeleteTopicState(name=name),), timeout_ms=20_000)


def _init_producer_id(scene: Scene, version: int) -> InitProducerIdRequest:
    del scene, version
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)


def _add_partitions_to_txn(scene: Scene, version: int) -> AddPartitionsToTxnRequest:
    name, producer_id, epoch = scene.transactional_producer()
    topics = (AddPartitionsToTxnTopic(name=scene.topic, partitions=(0,)),)
    if version < BATCHED_TRANSACTIONS_VERSION:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, topics=topics
    )
    return AddPartitionsToTxnRequest(transactions=(transaction,))


def _add_offsets_to_txn(scene: Scene, version: int) -> AddOffsetsToTxnRequest:
    del version
    name, producer_id, epoch = scene.transactional_producer()
    return AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=scene.offsets_group
    )


def _in_transaction(scene: Scene) -> AddOffsetsToTxnRequest:
    """A transaction that the offsets group is part of; the request that made it so."""
    request = _add_offsets_to_txn(scene, 3)
    if scene.exists:
        scene.settled(request, version=3)
    return request


def _end_txn(scene: Scene, version: int) -> EndTxnRequest:
    del version
    added = _in_transaction(scene)
    return EndTxnRequest(
        transactional_id=added.transactional_id,
        producer_id=added.producer_id,
        producer_epoch=added.producer_epoch,
        committed=True,
    )


def _txn_offset_commit(scene: Scene, version: int) -> TxnOffsetCommitRequest:
    del version
    added = _in_transaction(scene)
    partition = TxnOffsetCommitRequestPartition(committed_offset=1, committed_metadata="m")
    return TxnOffsetCommitRequest(
        transactional_id=added.transactional_id,
        group_id=added.group_id,
        producer_id=added.producer_id,
        producer_epoch=added.producer_epoch,
        topics=(TxnOffsetCommitRequestTopic(name=scene.topic, partitions=(partition,)),),
    )


def _write_txn_markers(scene: Scene, version: int) -> WriteTxnMarkersRequest:
    del version
    name, _ = scene.create_topic()
    topic = WritableTxnMarkerTopic(name=name, partition_indexes=(0,))
    return WriteTxnMarkersRequest(markers=(WritableTxnMarker(producer_id=10**9, topics=(topic,)),))


def _describe_producers(scene: Scene, version: int) -> DescribeProducersRequest:
    del version
    return DescribeProducersRequest(topics=(DescribeProducersTopic(name=scene.topic, partition_indexes=(0,)),))


def _describe_transactions(scene: Scene, version: int) -> DescribeTransactionsRequest:
    del version
    return DescribeTransactionsRequest(transactional_ids=(_in_transaction(scene).transactional_id,))


def _list_transactions(scene: Scene, version: int) -> ListTransactionsRequest:
    _in_transaction(scene)
    return ListTransactionsRequest(
        duration_filter=0 if version >= 1 else -1, transactional_id_pattern=".*" if version >= 2 else None
    )


def _offset_for_leader_epoch(scene: Scene, version: int) -> OffsetForLeaderEpochRequest:
    del version
    asked = OffsetForLeaderPartition(leader_epoch=0)
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=(OffsetForLeaderTopic(topic=scene.topic, partitions=(asked,)),)
    )


def _describe_configs(scene: Scene, version: int) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=scene.topic, configuration_keys=None)
    return DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=version >= 3)


def _sasl_authenticate(scene: Scene, version: int) -> SaslAuthenticateRequest:
    del scene, version
    return SaslAuthenticateRequest(auth_bytes=b"\0user\0password")


def _create_partitions(scene: Scene, version: int) -> CreatePartitionsRequest:
    del version
    name, _ = scene.create_topic()
    topic = CreatePartitionsTopic(name=name, count=3, assignments=None)
    return CreatePartitionsRequest(topics=(topic,), timeout_ms=20_000)


def _delete_groups(scene: Scene, version: int) -> DeleteGroupsRequest:
    del version
    return DeleteGroupsRequest(groups_names=(scene.group_with_offsets(),))


def _incremental_alter_configs(scene: Scene, version: int) -> IncrementalAlterConfigsRequest:
    del version
    config = AlterableConfig(name="retention.ms", value="3600000")
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=scene.topic, configs=(config,))
    return IncrementalAlterConfigsRequest(resources=(resource,))


def _alter_configs(scene: Scene, version: int) -> alter_configs.AlterConfigsRequest:
    del version
    config = alter_configs.AlterableConfig(name="retention.ms", value="3600000")
    resource = alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=scene.topic, configs=(config,)
    )
    return alter_configs.AlterConfigsRequest(resources=(resource,))


def _delete_records(scene: Scene, version: int) -> DeleteRecordsRequest:
    del version
    topic = DeleteRecordsTopic(name=scene.topic, partitions=(DeleteRecordsPartition(),))
    return DeleteRecordsRequest(topics=(topic,), timeout_ms=20_000)


def _describe_log_dirs(scene: Scene, version: int) -> DescribeLogDirsRequest:
    del version
    return DescribeLogDirsRequest(topics=(DescribableLogDirTopic(topic=scene.topic, partitions=(0,)),))


def _offset_delete(scene: Scene, version: int) -> OffsetDeleteRequest:
    del version
    topic = OffsetDeleteRequestTopic(name=scene.topic, partitions=(OffsetDeleteRequestPartition(),))
    return OffsetDeleteRequest(group_id=scene.group_with_offsets(), topics=(topic,))


def _describe_cluster(scene: Scene, version: int) -> DescribeClusterRequest:
    del scene, version
    return DescribeClusterRequest(include_cluster_authorized_operations=True)


def _heartbeat(scene: Scene, version: int) -> ConsumerGroupHeartbeatRequest:
    del version
    return ConsumerGroupHeartbeatRequest(
        group_id=scene.members_group,
        member_id=scene.member_id,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=(scene.topic,),
        topic_partitions=(),
    )


def _consumer_group_describe(scene: Scene, version: int) -> ConsumerGroupDescribeRequest:
    del version
    return ConsumerGroupDescribeRequest(group_ids=(scene.members_group,), include_authorized_operations=True)


def _describe_topic_partitions(scene: Scene, version: int) -> DescribeTopicPartitionsRequest:
    del version
    return DescribeTopicPartitionsRequest(topics=(TopicRequest(name=scene.topic),))


def _prepare_assignment(scene: Scene, version: int) -> ConsumerGroupPrepareAssignmentRequest:
    del version
    return ConsumerGroupPrepareAssignmentRequest(group_id=scene.members_group, member_id="another", member_epoch=1)


def _install_assignment(scene: Scene, version: int) -> ConsumerGroupInstallAssignmentRequest:
    del version
    return ConsumerGroupInstallAssignmentRequest(
        group_id=scene.members_group, member_id="another", member_epoch=1, group_epoch=1
    )


ROWS: Final[Mapping[int, Row]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.HEARTBEAT: _classic_heartbeat,
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.SASL_HANDSHAKE: _sasl_handshake,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.CREATE_TOPICS: lambda scene, version: _create_topics(f"{scene.prefix}created-by-v{version}"),
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _end_txn,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DESCRIBE_ACLS: lambda scene, version: DescribeAclsRequest(
        resource_type_filter=2,
        resource_name_filter=scene.topic,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    ),
    ApiKey.CREATE_ACLS: lambda scene, version: CreateAclsRequest(
        creations=(
            AclCreation(
                resource_type=2,
                resource_name=scene.topic,
                principal="User:alice",
                host="*",
                operation=3,
                permission_type=3,
            ),
        )
    ),
    ApiKey.DELETE_ACLS: lambda scene, version: DeleteAclsRequest(
        filters=(
            DeleteAclsFilter(
                resource_type_filter=2,
                resource_name_filter=scene.topic,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            ),
        )
    ),
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.SASL_AUTHENTICATE: _sasl_authenticate,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT: _prepare_assignment,
    ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT: _install_assignment,
}
"""API key -> how its request is made. A new API needs a row."""

REFUSED: Final[Mapping[int, set[int]]] = {
    ApiKey.DESCRIBE_ACLS: {ErrorCode.SECURITY_DISABLED},
    ApiKey.CREATE_ACLS: {ErrorCode.SECURITY_DISABLED},
    ApiKey.DELETE_ACLS: {ErrorCode.SECURITY_DISABLED},
    ApiKey.SASL_HANDSHAKE: {ErrorCode.ILLEGAL_SASL_STATE},
    ApiKey.SASL_AUTHENTICATE: {ErrorCode.ILLEGAL_SASL_STATE},
    ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT: {ErrorCode.UNKNOWN_MEMBER_ID},
    ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT: {ErrorCode.UNKNOWN_MEMBER_ID},
}
"""What is answered where there is no SASL, no authorizer, and where a member is not in the group."""

ADVERTISED: Final[tuple[tuple[int, int], ...]] = tuple(
    (api.api_key, version)
    for api in ApiTable(extensions={"client_assignors"})
    for version in range(api.version_min, api.version_max + 1)
)
"""Every (API key, version) that the embedded broker advertises."""

PRIVATE: Final = frozenset({ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT})
"""APIs that Apache Kafka does not have."""
