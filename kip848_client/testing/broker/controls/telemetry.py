"""``broker.telemetry``: the metrics that clients pushed, and which ones they should push."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from kip848_client.errors import RequestTimeoutError
from kip848_client.testing.broker.client_telemetry import MetricsPush
from kip848_client.testing.broker.controls.live import LiveBroker
from kip848_client.testing.broker.net.loop_thread import wait_s

_PUSHES_MAX: Final = 1_000


class BrokerTelemetry:
    """The last 1,000 pushes of clients, oldest first; iteration yields them.

    The broker takes them with ``kip848.client.telemetry.enable=true``.

    Example::

        broker.telemetry.subscribe("all", ["*"], interval_ms=100)
        push = broker.telemetry.wait_for("org.apache.kafka.consumer.", client_id="shop")
    """

    def __init__(self, live: LiveBroker) -> None:
        self._live: Final = live
        self._pushes: Final[deque[MetricsPush]] = deque(maxlen=_PUSHES_MAX)
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

        def found() -> MetricsPush | None:
            for push in self._pushes:
                if (
                    client_id in (None, push.client_id)
                    and push.terminating >= terminating
                    and any(name.startswith(metric) for name in push.metric_names)
                ):
                    return push
            return None

        with self._changed:
            push = self._changed.wait_for(found, wait_s(timeout_s))
        if push is None:
            raise RequestTimeoutError(
                f"no client pushed metrics {metric!r} within {timeout_s} s; {len(self._pushes)} other pushes came. Is "
                "kip848.client.telemetry.enable=true set, and a subscription made?"
            )
        return push

    def __iter__(self) -> Iterator[MetricsPush]:
        with self._changed:
            return iter(tuple(self._pushes))

    def _took(self, push: MetricsPush) -> None:
        with self._changed:
            self._pushes.append(push)
            self._changed.notify_all()
