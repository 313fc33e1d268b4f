"""The numbers of a scenario, the scenarios with names, and changes of a number by its name.

The numbers of `MIXED` and `BRIEF` are drawn for each seed. Does not own: planning events from the numbers
(`environment`), playing them (`run`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from kip848_client.errors import ConfigError


class NetworkFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Faults of the network: probabilities per message, and delays.

    Args:
        loss: a request, or an answer, disappears; the sender waits for its time-out.
        duplicate: a request arrives a second time, later; the answer to that one is dropped.
        break_connection: the connection breaks after the request was written; it may have been applied or not.
        delay_ms: (least, most) that a message takes, drawn uniformly.
        slow: fraction of the messages that take ten times as long.
        stuck: fraction of the messages that take up to ten heartbeat intervals.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    break_connection: float = 0.0
    delay_ms: tuple[int, int] = (0, 2)
    slow: float = 0.0
    stuck: float = 0.0


HEALTHY = NetworkFaults()
"""A network without faults."""

SESSION_CHANGE_MS: Final = 500
"""How much shorter an administrator may make the sessions of a group (`Scenario.config_changes`)."""


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """The behaviour of an application. Times in ms of virtual time.

    Args:
        think_ms: (least, most) between two polls.
        poll_ms: how long one poll() waits for records.
        listener_ms: (least, most) that a listener call takes.
        listener_raises: fraction of the listener calls that raise.
        hang: fraction of the listener calls that take longer than the rebalance timeout.
        stall: fraction of the polls after which the application does not poll for longer than max.poll.interval.ms.
        commit: fraction of the polls with records after which the application commits by hand.
        rows_per_poll: most records that one poll() hands out.
        assign_ms: (least, most) that a call of a client-side assignor takes.
        misbehaves: fraction of these calls that raise, return nonsense, report an error, or
            exceed their time limit.
        reweighs: fraction of the calls of ``metadata()`` that return changed metadata.
        handler_ms: (least, most) that a handler of process() takes.
        handler_fails: fraction of these calls that raise; one in fifty dead letters is refused then.
        handler_hangs: fraction that take up to three times their time-out.
    """

    think_ms: tuple[int, int] = (10, 200)
    poll_ms: int = 1_000
    listener_ms: tuple[int, int] = (0, 50)
    listener_raises: float = 0.0
    hang: float = 0.0
    stall: float = 0.0
    commit: float = 0.2
    rows_per_poll: int = 50
    assign_ms: tuple[int, int] = (0, 50)
    misbehaves: float = 0.0
    reweighs: float = 0.0
    handler_ms: tuple[int, int] = (0, 20)
    handler_fails: float = 0.0
    handler_hangs: float = 0.0


_ROUGH: Final = NetworkFaults(loss=0.03, duplicate=0.03, break_connection=0.01, delay_ms=(0, 60), slow=0.02)
_CARELESS: Final = Behaviour(listener_raises=0.05, stall=0.01)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one kind of run. Times in ms of virtual time; rates are expected events per virtual second.

    Args:
        members: how many consumers are there at the start.
        topics: name -> partitions.
        coordinator_crashes: the coordinator dies, and returns with what is in its log.
        coordinator_crashes_after_append, coordinator_crashes_before_append: fraction of the appends at which it dies,
            without answering.
        failovers: another node becomes the coordinator; it has what was replicated, and no more.
        deposed: fraction of the failovers after which the old coordinator goes on, and believes for a while.
        replication_ms: most time that a record needs until it is durable; answers wait for it.
        compaction: fraction of the loads that read a compacted log.
        cuts: clients without network; *one_way* of them in one direction only.
        freezes: processes that stand still, as a paused virtual machine does, for up to two sessions; in a share group,
            leaders of partitions, for up to three request time-outs.
        drift: how much faster or slower clocks may run, as a fraction.
        wall_jumps: the coordinator's wall clock is set an hour forward or back.
        refusals: requests that are answered with an error code, as the fault vocabulary does it.
        throttles: answers that ask for patience (``throttle_time_ms``).
        config_changes: heartbeat interval and session timeout of the group are changed.
        statics: fraction of the consumers that are static members; they return after a crash or a close.
        double_starts: a second process with the instance id of a living one.
        held_instances: static members that are removed by a coordinator which then refuses them their own instance id,
            as Apache Kafka's does until they have left.
        patterns: fraction of the subscriptions that are by regular expression.
        assignors: fraction of the consumers that have a client-side assignor; one that has none turns its group to the
            server's.
        classic: fraction of the consumers that speak the classic protocol; of the runs, if there are workers. What
            they offer is drawn for the run.
        switches: one process of a rolling restart: it ends, and comes back with the other protocol. When no process is
            left on the old one, the restart goes the other way.
        group_deletions: all processes end, the group is deleted as soon as it is empty, and they come back.
        early: fraction of the consumers that send early heartbeats.
        slots: consumers share a pool of so many instance ids; those that find none stand by.
        replacements: a consumer starts, and a while later another one hands over, or closes: one step of a deploy.
        handovers: some consumers, or all, call hand_over() at the same time, and close when it has ended.
        deletions: topics that are deleted and created again.
        metadata_lag_ms: how long a new topic's name is unknown to the brokers.
        group_max_size: most members that the coordinator takes; 0 is without a limit.
        encoded: fraction of the connections on which messages travel as bytes, through the codec.
        purity: fraction of the requests that are decided twice, to see that no state changes and the answer is equal.
        auto_commit_ms: interval of the half of the consumers that commit by themselves.
        no_reset: fraction of the consumers without a reset policy; without a committed offset their applications seek
            to the beginning of the partition.
        producers: transactional producers outside the group, which write to a topic of their own; their coordinator
            dies and moves as often as that of the group.
        probes: fraction of the runs whose observers may question members and coordinators (`RunState.probing`).
            There, patterns take long to match, and targets are computed with a pause between them.
        trials: healthy perturbations after the group came to rest, of which each is timed.
        server_assignor: the coordinator's assignor that members ask for; empty for its default.
        units: units that workers share. Then there are workers in place of consumers (`simulated_workers`), and
            *assignors* is the fraction of the runs in which one of them computes the plan.
        jobs: batches of jobs for the members of a share group, who are there in place of consumers (`simulated_queue`).
        leaders: nodes that lead the partitions of *topics*; the members are then the production cores
            (`simulated_queue_members`).
        handlers: concurrency of process(), by which the applications read then; 0 is a loop around poll().
        outputs: part of the calls of handlers that produce something, which is acknowledged late or refused.
        slice_records: how many done records make a transaction of process() due; 0 is without transactions.
        handlers_per_second: how many handlers a member may begin in any second, and a fifth of it of each key; two of
            one topic run at once, which comes first. 0 has no limit.
        skip: numbers of planned events that are left out; how a failing run is made smaller.
    """

    name: str = "churn"
    members: int = 3
    members_max: int = 6
    topics: Mapping[str, int] = msgspec.field(default_factory=lambda: {"orders": 6, "audit": 3})
    duration_ms: int = 60_000
    faults: NetworkFaults = _ROUGH
    behaviour: Behaviour = _CARELESS
    joins: float = 0.15
    leaves: float = 0.08
    crashes: float = 0.05
    cuts: float = 0.05
    one_way: float = 0.3
    resubscriptions: float = 0.03
    growths: float = 0.01
    deletions: float = 0.0
    coordinator_crashes: float = 0.03
    coordinator_crashes_after_append: float = 0.003
    coordinator_crashes_before_append: float = 0.003
    failovers: float = 0.0
    deposed: float = 0.5
    replication_ms: int = 0
    compaction: float = 0.5
    freezes: float = 0.0
    drift: float = 0.05
    wall_jumps: float = 0.0
    refusals: float = 0.0
    throttles: float = 0.0
    config_changes: float = 0.0
    statics: float = 0.0
    double_starts: float = 0.0
    held_instances: float = 0.0
    patterns: float = 0.0
    assignors: float = 0.0
    classic: float = 0.0
    switches: float = 0.0
    group_deletions: float = 0.0
    early: float = 0.0
    handovers: float = 0.04
    slots: int = 0
    replacements: float = 0.0
    producers: int = 0
    metadata_lag_ms: int = 0
    group_max_size: int = 0
    produce_ms: int = 100
    auto_commit_ms: int = 1_000
    no_reset: float = 0.0
    encoded: float = 0.1
    purity: float = 0.05
    probes: float = 0.1
    trials: int = 1
    heartbeat_interval_ms: int = 1_000
    session_timeout_ms: int = 6_000
    max_poll_interval_ms: int = 10_000
    request_timeout_ms: int = 5_000
    server_assignor: str = ""
    units: int = 0
    jobs: int = 0
    leaders: int = 0
    handlers: int = 0
    outputs: float = 0.0
    slice_records: int = 0
    handlers_per_second: int = 0
    skip: frozenset[int] = frozenset()


