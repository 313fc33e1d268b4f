"""Whose a data folder is, and what is never lost in it: foreign files, records without an entry, cluster.log."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import BrokerError, DataDirError, DataDirForeignError
from kip848_client.journal import MemoryJournal
from kip848_client.testing.broker.storage.data_dir import DataDir, Repair
from kip848_client.testing.broker.topics.registry import TopicRegistry
from tests.broker.storage.harness import a_batch, a_registry, opened
from tests.broker.storage.test_data_dir import values_in

MARKER = "kip848-data-folder.json"


def content_of(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder, with what is in the files; links are not followed."""
    found: dict[str, bytes | None] = {}
    for parent, folders, files in os.walk(folder):
        for name in folders:
            found[str((Path(parent) / name).relative_to(folder))] = None
        for name in files:
            found[str((Path(parent) / name).relative_to(folder))] = (Path(parent) / name).read_bytes()
    return found


def a_folder(path: Path) -> TopicRegistry:
    """A data folder, closed again, with two topics and records in each partition of them."""
    with opened(path) as folder:
        registry = TopicRegistry(folder)
        for name, partitions in (("orders", 3), ("users", 1)):
            topic = registry.create(name, partitions, configs={"retention.ms": "5"})
            for partition in range(partitions):
                registry.append(topic, partition, a_batch(b"%s-%d" % (name.encode(), partition)))
        folder.set_configs("group", "group", {"consumer.session.timeout.ms": "9000"})
        registry.new_producer_id()
    return registry


def topic_folder(path: Path, registry: TopicRegistry, name: str) -> Path:
    topic = registry.get(name)
    assert topic is not None
    return path / "topics" / str(topic.topic_id)


def served(path: Path) -> tuple[dict[str, tuple[uuid.UUID, dict[str, str], list[list[bytes | None]]]], list[Repair]]:
    """What a broker on the folder serves, and what it repaired."""
    with opened(path) as folder:
        registry = TopicRegistry(folder)
        topics = {
            topic.name: (
                topic.topic_id,
                topic.configs,
                [values_in(registry, topic.name, partition) for partition in range(topic.partition_count)],
            )
            for topic in registry
        }
    return topics, list(folder.repairs)


# --- whose folder it is


def test_a_new_folder_says_what_it_is(tmp_path: Path) -> None:
    """Broken: a person who finds the folder cannot tell what it is, and a broker cannot tell that it is its own."""
    DataDir.open(tmp_path / "data").close()

    marker = json.loads((tmp_path / "data" / MARKER).read_text())

    assert marker["format"] == 1
    assert "records and consumer groups" in marker["about"]


@pytest.mark.parametrize("through", ["the folder", "a symbolic link"])
def test_a_folder_that_is_not_a_brokers_is_refused_and_untouched(tmp_path: Path, through: str) -> None:
    """Broken: --data-dir with a wrong path deletes a user's own files."""
    folder = tmp_path / "project"
    (folder / "topics" / "talks").mkdir(parents=True)
    (folder / "topics" / "talks" / "slides.md").write_text("mine")
    (folder / "lock").write_text("also mine")
    before = content_of(folder)
    named = folder
    if through == "a symbolic link":
        named = tmp_path / "link"
        named.symlink_to(folder)

    with pytest.raises(DataDirForeignError, match=rf"holds lock, topics and no {MARKER}.*Nothing in it was touched"):
        DataDir.open(named)

    assert content_of(folder) == before


def test_a_start_that_was_interrupted_does_not_spoil_an_empty_folder(tmp_path: Path) -> None:
    """Broken: a broker killed in its first millisecond can never be started on that folder."""
    (tmp_path / "lock").write_text("123\n")
    (tmp_path / f"{MARKER}.new").write_text('{"for')

    DataDir.open(tmp_path).close()

    assert sorted(content_of(tmp_path)) == [MARKER, "lock"]


def test_a_folder_that_lost_its_marker_is_used_again_as_the_refusal_says(tmp_path: Path) -> None:
    """Broken: the way out that the refusal names does not work, or costs records."""
    a_folder(tmp_path)
    whole, _ = served(tmp_path)
    (tmp_path / MARKER).unlink()
    with pytest.raises(DataDirForeignError) as refused:
        DataDir.open(tmp_path)
    assert f'write {{"format": 1}} into {tmp_path / MARKER}' in str(refused.value)

    (tmp_path / MARKER).write_text('{"format": 1}')

    assert served(tmp_path) == (whole, [])
    assert len(json.loads((tmp_path / MARKER).read_text())["cluster_id"]) == 22


