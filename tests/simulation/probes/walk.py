"""What walks through the group of a run have in common; see `foreign_walk`, `round_walk` and `offset_walk`."""

from __future__ import annotations

from typing import Final

from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Mirror
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.world import World


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