CHURN: Final = Scenario()

QUIET: Final = Scenario(
    name="quiet",
    faults=HEALTHY,
    behaviour=Behaviour(),
    leaves=0.0,
    handovers=0.0,
    crashes=0.0,
    cuts=0.0,
    coordinator_crashes=0.0,
    coordinator_crashes_after_append=0.0,
    coordinator_crashes_before_append=0.0,
    trials=0,
)

MIXED: Final = Scenario(name="mixed")
"""A scenario whose numbers each seed draws."""

BRIEF: Final = Scenario(name="brief")
"""The same for a shorter time, and one group in twenty computes its target itself: to play very many of."""


def change(scenario: Scenario, assignments: Iterable[str]) -> Scenario:
    """Change numbers by name, such as ``members=2``, ``faults.loss=0.1`` or ``skip=1,4``.

    A range is least and most, ``behaviour.think_ms=10,200``; topics are given all at once, ``topics=orders:6,audit:3``.

    Raises:
        ConfigError: there is no such number, or the value does not fit it.
    """
    for assignment in assignments:
        path, _, text = assignment.partition("=")
        scenario = _change(scenario, path, text, assignment)
    return scenario


def differences(scenario: Scenario, base: Scenario) -> list[str]:
    """The changes that make *scenario* of *base*, as `change` takes them; the name may differ."""
    before = dict(values(base))
    return [
        f"{path}={_written(value)}" for path, value in values(scenario) if _written(value) != _written(before[path])
    ]


