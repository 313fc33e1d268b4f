"""Access control lists: bindings, and the decision that Kafka's StandardAuthorizer takes with them. Pure.

Which request needs which operation on which resource is in `access`.

Source:
    apache/kafka ``StandardAuthorizerData``, ``ResourcePatternFilter``, ``AccessControlEntryFilter``, and
    ``Authorizer.authorizeByResourceType``.
"""

from __future__ import annotations

import enum
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

import msgspec

ANY_NAME: Final = "*"
"""The literal name that stands for all resources of a type."""
ANY_PRINCIPAL: Final = "User:*"
ANY_HOST: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class ResourceType(enum.IntEnum):
    """The kind of resource that an ACL protects."""

    ANY = 1
    """In filters only."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    """Kept, but nothing asks for it here."""
    USER = 7
    """The same."""


class PatternType(enum.IntEnum):
    """How the name of an ACL's resource is compared with the name of a resource."""

    ANY = 1
    """In filters only: any pattern of exactly that name."""
    MATCH = 2
    """In filters only: every pattern that a resource of that name matches."""
    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    """The operation that an ACL allows or denies."""

    ANY = 1
    """In filters only."""
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


OperationName: TypeAlias = Literal[
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
]
"""An operation by its name."""


class Permission(enum.IntEnum):
    """Whether an ACL allows or denies."""

    ANY = 1
    """In filters only."""
    DENY = 2
    ALLOW = 3


class AclDecision(enum.Enum):
    """The decision of the ACLs about one operation."""

    ALLOWED = "allowed"
    DENIED = "denied"
    NO_ACL = "no ACL"
    """No ACL protects the resource, so ``allow.everyone.if.no.acl.found`` decides."""


_IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""An operation -> those whose ALLOW allows it, too. A DENY implies nothing."""


class Acl(msgspec.Struct, frozen=True, order=True):
    """One binding: a principal on a host may, or may not, do something with the resources that a pattern matches.

    Attributes:
        name: of the resource; `ANY_NAME` as a literal matches all names.
        principal: ``User:alice``, or `ANY_PRINCIPAL`.
        host: an address, or `ANY_HOST`.
    """

    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def protects(self, resource_type: ResourceType, name: str) -> bool:
        """Whether its pattern matches the resource."""
        if self.resource_type is not resource_type:
            return False
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)

    def concerns(self, principal: str, host: str) -> bool:
        """Whether it is for that principal on that host."""
        return self.principal in (principal, ANY_PRINCIPAL) and self.host in (host, ANY_HOST)

    def covers(self, operation: Operation) -> bool:
        """Whether it allows or denies *operation*."""
        if self.operation in (operation, Operation.ALL):
            return True
        return self.permission is Permission.ALLOW and self.operation in _IMPLIED_BY.get(operation, ())


class AclFilter(msgspec.Struct, frozen=True):
    """Which ACLs are to be shown or deleted. None and ``ANY`` match everything."""

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Whether *acl* is one of them."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None or self.name == acl.name:
            return True
        return self.pattern_type is PatternType.MATCH and acl.protects(acl.resource_type, self.name)


class Acls:
    """A set of ACLs, in the order in which they were added. Finds those of a resource without looking at all others."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self._acls: Final[dict[Acl, None]] = {}
        self._by_pattern: Final[dict[_Pattern, dict[Acl, None]]] = {}
        self._prefix_lengths: Final[Counter[int]] = Counter()
        self.add(acls)

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._acls)

    def __contains__(self, acl: object) -> bool:
        return acl in self._acls

    def __len__(self) -> int:
        return len(self._acls)

    def add(self, acls: Iterable[Acl]) -> None:
        """Add the ACLs that are not there yet."""
        for acl in acls:
            if acl not in self._acls:
                self._acls[acl] = None
                self._by_pattern.setdefault(_pattern(acl), {})[acl] = None
                self._prefix_lengths[len(acl.name)] += acl.pattern_type is PatternType.PREFIXED

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove the ACLs that are there."""
        for acl in acls:
            if acl in self._acls:
                del self._acls[acl]
                alike = self._by_pattern[_pattern(acl)]
                del alike[acl]
                if not alike:
                    del self._by_pattern[_pattern(acl)]
                self._prefix_lengths[len(acl.name)] -= acl.pattern_type is PatternType.PREFIXED

    def matching(self, wanted: AclFilter) -> list[Acl]:
        """The ACLs that *wanted* matches; it looks at all of them only if *wanted* names no resource."""
        return [acl for acl in self._candidates(wanted) if wanted.matches(acl)]

    def _candidates(self, wanted: AclFilter) -> Iterable[Acl]:
        if wanted.name is None:
            return self._acls
        types = [each for each in ResourceType if wanted.resource_type in (ResourceType.ANY, each)]
        if wanted.pattern_type is PatternType.MATCH:
            return [acl for each in types for acl in self.protecting(each, wanted.name)]
        patterns = itertools.product(types, (PatternType.LITERAL, PatternType.PREFIXED), (wanted.name,))
        return [acl for pattern in patterns for acl in self._by_pattern.get(pattern, ())]

    def protecting(self, resource_type: ResourceType, name: str) -> Iterator[Acl]:
        """The ACLs whose pattern matches the resource."""
        patterns = [(resource_type, PatternType.LITERAL, each) for each in {name, ANY_NAME}]
        patterns += [
            (resource_type, PatternType.PREFIXED, name[:length])
            for length, count in self._prefix_lengths.items()
            if count and length <= len(name)
        ]
        for pattern in patterns:
            yield from self._by_pattern.get(pattern, ())


_Pattern: TypeAlias = tuple[ResourceType, PatternType, str]


def _pattern(acl: Acl) -> _Pattern:
    return acl.resource_type, acl.pattern_type, acl.name


def decide(
    acls: Acls, operation: Operation, resource_type: ResourceType, name: str, *, principal: str, host: str
) -> AclDecision:
    """Judge one operation: a DENY wins over every ALLOW, and a resource with ACLs is closed to all that have none.

    Args:
        operation: not ``ALL`` or ``ANY``.
        host: the address of the client.
    """
    is_protected = is_allowed = False
    for acl in acls.protecting(resource_type, name):
        is_protected = True
        if acl.concerns(principal, host) and acl.covers(operation):
            if acl.permission is Permission.DENY:
                return AclDecision.DENIED
            is_allowed = True
    if is_allowed:
        return AclDecision.ALLOWED
    return AclDecision.DENIED if is_protected else AclDecision.NO_ACL


def is_allowed_anywhere(
    acls: Iterable[Acl], operation: Operation, resource_type: ResourceType, *, principal: str, host: str
) -> bool:
    """Whether some resource of that type can be thought of for which ACLs allow *operation*.

    True for an ALLOW whose pattern is not within the pattern of a DENY.
    """
    concerned = [
        acl
        for acl in acls
        if acl.resource_type is resource_type
        and acl.concerns(principal, host)
        and acl.operation in (operation, Operation.ALL)
    ]
    denied = [acl for acl in concerned if acl.permission is Permission.DENY]
    return any(
        acl.permission is Permission.ALLOW and not any(_is_within(acl, other) for other in denied) for acl in concerned
    )


def _is_within(acl: Acl, other: Acl) -> bool:
    """Whether the pattern of *other* matches every name that the pattern of *acl* matches."""
    if other.pattern_type is PatternType.LITERAL and other.name == ANY_NAME:
        return True
    if acl.pattern_type is PatternType.LITERAL and acl.name == ANY_NAME:
        return False
    if other.pattern_type is PatternType.PREFIXED:
        return acl.name.startswith(other.name)
    return acl.pattern_type is PatternType.LITERAL and acl.name == other.name
