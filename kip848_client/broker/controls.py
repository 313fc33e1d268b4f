"""Calls on a running broker: topics, groups, members, time. No life cycle, no wire.

A call takes the way of a request: through the topic registry and the group coordinator, into the records and to the
observers of changes. Any thread may call the methods; they pass their work to the broker's thread and wait for it.
"""

from __future__ import annotations

import abc
import concurrent.futures
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from kip848_client.broker.group_admin import (
    committed_offsets,
    expire_assignment,
    expire_session,
    force_rebalance,
    member_of,
    remove_member,
)
from kip848_client.broker.snapshots import GroupSnapshot
from kip848_client.broker.topic_configs import PARTITION_RACKS, racks_to_text
from kip848_client.broker.topics import Topic
from kip848_client.clock import Clock, ManualClock
from kip848_client.coordinator.timers import TimerKind
from kip848_client.errors import BrokerError, ErrorCode, IllegalStateError, RequestTimeoutError
from kip848_client.model import TopicPartition

if TYPE_CHECKING:
    from kip848_client.broker.faults import Faults
    from kip848_client.broker.logged_request import LoggedRequest
    from kip848_client.broker.request_log import RequestLog
    from kip848_client.broker.state import BrokerState
    from kip848_client.broker.transactions import TransactionSnapshot
    from kip848_client.faults import ApiSelector

__all__ = ["BrokerControls"]

ResultT = TypeVar("ResultT")