def values(owner: Scenario | NetworkFaults | Behaviour) -> Iterator[tuple[str, Any]]:
    """Everything that `change` can change, by its path."""
    for name in owner.__struct_fields__:
        value = getattr(owner, name)
        if isinstance(value, NetworkFaults | Behaviour):
            yield from ((f"{name}.{path}", inner) for path, inner in values(value))
        elif name != "name":
            yield name, value


def _written(value: Any) -> str:
    """*value* as `change` reads it."""
    if isinstance(value, Mapping):  # in the order in which topics are created
        return ",".join(f"{name}:{partitions}" for name, partitions in value.items())
    if isinstance(value, frozenset):
        return ",".join(map(str, sorted(value)))
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _change(owner: Any, path: str, text: str, assignment: str) -> Any:
    name, _, rest = path.partition(".")
    before = getattr(owner, name) if name in owner.__struct_fields__ and name != "name" else None
    if before is None or isinstance(before, msgspec.Struct) is not bool(rest):
        raise ConfigError(f"{assignment!r}: a scenario has no number of that name")
    if rest:
        return replace(owner, **{name: _change(before, rest, text, assignment)})
    try:
        value = _read(text, type(before))
    except ValueError:
        example = _written(before) or "1000,3001"
        raise ConfigError(f"{assignment!r}: expected a value such as {example}, and nothing below 0") from None
    return replace(owner, **{name: value})


_Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_READ_AS: Final[Mapping[type, Any]] = {
    int: _Whole,
    float: Annotated[float, msgspec.Meta(ge=0, le=1e12)],
    str: str,
    tuple: tuple[_Whole, _Whole],
    dict: dict[str, _Whole],
    frozenset: frozenset[_Whole],
}


def _read(text: str, kind: type) -> Any:
    """Read a value of that kind; `ValueError` if it is none."""
    raw: object = text
    if kind is dict:
        raw = dict(pair.split(":") for pair in text.split(","))
    elif kind in (tuple, frozenset):
        raw = [part for part in text.split(",") if part]
    value = msgspec.convert(raw, _READ_AS[kind], strict=False)
    if kind is tuple and value[0] > value[1]:
        raise ValueError(text)
    return value