@pytest.mark.parametrize(
    ("marker", "says"),
    [("", "cannot be understood"), ("[]", "cannot be understood"), ('{"format": 2}', "has format 2, this version")],
)
def test_a_marker_that_is_not_understood_refuses_the_folder(tmp_path: Path, marker: str, says: str) -> None:
    """Broken: a folder of a newer version is half understood, and then written to."""
    a_folder(tmp_path)
    (tmp_path / MARKER).write_text(marker)
    before = content_of(tmp_path)

    with pytest.raises(DataDirError, match=says):
        DataDir.open(tmp_path)

    assert content_of(tmp_path) == before


def test_a_link_in_place_of_the_topics_is_refused(tmp_path: Path) -> None:
    """Broken: folders behind a link, which may be anybody's, are moved or removed."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "photos").mkdir(parents=True)
    DataDir.open(tmp_path / "data").close()
    (tmp_path / "data" / "topics").symlink_to(elsewhere)

    with pytest.raises(DataDirError, match="is a symbolic link"):
        DataDir.open(tmp_path / "data")

    assert (elsewhere / "photos").is_dir()


# --- what is in topics/ and not in cluster.log


def test_what_no_entry_names_is_set_aside_and_reported(tmp_path: Path) -> None:
    """Broken: whatever else lies in topics/ is deleted by the next start."""
    registry = a_folder(tmp_path)
    whole, _ = served(tmp_path)
    topics = tmp_path / "topics"
    stranger = str(uuid.UUID(int=5))
    copy = str(uuid.UUID(int=6))
    (topics / stranger).mkdir()
    (topics / stranger / "0.log").write_bytes(b"whatever")
    (topics / "notes").mkdir()
    (topics / "notes" / "mine.txt").write_text("mine")
    shutil.copytree(topic_folder(tmp_path, registry, "orders"), topics / copy)
    (topics / "a-file").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (topics / "link").symlink_to(tmp_path / "elsewhere")

    again, repairs = served(tmp_path)

    assert again == whole
    assert {Path(repair.path).name for repair in repairs} == {stranger, copy, "notes", "a-file", "link"}
    aside = tmp_path / "set-aside" / "topics"
    assert (aside / stranger / "0.log").read_bytes() == b"whatever"
    assert (aside / "notes" / "mine.txt").read_text() == "mine"
    assert (aside / "a-file").read_text() == "mine"
    assert sorted(child.name for child in (aside / copy).iterdir()) == ["0.log", "1.log", "2.log", "topic.json"]
    assert (topics / "link").is_symlink()
    assert (tmp_path / "elsewhere").is_dir()


def test_a_second_thing_of_one_name_is_set_aside_beside_the_first(tmp_path: Path) -> None:
    """Broken: what was set aside last week is overwritten."""
    DataDir.open(tmp_path).close()
    for text in ("first", "second"):
        (tmp_path / "topics" / "notes").mkdir(parents=True)
        (tmp_path / "topics" / "notes" / "mine.txt").write_text(text)
        DataDir.open(tmp_path).close()

    aside = tmp_path / "set-aside" / "topics"
    assert (aside / "notes" / "mine.txt").read_text() == "first"
    assert (aside / "notes.2" / "mine.txt").read_text() == "second"


def test_an_interrupted_deletion_is_finished_by_the_next_start(tmp_path: Path) -> None:
    """Broken: files of deleted topics stay for ever."""
    registry = a_folder(tmp_path)
    orders = topic_folder(tmp_path, registry, "orders")
    kept = content_of(orders)
    with opened(tmp_path) as folder:
        TopicRegistry(folder).delete("orders")
    orders.mkdir()
    for name, content in kept.items():
        assert content is not None
        (orders / name).write_bytes(content)

    again, repairs = served(tmp_path)

    assert (list(again), repairs) == (["users"], [])
    assert not orders.exists()
    assert not (tmp_path / "set-aside").exists()


def test_deleting_a_topic_leaves_files_that_no_broker_wrote(tmp_path: Path) -> None:
    """Broken: a user's notes beside the records go with the topic; those behind a link, too."""
    registry = a_folder(tmp_path)
    orders = topic_folder(tmp_path, registry, "orders")
    (orders / "notes.txt").write_text("mine")
    (tmp_path / "elsewhere.log").write_text("mine")
    (orders / "9.log").symlink_to(tmp_path / "elsewhere.log")
    (orders / "10.log").write_text("mine")
    with opened(tmp_path) as folder:
        TopicRegistry(folder).delete("orders")

    again, repairs = served(tmp_path)

    assert list(again) == ["users"]
    assert [(repair.path, repair.kept_in) for repair in repairs] == [
        (str(orders), str(tmp_path / "set-aside" / "topics" / orders.name))
    ]
    aside = tmp_path / "set-aside" / "topics" / orders.name
    assert sorted(child.name for child in aside.iterdir()) == ["10.log", "9.log", "notes.txt"]
    assert (tmp_path / "elsewhere.log").read_text() == "mine"


