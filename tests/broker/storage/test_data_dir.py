"""The folder behind a broker: what is there after it was closed, killed, torn or damaged."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from kip848_client.errors import BrokerError, DataDirCorruptError, DataDirError, DataDirLockedError, ErrorCode
from kip848_client.testing.broker.storage import coordinator_log
from kip848_client.testing.broker.storage.data_dir import DataDir
from kip848_client.testing.broker.topics.registry import TopicRegistry
from kip848_client.wire.record_batch import batches_of, records_of
from tests.broker.storage.harness import a_batch, a_registry, opened
from tests.support.open_files import files_under
from tests.support.work import lines_run


def ids() -> Callable[[], uuid.UUID]:
    numbers = iter(range(100, 10_000))
    return lambda: uuid.UUID(int=next(numbers))


def values_in(registry: TopicRegistry, topic: str, partition: int = 0) -> list[bytes | None]:
    found = registry.get(topic)
    assert found is not None
    partition_log = found.partitions[partition]
    data = partition_log.read(partition_log.log_start_offset, 10**9)
    return [record.value for at, _ in batches_of(data, check_crc=True) for record in records_of(data, at)]


def test_topics_and_records_are_there_again(tmp_path: Path) -> None:
    """Broken: a broker with a data folder forgets everything when it is restarted."""
    with opened(tmp_path / "new" / "folder") as folder:
        registry = TopicRegistry(folder, new_id=ids())
        orders = registry.create("orders", 2, configs={"retention.ms": "5"})
        registry.create("empty", 1)
        registry.append(orders, 0, a_batch(b"a", b"b"))
        registry.append(orders, 1, a_batch(b"c", producer=(7, 0, 0)))
        registry.add_partitions("orders", 3)
        registry.append(orders, 2, a_batch(b"d"))
        registry.set_configs("empty", {"cleanup.policy": "compact"})

    with opened(tmp_path / "new" / "folder") as folder:
        again = TopicRegistry(folder, new_id=ids())

        assert [(topic.name, topic.topic_id, topic.partition_count, topic.configs) for topic in again] == [
            ("empty", uuid.UUID(int=101), 1, {"cleanup.policy": "compact"}),
            ("orders", uuid.UUID(int=100), 3, {"retention.ms": "5"}),
        ]
        assert [values_in(again, "orders", partition) for partition in range(3)] == [[b"a", b"b"], [b"c"], [b"d"]]
        topic = again.get("orders")
        assert topic is not None
        assert again.append(topic, 1, a_batch(b"c", producer=(7, 0, 0))).duplicate is True
        assert folder.repairs == []


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    """Broken: records that were deleted come back with a restart."""
    with a_registry(tmp_path) as registry:
        topic = registry.create("orders", 1)
        for value in (b"a", b"b", b"c"):
            registry.append(topic, 0, a_batch(value))
        registry.delete_records(topic, 0, 2)

    with a_registry(tmp_path) as again:
        assert values_in(again, "orders") == [b"c"]


def test_a_deleted_topic_leaves_no_file_and_its_name_starts_empty(tmp_path: Path) -> None:
    """Broken: a re-created topic shows the records of its predecessor, or the disk fills up."""
    with opened(tmp_path) as folder:
        registry = TopicRegistry(folder, new_id=ids())
        first = registry.create("orders", 1)
        registry.append(first, 0, a_batch(b"old"))

        registry.delete("orders")
        assert list((tmp_path / "topics").iterdir()) == []
        second = registry.create("orders", 1)
        registry.append(second, 0, a_batch(b"new"))

    with a_registry(tmp_path) as again:
        assert values_in(again, "orders") == [b"new"]
        found = again.get("orders")
        assert found is not None
        assert found.topic_id == second.topic_id != first.topic_id


def test_two_brokers_cannot_use_one_folder(tmp_path: Path) -> None:
    """A second broker in the same folder would overwrite the records of the first."""
    with opened(tmp_path) as folder:
        with pytest.raises(DataDirLockedError, match=rf"another broker uses this folder \(process {os.getpid()}\)"):
            DataDir.open(tmp_path)
    folder.close()
    DataDir.open(tmp_path).close()


def test_a_folder_is_free_after_closing_although_a_forked_child_has_it_open(tmp_path: Path) -> None:
    """Broken: a broker cannot be restarted in a program that uses multiprocessing."""
    with opened(tmp_path) as folder:
        in_the_child = os.dup(folder._lock_fd)  # what fork() does

    DataDir.open(tmp_path).close()
    os.close(in_the_child)


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    """Broken: a wrong --data-dir ends in a traceback."""
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(DataDirError, match="cannot be used as a data folder"):
        DataDir.open(tmp_path / "file" / "folder")


@pytest.mark.parametrize("damaged", ["coordinator.log", "records"])
def test_damage_in_the_middle_names_the_file_and_gives_the_folder_free(tmp_path: Path, damaged: str) -> None:
    """Broken: damaged data is served, or the broker cannot even be started on a repaired folder."""
    with opened(tmp_path) as folder:
        registry = TopicRegistry(folder)
        topic = registry.create("orders", 1)
        registry.create("more", 1)
        for value in (b"a", b"b"):
            registry.append(topic, 0, a_batch(value))
            folder.coordinator_log.append([(value, value)])
    path = tmp_path / "topics" / str(topic.topic_id) / "0.log" if damaged == "records" else tmp_path / damaged
    content = bytearray(path.read_bytes())
    whole = bytes(content)
    content[8 + 12 + 2] ^= 1
    path.write_bytes(content)

    def load() -> None:
        with opened(tmp_path) as folder:
            TopicRegistry(folder)
            list(folder.coordinator_log.load())

    with pytest.raises(DataDirCorruptError, match="does not match its checksum") as error:
        load()

    assert (error.value.file, error.value.position) == (str(path), 8)
    path.write_bytes(whole)
    load()


def test_entries_that_are_whole_but_make_no_sense_are_refused(tmp_path: Path) -> None:
    """Broken: a folder of a newer version is half understood, and then written to."""
    with opened(tmp_path) as folder:
        registry = TopicRegistry(folder)
        topic = registry.create("orders", 3)
        folder.append_batch(topic.topic_id, 0, a_batch(b"a")[:-1])
        folder.append_batch(topic.topic_id, 1, a_batch(b"a"))
        folder.append_batch(topic.topic_id, 1, a_batch(b"a"))
        folder._append_record(topic.topic_id, 2, b"\x09?")
        folder._cluster.append(b'{"entry": "something_new", "topic_id": "00000000-0000-0000-0000-000000000005"}')
        folder.coordinator_log._file.append(b"\0\0\0\x05ab")

        for partition, says in enumerate(
            ["claims", "begins at offset 0, the log ends at 1", "unknown kind of entry 9"]
        ):
            with pytest.raises(DataDirCorruptError, match=says):
                folder.load_partition(topic.topic_id, partition)
        with pytest.raises(DataDirCorruptError, match="does not hold coordinator records"):
            list(folder.coordinator_log.load())
    with pytest.raises(DataDirError, match=r"something_new.*was it written by a newer version"):
        DataDir.open(tmp_path)


def test_a_batch_that_cannot_be_written_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: consumers read records that are gone after the next restart."""
    with opened(tmp_path) as folder:
        registry = TopicRegistry(folder)
        topic = registry.create("orders", 1)

        def full(*args: object, **kwargs: object) -> None:
            raise DataDirError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(folder, "append_batch", full)
            with pytest.raises(BrokerError, match="the disk is full") as error:
                registry.append(topic, 0, a_batch(b"a", producer=(1, 0, 0)))

        assert error.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert values_in(registry, "orders") == []
        assert registry.append(topic, 0, a_batch(b"a", producer=(1, 0, 0))).duplicate is False