def _named(name: str, changes: str, *, base: Scenario = CHURN) -> Scenario:
    """*base* with numbers changed, written as ``--set`` takes them."""
    return replace(change(base, changes.split()), name=name)


WORKERS: Final = _named(
    "workers",  # max_poll_interval_ms is their rebalance timeout
    """
    units=6 members=3 members_max=5 assignors=0.4 joins=0.05 leaves=0.06 crashes=0.06 cuts=0.1 drift=0.1
    failovers=0.03 replication_ms=20 max_poll_interval_ms=12000 probes=0 trials=0 handovers=0
    faults.loss=0.05 faults.duplicate=0.02 faults.break_connection=0.02 faults.delay_ms=0,150
    """,
)

PROCESSING: Final = _named(
    "processing",
    """
    handlers=6 duration_ms=20000 classic=0.2 early=0.5 joins=0.2 leaves=0.15 crashes=0.15 statics=0.2
    freezes=0.05 cuts=0.1 refusals=0.1 failovers=0.04 replication_ms=20 probes=0 trials=0 produce_ms=150
    behaviour.think_ms=0,20 behaviour.poll_ms=200 behaviour.commit=0 behaviour.listener_raises=0.02
    behaviour.handler_ms=0,150 behaviour.handler_fails=0.1 behaviour.handler_hangs=0.02
    """,
)

CLASSIC: Final = _named(
    "classic",
    """
    classic=1 early=0.5 duration_ms=30000 joins=0.2 leaves=0.15 crashes=0.1 freezes=0.05 statics=0.3 double_starts=0.03
    patterns=0.2 resubscriptions=0.05 growths=0.03 refusals=0.1 failovers=0.04 replication_ms=20 probes=0
    coordinator_crashes=0.05 coordinator_crashes_after_append=0.01 coordinator_crashes_before_append=0.01
    behaviour.listener_raises=0.03 behaviour.hang=0.01
    """,
)

