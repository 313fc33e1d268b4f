"""The source's options: checked, with every default, from what Spark hands over. Pure.

Names and meanings are those of Spark's own Kafka source wherever it has the option. Spark hands option names over in
lower case; the table below has them as people write them. Options of Kafka begin with ``kafka.`` and go, through
`kafka_names`, to the client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Final, overload

from kip848_client.common.model import Confidential, NamedPartition, Subscription, describe_partitions
from kip848_client.config.reset import duration_ms
from kip848_client.errors import ConfigError
from kip848_client.spark.values.kafka_names import client_config
from kip848_client.spark.values.starting import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtCheckpoint,
    AtOffsets,
    AtTime,
    Edge,
    NoMatch,
    Place,
    named_partitions,
    parse_assign,
    parse_place,
    parse_times,
)


class SourceOptions(Confidential, frozen=True):
    """The checked options of one query. Times are in ms.

    Args:
        client: configuration for the client, Kafka's names as librdkafka spells them; may hold secrets.
        subscription: what to join the group for; empty with `assigned`.
        assigned: partitions to read without membership; empty with `subscription`.
        ending: for batches; None for a stream.
        commit: whether finished batches are committed to the group.
        rows_max, rows_min: of one micro-batch (maxOffsetsPerTrigger, minOffsetsPerTrigger).
        trigger_delay_ms_max: how long rows_min may hold a batch back.
        tasks_min, tasks_max: of one batch (minPartitions, maxTasks).
        task_rows_max: of one task (maxRecordsPerPartition).
        poll_timeout_ms: how long a task waits for a record that must come.
        first_assignment_ms: how long the first trigger waits for partitions; with AvailableNow, how long a trigger
            without records waits for a group that has not settled.
        lookup_timeout_ms: how long one question to brokers may take, with everything that is tried again for it.
        event_log: file on the driver's machine that the member's events are appended to.
        share_group: whether other streams of the Spark session may read the same topics in the group.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"client"})

    client: Mapping[str, str]
    subscription: Subscription
    assigned: frozenset[NamedPartition]
    starting: Place
    ending: Place | None
    commit: bool
    fail_on_data_loss: bool
    include_headers: bool
    include_leader_epoch: bool
    rows_max: int | None
    rows_min: int | None
    trigger_delay_ms_max: int
    tasks_min: int | None
    tasks_max: int | None
    task_rows_max: int | None
    poll_timeout_ms: int
    first_assignment_ms: int | None
    lookup_timeout_ms: int
    event_log: str | None
    share_group: bool

    @property
    def group_id(self) -> str | None:
        """The group, if there is one."""
        return self.client.get("group.id")

    @property
    def selection(self) -> str:
        """The topics or partitions that are read, for people."""
        if self.subscription.pattern is not None:
            return f"topics like {self.subscription.pattern}"
        return ", ".join(sorted(self.subscription.topics)) or describe_partitions(self.assigned)

    @property
    def streaming(self) -> bool:
        """Whether this is for a stream."""
        return self.ending is None


LOOKUP_TIMEOUT_MS: Final = 30_000
"""Unless kafka.default.api.timeout.ms is set: long enough for a broker that restarts, short for one that never was."""