def test_many_partitions_do_not_need_many_open_files(tmp_path: Path) -> None:
    """Broken: a broker with more partitions than the limit of open files fails in the middle of a produce."""
    with a_registry(tmp_path) as registry:
        topic = registry.create("wide", 300)

        for _ in range(2):
            for partition in range(300):
                registry.append(topic, partition, a_batch(b"v"))

        assert files_under(tmp_path) < 150
    with a_registry(tmp_path) as again:
        assert all(values_in(again, "wide", partition) == [b"v", b"v"] for partition in range(300))


# --- the coordinator's records and small facts


def test_coordinator_records_come_back_in_order_and_a_decision_as_a_whole(tmp_path: Path) -> None:
    """Broken: a group is restored from half of a decision."""
    decisions: list[list[tuple[bytes, bytes | None]]] = [
        [(b"k1", b"v1"), (b"k2", None)],
        [],
        [(b"", b""), (b"k1", b"v2"), (b"k3", b"v3")],
    ]
    with opened(tmp_path) as folder:
        for decision in decisions:
            folder.coordinator_log.append(decision)
    path = tmp_path / "coordinator.log"
    whole = path.read_bytes()

    with opened(tmp_path) as folder:
        assert list(folder.coordinator_log.load()) == decisions[0] + decisions[2]
    path.write_bytes(whole[:-1])
    with opened(tmp_path) as folder:
        assert list(folder.coordinator_log.load()) == decisions[0]
        assert [repair.path for repair in folder.repairs] == [str(path)]


