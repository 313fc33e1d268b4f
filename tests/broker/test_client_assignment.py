"""Client-side assignors over the wire: private keys and tags, faults, the request log, what a test sees of a round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import ErrorCode, IllegalStateError
from kip848_client.journal import MemoryJournal
from kip848_client.testing.broker.config import Profile
from kip848_client.testing.faults import error, rewrite
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.api_versions import ApiVersionsRequest
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse, TopicPartitions
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)
from tests.support.coordinator_harness import offer
from tests.support.group_requests import Member

PREPARE = ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT
INSTALL = ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT


class Peer(Member):
    """A member with a client-side assignor."""

    pending: tuple[TopicPartitions, ...] = ()
    told = b""

    def join(self, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        return super().join(*topics or ("orders",), client_assignors=(offer(),), **fields)

    def heartbeat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        response = super().heartbeat(**fields)
        if response.assignment is not None:
            self.pending = response.assignment.pending_topic_partitions
            self.told = response.assignment.metadata_bytes
        return response

    def prepare(self) -> ConsumerGroupPrepareAssignmentResponse:
        return self.connection.ask(ConsumerGroupPrepareAssignmentRequest("g", self.member_id, self.epoch), version=0)

    def install(self, group_epoch: int, *members: dict[str, Any]) -> ConsumerGroupInstallAssignmentResponse:
        request = ConsumerGroupInstallAssignmentRequest
        claimed = {"group_id": "g", "member_id": self.member_id, "member_epoch": self.epoch}
        return self.connection.ask(build(request, **claimed, group_epoch=group_epoch, members=members), version=0)

    def compute(self) -> ConsumerGroupInstallAssignmentResponse:
        """Give every member one after another an equal part, and tell each who it is."""
        prepared = self.prepare()
        assert not prepared.error_code, prepared
        (topic,) = prepared.topics
        count = len(prepared.members)

        def part(position: int, member_id: str) -> dict[str, Any]:
            partitions = {"topic_id": topic.topic_id, "partitions": range(position, topic.num_partitions, count)}
            told = {"metadata_version": 1, "metadata_bytes": member_id.encode()}
            return {"member_id": member_id, "partitions": [partitions], **told}

        parts = [part(position, member.member_id) for position, member in enumerate(prepared.members)]
        return self.install(prepared.group_epoch, *parts)


def _partitions(parts: tuple[TopicPartitions, ...]) -> list[int]:
    return [partition for part in parts for partition in part.partitions]


def test_the_private_keys_are_advertised_only_with_the_extension() -> None:
    """A client must be able to tell beforehand whether the group can use its assignor."""
    switch = "kip848.client.assignors.enable"
    cases: tuple[tuple[Profile, dict[str, object], bool], ...] = (
        ("default", {}, True),
        ("default", {switch: "false"}, False),
        ("kafka", {}, False),
        ("kafka", {switch: "true"}, True),
    )
    for profile, settings, served in cases:
        with (
            EmbeddedBroker(config=settings, profile=profile) as broker,
            RawConnection(broker.bootstrap_servers) as connection,
        ):
            assert _serves(connection) is served, (profile, settings)


def _serves(connection: RawConnection) -> bool:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    keys = {api.api_key: (api.min_version, api.max_version) for api in connection.ask(request, version=4).api_keys}
    assert (PREPARE in keys) == (INSTALL in keys)
    return keys.get(PREPARE) == keys.get(INSTALL) == (0, 0)


def test_a_call_that_waits_for_a_round_sees_it_begin_and_end(broker: EmbeddedBroker, connection: RawConnection) -> None:
    """A round writes no record, and still wakes the calls that wait for the group."""
    m1, m2 = Peer(connection, "m1"), Peer(connection, "m2")
    m1.join()
    m2.join()
    computing = broker.groups.wait_for("g", lambda group: group.computing_member == "m1")
    assert (computing.state, "'m1' computes" in str(computing)) == ("Assigning", True)
    assert broker.groups.expire_assignment("g") == "m1"
    assert broker.groups.wait_for("g", lambda group: group.computing_member == "m2").state == "Assigning"
    assert m1.prepare().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not m1.acknowledge().should_compute_assignment
    assert m2.acknowledge().should_compute_assignment
    m2.compute()
    assert broker.groups.wait_for("g", lambda group: group.computing_member is None).assignor == "a"


def test_the_time_of_a_computation_that_no_member_was_told_of_cannot_run_out(
    broker: EmbeddedBroker, connection: RawConnection
) -> None:
    """A test that expects a round where there is none hears of it."""
    m1 = Peer(connection, "m1")
    m1.join()
    m1.compute()
    with pytest.raises(IllegalStateError, match="no member of group 'g'"):
        broker.groups.expire_assignment("g")


def test_a_fault_takes_a_prepare_or_an_install_like_any_request(
    broker: EmbeddedBroker, connection: RawConnection
) -> None:
    """A test can inject every error of a round of client-side assignment."""
    m1 = Peer(connection, "m1")
    m1.join()
    broker.faults.on(PREPARE, error(ErrorCode.NOT_COORDINATOR), group="g")
    broker.faults.on("ConsumerGroupInstallAssignment", error(ErrorCode.STALE_MEMBER_EPOCH), member="m1")
    assert m1.prepare().error_code == ErrorCode.NOT_COORDINATOR
    prepared = m1.prepare()
    assert prepared.error_code == 0
    assert m1.install(prepared.group_epoch).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert m1.compute().error_code == 0
    broker.faults.on(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        rewrite(lambda response: ConsumerGroupHeartbeatResponse(member_epoch=1, should_compute_assignment=True)),
    )
    assert m1.acknowledge().should_compute_assignment


def test_a_round_starts_again_after_the_broker_was_killed(tmp_path: Path) -> None:
    """KIP-848 "Fail Over": the target that was installed is kept, with its metadata; what was in flight is not."""
    journal = MemoryJournal()
    with EmbeddedBroker({"orders": 4}, data_dir=tmp_path, journal=journal) as broker:
        with RawConnection(broker.bootstrap_servers) as connection:
            m1, m2 = Peer(connection, "m1"), Peer(connection, "m2")
            m1.join()
            m1.compute()
            m1.acknowledge()
            m2.join()
            m2.prepare()
        broker.crash()
        broker.start()
        with RawConnection(broker.bootstrap_servers) as connection:
            m1.connection = m2.connection = connection
            group = broker.wait_for_group("g")
            assert (group.state, group.assignor, group.computing_member) == ("Assigning", "a", None)
            answer = m1.join(topic_partitions=m1.owned)
            assert (m1.told, _partitions(m1.owned)) == (b"m1", [0, 1, 2, 3])
            assert answer.should_compute_assignment
            assert m1.compute().error_code == 0
            m2.acknowledge()
            assert _partitions(m2.pending) == [1, 3]
    events = [event.event for event in journal.events]
    assert events.count("assignment_requested") == 3
