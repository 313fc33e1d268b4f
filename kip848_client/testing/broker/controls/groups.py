"""``broker.groups``: shows groups, waits for them, and does to them what time or an operator may do.

A member is named by its member id, group instance id or client id. Every call that names one raises BrokerError if
there is no such group or member, or if several members share the client id.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping
from typing import Final

from kip848_client.common.typed import settings, text
from kip848_client.errors import ConfigError, RequestTimeoutError
from kip848_client.testing.broker.controls.live import LiveBroker
from kip848_client.testing.broker.coordinators.group_admin import (
    OffsetsByPartition,
    committed_offsets,
    expire_assignment,
    expire_session,
    force_rebalance,
    member_of,
    remove_member,
)
from kip848_client.testing.broker.coordinators.snapshots import GroupSnapshot
from kip848_client.testing.broker.net.loop_thread import wait_s
from kip848_client.testing.coordinator.classic.classic_group import ClassicState
from kip848_client.testing.coordinator.core.timers import TimerKind
from kip848_client.testing.coordinator.modern.modern_group import GroupState

_GROUP_STATES: Final = tuple(dict.fromkeys(map(str, (*GroupState, *ClassicState))))


class BrokerGroups:
    """The groups that a broker coordinates.

    Example::

        broker.groups.expire_session("billing", "worker-1")
        broker.groups.wait_for("billing", lambda group: len(group.members) == 1)
    """

    def __init__(self, live: LiveBroker) -> None:
        self._live: Final = live

    def ids(self) -> tuple[str, ...]:
        """Ids of all groups, sorted."""
        return self._live.on_loop(lambda state: state.groups.group_ids())

    def get(self, group_id: str) -> GroupSnapshot | None:
        """The current snapshot of a group; None if there is no such group, or only its offsets."""
        text(group_id, name="group_id")
        return self._live.on_loop(lambda state: state.groups.snapshot(group_id))

    def committed(self, group_id: str) -> OffsetsByPartition:
        """The committed offsets of a group; empty if there is no such group.

        Keys may be asked for as ``("orders", 0)`` or as any ``TopicPartition``.
        """
        text(group_id, name="group_id")
        return OffsetsByPartition(self._live.on_loop(lambda state: committed_offsets(state.groups, group_id)))

    def wait_for(
        self,
        group_id: str,
        predicate: Callable[[GroupSnapshot], bool],
        *,
        what: str = "the condition",
        timeout_s: float = 30.0,
    ) -> GroupSnapshot:
        """Wait until *predicate* holds for a snapshot of a group, and return that snapshot.

        For a state or a number of members there is `EmbeddedBroker.wait_for_group`.

        Args:
            predicate: called on the broker's thread with each new snapshot; must be quick and call no broker method.
            what: names the condition in the error.
            timeout_s: seconds to wait.

        Raises:
            RequestTimeoutError: the time is up.
            IllegalStateError: the broker was stopped meanwhile.
        """
        text(group_id, name="group_id")
        future: concurrent.futures.Future[GroupSnapshot] = concurrent.futures.Future()
        self._live.on_loop(lambda state: state.groups.add_waiter(group_id, predicate, future))
        try:
            return future.result(wait_s(timeout_s))
        except concurrent.futures.TimeoutError:
            now = self.get(group_id) if self._live.running else None
            raise RequestTimeoutError(
                f"group {group_id!r}: {what}: not within {timeout_s} s; "
                f"{'there is no such group' if now is None else now}"
            ) from None
        finally:
            future.cancel()

    # --- changes

    def set_config(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Override ``consumer.session.timeout.ms`` and the like for one group; replaces earlier overrides.

        Raises:
            ConfigError: a name is unknown, or a value is outside the broker's bounds.
        """
        text(group_id, name="group_id")
        wanted = settings(overrides, name="overrides")
        self._live.on_loop(lambda state: state.groups.set_config_overrides(group_id, wanted))

    def expire_session(self, group_id: str, member: str) -> None:
        """Expire the session of a member now, as if it had sent no heartbeat for too long.

        Its next heartbeat is refused with UNKNOWN_MEMBER_ID; a static member leaves its instance id free.
        """
        text(group_id, name="group_id")
        text(member, name="member")
        self._live.on_loop(lambda state: expire_session(state.groups, group_id, member))

    def expire_revocation(self, group_id: str, member: str) -> None:
        """Expire a member's time for revoking partitions (``max.poll.interval.ms``) now.

        Raises:
            IllegalStateError: it has nothing to revoke.
        """
        text(group_id, name="group_id")
        text(member, name="member")
        self._live.on_loop(
            lambda state: state.groups.let_time_run_out(
                TimerKind.REBALANCE, group_id=group_id, member_id=member_of(state.groups, group_id, member).member_id
            )
        )

    def expire_assignment(self, group_id: str) -> str:
        """Expire a member's time for computing the target with its client-side assignor now.

        Another member is asked; a later result of the slow one is refused.

        Returns:
            The id of the member that was too slow.

        Raises:
            IllegalStateError: no member was asked to compute a target.
        """
        text(group_id, name="group_id")
        return self._live.on_loop(lambda state: expire_assignment(state.groups, group_id))

    def remove_member(self, group_id: str, member: str) -> None:
        """Remove a member, as an operator may: its next heartbeat is refused."""
        text(group_id, name="group_id")
        text(member, name="member")
        self._live.on_loop(lambda state: remove_member(state.groups, group_id, member))

    def force_rebalance(self, group_id: str) -> int:
        """Move a group to a new epoch, as when a member joins and leaves; return that epoch.

        Every member gets the new epoch with its next heartbeat, and keeps its partitions if the assignor is sticky. The
        members of a classic group join again; its epoch is the generation that begins then.

        Raises:
            BrokerError: the group is full.
            IllegalStateError: it is a classic group without members.
        """
        text(group_id, name="group_id")
        return self._live.on_loop(lambda state: force_rebalance(state.groups, group_id))


def conditions(
    *, state: str | None, members: int | None, epoch: int | None, assignor: str | None
) -> tuple[Callable[[GroupSnapshot], bool], str]:
    """The arguments of `EmbeddedBroker.wait_for_group` as those of `BrokerGroups.wait_for`: predicate and *what*.

    Raises:
        ConfigError: no group is ever in such a state.
    """
    if state is not None and state.lower() not in {name.lower() for name in _GROUP_STATES}:
        raise ConfigError(f"no group is ever {state!r}; its states are {', '.join(_GROUP_STATES)}")

    def hold(group: GroupSnapshot) -> bool:
        return (
            (state is None or group.state.lower() == state.lower())
            and (members is None or len(group.members) == members)
            and (epoch is None or group.group_epoch >= epoch)
            and (assignor is None or group.assignor == assignor)
        )

    given = {"state": state, "members": members, "epoch": epoch, "assignor": assignor}
    return hold, ", ".join(f"{name}={value}" for name, value in given.items() if value is not None) or "to exist"
