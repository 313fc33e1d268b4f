"""Carries out the planned events of a run with consumers.

Consumers come and go, topics change, the coordinator crashes, requests are refused. Does not own: which events are
planned (`environment`), the phases of a run (`run`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, assert_never

from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.group_overrides import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from kip848_client.testing.faults import Action, Rule, error, rewrite
from kip848_client.testing.faults.rules import Match
from kip848_client.testing.simulation.actors.simulated_consumer import SimulatedConsumer
from kip848_client.testing.simulation.consumer_environment import ConsumerEnvironment
from kip848_client.testing.simulation.virtual.environment import GROUP, Kind
from kip848_client.testing.simulation.virtual.scenario import SESSION_CHANGE_MS
from kip848_client.wire.api_keys import ApiKey

_HEARTBEAT: Final = int(ApiKey.CONSUMER_GROUP_HEARTBEAT)
_COMMIT: Final = int(ApiKey.OFFSET_COMMIT)
_FETCH: Final = int(ApiKey.OFFSET_FETCH)
_FIND: Final = int(ApiKey.FIND_COORDINATOR)
_CLASSIC: Final = tuple(map(int, (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT)))

_CLASSIC_CODES: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)

REFUSED_WITH: Final[dict[int, tuple[ErrorCode, ...]]] = {
    _HEARTBEAT: (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.REQUEST_TIMED_OUT,
    ),
    **dict.fromkeys(_CLASSIC, _CLASSIC_CODES),
    _COMMIT: (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
    _FETCH: (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
    _FIND: (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
}
"""API -> error codes with which a broker may refuse it."""


class Actions:
    """Everything that can be done to a group from outside."""

    def __init__(self, environment: ConsumerEnvironment) -> None:
        self._environment = environment

    def perform(self, kind: Kind, rng: random.Random) -> None:
        """Carry out one event. Does nothing if no consumer fits."""
        environment = self._environment
        living = environment.staying()
        match kind:
            case Kind.JOIN:
                if len(living) < environment.scenario.members_max:
                    environment.join(rng)
            case Kind.LEAVE:
                self._to_one(rng, living, lambda consumer: environment.end(rng, consumer, SimulatedConsumer.close))
            case Kind.CRASH:
                self._to_one(rng, living, lambda consumer: environment.end(rng, consumer, SimulatedConsumer.crash))
            case Kind.CUT:
                self._to_one(rng, living, lambda one: environment.network.cut(one.name, rng))
            case Kind.RESUBSCRIBE:
                self._to_one(rng, living, lambda consumer: consumer.subscribe(environment.subscription(rng)))
            case Kind.FREEZE:
                longest_ms = 2 * environment.scenario.session_timeout_ms
                self._to_one(rng, living, lambda consumer: consumer.freeze(rng.randint(500, longest_ms)))
            case Kind.DOUBLE_START:
                static = [consumer for consumer in living if consumer.config.instance_id is not None]
                self._to_one(
                    rng, static, lambda consumer: environment.join(rng, instance_id=consumer.config.instance_id)
                )
                if static:
                    environment.note("double_start")
            case Kind.SWITCH:
                environment.switch_one(rng)
            case Kind.HOLD_INSTANCE:
                static = [one for one in living if one.config.instance_id is not None and not one.is_classic]
                self._to_one(rng, static, self._hold_instance)
            case Kind.GROW:
                self._to_a_topic(rng, lambda name: environment.cluster.topics.grow(name, count=rng.randint(1, 2)))
            case Kind.DELETE_TOPIC:
                self._to_a_topic(rng, lambda name: self._delete(rng, name))
            case Kind.CRASH_COORDINATOR:
                environment.cluster.crash()
            case Kind.FAIL_OVER:
                self._fail_over(rng)
            case Kind.JUMP_WALL_CLOCK:
                environment.note("wall_clock_jumped")
                environment.scheduler.wall_offset_ms += rng.choice((-3_600_000, 3_600_000))
            case Kind.REFUSE:
                self._to_one(rng, living, lambda consumer: self._refuse(rng, consumer))
            case Kind.THROTTLE:
                self._to_one(rng, living, lambda consumer: self._throttle(rng, consumer))
            case Kind.CHANGE_CONFIG:
                self._change_config(rng)
            case Kind.HAND_OVER:
                for consumer in rng.sample(living, rng.randint(1, len(living))) if living else ():
                    environment.end(rng, consumer, SimulatedConsumer.hand_over)
            case Kind.REPLACE:
                if len(living) < environment.scenario.members_max:
                    environment.join(rng)
                    how = rng.choice((SimulatedConsumer.hand_over, SimulatedConsumer.close))
                    old, delay_ms = rng.choice(living) if living else None, rng.randint(0, 3_000)
                    if old is not None:
                        environment.scheduler.call_in(delay_ms, lambda: self._replace(rng, old, how))
            case Kind.DELETE_GROUP:
                pass  # only groups of workers are deleted
            case _:
                assert_never(kind)

    @staticmethod
    def _to_one(
        rng: random.Random, living: list[SimulatedConsumer], action: Callable[[SimulatedConsumer], object]
    ) -> None:
        if living:
            action(rng.choice(living))

    def _to_a_topic(self, rng: random.Random, action: Callable[[str], None]) -> None:
        names = sorted(self._environment.cluster.topics.image.by_name)
        if names:
            action(rng.choice(names))

    def _replace(self, rng: random.Random, old: SimulatedConsumer, how: Callable[[SimulatedConsumer], None]) -> None:
        if not self._environment.healed and not old.closed:
            self._environment.end(rng, old, how)

    # --- refusals

    def _refuse(self, rng: random.Random, consumer: SimulatedConsumer) -> None:
        """The next requests of one consumer, of one API, are answered with an error code."""
        own = _CLASSIC if consumer.is_classic else (_HEARTBEAT, _HEARTBEAT)
        api_key = rng.choice((*own, _COMMIT, _FETCH, _FIND))
        code = rng.choice(REFUSED_WITH[api_key])
        times = 1 if api_key in own else rng.randint(1, 3)
        self._rule(consumer, api_key, error(code), times=times)

    def _hold_instance(self, consumer: SimulatedConsumer) -> None:
        """A static member is removed, and until it leaves its own instance id is refused to it."""
        for code, when in (
            (ErrorCode.FENCED_MEMBER_EPOCH, lambda request: request.member_epoch > 0),
            (ErrorCode.UNRELEASED_INSTANCE_ID, lambda request: request.member_epoch == 0),
        ):
            match = Match(apis=frozenset({_HEARTBEAT}), client_id=consumer.name, when=when)
            self._environment.network.add_rule(Rule(match, [error(code)]))

    def _throttle(self, rng: random.Random, consumer: SimulatedConsumer) -> None:
        """Answers carry a throttle time; a client must go on with its heartbeats."""
        wait_ms = rng.randint(1, 1_000)
        self._rule(
            consumer,
            int(ApiKey.HEARTBEAT) if consumer.is_classic else _HEARTBEAT,
            rewrite(lambda response: replace(response, throttle_time_ms=wait_ms)),
            times=3,
        )

    def _rule(self, consumer: SimulatedConsumer, api_key: int, action: Action, *, times: int) -> None:
        match = Match(apis=frozenset({api_key}), client_id=consumer.name)
        self._environment.network.add_rule(Rule(match, [action], times=times))

    # --- cluster

    def _delete(self, rng: random.Random, name: str) -> None:
        """A topic goes, and comes back under another id: at once, or some time later."""
        environment = self._environment
        topics = environment.cluster.topics
        partitions = rng.randint(1, topics.image.by_name[name].partition_count + 1)
        topics.delete(name)

        def create() -> None:
            if name not in topics.image.by_name:
                topics.create(name, partitions=partitions)

        if rng.random() < 0.3:
            create()
        else:
            environment.scheduler.call_in(rng.randint(1, 3_000), create)

    def _fail_over(self, rng: random.Random) -> None:
        scenario = self._environment.scenario
        believes_ms = rng.randint(1, scenario.session_timeout_ms) if rng.random() < scenario.deposed else 0
        self._environment.cluster.fail_over(
            believes_for_ms=believes_ms, load_ms=rng.choice((0, 50, 700)), rumour_ms=rng.choice((0, 0, 400))
        )

    def _change_config(self, rng: random.Random) -> None:
        """An administrator changes what the group is told about heartbeats and sessions."""
        environment = self._environment
        scenario = environment.scenario
        interval_ms = rng.choice((scenario.heartbeat_interval_ms // 2, scenario.heartbeat_interval_ms))
        session_ms = rng.choice((scenario.session_timeout_ms - SESSION_CHANGE_MS, scenario.session_timeout_ms))
        environment.note("group_config_changed", interval_ms=interval_ms, session_ms=session_ms)
        changed = {HEARTBEAT_INTERVAL: str(interval_ms), SESSION_TIMEOUT: str(session_ms)}
        environment.cluster.change_config(GROUP, changed)
