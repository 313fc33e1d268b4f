"""Client-side assignors on Apache Kafka, which has none: a clear refusal, or the fallback that was asked for."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kip848_client import MemberState
from kip848_client.assignors import AssignmentSpec, GroupAssignment, PartitionAssignor, spread_evenly
from kip848_client.errors import ClientAssignorsUnsupportedError
from tests.interop.real.group import Group
from tests.support.driving import drive

pytestmark = pytest.mark.interop


class Even(PartitionAssignor):
    name = "even"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return spread_evenly(spec)


def test_the_first_join_fails_and_names_the_apis_that_kafka_does_not_have(group: Group) -> None:
    """Kafka skips tags that it does not know: without this the group would be assigned by other rules, in silence."""
    member = group.ours("a", group_local_assignors=Even).subscribe(group.topic(partitions=2))
    with pytest.raises(ClientAssignorsUnsupportedError) as info:
        drive(member, until=lambda: False, what="the error")
    assert "ConsumerGroupPrepareAssignment (API key 30848)" in str(info.value)
    assert "ConsumerGroupInstallAssignment (API key 30849)" in str(info.value)
    assert member.raw.state is MemberState.FATAL
    assert group.shown().members == ()


def test_with_the_fallback_kafka_assigns_and_one_warning_says_so(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    """A program with an assignor of its own also runs without Prepare and Install, if that was allowed."""
    topic = group.topic(partitions=4)
    conf: dict[str, Any] = {"group_local_assignors": Even, "group_local_assignors_fallback": "server"}
    with caplog.at_level(logging.WARNING, logger="kip848_client"):
        members = [group.ours(name, **conf).subscribe(topic) for name in ("a", "b")]
        group.settle(*members)
        group.write(topic, 20, partitions=4)
        group.read_all(*members)
    assert [len(member.partitions) for member in members] == [2, 2]
    group.assert_read_once()
    warnings = [record.getMessage() for record in caplog.records if "assignors_unsupported" in record.getMessage()]
    assert len(warnings) == 2, "one for each member"