def test_a_topic_created_under_the_id_of_a_deleted_one_starts_empty(tmp_path: Path) -> None:
    """Broken: files that a deletion had to leave become records of another topic."""
    with a_registry(tmp_path) as registry:
        registry.create("orders", 1, topic_id=uuid.UUID(int=7))
        (tmp_path / "topics" / str(uuid.UUID(int=7)) / "notes.txt").write_text("mine")
        registry.delete("orders")

        topic = registry.create("orders", 1, topic_id=uuid.UUID(int=7))
        registry.append(topic, 0, a_batch(b"new"))

    again, _ = served(tmp_path)
    assert again["orders"][2] == [[b"new"]]
    assert (tmp_path / "set-aside" / "topics" / str(uuid.UUID(int=7)) / "notes.txt").read_text() == "mine"


# --- repair of cluster.log


def remove(path: Path) -> None:
    path.unlink()


def change_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8 + 12 + 2] ^= 1
    path.write_bytes(content)


def replace_by_another_file(path: Path) -> None:
    path.write_bytes(b"these are not the entries that you are looking for")


def lose_the_last_entries(path: Path) -> None:
    """What a power failure may do: the file is shorter, and whole."""
    path.write_bytes(path.read_bytes()[:8])


@pytest.mark.parametrize("damage", [remove, change_a_byte, replace_by_another_file, lose_the_last_entries])
def test_a_lost_cluster_log_is_written_again_from_the_folders_of_the_topics(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """Broken: all records are deleted, or cannot be reached, because a small file beside them is damaged."""
    a_folder(tmp_path)
    whole, _ = served(tmp_path)
    damage(tmp_path / "cluster.log")
    damaged = (tmp_path / "cluster.log").read_bytes() if (tmp_path / "cluster.log").exists() else b""

    repaired, repairs = served(tmp_path)

    assert repaired == whole
    assert len({topic_id for topic_id, _, _ in repaired.values()}) == 2
    assert repairs
    kept = b"".join(Path(repair.kept_in).read_bytes() for repair in repairs if repair.kept_in)
    assert (damaged in kept) or kept in (b"", damaged[len(damaged) - len(kept) :])
    assert served(tmp_path) == (whole, []), "the repair is done once"


def test_no_damage_to_cluster_log_costs_a_record(tmp_path: Path) -> None:
    """Broken: there is a byte whose loss loses a topic, or keeps the broker from starting."""
    with a_registry(tmp_path) as registry:
        registry.append(registry.create("orders", 1), 0, a_batch(b"v"))
        registry.create("gone", 1)
        registry.delete("gone")
    path = tmp_path / "cluster.log"
    content = path.read_bytes()
    whole, _ = served(tmp_path)
    damaged = [content[:length] for length in range(len(content))]
    damaged += [content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :] for at in range(len(content))]

    for each in damaged:
        path.write_bytes(each)
        assert served(tmp_path)[0] == whole
        assert served(tmp_path) == (whole, []), "the repair is done once"