_SELECTION: Final = ("assign", "subscribe", "subscribePattern")
_STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""First wins, as in Spark."""

_OTHERS: Final = (
    "startingCheckpoint",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "includeHeaders",
    "includeLeaderEpoch",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxTasks",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "commit",
    "auto.offset.reset",
    "group.id",
    "bootstrap.servers",
    "firstAssignmentTimeout",
    "eventLog",
    "shareGroup",
)
KNOWN: Final[Mapping[str, str]] = {
    name.lower(): name for name in (*_SELECTION, *_STARTING, *_ENDING, *_OTHERS, "groupIdPrefix", "path")
}
"""Lower case -> the name as people write it."""

_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "firstAssignmentTimeout",
    "eventLog",
    "shareGroup",
)

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+)\s*([a-z]*)")


TASKS_PER_CORE: Final = 2
"""Tasks of one batch, unless options say otherwise: tasks differ in length, and each costs some 30 ms to begin."""


def parse_options(options: Mapping[str, str], *, streaming: bool, cores: int | None = None) -> SourceOptions:
    """Check the options of one query.

    Args:
        options: as Spark hands them over; letter case of names does not matter.
        cores: how many tasks the session can run at once; None if that is not known.

    Raises:
        ConfigError: an option is missing, unknown or wrong. The message names it and the way out.
    """
    reader = _Reader(options)
    reader.refuse_unknown()
    if not streaming:
        reader.refuse(_STREAM_ONLY, "applies to streams only; leave it out of a batch read")
    else:
        reader.refuse(_ENDING, "is not valid in streaming queries; a stream has no end")
    subscription, assigned = _selection(reader)
    starting = _place(reader, _STARTING, default=None)
    checkpoint = reader.text("startingCheckpoint")
    if checkpoint is not None:
        if starting is not None:
            raise ConfigError("startingCheckpoint and other starting options exclude each other; give one of them")
        starting = AtCheckpoint(checkpoint)
    if starting is None:
        starting = Edge.COMMITTED if streaming else Edge.EARLIEST
    ending = None if streaming else (_place(reader, _ENDING, default=Edge.LATEST) or Edge.LATEST)
    _check_places(starting, ending, assigned)
    if assigned:
        reader.refuse(("eventLog",), "does not go with assign: there is no member that could write it")
    client = client_config(
        reader.kafka,
        reset=reader.reset("auto.offset.reset"),
        bootstrap_servers=reader.text("bootstrap.servers"),
        group_id=reader.text("group.id"),
    )
    commit = reader.word("commit", ("group", "off"), default="off" if assigned or not streaming else "group")
    if "group.id" not in client and (streaming and not assigned):
        raise ConfigError(
            "kafka.group.id is missing: this source is a member of a consumer group; name the group that it shares "
            "with others, or read fixed partitions with assign"
        )
    if "group.id" not in client and (commit == "group" or starting is Edge.COMMITTED):
        raise ConfigError("kafka.group.id is missing: committed offsets belong to a group")
    rows_max = reader.number("maxOffsetsPerTrigger", low=1)
    rows_min = reader.number("minOffsetsPerTrigger", low=1)
    if rows_max is not None and rows_min is not None and rows_min > rows_max:
        raise ConfigError(f"minOffsetsPerTrigger={rows_min} is above maxOffsetsPerTrigger={rows_max}")
    tasks_min = reader.number("minPartitions", low=1)
    tasks_max = reader.number("maxTasks", low=1)
    task_rows_max = reader.number("maxRecordsPerPartition", low=1)
    if tasks_min is not None and tasks_max is not None and tasks_min > tasks_max:
        raise ConfigError(f"minPartitions={tasks_min} is above maxTasks={tasks_max}")
    if tasks_max is None and tasks_min is None and task_rows_max is None and cores is not None:
        tasks_max = TASKS_PER_CORE * cores
    return SourceOptions(
        client=client,
        subscription=subscription,
        assigned=assigned,
        starting=starting,
        ending=ending,
        commit=commit == "group",
        fail_on_data_loss=reader.flag("failOnDataLoss", default=True),
        include_headers=reader.flag("includeHeaders", default=False),
        include_leader_epoch=reader.flag("includeLeaderEpoch", default=False),
        rows_max=rows_max,
        rows_min=rows_min,
        trigger_delay_ms_max=reader.duration_ms("maxTriggerDelay", default=15 * 60_000),
        tasks_min=tasks_min,
        tasks_max=tasks_max,
        task_rows_max=task_rows_max,
        poll_timeout_ms=reader.number("kafkaConsumer.pollTimeoutMs", low=1) or 120_000,
        first_assignment_ms=reader.duration_ms("firstAssignmentTimeout", default=None),
        lookup_timeout_ms=reader.kafka_number("default.api.timeout.ms", low=1) or LOOKUP_TIMEOUT_MS,
        event_log=reader.text("eventLog"),
        share_group=reader.flag("shareGroup", default=False),
    )


def _selection(reader: _Reader) -> tuple[Subscription, frozenset[NamedPartition]]:
    given = [name for name in _SELECTION if reader.text(name) is not None]
    if not given:
        raise ConfigError(f"one of {', '.join(_SELECTION)} must be given")
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} exclude each other; give one of {', '.join(_SELECTION)}")
    text = reader.text(given[0])
    assert text is not None
    if given[0] == "assign":
        return Subscription(), parse_assign(text)
    if not text.strip():
        raise ConfigError(f"{given[0]} is blank")
    if given[0] == "subscribePattern":
        return Subscription(pattern=text), frozenset()
    topics = frozenset(name.strip() for name in text.split(",") if name.strip())
    if not topics:
        raise ConfigError(f"subscribe: expected topics separated by commas, got {text!r}")
    return Subscription(topics=topics), frozenset()


def _place(reader: _Reader, names: tuple[str, str, str], *, default: Place | None) -> Place | None:
    """Where to begin or end; a time for all wins over times for each, and these over offsets, as in Spark."""
    time_option, times_option, offsets_option = names
    no_match = NoMatch.LATEST
    if names is _STARTING:
        no_match = NoMatch(reader.word("startingOffsetsByTimestampStrategy", ("error", "latest"), default="error"))
    time_ms = reader.number(time_option, low=0)
    if time_ms is not None:
        return AtTime(time_ms, no_match)
    times = reader.text(times_option)
    if times is not None:
        return parse_times(times_option, times, no_match)
    offsets = reader.text(offsets_option)
    return parse_place(offsets_option, offsets) if offsets is not None else default


def _check_places(starting: Place, ending: Place | None, assigned: frozenset[NamedPartition]) -> None:
    if ending is not None:
        if starting is Edge.LATEST:
            raise ConfigError("startingOffsets can't be latest for batch queries: there would be nothing to read")
        if ending is Edge.EARLIEST or ending is Edge.COMMITTED:
            raise ConfigError("endingOffsets is latest, or JSON with offsets; it can't be earliest or committed")
        if isinstance(starting, AtOffsets) and LATEST_OFFSET in starting.offsets.values():
            raise ConfigError("startingOffsets can't be -1 (latest) for batch queries: there would be nothing to read")
        if isinstance(ending, AtOffsets) and EARLIEST_OFFSET in ending.offsets.values():
            raise ConfigError("endingOffsets can't be -2 (earliest): there would be nothing to read")
    for name, place in (("starting", starting), ("ending", ending)):
        named = named_partitions(place) if place is not None else frozenset()
        if assigned and named and named != assigned:
            differing = ", ".join(sorted(str(partition) for partition in named ^ assigned))
            raise ConfigError(
                f"{name} offsets name other partitions than assign: {differing}; name each one (-1 is latest, "
                "-2 is earliest)"
            )


class _Reader:
    """Typed access to the options; every refusal is a `ConfigError` that names the option."""

    def __init__(self, options: Mapping[str, str]) -> None:
        lower = {str(name).lower(): str(text) for name, text in options.items()}
        self._written = {str(name).lower(): str(name) for name in options}
        self.kafka = {name.removeprefix("kafka."): text for name, text in lower.items() if name.startswith("kafka.")}
        self._own = {name: text for name, text in lower.items() if not name.startswith("kafka.")}

    def refuse_unknown(self) -> None:
        import difflib  # here: only a mistake needs it

        self.refuse(("groupIdPrefix",), "does not apply: the group is real; name it with kafka.group.id")
        if self.text("path") is not None:
            raise ConfigError("load() takes no path; name topics with subscribe, subscribePattern or assign")
        for name in self._own:
            if name in KNOWN:
                continue
            near = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.6)
            hint = f"; did you mean {KNOWN[near[0]]}?" if near else "; options of Kafka begin with kafka."
            raise ConfigError(f"{self._written[name]} is not an option of this source{hint}")

    def refuse(self, names: tuple[str, ...], why: str) -> None:
        for name in names:
            if name.lower() in self._own:
                raise ConfigError(f"{name} {why}")

    def text(self, name: str) -> str | None:
        return self._own.get(name.lower())

    def word(self, name: str, allowed: tuple[str, ...], *, default: str) -> str:
        text = self.text(name)
        if text is None:
            return default
        word = text.strip().lower()
        if word not in allowed:
            raise ConfigError(f"{name} must be {' or '.join(allowed)}, got {text!r}")
        return word

    def reset(self, name: str) -> str:
        text = (self.text(name) or "").strip()
        if duration_ms(text) is not None:
            return text
        if text.lower() in {"", "latest", "earliest", "none"}:
            return text.lower() or "latest"
        raise ConfigError(f"{name} must be latest, earliest, none, or by_duration:PT1H (an hour); got {text!r}")

    def flag(self, name: str, *, default: bool) -> bool:
        return self.word(name, ("true", "false"), default=str(default).lower()) == "true"

    def number(self, name: str, *, low: int) -> int | None:
        return self._integer(name, self.text(name), low=low)

    def kafka_number(self, name: str, *, low: int) -> int | None:
        return self._integer(f"kafka.{name}", self.kafka.get(name), low=low)

    def _integer(self, name: str, text: str | None, *, low: int) -> int | None:
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            raise ConfigError(f"{name} must be an integer, got {text!r}") from None
        if number < low:
            raise ConfigError(f"{name}={number} is below {low}")
        return number

    @overload
    def duration_ms(self, name: str, *, default: int) -> int: ...

    @overload
    def duration_ms(self, name: str, *, default: None) -> int | None: ...

    def duration_ms(self, name: str, *, default: int | None) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        found = _DURATION.fullmatch(text.strip().lower())
        unit = _UNITS_MS.get(found[2] or "ms") if found else None
        if found is None or unit is None:
            raise ConfigError(f"{name} must be a duration such as 500ms, 30s or 15m, got {text!r}")
        return int(found[1]) * unit
