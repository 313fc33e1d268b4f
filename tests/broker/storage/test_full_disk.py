"""A data folder that cannot be written: what the broker says, what its clients are told, and that it goes on later."""

from __future__ import annotations

import errno
import logging
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import DataDirError, ErrorCode
from kip848_client.journal import MemoryJournal
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.produce import (
    PartitionProduceResponse,
)
from tests.broker.storage.harness import a_batch, a_registry, opened
from tests.broker.test_command import wait_for_ready
from tests.support.waiting import TIMEOUT_S


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """While it is set, the operating system takes no byte of any data folder."""
    full, writev = threading.Event(), os.writev

    def refuse(fd: int, parts: Sequence[bytes]) -> int:
        if full.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return writev(fd, parts)

    monkeypatch.setattr(os, "writev", refuse)
    return full


def produce(connection: RawConnection, *values: bytes) -> PartitionProduceResponse:
    topics = [{"name": "orders", "partition_data": [{"index": 0, "records": a_batch(*values)}]}]
    answer = connection.call(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=1000, topic_data=topics)
    response: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return response


def test_path_and_cause_are_told_once_to_the_log_the_journal_and_every_client(
    tmp_path: Path, full_disk: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: thousands of produces time out, and nothing says that the disk is full."""
    journal = MemoryJournal()
    with (
        caplog.at_level(logging.WARNING, logger="kip848_client.broker"),
        EmbeddedBroker({"orders": 1}, data_dir=tmp_path, journal=journal) as broker,
        RawConnection(broker.bootstrap_servers) as connection,
    ):
        assert produce(connection, b"a").error_code == 0
        full_disk.set()
        refused = [produce(connection, b"b") for _ in range(3)]
        more = {"name": "more", "num_partitions": 1, "replication_factor": 1}
        created = connection.call(ApiKey.CREATE_TOPICS, 5, topics=[more], timeout_ms=1000).topics[0]
        full_disk.clear()
        assert produce(connection, b"c" * 200).base_offset == 1

    [file] = (tmp_path / "topics").glob("*/0.log")
    assert {answer.error_code for answer in refused} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert created.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    texts = [*(answer.error_message or "" for answer in refused), *(record.getMessage() for record in caplog.records)]
    assert [str(file) in text and "No space left on device" in text for text in texts] == [True] * 4 + [False]
    assert [record.getMessage().split()[0] for record in caplog.records] == [
        "broker.storage_failed",
        "broker.storage_recovered",
    ]
    assert [event.event for event in journal.named("storage_failed", "storage_recovered")] == [
        "storage_failed",
        "storage_recovered",
    ]
    assert "No space left on device" in str(journal.named("storage_failed")[0].fields["error"])


def test_records_that_were_to_be_deleted_stay_if_that_cannot_be_written(
    tmp_path: Path, full_disk: threading.Event
) -> None:
    """Broken: records are gone now and there again after a restart."""
    with a_registry(tmp_path) as registry:
        topic = registry.create("orders", 1)
        registry.append(topic, 0, a_batch(b"a", b"b"))
        full_disk.set()

        with pytest.raises(DataDirError, match="No space left on device"):
            registry.delete_records(topic, 0, 1)

        assert topic.partitions[0].log_start_offset == 0


def test_a_torn_tail_that_cannot_be_kept_is_not_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a start on a full disk throws bytes away."""
    with opened(tmp_path) as folder:
        folder.coordinator_log.append([(b"key", b"value")])
    path = tmp_path / "coordinator.log"
    torn = path.read_bytes()[:-1]
    path.write_bytes(torn)
    with opened(tmp_path) as folder:

        def full(*_: Any, **__: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", full)
            with pytest.raises(DataDirError, match=r"No space left on device\. Nothing was changed"):
                list(folder.coordinator_log.load())
        assert path.read_bytes() == torn

        assert list(folder.coordinator_log.load()) == []


def test_the_command_says_in_one_line_what_it_cannot_write(tmp_path: Path) -> None:
    """Broken: the terminal of ``kip848 broker`` stays empty while everything that clients send is lost."""
    ready = tmp_path / "ready.json"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "kip848_client", "broker", "--topic", "orders:1", "--json"),
            *("--data-dir", str(tmp_path / "data"), "--ready-file", str(ready)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with RawConnection(wait_for_ready(ready, process)) as connection:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
            answers = [produce(connection, b"x" * 1000) for _ in range(30)]
        process.terminate()
        _, said = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
        process.communicate()

    [file] = (tmp_path / "data" / "topics").glob("*/0.log")
    assert {answer.error_code for answer in answers} == {0, ErrorCode.UNKNOWN_SERVER_ERROR}
    assert said.count("\n") == 1
    assert f"broker.storage_failed error={file}: 1" in said
    assert "File too large" in said