@pytest.mark.parametrize("damage", [remove, change_a_byte, lose_the_last_entries])
def test_leader_epochs_do_not_fall_with_a_repair(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """Broken: consumers that know a greater leader epoch refuse the partition and read nothing, for ever."""
    a_folder(tmp_path)
    for _ in range(3):
        with opened(tmp_path) as folder:
            folder.elect_leaders()
    before = {topic.name: topic.leader_epoch for topic in folder.topics()}
    damage(tmp_path / "cluster.log")

    DataDir.open(tmp_path).close()

    assert before == {"orders": 3, "users": 3}
    assert all(topic.leader_epoch >= before[topic.name] for topic in folder.topics())


@pytest.mark.parametrize("repaired", [False, True], ids=["restart", "repair"])
def test_producer_ids_are_not_handed_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repaired: bool) -> None:
    """Broken: two producers share an id, and the second one's records are dropped as duplicates."""
    starts_ns = itertools.count(10**18, 10**9)  # a second from one start to the next
    monkeypatch.setattr(time, "time_ns", lambda: next(starts_ns))
    seen: set[int] = set()
    for _ in range(3):
        with a_registry(tmp_path) as registry:
            if not len(registry):
                registry.create("orders", 1)
            handed_out = [registry.new_producer_id() for _ in range(1500)]
            assert not seen & set(handed_out)
            seen.update(handed_out)
        if repaired:
            (tmp_path / "cluster.log").unlink()
    assert len(seen) == 4500


def test_what_undamaged_entries_say_survives_the_damage_of_others(tmp_path: Path) -> None:
    """Broken: settings of groups and deletions are forgotten although their entries can be read."""
    registry = a_folder(tmp_path)
    with opened(tmp_path) as folder:
        TopicRegistry(folder).delete("users")
    change_a_byte(tmp_path / "cluster.log")
    shutil.copytree(topic_folder(tmp_path, registry, "orders"), topic_folder(tmp_path, registry, "users"))

    for _ in range(2):
        with opened(tmp_path) as folder:
            assert [topic.name for topic in folder.topics()] == ["orders"]
            assert folder.configs("group") == {"group": {"consumer.session.timeout.ms": "9000"}}
    assert not topic_folder(tmp_path, registry, "users").exists()


def test_of_two_folders_of_one_name_the_newer_is_served_and_the_other_set_aside(tmp_path: Path) -> None:
    """Broken: after a repair two topics have one name, or the wrong one is lost."""
    a_folder(tmp_path)
    other = a_folder(tmp_path / "other")
    theirs = topic_folder(tmp_path / "other", other, "orders")
    shutil.copytree(theirs, tmp_path / "topics" / theirs.name)
    os.utime(tmp_path / "topics" / theirs.name / "topic.json", ns=(1, 1))
    (tmp_path / "cluster.log").unlink()

    repaired, repairs = served(tmp_path)

    assert sorted(repaired) == ["orders", "users"]
    assert str(repaired["orders"][0]) != theirs.name
    assert any("is there under another id" in repair.what for repair in repairs)
    assert (tmp_path / "set-aside" / "topics" / theirs.name / "2.log").exists()


def test_partitions_with_records_are_served_although_the_entry_that_added_them_is_lost(tmp_path: Path) -> None:
    """Broken: records of added partitions vanish, and the next ones written there make the folder unreadable."""
    with a_registry(tmp_path) as registry:
        topic = registry.create("orders", 1)
        length = (tmp_path / "cluster.log").stat().st_size
        registry.add_partitions("orders", 3)
        registry.append(topic, 2, a_batch(b"v"))
    os.truncate(tmp_path / "cluster.log", length)

    repaired, repairs = served(tmp_path)

    assert repaired["orders"][2] == [[], [], [b"v"]]
    assert ["has 3 partitions; cluster.log knew of 1" in repair.what for repair in repairs] == [True]
    assert served(tmp_path) == (repaired, [])


def test_a_topic_whose_folder_is_gone_is_not_there_until_the_folder_is_back(tmp_path: Path) -> None:
    """Broken: a topic is empty without a message, and its records are removed when they are put back."""
    registry = a_folder(tmp_path)
    whole, _ = served(tmp_path)
    gone = topic_folder(tmp_path, registry, "orders")
    gone.rename(tmp_path / "elsewhere")

    again, repairs = served(tmp_path)

    assert list(again) == ["users"]
    assert [(repair.path, repair.what) for repair in repairs] == [
        (str(gone), "is missing, so topic 'orders' is not there; put it back to restore it")
    ]
    assert served(tmp_path) == (again, [])
    (tmp_path / "elsewhere").rename(gone)
    assert served(tmp_path)[0] == whole


