"""``kip848 groups export``: a Prometheus exporter for the groups of a cluster, from ``__consumer_offsets``.

It answers scrapes from its first moment. While it reads the groups' history, it only tells the numbers of groups by
type and state, which coordinators list, and that it is not ready.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from kip848_client.cli.shared.properties import read_properties
from kip848_client.common.addresses import in_url, parse_listen_address
from kip848_client.common.model import NamedPartition
from kip848_client.common.plain_text import printable
from kip848_client.errors import ConfigError
from kip848_client.tools.groups.follower import GroupsFollower, now_ms
from kip848_client.tools.groups.metrics import GroupTrack, TopicLag, by_topic

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - for --listen :PORT only


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that only this action has."""
    parser.add_argument(
        "--listen", metavar="[HOST]:PORT", default="127.0.0.1:9848", help="where to serve /metrics (127.0.0.1:9848)"
    )
    parser.add_argument(
        "--group", metavar="PATTERN", action="append", default=[], help="these only: orders-*; may be repeated (all)"
    )
    parser.add_argument(
        "--groups-max", metavar="N", type=int, default=10_000, help="more groups are only counted (10000)"
    )
    parser.add_argument("--by-partition", action="store_true", help="also the lag of each partition: many more samples")
    parser.add_argument(
        "--lag-every", metavar="SECONDS", type=float, default=15.0, help="how often to ask for the ends of topics (15)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C.

    Raises:
        ConfigError: an option is out of range, the address is taken, or prometheus_client is not installed.
        Kip848Error: no broker answers, or reading is not allowed.
    """
    host, port = parse_listen_address(arguments.listen)
    if arguments.groups_max < 1 or not arguments.lag_every > 0:
        raise ConfigError("--groups-max and --lag-every are above 0")
    with Exporter(
        read_properties(arguments),
        host=host,
        port=port,
        groups=arguments.group,
        groups_max=arguments.groups_max,
        lag_every_s=arguments.lag_every,
        by_partition=arguments.by_partition,
        timeout_s=arguments.timeout,
    ) as exporter:
        print(f"http://{in_url(host or 'localhost')}:{exporter.port}/metrics", file=sys.stderr, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            exporter.catch_up()
            while True:
                exporter.turn()
    return 0


class Exporter:
    """Reads on the caller's thread, and answers scrapes on others.

    Args:
        port: 0 for a free one.
        by_partition: also tell the lag of each partition.

    Raises:
        ConfigError: prometheus_client is not installed, or the address is taken.
        Kip848Error: no broker answers, or reading is not allowed.
    """

    def __init__(
        self,
        conf: Mapping[str, str],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        groups: Iterable[str] = (),
        groups_max: int = 10_000,
        lag_every_s: float = 15.0,
        by_partition: bool = False,
        timeout_s: float = 10.0,
    ) -> None:
        require_prometheus("export", "export")
        from prometheus_client import CollectorRegistry, start_http_server

        with contextlib.ExitStack() as stack:
            self._follower = stack.enter_context(
                GroupsFollower(conf, groups=groups, groups_max=groups_max, lag_every_s=lag_every_s, timeout_s=timeout_s)
            )
            registry = CollectorRegistry()
            registry.register(GroupsCollector(self._follower, by_partition=by_partition))
            try:
                server, thread = start_http_server(port, addr=host or _EVERY_ADDRESS, registry=registry)
            except OSError as error:
                raise ConfigError(f"--listen {host}:{port}: {error.strerror or error}") from error
            self.port: Final = int(server.server_address[1])
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        """Stop serving, and close connections."""
        self._stack.close()

    def catch_up(self) -> None:
        """Read the groups' history."""
        self._follower.catch_up()

    def turn(self) -> None:
        """Take the records that wait, and ask for the ends of topics if that is due."""
        self._follower.turn()


def require_prometheus(action: str, extra: str) -> None:
    """Refuse to start without prometheus_client.

    Raises:
        ConfigError: it is not installed; the message names the *extra* that brings it.
    """
    if importlib.util.find_spec("prometheus_client") is None:
        raise ConfigError(f"kip848 groups {action} needs prometheus_client: pip install 'kip848_client[{extra}]'")


def metrics_text(collector: GroupsCollector) -> bytes:
    """All metrics in Prometheus' format."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)


class GroupsCollector:
    """The metrics of the groups that a follower knows, for a registry of prometheus_client."""

    def __init__(self, follower: GroupsFollower, *, by_partition: bool) -> None:
        self._follower = follower
        self._by_partition = by_partition

    # --- a scrape

    def collect(self) -> Iterator[Metric]:
        """Every metric family; prometheus_client calls it for each scrape."""
        with self._follower.lock:
            return iter(list(self._families(now_ms())))

    def describe(self) -> Iterator[Metric]:
        """Nothing: a registry would collect all metrics to learn their names."""
        return iter(())

    def _families(self, now_ms: int) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily as Counted
        from prometheus_client.core import GaugeMetricFamily as Gauge
        from prometheus_client.core import HistogramMetricFamily

        follower = self._follower
        metrics, ends = follower.metrics, follower.ends
        yield Gauge("kip848_export_ready", "1 once the groups' history has been read.", value=metrics.is_live)
        yield Counted(
            "kip848_export_records", "Records of __consumer_offsets read.", value=follower.recorder.counts.records
        )
        yield Counted("kip848_export_lag_failures", "Questions for the ends of topics that failed.", follower.failures)
        yield Gauge(
            "kip848_export_groups_left_out", "Groups above --groups-max, without metrics.", len(metrics.left_out)
        )
        of_kinds = Gauge("kip848_groups", "Groups by type and state.", labels=("type", "state"))
        tracks = list(metrics.groups.values()) if metrics.is_live else []
        counted = Counter((one.kind, one.view.state) for one in tracks) if metrics.is_live else follower.listed
        for kind_and_state, count in sorted(counted.items()):
            of_kinds.add_metric(kind_and_state, count)
        yield of_kinds
        if not metrics.is_live:
            return

        durations = HistogramMetricFamily(
            "kip848_rebalance_duration_seconds",
            "Rebalances of all groups; of a classic group without its join phase.",
            labels=("reason",),
        )
        for reason, histogram in sorted(metrics.durations.items()):
            durations.add_metric((reason,), histogram.buckets(), histogram.sum_s)
        yield durations

        state = Gauge("kip848_group_state", "1 for the state that the group is in.", labels=("group", "type", "state"))
        of_groups: list[Gauge | Counted] = [Gauge(name, text, labels=("group",)) for name, text, _ in _GAUGES]
        of_groups += [Counted(name, text, labels=("group",)) for name, text, _ in _TOTALS]
        of_topics = [Gauge(name, text, labels=("group", "topic")) for name, text, _ in _OF_TOPICS]
        of_partitions = Gauge(
            "kip848_group_partition_lag",
            "Records behind the end; missing while the end is unknown.",
            labels=("group", "topic", "partition"),
        )
        for track in tracks:
            track.count_unread(now_ms)
            group = (printable(track.view.group_id),)
            state.add_metric((*group, track.kind, track.view.state), 1)
            seen = _Seen(track, track.silent_ms(ends), now_ms)
            for family, (_, _, value_of) in zip(of_groups, (*_GAUGES, *_TOTALS), strict=True):
                if (value := value_of(seen)) is not None:
                    family.add_metric(group, value)
            for topic, left in by_topic(track, ends, now_ms=now_ms).items():
                for family, (_, _, value_left) in zip(of_topics, _OF_TOPICS, strict=True):
                    if (value := value_left(left)) is not None:
                        family.add_metric((*group, topic), value)
            for place, committed in track.committed.items() if self._by_partition else ():
                if (lag := ends.lag(place, committed.offset)) is not None:
                    of_partitions.add_metric((*group, place.topic, str(place.partition)), lag)
        yield from (state, *of_groups, *of_topics)
        if self._by_partition:
            yield of_partitions


class _Seen(NamedTuple):
    """One group at the time of a scrape."""

    track: GroupTrack
    silent_ms: list[float]
    now_ms: int

    @property
    def partitions(self) -> set[NamedPartition]:
        """The partitions that members have or get."""
        return {one for member in self.track.view.members.values() for one in member.owned | member.target}

    def seconds_since(self, then_ms: int) -> float:
        """At least 0."""
        return max(0, self.now_ms - then_ms) / 1000


def _rebalancing_s(seen: _Seen) -> float:
    since_ms = seen.track.rebalancing_since_ms
    return 0.0 if since_ms is None else seen.seconds_since(since_ms)


_Row: TypeAlias = tuple[str, str, Callable[[_Seen], float | None]]
"""Name, text, value; without a value the group is left out."""

_GAUGES: Final[tuple[_Row, ...]] = (
    ("kip848_group_members", "Members.", lambda seen: len(seen.track.view.members)),
    ("kip848_group_partitions", "Partitions that members have or get.", lambda seen: len(seen.partitions)),
    (
        "kip848_group_unread_partitions",
        "Partitions of the target that no member is counted as the owner of.",
        lambda seen: seen.track.unread,
    ),
    ("kip848_group_rebalancing_seconds", "How long the rebalance lasts already; 0 at rest.", _rebalancing_s),
    (
        "kip848_group_commit_age_seconds",
        "Time since the last commit.",
        lambda seen: seen.seconds_since(seen.track.last_commit_ms) if seen.track.last_commit_ms else None,
    ),
    (
        "kip848_group_held_back_partitions",
        "Partitions in which an open transaction holds readers of committed records back.",
        lambda seen: len(seen.track.held),
    ),
    (
        "kip848_group_silent_members",
        "Members that stopped committing, although records wait for them and others commit.",
        lambda seen: len(seen.silent_ms),
    ),
    (
        "kip848_group_silent_seconds",
        "How long the most silent of these members has committed nothing; 0 if there is none.",
        lambda seen: max(seen.silent_ms, default=0.0) / 1000,
    ),
)
_TOTALS: Final[tuple[_Row, ...]] = (
    (
        "kip848_group_unread_partition_seconds",
        "Time without a counted owner, summed over partitions.",
        lambda seen: seen.track.unread_ms / 1000,
    ),
    ("kip848_group_rebalances", "Rebalances that ended.", lambda seen: seen.track.rebalances),
    ("kip848_group_joins", "Members that joined.", lambda seen: seen.track.joins),
    ("kip848_group_departures", "Members that left or were removed.", lambda seen: seen.track.departures),
    ("kip848_group_commits", "Accepted commits.", lambda seen: seen.track.commits),
)
_OF_TOPICS: Final[tuple[tuple[str, str, Callable[[TopicLag], float | None]], ...]] = (
    (
        "kip848_group_lag",
        "Records behind the end; missing while the end of any partition is unknown.",
        lambda left: None if left.unknown else left.records,
    ),
    (
        "kip848_group_lag_seconds",
        "How long ago the end of the slowest partition was where it is committed; at least, after a start; missing "
        "while the end of any partition is unknown.",
        lambda left: None if left.unknown else left.seconds,
    ),
    ("kip848_group_lag_unknown_partitions", "Partitions without a known end.", lambda left: left.unknown),
    (
        "kip848_group_waiting_commit_age_seconds",
        "The longest time that records wait in a partition, and no commit has moved it; missing while none wait.",
        lambda left: None if left.commit_age_s is None else max(0.0, left.commit_age_s),
    ),
)
