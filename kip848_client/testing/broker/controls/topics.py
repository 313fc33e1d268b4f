"""``broker.topics``: creates, changes and empties topics, as an admin client and retention do.

Every call that names a topic raises BrokerError (UNKNOWN_TOPIC_OR_PARTITION) if there is no such topic or partition,
and DataDirError if a change cannot be kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kip848_client.common.model import NamedPartition
from kip848_client.common.typed import settings, text, whole_number
from kip848_client.errors import ArgumentTypeError
from kip848_client.testing.broker.controls.live import LiveBroker
from kip848_client.testing.broker.metadata.topic_configs import PARTITION_RACKS, racks_to_text
from kip848_client.testing.broker.state import BrokerState


class BrokerTopics(Mapping[str, int]):
    """The topics of a broker: a mapping of their names to their numbers of partitions, as they are now.

    Example::

        broker.topics.create("orders", 6)
        assert broker.topics["orders"] == 6
    """

    def __init__(self, live: LiveBroker) -> None:
        self._live: Final = live

    def __getitem__(self, name: str) -> int:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    def __repr__(self) -> str:
        return f"<topics {self._now()}>" if self._live.running else "<topics of a broker that does not run>"

    # --- topics and partitions

    def create(
        self,
        name: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
    ) -> uuid.UUID:
        """Create a topic and return its id.

        Args:
            configs: Kafka's topic configs, for example ``{"cleanup.policy": "compact"}``.
            replication_factor: nodes that have a replica of a partition; None takes ``default.replication.factor``.

        Raises:
            BrokerError: the name is taken or not allowed, there are too few or too many partitions, or fewer nodes than
                replicas.
            ArgumentTypeError: an argument has a wrong type.
        """
        text(name, name="name")
        whole_number(partitions, name="partitions")
        if replication_factor is not None:
            whole_number(replication_factor, name="replication_factor")
        if configs is not None:
            configs = settings(configs, name="configs")
        return self._live.on_loop(
            lambda state: (
                state.topics.create(name, partitions, configs=configs, replication_factor=replication_factor).topic_id
            )
        )

    def add_partitions(self, name: str, count: int) -> None:
        """Increase the partitions of a topic to *count*.

        Raises:
            BrokerError: it has at least as many.
            ArgumentTypeError: *count* is no whole number.
        """
        whole_number(count, name="count")
        self._live.on_loop(lambda state: state.topics.add_partitions(name, count))

    def delete(self, name: str) -> None:
        """Delete a topic with its records. A topic created under that name later has another id."""
        self._live.on_loop(lambda state: state.topics.delete(name))

    def recreate(self, name: str, partitions: int | None = None) -> uuid.UUID:
        """Delete a topic and create it again in one step, empty and with another id, which is returned.

        Args:
            partitions: the new number; unchanged if not given.
        """

        if partitions is not None:
            whole_number(partitions, name="partitions")

        def recreate(state: BrokerState) -> uuid.UUID:
            old = state.topics.delete(name)
            return state.topics.create(name, partitions or old.partition_count).topic_id

        return self._live.on_loop(recreate)

    def set_racks(self, name: str, racks: Sequence[str | Iterable[str]]) -> None:
        """Set the racks of the replicas of a topic's partitions, for rack-aware assignors.

        Args:
            racks: of partition 0, 1 and so on, one rack or several; the list repeats. Empty: unknown.

        Raises:
            BrokerError: a rack is blank or holds a comma or a slash.
        """
        if isinstance(racks, str) or not isinstance(racks, Sequence):
            raise ArgumentTypeError(
                f'racks is a list of racks, one for each partition, such as ["a", "b"]; got {racks!r}'
            )
        as_text = racks_to_text([(item,) if isinstance(item, str) else tuple(item) for item in racks])

        def set_racks(state: BrokerState) -> None:
            configs = {key: value for key, value in state.topics.find(name).configs.items() if key != PARTITION_RACKS}
            state.topics.set_configs(name, {**configs, PARTITION_RACKS: as_text} if racks else configs)

        self._live.on_loop(set_racks)

    # --- records

    def offsets(self, name: str) -> dict[int, tuple[int, int]]:
        """First and next offset of each partition of a topic: partition -> (first offset, next offset)."""
        return self._live.on_loop(
            lambda state: {
                index: (log.log_start_offset, log.high_watermark)
                for index, log in enumerate(state.topics.find(name).partitions)
            }
        )

    def delete_records(self, name: str, partition: int, before_offset: int = -1) -> int:
        """Delete the records of a partition below an offset, as retention does; return its new start.

        Args:
            before_offset: the first offset that stays; -1 for none.

        Raises:
            BrokerError: the offset is outside the partition.
        """
        return self._live.on_loop(
            lambda state: state.topics.delete_records(state.topics.find(name, partition), partition, before_offset)
        )

    def apply_retention(self, name: str | None = None) -> dict[NamedPartition, int]:
        """Delete the records that a topic, or each topic, keeps no longer by ``retention.ms`` and ``retention.bytes``.

        The profile ``kafka`` does it by itself every ``log.retention.check.interval.ms``; the profile ``default`` never
        does.

        Returns:
            The new starts of the partitions that lost records.
        """
        return self._live.on_loop(
            lambda state: state.cleaner.apply_retention(None if name is None else state.topics.find(name))
        )

    def compact(self, name: str) -> dict[NamedPartition, int]:
        """Keep the last record of each key, as compaction does; offsets stay as they are.

        The newest batch of a partition stays whole. A tombstone stays for ``delete.retention.ms``.

        Returns:
            How many records went, by partition.

        Raises:
            IllegalStateError: its ``cleanup.policy`` is not ``compact``.
        """
        return self._live.on_loop(lambda state: state.cleaner.compact(state.topics.find(name)))

    def _now(self) -> dict[str, int]:
        return self._live.on_loop(lambda state: {topic.name: topic.partition_count for topic in state.topics})
