"""Finds the group's coordinator with FindCoordinator and keeps one connection to it.

Looks the coordinator up only while the member needs it. Sets `Context.link`, without which no part sends a request.

Source: Kafka's ``CoordinatorRequestManager``; KAFKA-18034 (pending calls fail with a refusal, which is then forgotten).
Rules: R20 to R26 and R199 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import BrokerNode
from kip848_client.errors import Kip848Error, error_for_code
from kip848_client.member.core.context import Context
from kip848_client.member.core.error_tables import FindErrorClass, find_error_class
from kip848_client.member.core.events import (
    ConnectCoordinator,
    CoordinatorConnected,
    CoordinatorDisconnected,
    Destination,
    FailureKind,
    RequestFailed,
)
from kip848_client.member.core.failures import failure_error, is_passing
from kip848_client.member.core.settings import missing_permission
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_GROUP_KEY_TYPE: Final = 0
_FINAL: Final = frozenset({FailureKind.AUTHENTICATION_FAILED, FailureKind.UNSUPPORTED_VERSION})


class Discovery:
    """Finds the coordinator and connects to it.

    Args:
        on_refused: called with each error that no retry cures, so that calls which wait for the coordinator can fail.
        on_connection_refused: told when the coordinator itself refuses the connection, or any broker our credentials,
            before *on_refused*. Heartbeats cannot do without, so a member may fail of it.
    """

    def __init__(
        self,
        context: Context,
        *,
        on_refused: Callable[[Kip848Error], None],
        on_connection_refused: Callable[[RequestFailed], None],
    ) -> None:
        self._context = context
        self._on_refused = on_refused
        self._on_connection_refused = on_connection_refused
        self._backoff = context.new_backoff()
        self._unproven_ms: int | None = None
        """When the coordinator was found last; None once it has answered a heartbeat."""
        self._finding = False
        self._connecting: int | None = None
        self._node: BrokerNode | None = None
        self._versions: Mapping[int, tuple[int, int]] = {}

    @property
    def known(self) -> bool:
        """Whether a request to the coordinator can be sent now."""
        return self._context.link is not None

    @property
    def node(self) -> BrokerNode | None:
        """The coordinator, while its connection is up."""
        return self._node if self.known else None

    def highest_version(self, api_key: int) -> int | None:
        """Highest version of *api_key* that the coordinator offers; None if it offers none, or is not known."""
        offered = self._versions.get(api_key)
        return offered[1] if offered is not None and self.known else None

    # --- looking

    def advance(self, *, wanted: bool) -> None:
        """Start a lookup if the member needs the coordinator and no lookup is in flight."""
        if not wanted or self.known or self._finding or self._connecting is not None:
            return
        if self._unproven_ms is not None:
            # The last coordinator was lost before it worked. Wait: two brokers may name each other in a loop.
            self._backoff.pace(self._unproven_ms)
            self._unproven_ms = None
        if not self._context.due(self._backoff.ready_ms):
            return
        config = self._context.config
        self._finding = True
        self._context.send(
            FindCoordinatorRequest(key="", key_type=_GROUP_KEY_TYPE, coordinator_keys=(config.group_id,)),
            destination=Destination.ANY_BROKER,
            timeout_ms=self._context.lookup_timeout_ms(self._backoff.failures),
            on_answer=self._found,
            on_failure=self._find_failed,
        )

    def _found(self, response: FindCoordinatorResponse) -> None:
        self._finding = False
        if self._context.fatal_error is not None:
            return  # nothing is sent any more
        found = response.of(self._context.config.group_id)
        code, message = found.error_code, found.error_message
        if code:
            self._backoff.failed(self._context.now_ms)
            if find_error_class(code) is FindErrorClass.SURFACE:
                group_id = self._context.config.group_id
                text = f"no coordinator for group {group_id!r}: {message or 'the broker gave no reason'}; still trying"
                if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                    text += f"; {missing_permission(self._context.config, 'READ', f'group {group_id!r}')}"
                self._refuse(error_for_code(code, text), key=code)
            return
        self._unproven_ms = self._context.now_ms
        self._node = node = BrokerNode(found.node_id, found.host, found.port)
        self._connecting = self._context.expect(None, self._connect_failed)
        timeout_ms = self._context.lookup_timeout_ms(self._backoff.failures)
        self._context.emit(ConnectCoordinator(self._connecting, node, timeout_ms))

    def proven(self) -> None:
        """The coordinator answered a heartbeat. If it moves later, look up the next one at once."""
        self._unproven_ms = None

    def _find_failed(self, failure: RequestFailed) -> None:
        self._finding = False
        self._backoff.failed(self._context.now_ms)
        if failure.kind in {FailureKind.AUTHENTICATION_FAILED, FailureKind.OTHER_CLUSTER}:
            # R25: the coordinator would refuse the same credentials, and repeated attempts lock accounts. In another
            # cluster the group, its offsets and the topic ids are others.
            self._on_connection_refused(failure)
        if not is_passing(failure):
            self._refuse(failure_error(failure), key=failure.kind)

    # --- connecting

    def connected(self, event: CoordinatorConnected) -> None:
        """The connection is up."""
        if event.request_id != self._connecting:
            return
        self._context.finish(event.request_id)
        self._connecting = None
        self._context.link = event.request_id
        self._versions = event.versions
        self._backoff.failures = 0

    def _connect_failed(self, failure: RequestFailed) -> None:
        self._connecting = None
        self._unproven_ms = None
        self._backoff.failed(self._context.now_ms)
        if failure.kind in _FINAL:
            self._on_connection_refused(failure)
        if not is_passing(failure):
            self._refuse(failure_error(failure), key=failure.kind)

    def _refuse(self, error: Kip848Error, *, key: object) -> None:
        if self._context.fatal_error is None:
            self._context.surface(error, key=("coordinator", key))
        self._on_refused(error)

    # --- losing

    def disconnected(self, event: CoordinatorDisconnected) -> None:
        """The idle connection broke."""
        if self._node is not None and event.node_id == self._node.node_id:
            self._context.lose_link(self._context.link)