def test_a_coordinator_log_of_old_values_is_compacted_when_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: each start takes longer than the last, since every commit ever made is replayed."""
    monkeypatch.setattr(coordinator_log, "COMPACT_FROM_RECORDS", 100)
    with opened(tmp_path) as folder:
        folder.coordinator_log.append([(b"gone", b"x"), (b"early", b"e")])
        for number in range(100):
            folder.coordinator_log.append([(b"offset", b"%d" % number)])
        folder.coordinator_log.append([(b"gone", None), (b"late", b"l")])
    before = (tmp_path / "coordinator.log").stat().st_size
    (tmp_path / "coordinator.log.new").write_bytes(b"of a compaction that was interrupted")

    with opened(tmp_path) as folder:
        latest = list(folder.coordinator_log.load())
        folder.coordinator_log.append([(b"next", b"n")])

    assert latest == [(b"early", b"e"), (b"offset", b"99"), (b"late", b"l")]
    assert (tmp_path / "coordinator.log").stat().st_size < before / 10
    assert not (tmp_path / "coordinator.log.new").exists()
    with opened(tmp_path) as folder:
        assert list(folder.coordinator_log.load()) == [*latest, (b"next", b"n")]


def test_the_cluster_id_stays_although_cluster_log_is_lost(tmp_path: Path) -> None:
    """Broken: clients see another cluster id after a restart, and refuse to talk to it."""
    with opened(tmp_path) as folder:
        TopicRegistry(folder).create("orders", 1)
    (tmp_path / "cluster.log").unlink()

    with opened(tmp_path) as again:
        assert again.cluster_id == folder.cluster_id


# --- a killed process, and speed


def test_a_record_costs_few_steps_to_load_however_many_there_are(tmp_path: Path) -> None:
    """Broken: a broker with some history takes so long to start that its clients give up."""
    with a_registry(tmp_path) as registry:
        batch = a_batch(b"x" * 100)
        topics = {size: registry.create(f"of-{size}", 1) for size in (1_000, 3_000)}
        for size, topic in topics.items():
            for _ in range(size):
                registry.append(topic, 0, batch)

    with opened(tmp_path) as folder:
        steps = {size: lines_run(lambda: folder.load_partition(topic.topic_id, 0)) for size, topic in topics.items()}  # noqa: B023

    assert steps[3_000] - steps[1_000] <= 2_000 * 60
