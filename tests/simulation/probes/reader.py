"""Another coordinator that reads the log of a run, for walks and checkers; nothing of it comes back to the run."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.coordinator.requests import TopicsChanged
from kip848_client.coordinator.result import CoordinatorRecord
from kip848_client.coordinator.topics import TopicsImage
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Mirror
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.world import World
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def join(group: str, **changes: object) -> ConsumerGroupHeartbeatRequest:
    """A join of a stranger, in order but for *changes*."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="stranger",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    return replace(request, **changes)


def coordinator_reading(
    log: Iterable[CoordinatorRecord], config: CoordinatorConfig, *, image: TopicsImage | None = None
) -> GroupCoordinator:
    """One with the state that *log* leads to.

    Args:
        image: the topics that it knows before it reads; none if left out.
    """
    coordinator = GroupCoordinator(config, rng=random.Random(0))
    if image is not None:
        coordinator.apply(coordinator.handle(TopicsChanged(image), now_ms=0))
    for record in log:
        coordinator.replay(record)
    return coordinator


class Walk(Observer):
    """Goes through the group once it has come to rest, beside the run: nothing of it comes back.

    Args:
        config: of the coordinators of the run.
    """

    def __init__(self, world: World, cluster: Cluster, mirror: Mirror, config: CoordinatorConfig) -> None:
        self._world: Final = world
        self._cluster: Final = cluster
        self._mirror: Final = mirror
        self._config: Final = config
