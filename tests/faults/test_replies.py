"""Error answers of every API and version: they can be sent, and they say what they should where they should."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip848_client.errors import ErrorCode
from kip848_client.testing.faults.replies import ErrorPlacer, merge, split
from kip848_client.testing.faults.subject import Element, item_of
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import decode_response, encode_response
from kip848_client.wire.messages import message_pair, supported_api_keys
from kip848_client.wire.messages.fetch import FetchRequest, FetchResponse
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kip848_client.wire.messages.metadata import MetadataResponse
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kip848_client.wire.messages.produce import ProduceRequest
from kip848_client.wire.schema import STRING, UUID, ArrayOf, Request, Response, Scalar, WireStruct, fields_of
from tests.wire.strategies import Case, messages

ORDERS, USERS = uuid.UUID(int=1), uuid.UUID(int=2)
NAMES = {ORDERS: "orders", USERS: "users"}
CODE = 9999
"""No API has an opinion of its own about it."""

CASES = [
    (api_key, version)
    for api_key in sorted(supported_api_keys())
    for version in range(
        max(message_pair(api_key).request.WIRE.versions.first, message_pair(api_key).response.WIRE.versions.first),
        message_pair(api_key).request.WIRE.versions.last + 1,
    )
]


def placer(api_key: int, version: int, code: int = CODE, **arguments: Any) -> ErrorPlacer:
    return ErrorPlacer(
        api_key=api_key, api_version=version, code=code, message="because", topic_name=NAMES.get, **arguments
    )


def codes(message: WireStruct, version: int) -> list[int]:
    """Every error code in a message, at any depth."""
    found = []
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if not field.versions.includes(version) or value is None:
            continue
        if field.name in ("error_code", "partition_error_code"):
            found.append(value)
        elif isinstance(field.kind, ArrayOf) and isinstance(field.kind.element, type):
            found += [code for element in value for code in codes(element, version)]
    return found


ZEROS: dict[Scalar, object] = {STRING: "", UUID: uuid.UUID(int=0)}


def sample(cls: type[WireStruct], version: int) -> Any:
    """A message with one element in each array."""
    values: dict[str, Any] = {}
    for field in fields_of(cls):
        if field.versions.includes(version) and isinstance(field.kind, ArrayOf):
            element = field.kind.element
            values[field.name] = (sample(element, version) if isinstance(element, type) else ZEROS.get(element, 0),)
    return cls(**values)


@pytest.mark.parametrize(("api_key", "version"), CASES, ids=lambda value: str(getattr(value, "name", value)))
def test_every_api_can_be_refused_in_every_version(api_key: ApiKey, version: int) -> None:
    """A fault rule works for whatever a client asks, and the client can read the answer."""
    refusal = placer(api_key, version).refuse(sample(message_pair(api_key).request, version))
    assert refusal is not None
    sent = encode_response(refusal, api_version=version, correlation_id=1)
    _, received = decode_response(api_key, sent, api_version=version)
    assert CODE in codes(received, version)


def commit(*topics: tuple[uuid.UUID, tuple[int, ...]]) -> OffsetCommitRequest:
    asked = [
        {
            "topic_id": topic_id,
            "name": NAMES[topic_id],
            "partitions": [{"partition_index": index} for index in partitions],
        }
        for topic_id, partitions in topics
    ]
    return build(OffsetCommitRequest, group_id="g", topics=asked)


def test_a_refused_commit_answers_each_partition() -> None:
    """A partition that is left out looks to a client as if it had never asked."""
    refusal = placer(ApiKey.OFFSET_COMMIT, 10).refuse(commit((ORDERS, (0, 1)), (USERS, (2,))))
    first, second, third = ({"partition_index": index, "error_code": CODE} for index in range(3))
    orders = {"topic_id": ORDERS, "partitions": [first, second]}
    assert refusal == build(OffsetCommitResponse, topics=[orders, {"topic_id": USERS, "partitions": [third]}])


def test_produce_is_refused_by_partition_with_a_reason() -> None:
    """Producers look at the error of the partition only; elsewhere they would not see it."""
    request = build(ProduceRequest, topic_data=[{"name": "orders", "partition_data": [{"index": 3}]}])
    refusal: Any = placer(ApiKey.PRODUCE, 9).refuse(request)
    (partition,) = refusal.responses[0].partition_responses
    assert (partition.index, partition.error_code, partition.base_offset) == (3, CODE, -1)
    assert partition.error_message == "because"


@pytest.mark.parametrize(
    ("code", "version", "top", "partition"),
    [
        (ErrorCode.UNKNOWN_TOPIC_ID, 13, 0, [ErrorCode.UNKNOWN_TOPIC_ID]),
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 13, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, []),
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 6, 0, [ErrorCode.FETCH_SESSION_ID_NOT_FOUND]),
    ],
)
def test_fetch_has_two_places_and_each_code_its_own(code: int, version: int, top: int, partition: list[int]) -> None:
    """A code about the session, put at a partition, is one that no client expects there."""
    topic = {"topic": "orders", "topic_id": ORDERS, "partitions": [{"partition": 4}]}
    request = build(FetchRequest, topics=[topic])
    refusal = placer(ApiKey.FETCH, version, code).refuse(request)
    assert isinstance(refusal, FetchResponse)
    assert refusal.error_code == top
    assert [item.error_code for topic in refusal.responses for item in topic.partitions] == partition


def offset_fetch(version: int) -> OffsetFetchRequest:
    topic = {"name": "orders", "partition_indexes": [0, 1]}
    if version < 8:
        return build(OffsetFetchRequest, group_id="g", topics=[topic])
    groups = [{"group_id": group_id, "topics": [topic | {"topic_id": ORDERS}]} for group_id in ("g", "h")]
    return build(OffsetFetchRequest, groups=groups)


@pytest.mark.parametrize("version", [1, 2, 7, 8, 10])
def test_offset_fetch_tells_errors_of_the_group_from_those_of_partitions(version: int) -> None:
    """A client that gets NOT_COORDINATOR with a partition would not look for the coordinator."""
    group: Any = placer(ApiKey.OFFSET_FETCH, version, ErrorCode.NOT_COORDINATOR).refuse(offset_fetch(version))
    single: Any = placer(ApiKey.OFFSET_FETCH, version, ErrorCode.UNSTABLE_OFFSET_COMMIT).refuse(offset_fetch(version))
    if version == 1:  # it has no place for the group
        assert codes(group, version) == [ErrorCode.NOT_COORDINATOR] * 2
    elif version < 8:
        assert group == OffsetFetchResponse(error_code=ErrorCode.NOT_COORDINATOR)
    else:
        assert [(item.group_id, item.error_code, item.topics) for item in group.groups] == [
            ("g", ErrorCode.NOT_COORDINATOR, ()),
            ("h", ErrorCode.NOT_COORDINATOR, ()),
        ]
    partitions = [
        partition
        for topic in single.topics + tuple(topic for item in single.groups for topic in item.topics)
        for partition in topic.partitions
    ]
    assert {(item.error_code, item.committed_offset) for item in partitions} == {(ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)}
    assert len(partitions) == (2 if version < 8 else 4)


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_find_coordinator_is_refused_in_both_layouts(version: int) -> None:
    """From version 4 on the answer is a list; an injected error must reach old and new clients."""
    request = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=("g", "h"))
    refusal = placer(ApiKey.FIND_COORDINATOR, version).refuse(request)
    assert isinstance(refusal, FindCoordinatorResponse)
    if version < 4:
        assert (refusal.error_code, refusal.node_id, refusal.port) == (CODE, -1, -1)
    else:
        assert [(item.key, item.error_code, item.node_id) for item in refusal.coordinators] == [
            ("g", CODE, -1),
            ("h", CODE, -1),
        ]


METADATA = build(
    MetadataResponse,
    brokers=[{"node_id": 1, "host": "h", "port": 9092}],
    topics=[{"name": name, "topic_id": topic_id, "partitions": [{"leader_id": 1}]} for topic_id, name in NAMES.items()],
)


def test_an_error_in_metadata_is_about_a_topic_and_leaves_the_brokers() -> None:
    """Metadata without brokers tells a client that the cluster is gone."""
    marked: Any = placer(ApiKey.METADATA, 13, wanted=lambda item: item.topic == "users").mark(METADATA)
    assert marked.brokers == METADATA.brokers
    assert marked.topics[0] == METADATA.topics[0]
    assert (marked.topics[1].error_code, marked.topics[1].partitions) == (CODE, ())
    whole: Any = placer(ApiKey.METADATA, 13, ErrorCode.REBOOTSTRAP_REQUIRED).mark(METADATA)
    assert whole.error_code == ErrorCode.REBOOTSTRAP_REQUIRED


def test_there_is_no_place_where_nothing_was_asked() -> None:
    """The rule then says that it does not fit, instead of pretending to have acted."""
    assert placer(ApiKey.OFFSET_COMMIT, 9).refuse(commit()) is None
    assert placer(ApiKey.METADATA, 12).mark(MetadataResponse()) is None


# --- a part of it


def wants(topic: str | None = None, partition: int | None = None, group: str | None = None) -> Any:
    return lambda item: (
        (topic is None or item.topic == topic)
        and (partition is None or item.partition == partition)
        and (group is None or item.group == group)
    )


def cut(request: Request[Response], api_key: int, wanted: Any) -> tuple[Any, Any]:
    return split(request, wanted=wanted, api_key=api_key, topic_name=NAMES.get)


def test_a_partition_is_cut_out_of_its_request() -> None:
    """Refusing one partition of a commit must leave the others as they are."""
    whole = commit((ORDERS, (0, 1)), (USERS, (1, 2)))
    hit, rest = cut(whole, ApiKey.OFFSET_COMMIT, wants("orders", 1))
    assert hit == commit((ORDERS, (1,)))
    assert rest == commit((ORDERS, (0,)), (USERS, (1, 2)))


def test_a_topic_is_cut_out_whole() -> None:
    """Without a partition number all partitions are meant."""
    hit, rest = cut(commit((ORDERS, (0, 1)), (USERS, (2,))), ApiKey.OFFSET_COMMIT, wants("orders"))
    assert (hit, rest) == (commit((ORDERS, (0, 1))), commit((USERS, (2,))))


def test_nothing_is_left_if_everything_is_wanted_and_the_other_way_round() -> None:
    """Half a request without elements would be answered strangely by a broker."""
    whole = commit((ORDERS, (0,)))
    assert cut(whole, ApiKey.OFFSET_COMMIT, wants("orders")) == (whole, None)
    assert cut(whole, ApiKey.OFFSET_COMMIT, wants("users")) == (None, whole)


def test_one_group_of_several_is_cut_out() -> None:
    """Version 8 of OffsetFetch asks for several groups at once."""
    whole = offset_fetch(10)
    hit, rest = cut(whole, ApiKey.OFFSET_FETCH, wants(group="h"))
    assert [group.group_id for group in hit.groups] == ["h"]
    assert [group.group_id for group in rest.groups] == ["g"]


def test_the_answers_of_both_parts_become_one() -> None:
    """Each partition is answered once, under its topic."""
    whole = commit((ORDERS, (0, 1)), (USERS, (2,)))
    hit, rest = cut(whole, ApiKey.OFFSET_COMMIT, wants("orders", 0))
    accepted: Any = placer(ApiKey.OFFSET_COMMIT, 10, 7).refuse(rest)
    refused: Any = placer(ApiKey.OFFSET_COMMIT, 10).refuse(hit)
    merged = merge(refused, accepted)
    assert [
        (NAMES[topic.topic_id], item.partition_index, item.error_code)
        for topic in merged.topics
        for item in topic.partitions
    ] == [("orders", 0, CODE), ("orders", 1, 7), ("users", 2, 7)]


PARTITIONED = [
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.ADD_PARTITIONS_TO_TXN,
]


def elements(message: object, topics: tuple[str, ...], partitions: tuple[str, ...]) -> list[Element]:
    """The partitions of a request or answer, in order."""
    found: list[Element] = []
    holders = [message]
    for name in ("groups", "transactions", "results_by_transaction"):
        holders += getattr(message, name, ())
    for holder in holders:
        outer = (
            item_of(holder, array="", topic_name=NAMES.get, inside=Element()) if holder is not message else Element()
        )
        for name in topics:
            for topic in getattr(holder, name, None) or ():
                inside = item_of(topic, array="topics", topic_name=NAMES.get, inside=outer)
                for inner in partitions:
                    found += [
                        item_of(partition, array=inner, topic_name=NAMES.get, inside=inside)
                        for partition in getattr(topic, inner, ())
                    ]
    return found


REQUEST_TOPICS = ("topics", "topic_data", "v3_and_below_topics")
REQUEST_PARTITIONS = ("partitions", "partition_data", "partition_indexes")


@pytest.mark.parametrize("api_key", PARTITIONED, ids=lambda key: key.name)
@settings(max_examples=10)
@given(data=st.data())
def test_the_two_parts_hold_every_partition_once(api_key: ApiKey, data: st.DataObject) -> None:
    """Splitting may not lose, repeat or move a partition, whatever the request."""
    version = message_pair(api_key).request.WIRE.versions.last
    request: Any = data.draw(messages(Case(message_pair(api_key).request, version)))
    everything = elements(request, REQUEST_TOPICS, REQUEST_PARTITIONS)
    number = data.draw(st.sampled_from([item.partition for item in everything] or [0]))
    hit, rest = cut(request, api_key, wants(partition=number))
    taken = elements(hit, REQUEST_TOPICS, REQUEST_PARTITIONS) if hit is not None else []
    left = elements(rest, REQUEST_TOPICS, REQUEST_PARTITIONS) if rest is not None else []
    assert all(item.partition == number for item in taken)
    assert all(item.partition != number for item in left)
    assert sorted(taken + left, key=repr) == sorted(everything, key=repr)
