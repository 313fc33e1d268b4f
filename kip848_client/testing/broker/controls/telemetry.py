"""``broker.telemetry``: the metrics that clients pushed, and which ones they should push."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from kip848_client.errors import RequestTimeoutError
from kip848_client.testing.broker.client_telemetry import MetricsPush
from kip848_client.testing.broker.controls.live import LiveBroker
from kip848_client.testing.broker.net.loop_thread import wait_s

_PUSHES_MAX: Final = 1_000
_BYTES_MAX: Final = 64 * 1024 * 1024


class BrokerTelemetry:
    """The last pushes of clients, up to 1,000 and 64 MiB, oldest first; iteration yields them.

    The broker takes them with ``kip848.client.telemetry.enable=true``.

    Example::

        broker.telemetry.subscribe("all", ["*"], interval_ms=100)
        push = broker.telemetry.wait_for("org.apache.kafka.consumer.", client_id="shop")
    """

    def __init__(self, live: LiveBroker) -> None:
        self._live: Final = live
        self._pushes: Final[deque[MetricsPush]] = deque()
        self._taken = self._bytes = 0
        self._changed: Final = threading.Condition()

    def subscribe(self, name: str, metrics: Iterable[str], *, interval_ms: int = 300_000, match: str = "") -> None:
        """Ask clients for metrics, as a CLIENT_METRICS resource of that name does.

        Args:
            metrics: prefixes of their names; ``*`` for all.
            interval_ms: how often, from 100 to 3,600,000. Clients that have asked already follow with their next push.
            match: ``client_id=shop.*,client_software_name=librdkafka``; empty for all clients.

        Raises:
            BrokerError: the interval is too short or too long.
            ConfigError: *match* is wrong.
            DataDirError: it could not be kept.
        """
        settings = {"metrics": ",".join(metrics), "interval.ms": str(interval_ms), "match": match}
        self._live.on_loop(lambda state: state.telemetry.replace(name, settings, validate_only=False))

    def wait_for(
        self, metric: str = "", *, client_id: str | None = None, terminating: bool = False, timeout_s: float = 30.0
    ) -> MetricsPush:
        """Wait for a push, and return the first one that matches; earlier ones count.

        Args:
            metric: how the name of one of its metrics begins.
            client_id: who pushed it; None for any client.
            terminating: only the last push of a client that ends.
            timeout_s: seconds to wait.

        Raises:
            RequestTimeoutError: none came in time.
        """

        deadline_s = time.monotonic() + wait_s(timeout_s)
        looked_at = 0
        while True:
            with self._changed:
                new, looked_at = list(self._pushes)[max(looked_at - self._forgotten, 0) :], self._taken
            for push in new:  # without the lock, for which the broker would wait
                if (
                    client_id in (None, push.client_id)
                    and push.terminating >= terminating
                    and any(name.startswith(metric) for name in push.metric_names)
                ):
                    return push
            with self._changed:
                if not self._changed.wait_for(
                    lambda before=looked_at: self._taken > before,  # type: ignore[misc]  # bound on purpose
                    deadline_s - time.monotonic(),
                ):
                    raise RequestTimeoutError(
                        f"no client pushed metrics {metric!r} within {timeout_s} s; {len(self._pushes)} other pushes "
                        "came. Is kip848.client.telemetry.enable=true set, and a subscription made?"
                    )

    def __iter__(self) -> Iterator[MetricsPush]:
        with self._changed:
            return iter(tuple(self._pushes))

    def _took(self, push: MetricsPush) -> None:
        with self._changed:
            self._taken += 1
            self._pushes.append(push)
            self._bytes += len(push.otlp)
            while len(self._pushes) > _PUSHES_MAX or (self._bytes > _BYTES_MAX and len(self._pushes) > 1):
                self._bytes -= len(self._pushes.popleft().otlp)
            self._changed.notify_all()

    @property
    def _forgotten(self) -> int:
        return self._taken - len(self._pushes)