SCENARIOS: Final[Mapping[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        MIXED,
        BRIEF,
        CHURN,
        _named(
            "zombies",
            """
            freezes=0.15 behaviour.listener_raises=0.02 behaviour.stall=0.03 behaviour.hang=0.03
            coordinator_crashes=0 coordinator_crashes_after_append=0 coordinator_crashes_before_append=0
            """,
        ),
        _named("static", "statics=0.7 leaves=0.1 crashes=0.1 double_starts=0.05 held_instances=0.05"),
        _named("patterns", "patterns=0.6 resubscriptions=0.15 growths=0.05"),
        _named("topics", "deletions=0.08 growths=0.05 metadata_lag_ms=300 resubscriptions=0.05"),
        _named("failover", "failovers=0.1 deposed=0.6 replication_ms=40 coordinator_crashes=0.05"),
        _named("refusals", "refusals=0.3 throttles=0.05 config_changes=0.05 group_max_size=5"),
        _named(
            "assignors",
            """
            assignors=0.97 joins=0.2 leaves=0.15 freezes=0.05 failovers=0.03 replication_ms=20 refusals=0.1 statics=0.2
            resubscriptions=0.05 growths=0.03 behaviour.listener_raises=0.03 behaviour.hang=0.01
            behaviour.assign_ms=0,400 behaviour.misbehaves=0.25 behaviour.reweighs=0.1
            """,
        ),
        _named(
            "storm",
            """
            members=5 members_max=9 topics=orders:8,audit:4,clicks:3 joins=0.3 leaves=0.15 crashes=0.1 cuts=0.1
            resubscriptions=0.15 growths=0.03 deletions=0.02 freezes=0.08 statics=0.3 double_starts=0.03 patterns=0.3
            refusals=0.05 wall_jumps=0.02 config_changes=0.02 failovers=0.04 replication_ms=20
            coordinator_crashes=0.06 coordinator_crashes_after_append=0.01 coordinator_crashes_before_append=0.01
            faults.loss=0.08 faults.duplicate=0.08 faults.break_connection=0.03 faults.delay_ms=0,120 faults.slow=0.05
            faults.stuck=0.005
            behaviour.listener_raises=0.1 behaviour.stall=0.02 behaviour.hang=0.01 behaviour.commit=0.1
            """,
        ),
        _named(
            "deploys",
            """
            slots=3 members=3 members_max=5 topics=orders:6 replacements=0.4 joins=0.1 leaves=0.05 crashes=0.1 cuts=0.05
            freezes=0.05 resubscriptions=0 failovers=0.04 replication_ms=20 early=0.5 duration_ms=40000
            """,
        ),
        CLASSIC,
        _named("migration", "classic=0.5 switches=0.4 joins=0.1 leaves=0.05 crashes=0.05", base=CLASSIC),
        _named(
            "transactions",
            """
            producers=3 members=1 members_max=1 topics=orders:1 duration_ms=20000 probes=0 trials=0
            joins=0 leaves=0 handovers=0 crashes=0 cuts=0 resubscriptions=0 growths=0 failovers=0.3
            coordinator_crashes=0 coordinator_crashes_after_append=0.01 coordinator_crashes_before_append=0.01
            """,
        ),
        WORKERS,
        _named("classic_workers", "classic=1 freezes=0.05 group_deletions=0.02 trials=2", base=WORKERS),
        _named(
            "shares",
            """
            jobs=150 members=3 duration_ms=30000 handovers=0 crashes=0.1 coordinator_crashes=0.1 probes=0 trials=0
            faults.loss=0.04 faults.delay_ms=0,100
            """,
        ),
        _named(
            "queue_members",
            """
            jobs=120 leaders=2 topics=mails:3,letters:1 members=3 members_max=5 duration_ms=20000 probes=0 trials=0
            handovers=0 joins=0.15 leaves=0.15 crashes=0.1 cuts=0.1 failovers=0.15 replication_ms=20 deletions=0.02
            resubscriptions=0.05 growths=0.02 coordinator_crashes=0.15 request_timeout_ms=2000
            faults.loss=0.03 faults.duplicate=0 faults.break_connection=0.02 faults.delay_ms=0,60
            behaviour.handler_ms=0,300 behaviour.handler_fails=0.1 behaviour.handler_hangs=0.03
            """,
        ),
        PROCESSING,
        _named("processing_outputs", "outputs=0.6", base=PROCESSING),
        _named("processing_limits", "handlers_per_second=20", base=PROCESSING),
        _named("processing_transactions", "slice_records=8 classic=0", base=PROCESSING),
        QUIET,
    )
}


# Parts of the scenarios that a seed draws: small and dense runs, each with only some kinds of faults. With all kinds at
# once, a group makes little progress.

_TOPICS: Final = ({"orders": 4}, {"orders": 4, "audit": 2}, {"orders": 3, "audit": 2, "clicks": 1}, {"orders": 2})

_WITH_ASSIGNORS: Final = 0.05

_EARLY: Final = (0.0, 0.0, 0.5, 1.0)
"""Part of the consumers with early heartbeats, as a consumer has by default."""

_HANDOVERS: Final = (0.0, 0.0, 0.15, 0.4)

_EVENTS: Final[tuple[tuple[str, float, float], ...]] = (
    # number of the scenario     part of the seeds   expected events a second, at most
    ("joins", 0.6, 0.6),
    ("leaves", 0.5, 0.5),
    ("crashes", 0.4, 0.5),
    ("cuts", 0.35, 0.6),
    ("resubscriptions", 0.3, 0.5),
    ("growths", 0.2, 0.3),
    ("deletions", 0.15, 0.4),
    ("coordinator_crashes", 0.2, 0.4),
    ("failovers", 0.25, 0.5),
    ("freezes", 0.25, 0.5),
    ("refusals", 0.4, 1.2),
    ("throttles", 0.05, 0.5),
    ("wall_jumps", 0.05, 0.5),
    ("config_changes", 0.1, 0.4),
    ("double_starts", 0.15, 0.6),
)


def scenario_of(name: str, *, seed: int, changes: Iterable[str] = ()) -> Scenario:
    """The scenario of that name for a seed, with numbers changed as `change` does it.

    Raises:
        ConfigError: a change makes no sense.
        KeyError: there is no such scenario.
    """
    return change(settled(SCENARIOS[name], seed=seed), changes)