def test_a_link_to_a_topics_folder_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    """Broken: a disk that is not mounted empties a topic."""
    registry = a_folder(tmp_path)
    moved = topic_folder(tmp_path, registry, "orders")
    moved.rename(tmp_path / "elsewhere")
    moved.symlink_to(tmp_path / "nowhere")

    with pytest.raises(DataDirError, match="topic 'orders' should be in it"):
        served(tmp_path)


def test_a_topics_folder_says_what_the_topic_is(tmp_path: Path) -> None:
    """Broken: cluster.log is the only place that knows which records belong to which topic."""
    with a_registry(tmp_path) as registry:
        topic = registry.create("orders", 1)
        registry.add_partitions("orders", 4)
        registry.set_configs("orders", {"cleanup.policy": "compact"})

    assert json.loads((tmp_path / "topics" / str(topic.topic_id) / "topic.json").read_text()) == {
        "topic": "orders",
        "topic_id": str(topic.topic_id),
        "partitions": 4,
        "configs": {"cleanup.policy": "compact"},
    }


def test_the_broker_tells_what_it_repaired(tmp_path: Path) -> None:
    """Broken: a folder is repaired without a message, and the user never looks at what was set aside."""
    a_folder(tmp_path)
    (tmp_path / "cluster.log").unlink()
    journal = MemoryJournal()

    with EmbeddedBroker(data_dir=tmp_path, journal=journal) as broker:
        said = [str(repair) for repair in broker.repairs]

    assert len(said) == 3
    assert said[-1].startswith(f"{tmp_path / 'cluster.log'}: was missing; it was written again, with 2 topics")
    events = journal.named("data_folder_repaired")
    assert [event.fields["path"] for event in events] == [text.partition(": ")[0] for text in said]


# --- how much a power failure may cost


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files and folders that were flushed to the disk, in order."""
    names: list[str] = []

    def note(fd: int) -> None:
        names.append(Path(f"/dev/fd/{fd}").readlink().name)

    monkeypatch.setattr(os, "fsync", note)
    return names


def test_every_how_many_records_a_file_is_flushed_is_the_topics_or_the_brokers_setting(
    tmp_path: Path, flushed: list[str]
) -> None:
    """Broken: flush.messages is accepted and changes nothing; a power failure costs records that it should not."""
    with opened(tmp_path, flush_messages=4) as folder:
        registry = TopicRegistry(folder)
        every_four = registry.create("every-four", 1)
        each = registry.create("each", 1, configs={"flush.messages": "1"})
        flushed.clear()

        registry.append(every_four, 0, a_batch(b"1", b"2"))
        registry.append(every_four, 0, a_batch(b"3"))
        assert flushed == []
        registry.append(every_four, 0, a_batch(b"4", b"5"))
        assert flushed == ["topic.json.new", str(every_four.topic_id), "topics", tmp_path.name, "0.log"]
        flushed.clear()
        registry.append(every_four, 0, a_batch(b"6"))
        for value in (b"1", b"2"):
            registry.append(each, 0, a_batch(value))
        assert flushed == ["topic.json.new", str(each.topic_id), "topics", tmp_path.name, "0.log", "0.log"]
        for number in range(4):
            folder.coordinator_log.append([(b"%d" % number, b"v")])
        assert flushed[-2:] == ["0.log", "coordinator.log"]


def test_nothing_is_flushed_unless_a_setting_says_so(tmp_path: Path, flushed: list[str]) -> None:
    """Broken: tests on a data folder take milliseconds for each record."""
    with opened(tmp_path) as folder:
        flushed.clear()
        registry = TopicRegistry(folder)
        topic = registry.create("orders", 1)
        registry.append(topic, 0, a_batch(b"v"))
        folder.coordinator_log.append([(b"k", b"v")])

    assert flushed == []


def test_a_batch_that_cannot_be_flushed_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: what was refused is in the file, and what follows it makes the file unreadable."""
    with a_registry(tmp_path) as registry:
        topic = registry.create("orders", 1, configs={"flush.messages": "1"})
        registry.append(topic, 0, a_batch(b"kept"))

        def fails(fd: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fails)
            with pytest.raises(BrokerError, match="Input/output error"):
                registry.append(topic, 0, a_batch(b"refused"))
        registry.append(topic, 0, a_batch(b"next"))

    assert served(tmp_path)[0]["orders"][2] == [[b"kept", b"next"]]
