"""``broker.acls``: who may do what, from the next request on.

Every call raises IllegalStateError if the broker has no authorizer (``EmbeddedBroker(acls=True)`` has one), and
DataDirError if the change cannot be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from kip848_client.errors import IllegalStateError
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.controls.live import LiveBroker
from kip848_client.testing.broker.metadata.acls import (
    ANY_HOST,
    CLUSTER_NAME,
    Acl,
    Operation,
    OperationName,
    PatternType,
    Permission,
    ResourceType,
)
from kip848_client.testing.broker.security.access import Access, principal_of
from kip848_client.testing.broker.state import BrokerState

ResultT = TypeVar("ResultT")


class BrokerAcls:
    """The ACLs of a broker, in the order in which they were added.

    Example::

        broker.acls.allow("alice", "READ", topic="orders")
        broker.acls.remove(acl for acl in broker.acls if acl.principal == "User:alice")
    """

    def __init__(self, live: LiveBroker, *, config: BrokerConfig) -> None:
        self._live: Final = live
        self._config: Final = config

    def allow(
        self,
        principal: str,
        *operations: OperationName,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        cluster: bool = False,
        prefixed: bool = False,
        host: str = ANY_HOST,
    ) -> None:
        """Allow a principal to do something with one resource.

        Args:
            principal: a user, ``User:alice`` or just ``alice``; ``*`` for all. A client without a login is
                ``ANONYMOUS``; one with a certificate is its distinguished name, ``User:CN=alice``.
            operations: such as ``READ``; ``ALL`` if none is given.
            topic: its name; ``*`` for all topics. So with *group* and *transactional_id*; give exactly one.
            prefixed: all resources whose name begins so.
            host: the address of the client.

        Raises:
            ValueError: there is no such operation.
            TypeError: not exactly one resource is given.
        """
        acls = _acls(Permission.ALLOW, principal, operations, topic, group, transactional_id, cluster, prefixed, host)
        self._with_access(lambda access: access.store.change(added=acls))

    def deny(
        self,
        principal: str,
        *operations: OperationName,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        cluster: bool = False,
        prefixed: bool = False,
        host: str = ANY_HOST,
    ) -> None:
        """Deny a principal to do something with one resource, even if an ACL allows it. Arguments as `allow`."""
        acls = _acls(Permission.DENY, principal, operations, topic, group, transactional_id, cluster, prefixed, host)
        self._with_access(lambda access: access.store.change(added=acls))

    def remove(self, acls: Iterable[Acl] | None = None) -> None:
        """Remove *acls*, or all."""
        gone = None if acls is None else tuple(acls)
        self._with_access(lambda access: access.store.change(removed=access.store.acls if gone is None else gone))

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._with_access(lambda access: tuple(access.store.acls)))

    def _with_access(self, function: Callable[[Access], ResultT]) -> ResultT:
        if not self._config.authorizer:
            raise IllegalStateError(
                "this broker allows everything; make it with acls=True, or set authorizer.class.name=standard and "
                "super.users"
            )

        def run(state: BrokerState) -> ResultT:
            assert state.access is not None
            return function(state.access)

        return self._live.on_loop(run)


def _acls(
    permission: Permission,
    principal: str,
    operations: Iterable[str],
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    cluster: bool,
    prefixed: bool,
    host: str,
) -> list[Acl]:
    """One ACL for each operation."""
    given = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
        ResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
    }
    named = [(resource_type, name) for resource_type, name in given.items() if name is not None]
    if len(named) != 1:
        raise TypeError("give exactly one of topic=, group=, transactional_id= and cluster=True")
    ((resource_type, name),) = named
    found = []
    for operation in tuple(operations) or ("ALL",):
        if operation.upper() not in Operation.__members__ or operation.upper() == "ANY":
            raise ValueError(
                f"{operation!r} is not an operation; choose from {', '.join(list(Operation.__members__)[1:])}"
            )
        found.append(
            Acl(
                resource_type,
                PatternType.PREFIXED if prefixed else PatternType.LITERAL,
                name,
                principal_of(principal),
                host,
                Operation[operation.upper()],
                permission,
            )
        )
    return found
