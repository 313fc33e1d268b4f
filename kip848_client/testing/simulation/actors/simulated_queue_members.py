"""Members of a share group: the production `ShareMember` and `ShareReader`, and the invariants Q1 to Q8.

`play_queue_members` plays one run of a scenario with leaders. Members join, leave and crash, lose connections before
and after a request counts, hang until locks end, renew locks, and commit; coordinators, nodes and partitions move, and
topics are deleted and created again. The ledger of each partition knows who has which job; each process checks that
what its core believes is so.

Does not own: the nodes (`share_nodes`), partitions (`shared_partition`), the coordinator (`cluster`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, assert_never

from kip848_client.common.acknowledge_type import AcknowledgeType
from kip848_client.common.model import Subscription
from kip848_client.errors import BrokerError
from kip848_client.member.core.assignment import IdPartition
from kip848_client.member.core.events import (
    ConnectCoordinator,
    CoordinatorConnected,
    CoordinatorDisconnected,
    Destination,
    Fail,
    FailureKind,
    LeaveDone,
    LeaveRequested,
    MemberEffect,
    RequestFailed,
    ResponseReceived,
    SendRequest,
    SubscriptionChanged,
    Tick,
)
from kip848_client.member.core.failures import failure_error
from kip848_client.member.core.settings import MemberConfig
from kip848_client.member.share.held_records import AcquiredRecord
from kip848_client.member.share.share_events import (
    AcknowledgementOutcome,
    CommitEnded,
    FindLeaders,
    Leader,
    LeaderRefuses,
    LocksLost,
    ReaderClosed,
    ReaderEffect,
    ReaderFailed,
    ReaderSurfaced,
    ShareSend,
)
from kip848_client.member.share.share_member import ShareEvent, ShareMember
from kip848_client.member.share.share_reader import ReaderSettings, ShareReader
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.inputs import ShareStateInitialized
from kip848_client.testing.coordinator.core.result import DeleteShareState, InitializeShareState
from kip848_client.testing.share_partitions.settings import ShareSettings
from kip848_client.testing.share_partitions.share_state import ShareKey
from kip848_client.testing.simulation.actors.share_nodes import ShareNode, ShareNodes, has_record, said_in
from kip848_client.testing.simulation.actors.shared_partition import Ledger, SharedPartition
from kip848_client.testing.simulation.virtual.cluster import ANY_NODE
from kip848_client.testing.simulation.virtual.environment import GROUP, Environment, Kind
from kip848_client.testing.simulation.virtual.network import AnyRequest, SimulatedConnection
from kip848_client.testing.simulation.virtual.scenario import Scenario
from kip848_client.testing.simulation.virtual.scheduler import Scheduler, Timer
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from kip848_client.wire.messages.share_fetch import ShareFetchRequest
from kip848_client.wire.schema import Response

_VERSIONS: Final[dict[int, tuple[int, int]]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.SHARE_FETCH: (1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
}
_CLOSE_MS: Final = 10_000
_COMMIT_MS: Final = 5_000
_SPIN_MAX: Final = 300
"""Steps of one process within one millisecond."""
_PENDING_MAX_MS: Final = 100
"""How much later than its deadline a commit or a close may end."""


class QueueFleet(Environment):
    """All members of one run, the nodes, and what must hold between them."""

    def __init__(self, scenario: Scenario, *, scheduler: Scheduler) -> None:
        rng = scheduler.random("queue")
        self._writes: Final = scheduler.random("producer")
        self.settings: Final = ShareSettings(
            record_lock_duration_ms=rng.choice((1_000, 3_000)),
            delivery_count_limit=rng.choice((3, 5, 8)),
            partition_max_record_locks=rng.choice((20, 60, 500)),
            renew_acknowledge_enable=rng.random() < 0.8,
        )
        config = CoordinatorConfig(
            share_session_timeout_ms=scenario.session_timeout_ms,
            share_heartbeat_interval_ms=scenario.heartbeat_interval_ms,
        )
        super().__init__(scenario, scheduler, config, rng=rng)
        self.nodes: Final = ShareNodes(
            scheduler, count=scenario.leaders, settings=self.settings, first_node_id=ANY_NODE + 1
        )
        self.nodes.network = self.network
        self.cluster.brokers.update(self.nodes.servers)
        self.cluster.on_share_state = self._share_state
        self.processes: Final[list[ShareProcess]] = []
        self.settled: bool = False
        """The faults ended so long ago that nothing fails of them any more."""
        self._number = 0
        scheduler.after_step = self._check_coordinator

    def living(self) -> list[ShareProcess]:
        """Members whose process runs and was not told to end."""
        return [process for process in self.processes if not process.dead and not process.ends]

    def join(self) -> None:
        """Start one more member."""
        self._number += 1
        process = ShareProcess(self, f"member-{self._number}")
        self.processes.append(process)
        process.step(SubscriptionChanged(self._subscription(process.rng)))

    def is_done(self) -> bool:
        """Whether every job is done with."""
        return all(partition.is_done() for partition in self.nodes.partitions.values())

    # --- topics

    def create(self, name: str, *, partitions: int) -> None:
        """Create a topic; its partitions get leaders."""
        self.cluster.topics.create(name, partitions=partitions)
        self._led(name)

    def _led(self, name: str) -> None:
        topic = self.cluster.topics.image.by_name[name]
        for index in range(topic.partition_count):
            of = (topic.topic_id, index)
            if of in self.nodes.partitions:
                continue
            ledger = Ledger(delivery_count_limit=self.settings.delivery_count_limit)
            partition = SharedPartition(
                self.scheduler,
                ledger,
                key=ShareKey(GROUP, *of),
                settings=self.settings,
                name=f"partition {name}-{index}",
            )
            partition.healed = self.healed
            self.nodes.add(of, partition)

    def _delete(self, name: str) -> None:
        topic = self.cluster.topics.image.by_name[name]
        for index in range(topic.partition_count):
            self.nodes.remove((topic.topic_id, index))
        self.cluster.topics.delete(name)

    def produce(self) -> None:
        """Write a batch of jobs to some partition."""
        if self.nodes.partitions:
            self.scheduler.events += 1
            self.nodes.partitions[self._writes.choice(sorted(self.nodes.partitions))].produce()

    def _share_state(self, change: InitializeShareState | DeleteShareState) -> None:
        """Partitions are there from the beginning, so there is nothing to make."""
        if isinstance(change, InitializeShareState):
            self.cluster.host.decide(ShareStateInitialized(change.group_id, tuple(change.starts)))

    # --- events and faults

    def perform(self, kind: Kind, rng: random.Random) -> None:
        """Carry out one planned event; the kinds that concern consumers alone do nothing."""
        living = self.living()
        rumour_ms = rng.choice((0, 100, 700))
        topics = sorted(self.cluster.topics.image.by_name)
        match kind:
            case Kind.JOIN if len(living) < self.scenario.members_max:
                self.join()
            case Kind.LEAVE if living:
                rng.choice(living).close()
            case Kind.CRASH if living:
                rng.choice(living).crash()
                self.scheduler.call_in(rng.randint(1, 3_000), lambda: None if self.healed else self.join())
            case Kind.CUT if living:
                self.network.cut(rng.choice(living).name, rng)
            case Kind.RESUBSCRIBE if living:
                rng.choice(living).step(SubscriptionChanged(self._subscription(rng)))
            case Kind.GROW if topics:
                name = rng.choice(topics)
                self.cluster.topics.grow(name, count=1)
                self._led(name)
            case Kind.DELETE_TOPIC if topics:
                name = rng.choice(topics)
                self._delete(name)
                self.scheduler.call_in(rng.randint(1, 2_000), lambda: self._create_again(name))
            case Kind.CRASH_COORDINATOR if rng.random() < 0.5:
                self.cluster.crash()
            case Kind.CRASH_COORDINATOR:
                self.nodes.crash(rumour_ms, self._back)
            case Kind.FREEZE:
                node = rng.choice(list(self.nodes.servers.values()))
                node.freeze(rng.randint(200, 3 * self.scenario.request_timeout_ms))
            case Kind.FAIL_OVER if rng.random() < 0.4:
                self.cluster.fail_over(believes_for_ms=0, load_ms=rng.choice((0, 50, 700)), rumour_ms=rumour_ms)
            case Kind.FAIL_OVER:
                self.nodes.move(rumour_ms)
            case _:
                pass

    def heal(self) -> None:
        """End the faults, with at least one member, and every topic."""
        super().heal()
        self.scheduler.call_in(2 * self.scenario.request_timeout_ms, self._settle)
        for node in self.nodes.servers.values():
            node.up = True
            node.thaw()
        for of, node_id in self.nodes.leaders.items():
            self.nodes.claimed[of] = node_id
        for name in self.scenario.topics:
            self._create_again(name)
        for partition in self.nodes.partitions.values():
            partition.healed = True
        if not self.living():
            self.join()
        everything = Subscription(topics=frozenset(self.scenario.topics))
        for process in self.living():
            process.step(SubscriptionChanged(everything))

    def _settle(self) -> None:
        self.settled = True

    def _create_again(self, name: str) -> None:
        if name not in self.cluster.topics.image.by_name:
            self.create(name, partitions=self.scenario.topics[name])

    def _back(self, node: ShareNode) -> None:
        node.up = True

    def _subscription(self, rng: random.Random) -> Subscription:
        names = sorted(self.scenario.topics)
        some = [name for name in names if rng.random() < 0.8]
        return Subscription(topics=frozenset(some or names[:1]))

    def _check_coordinator(self) -> None:
        self.cluster.coordinator.check_invariants()

    # --- the end

    def check_rest(self) -> None:
        """Q7: at rest nothing is acquired by a member that has left."""
        living = {process.member_id for process in self.processes if not process.dead}
        for of, partition in self.nodes.partitions.items():
            for each in partition.partition.in_flight():
                if each.owner and each.owner not in living:
                    fail("Q7", f"{each.owner} has left, and has {each.first_offset} of partition {of[1]} at rest")


class ShareProcess:
    """One process, from its start to its end."""

    def __init__(self, fleet: QueueFleet, name: str) -> None:
        self._fleet: Final = fleet
        self.name: Final = name
        scheduler, scenario = fleet.scheduler, fleet.scenario
        self.rng: Final = scheduler.random(name)
        self.member_id: Final = name
        self._clock_ms: Final = self.rng.randrange(1_000_000)
        self.dead: bool = False
        self.ends: bool = False
        """close() was called."""
        config = MemberConfig(
            group_id=GROUP,
            member_id=name,
            request_timeout_ms=scenario.request_timeout_ms,
        )
        self.member: Final = ShareMember(config, rng=random.Random(self.rng.getrandbits(32)))
        settings = ReaderSettings(
            request_timeout_ms=scenario.request_timeout_ms,
            record_limit=self.rng.random() < 0.5,
            max_wait_ms=self.rng.choice((200, 500)),
        )
        self.reader: Final = ShareReader(
            settings, group_id=GROUP, member_id=name, rng=random.Random(self.rng.getrandbits(32))
        )
        self._slots: Final = self.rng.choice((1, 4, 30))
        self._links: Final[dict[int, SimulatedConnection]] = {}
        self._coordinator: SimulatedConnection | None = None
        self._timer: Timer | None = None
        self._events: Final[list[ShareEvent]] = []
        self._stepping = False
        self._spins = 0
        self._spun_ms = -1
        self._leaving = False
        self._disturbed = False
        """A request failed while it was closing."""
        self._close_by_ms = 0
        self._asked: Final[dict[int, int]] = {}
        """Fetch that says nothing and has no answer yet -> its leader."""
        self._given_up: frozenset[int] = frozenset()
        """Leaders with such a fetch when close() was called."""
        self._pending: Final[defaultdict[tuple[IdPartition, int], list[int]]] = defaultdict(list)
        """(partition, offset) -> words that were said and have no outcome yet."""
        self._tainted: Final[set[tuple[IdPartition, int, int]]] = set()
        """Of these words one had an unknown outcome, so that a later refusal tells nothing."""
        self._commits: Final[dict[int, int]] = {}
        """Number -> when it must have ended."""
        self._healthy_commits: Final[set[int]] = set()
        """Those that began long after the last fault."""
        self._last_commit = 0
        self._running: Final[dict[AcquiredRecord, None]] = {}
        """What its handlers have."""
        self.note("started")
        self._later(self.rng.randint(0, 100), self._work)

    @property
    def now_ms(self) -> int:
        """Its own clock."""
        return self._clock_ms + self._fleet.scheduler.now_ms

    # --- its end

    def close(self) -> None:
        """Give everything back, and leave."""
        self.ends = True
        self.note("closing")
        self._close_by_ms = self.now_ms + _CLOSE_MS
        for held in list(self._running):
            if self._has(held) and self.rng.random() < 0.5:
                self._say(held, AcknowledgeType.ACCEPT)
        for held in self.reader.held.out:
            if held.lock_until_ms > self.now_ms:
                self._pending[held.partition, held.offset].append(AcknowledgeType.RELEASE)
        self._running.clear()
        self._given_up = frozenset(self._asked.values())
        self.reader.close(deadline_ms=self._close_by_ms)
        self.step()

    def crash(self) -> None:
        """The process ends at once."""
        self.note("crashed")
        self._die()

    def _die(self) -> None:
        self.dead = True
        if self._timer is not None:
            self._timer.cancel()
        for link in (*self._links.values(), self._coordinator):
            if link is not None:
                self._fleet.network.close(link, "the process died")

    # --- stepping, as `ShareHost` does it

    def step(self, event: ShareEvent | None = None) -> None:
        """Give an event to the member, and do what is due."""
        if event is not None:
            self._events.append(event)
        if self.dead or self._stepping:
            return
        self._stepping = True
        self._count_spin()
        now_ms = self.now_ms
        events, self._events[:] = list(self._events), []
        effects: list[MemberEffect] = []
        for each in (*events, Tick()):
            effects += self.member.step(each, now_ms=now_ms)
        if not self.ends:
            self.reader.assign(self.member.assignment)
        reader_effects = self.reader.advance(now_ms=now_ms)
        self._stepping = False
        for effect in effects:
            self._perform(effect)
        for told in reader_effects:
            self._perform_reader(told)
        self._check(now_ms)
        if self._events:
            self.step()
        else:
            self._arm()

    def _count_spin(self) -> None:
        now_ms = self._fleet.scheduler.now_ms
        self._spins = self._spins + 1 if now_ms == self._spun_ms else 0
        self._spun_ms = now_ms
        if self._spins > _SPIN_MAX:
            fail("Q8", f"{self.name} takes {self._spins} steps within one millisecond")

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [at for at in (self.member.deadline_ms(), self.reader.deadline_ms()) if at is not None]
        if due and not self.dead:
            self._timer = self._later(max(min(due) - self.now_ms, 1), self._tick)

    def _tick(self) -> None:
        self._fleet.scheduler.events += 1
        self.step()

    # --- what the member wants

    def _perform(self, effect: MemberEffect) -> None:
        match effect:
            case SendRequest():
                self._ask(effect)
            case ConnectCoordinator():
                self._connect_coordinator(effect)
            case Fail(error):
                fail("Q8", f"{self.name} fails: {error}")
            case LeaveDone() if self._leaving:
                self.note("left")
                self._die()
            case _:
                pass

    def _ask(self, effect: SendRequest) -> None:
        def failed(kind: FailureKind, text: str) -> None:
            self.step(RequestFailed(effect.request_id, kind, text))

        def send(link: SimulatedConnection) -> None:
            self._write(
                link,
                effect.request,
                effect.timeout_ms,
                lambda response: self.step(ResponseReceived(effect.request_id, response)),
                failed,
            )

        if effect.destination is Destination.COORDINATOR:
            if self._coordinator is None or not self._coordinator.open:
                self._later(0, lambda: failed(FailureKind.DISCONNECTED, "no connection to the coordinator"))
            else:
                send(self._coordinator)
        else:
            self._on_link(ANY_NODE, send, failed)

    def _connect_coordinator(self, effect: ConnectCoordinator) -> None:
        def opened(link: SimulatedConnection) -> None:
            if self._coordinator is not None:
                self._coordinator.on_close = None
                self._fleet.network.close(self._coordinator, "replaced by a new one")
            self._coordinator = link
            link.on_close = lambda: self._lost_coordinator(link)
            self.step(CoordinatorConnected(effect.request_id, _VERSIONS))

        self._connect(
            effect.node.node_id,
            opened,
            lambda kind, text: self.step(RequestFailed(effect.request_id, kind, text)),
        )

    def _lost_coordinator(self, link: SimulatedConnection) -> None:
        if link is self._coordinator and not self.dead:
            self._coordinator = None
            self._later(0, lambda: self.step(CoordinatorDisconnected(link.node_id)))

    # --- what the reader wants

    def _perform_reader(self, effect: ReaderEffect) -> None:
        match effect:
            case ShareSend():
                self._ask_leader(effect)
            case FindLeaders(topic_ids):
                self._find(topic_ids)
            case AcknowledgementOutcome():
                self._outcome(effect)
            case CommitEnded(commit_id, _, timed_out):
                self._commits.pop(commit_id, None)
                if timed_out and commit_id in self._healthy_commits:
                    fail("Q6", f"commit {commit_id} of {self.name} has no answer although nothing fails")
            case LocksLost(partition, offsets):
                self.note("locks_lost", partition=partition[1], records=len(offsets))
            case ReaderClosed():
                self._closed()
            case ReaderFailed(error):
                fail("Q8", f"{self.name} fails: {error}")
            case ReaderSurfaced(error) | LeaderRefuses(_, error):
                self.note("surfaced", error=type(error).__name__)
            case _:
                assert_never(effect)

    def _ask_leader(self, send: ShareSend) -> None:
        def failed(kind: FailureKind, text: str) -> None:
            error = failure_error(RequestFailed(0, kind, text))
            self._disturbed = self._disturbed or self.ends
            self._asked.pop(send.request_id, None)
            self.reader.failed(send.request_id, error, now_ms=self.now_ms)
            if not self.ends and self.reader.held.holds_of(send.node_id):  # R336
                fail("Q5", f"{self.name} has records of node {send.node_id}, and its session there is over")
            self.step()

        def answered(response: Response) -> None:
            self._asked.pop(send.request_id, None)
            self.reader.answered(send.request_id, response, now_ms=self.now_ms)
            self.step()

        assert isinstance(send.request, ShareFetchRequest | ShareAcknowledgeRequest)
        words = {word for said in said_in(send.request).values() for batch in said for word in batch.types}
        if AcknowledgeType.RENEW in words and len(words) > 1:  # R339
            fail("Q6", f"{self.name} says {sorted(words)} in one request: if a renewal is refused, all of it is")
        if isinstance(send.request, ShareFetchRequest) and not words:
            self._asked[send.request_id] = send.node_id
        self._on_link(
            send.node_id, lambda link: self._write(link, send.request, send.timeout_ms, answered, failed), failed
        )

    def _find(self, topic_ids: frozenset[Any]) -> None:
        nodes = self._fleet.nodes

        def answer() -> None:
            self._fleet.scheduler.events += 1
            names = self._fleet.cluster.topics.described(topic_ids, lag_ms=0)
            self.reader.leaders_found(
                {
                    of: Leader(nodes.nodes[node_id], names[of[0]])
                    for of, node_id in sorted(nodes.claimed.items())
                    if of[0] in names and nodes.servers[node_id].up
                }
            )
            self.step()

        def lost() -> None:
            self.reader.find_failed()
            self.step()

        cut_off = self._fleet.network.cut_off(self.name)
        self._later(500 if cut_off else self.rng.randint(1, 20), lost if cut_off else answer)

    def _closed(self) -> None:
        if self.now_ms > self._close_by_ms + _PENDING_MAX_MS:
            fail("Q8", f"{self.name} closes its sessions {self.now_ms - self._close_by_ms} ms too late")
        left = {key: words for key, words in self._pending.items() if words}
        if left:
            fail("Q6", f"{self.name} is closed, and heard nothing of what it said about {sorted(left)[:3]}")
        if not self._disturbed:
            self._check_sessions()
        self._leaving = True
        self._later(0, lambda: self.step(LeaveRequested(0, self.now_ms + 5_000, closing=True)))

    def _check_sessions(self) -> None:
        """Q7: the sessions of a member that closes end at once, and give back what it had.

        R341: where it had nothing and a fetch waits, the session ends with the connection.
        """
        for node_id, node in self._fleet.nodes.servers.items():
            link = self._links.get(node_id)
            if link is not None and link.open and self.member_id in node.opened and node_id not in self._given_up:
                fail("Q7", f"{self.name} is closed, and its session on node {node_id} goes on")

    # --- connections

    def _on_link(
        self,
        node_id: int,
        use: Callable[[SimulatedConnection], None],
        failed: Callable[[FailureKind, str], None],
    ) -> None:
        link = self._links.get(node_id)
        if link is not None and link.open:
            use(link)
            return

        def opened(link: SimulatedConnection) -> None:
            other = self._links.get(node_id)
            if other is not None and other.open:
                self._fleet.network.close(link, "there is one")
                use(other)
                return
            self._links[node_id] = link
            node = self._fleet.nodes.servers.get(node_id)
            if node is not None:
                link.on_close = lambda: self._link_gone(link, node)
            use(link)

        self._connect(node_id, opened, failed)

    def _link_gone(self, link: SimulatedConnection, node: ShareNode) -> None:
        """The node hears of it after all that was sent."""
        scheduler = self._fleet.scheduler
        self._later(0, lambda: self._lost_leader(link))
        delay_ms = max(link.to_server_ms - scheduler.now_ms, 0) + self.rng.randint(1, 100)
        scheduler.call_in(delay_ms, lambda: node.connection_gone(link))

    def _lost_leader(self, link: SimulatedConnection) -> None:
        if self._links.get(link.node_id) is link:
            self.reader.connection_lost(link.node_id, now_ms=self.now_ms)
            self.step()

    def _connect(
        self,
        node_id: int,
        opened: Callable[[SimulatedConnection], None],
        failed: Callable[[FailureKind, str], None],
    ) -> None:
        def on_open(link: SimulatedConnection) -> None:
            if self.dead:
                self._fleet.network.close(link, "the process died")
            else:
                opened(link)

        self._fleet.network.connect(
            self.name,
            node_id,
            on_open=on_open,
            on_failure=lambda kind, text: None if self.dead else failed(kind, text),
        )

    def _write(
        self,
        link: SimulatedConnection,
        request: AnyRequest,
        timeout_ms: int,
        answered: Callable[[Response], None],
        failed: Callable[[FailureKind, str], None],
    ) -> None:
        def unanswered(kind: FailureKind, text: str) -> None:
            """In a turn of its own: a connection that ends fails all its requests at once."""
            self._later(0, lambda: failed(kind, text))

        self._fleet.network.send(
            link,
            request,
            api_version=_VERSIONS[request.WIRE.api_key][1],
            timeout_ms=timeout_ms,
            on_answer=lambda response: None if self.dead else answered(response),
            on_failure=unanswered,
        )

    # --- the application

    def _work(self) -> None:
        """Take jobs for the slots that are free, and commit at times."""
        if self.ends:
            return
        scenario, rng = self._fleet.scenario, self.rng
        self._fleet.scheduler.events += 1
        for held in [one for one in self._running if not self._has(one)]:
            del self._running[held]  # its lock is lost, and its handler cancelled
        free = self._slots - len(self._running)
        for held in self.reader.take(free, now_ms=self.now_ms) if free > 0 else ():
            self._took(held)
            self._running[held] = None
            behaviour = scenario.behaviour
            if not self._fleet.healed and rng.random() < behaviour.handler_hangs:
                work_ms = self._fleet.settings.record_lock_duration_ms + rng.randint(0, 2_000)
                self.note("application_stalls", ms=work_ms)
            else:
                work_ms = rng.randint(*behaviour.handler_ms)
            self._later(work_ms, lambda held=held: self._handled(held))  # type: ignore[misc]
        self.reader.room = max(0, self._slots - len(self._running))
        if rng.random() < 0.05:
            self._last_commit += 1
            self._commits[self._last_commit] = self.now_ms + _COMMIT_MS
            if self._fleet.settled:
                self._healthy_commits.add(self._last_commit)
            self.reader.commit(self._last_commit, deadline_ms=self.now_ms + _COMMIT_MS)
        self.step()
        self._later(rng.choice((5, 20, 100)), self._work)

    def _handled(self, held: AcquiredRecord) -> None:
        """A handler ends, or renews and goes on."""
        if self.ends or held not in self._running or not self._has(held):
            self._running.pop(held, None)
            return
        self._is_own(held)
        behaviour, healed = self._fleet.scenario.behaviour, self._fleet.healed
        if self.rng.random() < 0.15:
            self._say(held, AcknowledgeType.RENEW)
            self._later(self.rng.randint(*behaviour.handler_ms), lambda: self._handled(held))
        else:
            word = AcknowledgeType.ACCEPT
            if not healed and self.rng.random() < behaviour.handler_fails:
                word = self.rng.choice((AcknowledgeType.RELEASE, AcknowledgeType.REJECT))
            del self._running[held]
            self._say(held, word)
        self.step()

    def _has(self, held: AcquiredRecord) -> bool:
        return held in self.reader.held.out

    def _say(self, held: AcquiredRecord, word: AcknowledgeType) -> None:
        if word is not AcknowledgeType.RENEW:
            self._pending[held.partition, held.offset].append(word)
        self.reader.acknowledge(held, word)

    # --- what must hold

    def _took(self, held: AcquiredRecord) -> None:
        """Q5: there is a record, its lock holds (R337), and the leader knows of it."""
        if not has_record(held.offset):
            fail("Q5", f"{self.name} is handed {held.offset} of partition {held.partition[1]}, where no record is")
        if held.lock_until_ms <= self.now_ms:
            fail("Q5", f"{self.name} is handed {held.offset} of partition {held.partition[1]}, and its lock has ended")
        self._is_own(held)

    def _is_own(self, held: AcquiredRecord) -> None:
        """Q5: what this member has, it has at the leader, unless the leader or the session has gone."""
        nodes = self._fleet.nodes
        if held.lock_until_ms <= self.now_ms:
            return
        if not nodes.is_granted(self.member_id, held.partition, held.offset, held.delivery_count):
            self._fleet.scheduler.history.count("handled_without_session")
            return
        ledger = nodes.partitions[held.partition].ledger
        holder, until_ms = ledger.holder(held.offset)
        if holder != self.member_id or until_ms < self._fleet.scheduler.now_ms:
            fail(
                "Q5",
                f"{self.name} believes that it has {held.offset} of partition {held.partition[1]} (delivery "
                f"{held.delivery_count}) for {held.lock_until_ms - self.now_ms} ms more; {holder or 'nobody'} has it",
            )

    def _outcome(self, outcome: AcknowledgementOutcome) -> None:
        """Q6: each word has one outcome, and it is true."""
        nodes, of = self._fleet.nodes, outcome.partition
        partition = nodes.partitions.get(of)
        for offset, word in outcome.offsets.items():
            if word == AcknowledgeType.RENEW:
                continue
            words = self._pending[of, offset]
            if word in words:
                words.remove(word)
            elif word != AcknowledgeType.RELEASE:  # the reader gives back what waited: R336, R341
                fail("Q6", f"{self.name} hears of {word} about {offset} of partition {of[1]}, and did not say it")
            key = (self.member_id, of, offset, word)
            applied = nodes.applied[key]
            if outcome.error is None:
                if not applied and partition is not None and offset >= partition.partition.start_offset:
                    fail("Q6", f"{self.name} is told that {word} about {offset} counts, and it was not taken")
                nodes.applied[key] = max(0, applied - 1)
            elif isinstance(outcome.error, BrokerError):
                if applied and word not in words and (of, offset, word) not in self._tainted:
                    fail("Q6", f"{self.name} hears {outcome.error} of {word} about {offset}, and it was taken")
            else:
                self._tainted.add((of, offset, word))

    def _check(self, now_ms: int) -> None:
        for commit_id, until_ms in self._commits.items():
            if now_ms > until_ms + _PENDING_MAX_MS:
                fail("Q6", f"commit {commit_id} of {self.name} ends {now_ms - until_ms} ms too late, or never")

    # --- small

    def note(self, what: str, **details: object) -> None:
        """Write to the history."""
        self._fleet.scheduler.note(self.name, what, **details)

    def _later(self, delay_ms: int, action: Callable[[], None]) -> Timer:
        return self._fleet.scheduler.call_in(delay_ms, lambda: None if self.dead else action())


def play_queue_members(scenario: Scenario, scheduler: Scheduler) -> None:
    """Play one run: faults, then healing, and then every job must be done with within a bounded time.

    Raises:
        InvariantViolation: one of Q1 to Q8.
    """
    fleet = QueueFleet(scenario, scheduler=scheduler)
    rng = scheduler.random("jobs")
    for name, partitions in scenario.topics.items():
        fleet.create(name, partitions=partitions)
    for _ in range(scenario.jobs):
        scheduler.call_in(rng.randrange(scenario.duration_ms), fleet.produce)
    for _ in range(scenario.members):
        fleet.join()
    fleet.play_plan(fleet.perform)
    fleet.heal()
    jobs = sum(partition.end_offset for partition in fleet.nodes.partitions.values())
    limit_ms = 60_000 + 400 * jobs
    if not scheduler.wait_until(fleet.is_done, limit_ms):
        left = [
            (of[1], partition.end_offset, partition.partition.in_flight()[:2])
            for of, partition in sorted(fleet.nodes.partitions.items())
            if not partition.is_done()
        ]
        fail("Q3", f"jobs are left {limit_ms} ms after the last fault: {left[:2]}")
    if not scheduler.wait_until(lambda: all(process.dead or not process.ends for process in fleet.processes), 30_000):
        fail("Q8", "a close() has not ended")
    scheduler.run_until(scheduler.now_ms + fleet.settings.record_lock_duration_ms + 1_000)
    fleet.check_rest()
    for process in fleet.living():
        process.close()
    if not scheduler.wait_until(lambda: all(process.dead for process in fleet.processes), 30_000):
        fail("Q8", "a close() has not ended")
    fleet.check_rest()