class BrokerControls(abc.ABC):
    """The part of `EmbeddedBroker` that works while it runs.

    Attributes:
        faults: rules that inject faults into requests; see `Faults.on`.
        requests: the requests of clients with their answers; see `RequestLog.of` and `RequestLog.wait_for`.
    """

    faults: Faults
    requests: RequestLog
    _clock: Clock

    @property
    @abc.abstractmethod
    def running(self) -> bool:
        """Whether it serves."""

    @abc.abstractmethod
    def _on_loop(self, function: Callable[[BrokerState], ResultT]) -> ResultT:
        """Call *function* on the broker's thread."""

    # --- topics

    def create_topic(self, name: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None) -> uuid.UUID:
        """Create a topic and return its id.

        Raises:
            BrokerError: the name is taken or not allowed, or there are too few or too many partitions.
        """
        return self._on_loop(lambda state: state.topics.create(name, partitions, configs=configs).topic_id)

    def add_partitions(self, name: str, count: int) -> None:
        """Increase the partitions of a topic to *count*.

        Raises:
            BrokerError: there is no such topic, or it has at least as many.
        """
        self._on_loop(lambda state: state.topics.add_partitions(name, count))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records. A topic created under that name later has another id.

        Raises:
            BrokerError: there is no such topic.
        """
        self._on_loop(lambda state: state.topics.delete(name))

    def recreate_topic(self, name: str, partitions: int | None = None) -> uuid.UUID:
        """Delete a topic and create it again in one step, empty and with another id, which is returned.

        Args:
            partitions: the new number; unchanged if not given.

        Raises:
            BrokerError: there is no such topic.
        """

        def recreate(state: BrokerState) -> uuid.UUID:
            old = state.topics.delete(name)
            return state.topics.create(name, partitions or old.partition_count).topic_id

        return self._on_loop(recreate)

    def delete_records(self, name: str, partition: int, before_offset: int = -1) -> int:
        """Delete the records of a partition below an offset, as retention does; return its new start.

        Args:
            before_offset: the first offset that stays; -1 for none.

        Raises:
            BrokerError: there is no such partition, or the offset is outside it.
        """
        return self._on_loop(
            lambda state: state.topics.delete_records(_topic(state, name, partition), partition, before_offset)
        )

    def set_partition_racks(self, name: str, racks: Sequence[str | Iterable[str]]) -> None:
        """Set the racks of the replicas of a topic's partitions, for rack-aware assignors.

        Args:
            racks: of partition 0, 1 and so on, one rack or several; the list repeats. Empty: unknown.

        Raises:
            BrokerError: there is no such topic, or a rack is blank or holds a comma or a slash.
        """
        text = racks_to_text([(item,) if isinstance(item, str) else tuple(item) for item in racks])

        def set_racks(state: BrokerState) -> None:
            configs = {key: value for key, value in _topic(state, name, 0).configs.items() if key != PARTITION_RACKS}
            state.topics.set_configs(name, {**configs, PARTITION_RACKS: text} if racks else configs)

        self._on_loop(set_racks)

    def offsets(self, name: str) -> dict[int, tuple[int, int]]:
        """Where each partition of a topic starts and ends: partition -> (first offset, next offset).

        Raises:
            BrokerError: there is no such topic.
        """
        return self._on_loop(
            lambda state: {
                index: (log.log_start_offset, log.high_watermark)
                for index, log in enumerate(_topic(state, name, 0).partitions)
            }
        )

    def topics(self) -> dict[str, int]:
        """Every topic with its number of partitions, by name."""
        return self._on_loop(lambda state: {topic.name: topic.partition_count for topic in state.topics})

    # --- groups

    def metrics(self) -> dict[str, float]:
        """The current values of the coordinator's metrics: ``name`` or ``name{attribute=value}`` -> value.

        The names are in ``telemetry.COORDINATOR_METRICS``; an OpenTelemetry SDK in this process is given the same.
        """
        return {str(figure): figure.value for figure in self._on_loop(lambda state: state.groups.figures())}

    def groups(self) -> tuple[str, ...]:
        """Ids of all groups, sorted."""
        return self._on_loop(lambda state: state.groups.group_ids())

    def group(self, group_id: str) -> GroupSnapshot | None:
        """The current snapshot of a group; None if there is no such consumer group."""
        return self._on_loop(lambda state: state.groups.snapshot(group_id))

    def set_group_config(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Override ``consumer.session.timeout.ms`` and the like for one group; replaces earlier overrides.

        Raises:
            ConfigError: a name is unknown, or a value is outside the broker's bounds.
        """
        self._on_loop(lambda state: state.groups.set_config_overrides(group_id, dict(overrides)))

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group; empty if there is no such group."""
        return self._on_loop(lambda state: committed_offsets(state.groups, group_id))

    def expire_session(self, group_id: str, member: str) -> None:
        """Expire the session of a member now, as if it had sent no heartbeat for too long.

        Its next heartbeat is refused with UNKNOWN_MEMBER_ID; a static member leaves its instance id free.

        Args:
            member: its member id, group instance id or client id.

        Raises:
            BrokerError: there is no such group or member.
        """
        self._on_loop(lambda state: expire_session(state.groups, group_id, member))

    def expire_revocation(self, group_id: str, member: str) -> None:
        """Expire a member's time for revoking partitions (``max.poll.interval.ms``) now.

        Args:
            member: its member id, group instance id or client id.

        Raises:
            BrokerError: there is no such group or member.
            IllegalStateError: it has nothing to give up.
        """
        self._on_loop(
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
            BrokerError: there is no such group.
            IllegalStateError: no member was told to compute a target.
        """
        return self._on_loop(lambda state: expire_assignment(state.groups, group_id))

    def remove_member(self, group_id: str, member: str) -> None:
        """Remove a member, as an operator may: its next heartbeat is refused.

        Args:
            member: its member id, group instance id or client id.

        Raises:
            BrokerError: there is no such group or member.
        """
        self._on_loop(lambda state: remove_member(state.groups, group_id, member))

    def force_rebalance(self, group_id: str) -> int:
        """Move a group to a new epoch, as when a member joins and leaves; return that epoch.

        Every member gets the new epoch with its next heartbeat, and keeps its partitions if the assignor is sticky.

        Raises:
            BrokerError: there is no such group, or it is full.
            IllegalStateError: it is a classic group; only its own members can begin a rebalance of it.
        """
        return self._on_loop(lambda state: force_rebalance(state.groups, group_id))

    # --- transactions

    def transactions(self) -> tuple[TransactionSnapshot, ...]:
        """Every transactional id that producers have used, by name."""
        return self._on_loop(lambda state: state.transactions.snapshots())

    def wait_for_transaction(
        self, transactional_id: str, state: str, *, timeout_s: float = 30.0
    ) -> TransactionSnapshot:
        """Wait until a transactional id is in *state*, and return it as it was then.

        Args:
            state: as Kafka names it: ``Empty``, ``Ongoing``, ``PrepareCommit``, ``PrepareAbort``, ``CompleteCommit`` or
                ``CompleteAbort``.

        Raises:
            RequestTimeoutError: it did not come to be; the message shows the transaction as it is.
            IllegalStateError: the broker was stopped meanwhile.
        """
        future: concurrent.futures.Future[TransactionSnapshot] = concurrent.futures.Future()
        self._on_loop(lambda broker: broker.transactions.add_waiter(transactional_id, state, future))
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError as error:
            known = self.transactions() if self.running else ()
            now = next((each for each in known if each.transactional_id == transactional_id), None)
            raise RequestTimeoutError(
                f"transactional id {transactional_id!r}: {state} did not come to be within {timeout_s} s; "
                f"{'there is no such id' if now is None else now}"
            ) from error
        finally:
            future.cancel()

    def abort_transaction(self, transactional_id: str) -> None:
        """Abort an open transaction and fence its producer, as when it has taken too long.

        Raises:
            IllegalStateError: there is no such open transaction.
        """
        self._on_loop(lambda state: state.transactions.abort(transactional_id))

    # --- waiting for groups

    def wait_for_group(
        self,
        group_id: str,
        *,
        state: str | None = None,
        members: int | None = None,
        epoch: int | None = None,
        assignor: str | None = None,
        timeout_s: float = 30.0,
    ) -> GroupSnapshot:
        """Wait until a group matches; all given conditions must hold at once.

        Checked whenever the group changes, not in intervals. Blocks the calling thread: in asynchronous code call it
        through ``asyncio.to_thread`` or ``anyio.to_thread.run_sync``.

        Args:
            state: as Kafka names it, case does not matter: ``Empty``, ``Assigning``, ``Reconciling`` or ``Stable``; of
                a classic group ``Empty``, ``PreparingRebalance``, ``CompletingRebalance`` or ``Stable``.
            members: the exact number of members.
            epoch: the group epoch, or the generation of a classic group, is at least this.
            assignor: the assignor in use, a server-side one or a client-side one that all members offer; the protocol
                of a classic group.

        Raises:
            RequestTimeoutError: the time is up; the message shows the current group.
        """
        return self.wait_for(
            group_id,
            lambda group: (
                (state is None or group.state.lower() == state.lower())
                and (members is None or len(group.members) == members)
                and (epoch is None or group.group_epoch >= epoch)
                and (assignor is None or group.assignor == assignor)
            ),
            what=", ".join(
                f"{name}={value}"
                for name, value in (("state", state), ("members", members), ("epoch", epoch), ("assignor", assignor))
                if value is not None
            )
            or "to exist",
            timeout_s=timeout_s,
        )

    def wait_for(
        self,
        group_id: str,
        predicate: Callable[[GroupSnapshot], bool],
        *,
        what: str = "the condition",
        timeout_s: float = 30.0,
    ) -> GroupSnapshot:
        """Wait until *predicate* holds for a snapshot of a group, and return that snapshot.

        Args:
            predicate: called on the broker's thread with each new snapshot; must be quick and call no broker method.
            what: names the condition in the error.

        Raises:
            RequestTimeoutError: the time is up.
            IllegalStateError: the broker was stopped meanwhile.
        """
        future: concurrent.futures.Future[GroupSnapshot] = concurrent.futures.Future()
        self._on_loop(lambda state: state.groups.add_waiter(group_id, predicate, future))
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError as error:
            now = self.group(group_id) if self.running else None
            raise RequestTimeoutError(
                f"group {group_id!r}: {what}: not within {timeout_s} s; "
                f"{'there is no such group' if now is None else now}"
            ) from error
        finally:
            future.cancel()

    def wait_for_request(
        self,
        api: ApiSelector | Iterable[ApiSelector] | None = None,
        *,
        group: str | None = None,
        member: str | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        when: Callable[[LoggedRequest], object] | None = None,
        since: int = 0,
        count: int = 1,
        answered: bool = False,
        timeout_s: float = 30.0,
    ) -> LoggedRequest:
        """Wait until clients have sent such a request; see `RequestLog.wait_for`."""
        return self.requests.wait_for(
            api,
            group=group,
            member=member,
            client_id=client_id,
            topic=topic,
            partition=partition,
            when=when,
            since=since,
            count=count,
            answered=answered,
            timeout_s=timeout_s,
        )

    def advance_clock(self, ms: int) -> None:
        """Advance the `ManualClock` and perform what becomes due: sessions, revocations and offsets expire.

        Raises:
            IllegalStateError: the broker runs on real time.
        """
        clock = self._clock
        if not isinstance(clock, ManualClock):
            raise IllegalStateError(
                "advance_clock needs EmbeddedBroker(clock=ManualClock()); this one runs on real time"
            )

        def advance(state: BrokerState) -> None:
            state.groups.advance(lambda: clock.advance(ms))
            state.transactions.run_due()
            self.faults.run_due()

        self._on_loop(advance)


def _topic(state: BrokerState, name: str, partition: int) -> Topic:
    topic = state.topics.get(name)
    if topic is None or not 0 <= partition < topic.partition_count:
        raise BrokerError(
            f"there is no {name}-{partition}; topics are {sorted(state.topics.names())}",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    return topic
