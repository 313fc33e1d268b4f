"""ConsumerGroupDescribe (69): consumer groups with members, assignments and targets."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kip848_client.broker.apis._groups import to_group_coordinator
from kip848_client.broker.apis._permissions import GROUP_FAILED, TOPIC_FAILED, split, with_group_operations
from kip848_client.broker.metadata.acls import Operation, ResourceType
from kip848_client.broker.security.access import Narrowed, Permit
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse, DescribedGroup

API_KEY: Final = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS: Final = (0, 1)

handle = to_group_coordinator


def requires(permit: Permit, request: Any) -> Narrowed[Any]:
    """DESCRIBE on each group, and on all topics that its members have."""
    kept, refused = split(
        request.group_ids,
        lambda group_id: permit.may(Operation.DESCRIBE, ResourceType.GROUP, group_id),
        lambda group_id: DescribedGroup(group_id=group_id, error_code=GROUP_FAILED),
    )

    def judge(group: DescribedGroup) -> DescribedGroup:
        names = {
            topic.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for topic in assignment.topic_partitions
        }
        if all(permit.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(names)):
            shown: DescribedGroup = with_group_operations(permit, group)
            return shown
        return replace(
            group,
            members=(),
            error_code=TOPIC_FAILED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )

    def complete(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
        return replace(response, groups=(*map(judge, response.groups), *refused))

    return Narrowed(replace(request, group_ids=kept), complete)
