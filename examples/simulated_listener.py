"""Test your own listener against crashes, frozen processes and slow callbacks, in virtual time: no broker, no waiting.

    python examples/simulated_listener.py
    pytest examples/simulated_listener.py

A service counts records, one count for each partition, in a database. If its processes fail in any way, no
record may be counted twice or forgotten. The simulation plays the real group member and coordinator on a virtual clock:
a minute of a group with its session timeouts takes a fraction of a second, and the same seed is always the same minute.
"""

from __future__ import annotations

from collections.abc import Callable

from kip848_client.testing.simulation import NamedPartition, Report, SimulatedConsumer

# --- the service that is to be tested


class Database:
    """What all processes share, and what outlives them."""

    def __init__(self) -> None:
        self.counts: dict[NamedPartition, int] = {}
        self.positions: dict[NamedPartition, int] = {}


class Counting:
    """One process of the service: its listener, and what it does with records."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.mine: set[NamedPartition] = set()

    def on_partitions_assigned(self, consumer: SimulatedConsumer, partitions: list[NamedPartition]) -> None:
        self.mine.update(partitions)

    def on_partitions_revoked(self, consumer: SimulatedConsumer, partitions: list[NamedPartition]) -> None:
        self.mine.difference_update(partitions)

    def on_partitions_lost(self, consumer: SimulatedConsumer, partitions: list[NamedPartition]) -> None:
        self.mine.difference_update(partitions)

    def on_records(self, consumer: SimulatedConsumer, partition: NamedPartition, offsets: range) -> None:
        assert partition in self.mine, f"{consumer.name} was handed {partition} without having been given it"
        self.count(partition, offsets)

    def count(self, partition: NamedPartition, offsets: range) -> None:
        """Count what is new; the count and the position are one transaction."""
        database = self.database
        position = database.positions.get(partition, 0)
        database.counts[partition] = database.counts.get(partition, 0) + max(0, offsets.stop - position)
        database.positions[partition] = max(position, offsets.stop)


class CountingTwice(Counting):
    """Trusts that every record comes once, as on the developer's machine."""

    def count(self, partition: NamedPartition, offsets: range) -> None:
        database = self.database
        database.counts[partition] = database.counts.get(partition, 0) + len(offsets)
        database.positions[partition] = max(database.positions.get(partition, 0), offsets.stop)


def processes(of: type[Counting], database: Database) -> Callable[[str], Counting]:
    """What starts a process: called with the name of each consumer."""
    return lambda name: of(database)


# --- its tests


def wrong_counts(database: Database) -> dict[NamedPartition, int]:
    """Partitions whose count is not the number of their records -> by how much."""
    return {
        partition: count - database.positions[partition]
        for partition, count in database.counts.items()
        if count != database.positions[partition]
    }


def test_every_record_is_counted_once(kip848_simulation: Callable[..., Report]) -> None:
    """Processes that freeze, listeners that hang, members that are thrown out while they work."""
    for seed in range(5):
        database = Database()
        report = kip848_simulation("zombies", seed=seed, application=processes(Counting, database))
        assert database.counts
        assert not wrong_counts(database), report.replay_command


# --- without a test run


def main() -> None:
    """Look for a minute in which the careless service is wrong."""
    from kip848_client.testing.simulation import SCENARIOS, run

    for seed in range(100):
        database = Database()
        report = run(SCENARIOS["zombies"], seed=seed, application=processes(CountingTwice, database))
        assert report.violation is None, report.violation
        if wrong := wrong_counts(database):
            partition, surplus = min(wrong.items())
            counts, minute_s = report.counts, report.simulated_ms / 1000
            print(f"seed {seed}: {surplus} records of {partition} were counted twice; there were {counts['frozen']}")
            print(f"frozen processes and {counts['member_left']} departures in {minute_s:.0f} virtual seconds")
            print(f"the story: {report.replay_command}")
            break
    else:
        print("the careless service was lucky a hundred times")
    database = Database()
    run(SCENARIOS["zombies"], seed=seed, application=processes(Counting, database))
    total, wrong = sum(database.counts.values()), wrong_counts(database)
    print(f"the careful one in the same minute: {total} records, {len(wrong)} wrong counts")


if __name__ == "__main__":
    main()