def settled(scenario: Scenario, *, seed: int) -> Scenario:
    """*scenario* itself, or if it is `MIXED` or `BRIEF` what *seed* makes of it."""
    if scenario == MIXED:
        drawn = _draw(random.Random(f"{seed}/variety"))
    elif scenario == BRIEF:
        drawn = _draw_brief(random.Random(f"{seed}/brief"))
    else:
        return scenario
    # They have random generators of their own, so that adding them did not change the other numbers of a seed.
    return replace(
        drawn,
        early=random.Random(f"{seed}/early").choice(_EARLY),
        handovers=random.Random(f"{seed}/handovers").choice(_HANDOVERS),
    )


def _draw(rng: random.Random) -> Scenario:
    def maybe(part: float, value: float) -> float:
        return round(rng.random() * value, 4) if rng.random() < part else 0.0

    events = {name: maybe(part, most) for name, part, most in _EVENTS}
    faults = NetworkFaults(
        loss=maybe(0.5, 0.12) if rng.random() < 0.95 else maybe(1.0, 0.5),
        duplicate=maybe(0.5, 0.15),
        break_connection=maybe(0.3, 0.06),
        delay_ms=(0, rng.choice((2, 20, 60, 150))),
        slow=maybe(0.3, 0.05),
        stuck=maybe(0.2, 0.02),
    )
    behaviour = Behaviour(
        think_ms=(10, rng.choice((50, 200, 600))),
        listener_ms=(0, rng.choice((5, 50, 400))),
        listener_raises=maybe(0.25, 0.6),
        hang=maybe(0.15, 0.1),
        stall=maybe(0.15, 0.05),
        commit=maybe(0.5, 0.6),
    )
    heartbeat_interval_ms = rng.choice((500, 500, 1_000))
    # Three seconds of a group that heartbeats twice a second see as much as a minute of one that does every five.
    return Scenario(
        name="mixed",
        members=rng.choice((2, 3, 3, 3, 4, 4, 5)),
        members_max=6,
        topics=rng.choice(_TOPICS),
        duration_ms=rng.choice((4, 5, 7)) * heartbeat_interval_ms,
        faults=faults,
        behaviour=behaviour,
        **events,  # type: ignore[arg-type]  # all of them are rates
        one_way=0.4,
        deposed=0.5,
        coordinator_crashes_after_append=maybe(0.15, 0.04),
        coordinator_crashes_before_append=maybe(0.15, 0.04),
        replication_ms=rng.choice((0, 0, 60, 500)),
        statics=rng.choice((0.0, 0.0, 0.0, 0.5, 1.0)),
        patterns=rng.choice((0.0, 0.0, 0.0, 0.0, 0.5)),
        metadata_lag_ms=rng.choice((0, 0, 0, 400)),
        group_max_size=rng.choice((0, 0, 0, 0, 0, 0, 0, 4)),
        produce_ms=rng.choice((150, 300, 600)),
        heartbeat_interval_ms=heartbeat_interval_ms,
        session_timeout_ms=heartbeat_interval_ms * rng.choice((4, 5, 6)),
        max_poll_interval_ms=heartbeat_interval_ms * rng.choice((6, 8)),
        request_timeout_ms=rng.choice((800, 1_500, 3_000)),
    )


def _draw_brief(rng: random.Random) -> Scenario:
    """Like `_draw`, for two or three intervals; half of the runs have no trial. Applications poll often."""
    scenario = _draw(rng)
    assigns = rng.random() < _WITH_ASSIGNORS
    behaviour = replace(scenario.behaviour, poll_ms=100)
    if assigns:
        behaviour = replace(behaviour, misbehaves=rng.choice((0.0, 0.0, 0.2)), reweighs=rng.choice((0.0, 0.1)))
    return replace(
        scenario,
        name="brief",
        duration_ms=rng.choice((2, 3)) * scenario.heartbeat_interval_ms,
        trials=rng.choice((0, 1)),
        assignors=0.97 if assigns else 0.0,
        behaviour=behaviour,
        encoded=0.05,
        purity=0.03,
        probes=0.03,
    )
