"""Retry topics: a record whose attempts have failed waits in another topic, and its key and the others go on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from kip848_client.consumer.processing.dead_letters import letter_of
from kip848_client.consumer.processing.record_copy import RecordCopy
from kip848_client.consumer.processing.sender import check_producer
from kip848_client.consumer.records.topic_check import check_topics
from kip848_client.errors import ArgumentTypeError, ConfigError
from kip848_client.member.processing.tiers import FailureHeaders, Tiers, without_own

if TYPE_CHECKING:
    from kip848_client.config.consumer import ConsumerConfig

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY: Final = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h|d)", re.ASCII)
_DELAY_MS_MAX: Final = 30 * 86_400_000
_TIERS_MAX: Final = 20
_TIMESTAMP_CREATED: Final = 1


class RetryTopics:
    """Where records wait that have failed after their attempts in memory: one topic for each delay.

    A record goes to ``<name>-1``, is given to the same handler once ``delays[0]`` has passed, goes to ``<name>-2`` if
    it fails again, and so on; after the last one it goes where records go that have failed for good (``dead_letter``,
    ``on_error``). It is acknowledged there before the commit passes it, or written in the transaction of its offset.
    Records of its key that come later do not wait for it.

    The consumer, or another process of its group with the same handler, subscribes to `topics` as well. What waits
    stays in Kafka: its partitions are paused until their first record is due.

    Args:
        name: what the names of the topics begin with. Two groups may share them, as each handles its own records only.
        delays: how long a record waits in each: ``"10s"``, ``"1.5m"``, ``"1h"``, ``"1d"``, seconds, or a `timedelta`.
        producer: a `confluent_kafka.Producer`; None: that of ``transactional=`` or ``dead_letter=``.
        errors: what is worth waiting for; other errors have failed for good at once.
        elsewhere: another process of the group reads the topics, and this one only writes them.
        partitions: missing topics are created with so many; None: a missing topic is an error.
        replication_factor: of topics that are created; -1 for the brokers' default.

    Raises:
        ConfigError: a delay is not readable or too long (30 days).
        ArgumentTypeError: an argument has a wrong type.
    """

    def __init__(
        self,
        name: str,
        delays: Sequence[str | float | timedelta],
        *,
        producer: Any = None,
        errors: type[Exception] | tuple[type[Exception], ...] = Exception,
        elsewhere: bool = False,
        partitions: int | None = None,
        replication_factor: int = -1,
    ) -> None:
        given: object = name
        if not (isinstance(given, str) and given.strip()):
            raise ArgumentTypeError(f"RetryTopics({name!r}): give the name that the topics begin with")
        listed: object = delays
        if isinstance(listed, str) or not isinstance(listed, Sequence):
            raise ArgumentTypeError(f'delays={delays!r}: give a list, such as ["10s", "1m", "10m", "1h"]')
        if not 1 <= len(delays) <= _TIERS_MAX:
            raise ConfigError(f"delays= has {len(delays)} entries: give 1 to {_TIERS_MAX}, one for each topic")
        classes: tuple[Any, ...] = errors if isinstance(errors, tuple) else (errors,)
        if not all(isinstance(each, type) and issubclass(each, Exception) for each in classes):
            raise ArgumentTypeError(f"errors={errors!r}: give a class of exceptions, or a tuple of some")
        if partitions is not None and (isinstance(partitions, bool) or partitions < 1):
            raise ConfigError(f"partitions={partitions!r}: give how many the topics get, or None if they exist")
        if producer is not None:
            check_producer(producer, name="producer")
        self._tiers: Final = Tiers(name=name, delays_ms=[_delay_ms(each) for each in delays])
        self._errors: Final = classes
        self._partitions: Final = partitions
        self._replication_factor: Final = replication_factor
        self.name: Final = name
        self.producer: Final = producer
        self.elsewhere: Final = elsewhere

    @property
    def topics(self) -> list[str]:
        """The topics, to be subscribed to: ``consumer.subscribe(["orders", *retries.topics])``."""
        return self._tiers.topics

    @property
    def delays_s(self) -> list[float]:
        """How long records wait in each of `topics`, in seconds."""
        return [delay_ms / 1000 for delay_ms in self._tiers.delays_ms]

    # --- for process()

    @property
    def tiers(self) -> Tiers:
        """Their core."""
        return self._tiers

    def takes(self, error: BaseException) -> bool:
        """Whether *error* may pass while a record waits."""
        return isinstance(error, self._errors)

    def check(self, config: ConsumerConfig, *, subscribed: Iterable[str] | None) -> None:
        """Look at the topics, and create those that are missing.

        Args:
            subscribed: what the consumer reads; None if that is a pattern.

        Raises:
            ConfigError: they are not subscribed to, missing, or lose records before they are due.
            Kip848Error: no broker answers.
        """
        what = f"RetryTopics({self.name!r})"
        unread = [] if subscribed is None or self.elsewhere else sorted(set(self.topics) - set(subscribed))
        if unread:
            raise ConfigError(
                f"{what}: this consumer does not read {', '.join(unread)}, and what goes there would wait for ever; "
                "subscribe to [..., *retries.topics], or give elsewhere=True if another process of the group does"
            )
        kept_ms = dict(zip(self.topics, self._tiers.delays_ms, strict=True))
        check_topics(
            config, kept_ms, partitions=self._partitions, replication_factor=self._replication_factor, what=what
        )

    def record(
        self,
        message: Any,
        failed: FailureHeaders,
        *,
        tier: int,
        original: tuple[Any, Any] | None,
    ) -> dict[str, Any]:
        """The arguments of ``produce()`` for a record that goes to *tier*."""
        assert failed.failed_ms is not None
        waits = replace(failed, due_ms=failed.failed_ms + self._tiers.delays_ms[tier], retries=self.name)
        # The time of writing, as retention counts from there.
        return letter_of(message, waits, topic=self.topics[tier], original=original) | {"timestamp": 0}


def as_it_was(message: Any, failed: FailureHeaders) -> RecordCopy:
    """A record of a tier as its handler has seen it first: its place and time, and the headers of its producer."""
    return RecordCopy(
        failed.topic,
        failed.partition,
        failed.offset,
        message.key(),
        message.value(),
        without_own(message.headers()) or None,
        (_TIMESTAMP_CREATED if failed.timestamp_ms >= 0 else 0, failed.timestamp_ms),
        None,
    )


def _delay_ms(delay: object) -> int:
    if isinstance(delay, timedelta):
        delay_ms = delay.total_seconds() * 1000
    elif isinstance(delay, str):
        found = _DELAY.fullmatch(delay.strip())
        if found is None:
            raise ConfigError(f'delays: {delay!r} is not readable; write "10s", "1.5m", "1h" or "1d"')
        delay_ms = float(found.group(1)) * _UNITS_MS[found.group(2)]
    elif isinstance(delay, (int, float)) and not isinstance(delay, bool):
        delay_ms = delay * 1000
    else:
        raise ArgumentTypeError(f'delays: {delay!r} is neither text such as "10s", nor seconds, nor a timedelta')
    if not 1 <= delay_ms <= _DELAY_MS_MAX:
        raise ConfigError(f"delays: {delay!r} is not between a millisecond and 30 days")
    return int(delay_ms)
