"""Judges each request by the ACLs before its handler sees it. Knows principals, no API.

Each API's file declares the permissions that it needs (`broker.apis`). A request that is refused as a whole is answered
here. One of which a part is refused is narrowed to the rest, and the refusals are added to its handler's answer. So no
handler checks anything.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from kip848_client.common.model import ZERO_UUID
from kip848_client.testing.broker.metadata.acls import (
    CLUSTER_NAME,
    Acl,
    AclDecision,
    Acls,
    Operation,
    ResourceType,
    decide,
    is_allowed_anywhere,
)
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.wire.schema import Request, Response

if TYPE_CHECKING:
    from kip848_client.testing.broker.storage.data_dir import DataDir
    from kip848_client.testing.broker.topics.offsets_topic import OffsetsTopic
    from kip848_client.testing.broker.topics.registry import TopicRegistry

_MEMBERS_MAX: Final = 20_000
"""Groups whose last member is remembered. Patterns are matched right after its heartbeat."""

ResponseT = TypeVar("ResponseT", bound=Response)


def principal_of(name: str) -> str:
    """``User:alice`` for ``alice``; what names its type already stays as it is."""
    return name if ":" in name else f"User:{name}"


class AclStore:
    """The ACLs of a broker, kept in its data folder if it has one.

    Args:
        data_dir: where they are kept; its content is loaded.
    """

    def __init__(self, data_dir: DataDir | None = None) -> None:
        self._data_dir: Final = data_dir
        self.acls: Final = Acls(() if data_dir is None else data_dir.acls())

    def change(self, *, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> None:
        """Add and remove ACLs.

        Raises:
            DataDirError: it could not be written; the ACLs are as before.
        """
        new = [acl for acl in dict.fromkeys(added) if acl not in self.acls]
        old = [acl for acl in dict.fromkeys(removed) if acl in self.acls]
        if self._data_dir is not None and (new or old):
            self._data_dir.change_acls(added=new, removed=old)
        self.acls.add(new)
        self.acls.remove(old)


class Narrowed(NamedTuple, Generic[ResponseT]):
    """The part of a request that is allowed, and what adds the rest to the answer."""

    request: Request[ResponseT]
    complete: Callable[[ResponseT], ResponseT]


class Permit:
    """The questions that one request asks of the ACLs; the same question is judged once.

    Attributes:
        context: of the request.
    """

    def __init__(self, access: Access, context: RequestContext) -> None:
        self.context: Final = context
        self._access: Final = access
        self._known: Final[dict[tuple[Operation, ResourceType, str], bool]] = {}

    def may(self, operation: Operation, resource_type: ResourceType, name: str, *, quiet: bool = False) -> bool:
        """Whether the sender may do that.

        Args:
            quiet: do not report a denial: the sender did not ask for this resource by name.
        """
        asked = (operation, resource_type, name)
        allowed = self._known.get(asked)
        if allowed is None:
            context = self.context
            allowed = self._known[asked] = self._access.allows(
                operation, resource_type, name, principal=context.principal, host=context.client_host
            )
            if not allowed and not quiet:
                self._access.on_denied(context, operation, resource_type, name)
        return allowed

    def may_on_cluster(self, operation: Operation, *, quiet: bool = False) -> bool:
        """Whether the sender may do that with the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, quiet=quiet)

    def may_write_somewhere(self) -> bool:
        """Whether the sender may write to some topic, whichever it is."""
        return self._access.allows_anywhere(
            Operation.WRITE, ResourceType.TOPIC, principal=self.context.principal, host=self.context.client_host
        )

    def operations(self, resource_type: ResourceType, name: str, *, among: int) -> int:
        """The operations of the bit field *among* that the sender may do, as a bit field."""
        return sum(
            1 << operation
            for operation in Operation
            if among >> operation & 1 and self.may(operation, resource_type, name, quiet=True)
        )

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic by its id; None if there is no such topic."""
        offsets = self._access.offsets_topic.described
        topic = offsets if topic_id == offsets.topic_id else self._access.topics.get_by_id(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> uuid.UUID:
        """The id of a topic; zeros if there is no such topic."""
        topic = self._access.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def remember_member(self, group_id: str) -> None:
        """The sender is a member of the group: its patterns match what the sender may see."""
        self._access.remember_member(group_id, self.context)

    def exists(self, topic: str) -> bool:
        """Whether there is a topic of that name."""
        return topic == self._access.offsets_topic.described.name or self._access.topics.get(topic) is not None

    @property
    def creates_topics(self) -> bool:
        """Whether a request for an unknown topic creates it (``auto.create.topics.enable``)."""
        return self._access.creates_topics


Check = Callable[[Permit, Any], Response | Narrowed[Any] | None]
"""The check of an API: returns its answer if the request is refused, the allowed part, or None if all is allowed."""


class Access:
    """Judges requests by the ACLs of one broker.

    Args:
        super_users: principals that may do everything.
        allow_everyone: whether a resource without ACLs is open to all (``allow.everyone.if.no.acl.found``).
        creates_topics: whether a topic is created when a client asks for it (``auto.create.topics.enable``).
        on_denied: called for each denial with the request's context, and the operation, type and name of the resource.
    """

    def __init__(
        self,
        store: AclStore,
        *,
        super_users: frozenset[str],
        allow_everyone: bool,
        topics: TopicRegistry,
        offsets_topic: OffsetsTopic,
        creates_topics: bool,
        on_denied: Callable[[RequestContext, Operation, ResourceType, str], None],
    ) -> None:
        self.store: Final = store
        self._super_users: Final = super_users
        self._allow_everyone: Final = allow_everyone
        self.topics: Final = topics
        self.offsets_topic: Final = offsets_topic
        self.creates_topics: Final = creates_topics
        self.on_denied: Final = on_denied
        self._members: Final[OrderedDict[str, tuple[str, str]]] = OrderedDict()

    def check(self, requires: Check, request: Request[Any], context: RequestContext) -> Response | Narrowed[Any] | None:
        """The allowed part of a request by what its API requires; None for all of it."""
        return requires(Permit(self, context), request)

    def remember_member(self, group_id: str, context: RequestContext) -> None:
        """Match the patterns of the group with the eyes of this sender, until another member sends a heartbeat."""
        self._members[group_id] = (context.principal, context.client_host)
        self._members.move_to_end(group_id)
        if len(self._members) > _MEMBERS_MAX:
            self._members.popitem(last=False)

    def visible_to(self, group_id: str) -> Callable[[str], bool]:
        """Whether the member of a group that sent the last heartbeat may know of a topic."""
        member = self._members.get(group_id)
        if member is None:
            return lambda _topic: False
        principal, host = member
        return lambda topic: self.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic, principal=principal, host=host)

    def allows(
        self, operation: Operation, resource_type: ResourceType, name: str, *, principal: str, host: str
    ) -> bool:
        """Judge one operation.

        Args:
            host: as in `RequestContext.client_host`.
        """
        if principal in self._super_users:
            return True
        verdict = decide(
            self.store.acls, operation, resource_type, name, principal=principal, host=host.removeprefix("/")
        )
        return verdict is AclDecision.ALLOWED or (verdict is AclDecision.NO_ACL and self._allow_everyone)

    def allows_anywhere(self, operation: Operation, resource_type: ResourceType, *, principal: str, host: str) -> bool:
        """Whether *operation* is allowed on some resource of that type that can be thought of."""
        return (
            principal in self._super_users
            or is_allowed_anywhere(
                self.store.acls, operation, resource_type, principal=principal, host=host.removeprefix("/")
            )
            or self.allows(operation, resource_type, "hardcode", principal=principal, host=host)  # as Kafka asks
        )
