"""ListGroups and DeleteGroups: for groups of every kind, and for groups that have offsets alone.

A *simple* group has offsets and no members: consumers that assign partitions themselves commit to it. To these APIs it
is a classic group that is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_state import AnyGroup, CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.kind import Kinds, timeless
from kip848_client.testing.coordinator.core.offset_store import offset_tombstone, pending_tombstone
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kip848_client.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

ALL_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""All operations on a group (read, delete, describe, describe and alter configs), for descriptions: there are no ACLs
here."""

_WHY_NOT: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
    ErrorCode.NON_EMPTY_GROUP: "The group has members; it can be deleted once they have left.",
}


def handle_list_groups(state: CoordinatorState, request: ApiRequest, message: ListGroupsRequest) -> CoordinatorResult:
    """Answer one ListGroups. Filters ignore case, and a group must pass both; an unknown word matches no group."""
    states = {text.strip().lower() for text in message.states_filter}
    types = {text.lower() for text in message.types_filter}  # not stripped: Kafka does not
    groups = tuple(
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=str(group.state),
            group_type=group.kind,
        )
        for group in _every_group(state)
        if (not states or str(group.state).lower() in states) and (not types or group.kind in types)
    )
    return CoordinatorResult(replies=(Reply(request.request_id, ListGroupsResponse(groups=groups)),))


def handle_delete_groups(
    state: CoordinatorState, request: ApiRequest, message: DeleteGroupsRequest
) -> CoordinatorResult:
    """Answer one DeleteGroups: groups without members go with their offsets; each group has its own error."""
    batch = Batch("")
    results: dict[str, ErrorCode] = {}
    for group_id in message.groups_names:
        if group_id not in results:
            results[group_id] = _delete_group(state, batch, group_id)
    answered = tuple(
        DeletableGroupResult(group_id=group_id, error_code=code, error_message=_WHY_NOT.get(code))
        for group_id, code in results.items()
    )
    return batch.result(Reply(request.request_id, DeleteGroupsResponse(results=answered)))


def _every_group(state: CoordinatorState) -> Iterator[AnyGroup]:
    for group_id in sorted(state.offsets.group_ids() | state.groups.keys()):
        group = state.known_group(group_id)
        assert group is not None
        yield group


def _delete_group(state: CoordinatorState, batch: Batch, group_id: str) -> ErrorCode:
    group = state.known_group(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not group.is_empty:
        return ErrorCode.NON_EMPTY_GROUP
    batch.records += [
        offset_tombstone(group_id, topic=topic, partition=partition)
        for topic, partitions in sorted(state.offsets.of_group(group_id).items())
        for partition in sorted(partitions)
    ]
    batch.records += [pending_tombstone(key) for key in state.offsets.pending_of_group(group_id)]
    batch.add(state.part(Kinds).of(group).delete(group))
    return ErrorCode.NONE


ROUTES: Final = (timeless(ListGroupsRequest, handle_list_groups), timeless(DeleteGroupsRequest, handle_delete_groups))
