"""Requests and answers of brokers that have not learnt to speak of lists."""

from __future__ import annotations

from collections.abc import Mapping

from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.member.offsets.commit_requests import read_fetch
from kip848_client.network.old_layouts import heard, spoken
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import decode_response, encode_request, encode_response
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

FETCH = build(
    OffsetFetchRequest,
    groups=[
        {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 3,
            "topics": [{"name": "orders", "partition_indexes": [0, 1]}],
        }
    ],
    require_stable=True,
)
P0, P1 = NamedPartition("orders", 0), NamedPartition("orders", 1)


def up_to(version: int) -> Mapping[int, tuple[int, int]]:
    """A broker whose FindCoordinator and OffsetFetch end there."""
    return {ApiKey.FIND_COORDINATOR: (0, version), ApiKey.OFFSET_FETCH: (0, version)}


def old_answer(*, error_code: int = 0) -> OffsetFetchResponse:
    """In the layout before version 8, about the first partition only, as it arrives over the wire."""
    found = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": 2, "metadata": "note"}
    topics = [{"name": "orders", "partitions": [found]}]
    answer = build(OffsetFetchResponse, topics=topics, error_code=error_code)
    response = decode_response(
        ApiKey.OFFSET_FETCH, encode_response(answer, api_version=6, correlation_id=1), api_version=6
    )[1]
    assert isinstance(response, OffsetFetchResponse)
    return response


def test_current_brokers_are_asked_as_the_member_says() -> None:
    """The member's epoch only travels in the new layout: without it stale fetches would go unnoticed."""
    assert spoken(FETCH, up_to(8)) is FETCH
    find = FindCoordinatorRequest(coordinator_keys=("g",))
    assert spoken(find, up_to(4)) == find
    answer = OffsetFetchResponse()
    assert heard(FETCH, answer) is answer


def test_an_old_broker_is_asked_for_one_group_and_not_for_what_it_cannot_do() -> None:
    """A field that a version lacks is refused by our own encoder: then no committed offset would ever be found."""
    for version, waits in ((7, True), (6, False), (1, False)):
        asked = spoken(FETCH, up_to(version))

        assert isinstance(asked, OffsetFetchRequest)
        assert (asked.group_id, asked.groups, asked.require_stable) == ("g", (), waits)
        assert asked.topics is not None
        assert [(topic.name, topic.partition_indexes) for topic in asked.topics] == [("orders", (0, 1))]
        encode_request(asked, api_version=version, correlation_id=1, client_id="c")


def test_an_old_brokers_answer_is_read_like_a_new_one() -> None:
    """Offsets are kept or lost here: what is not read falls back to auto.offset.reset."""
    asked = spoken(FETCH, up_to(6))

    answer = heard(asked, old_answer())

    assert isinstance(answer, OffsetFetchResponse)
    result = read_fetch(FETCH, answer, frozenset({P0, P1}))
    assert result.offsets == {P0: OffsetAndMetadata(7, 2, "note")}
    assert set(result.failed) == {P1}  # it left this one out: not the same as having no offset for it


def test_an_error_of_the_whole_group_is_passed_on() -> None:
    """COORDINATOR_LOAD_IN_PROGRESS read as "no offsets" would start the consumer at the beginning."""
    asked = spoken(FETCH, up_to(6))

    answer = heard(asked, old_answer(error_code=14))

    assert isinstance(answer, OffsetFetchResponse)
    assert read_fetch(FETCH, answer, frozenset({P0})).code == 14
