"""A query of Spark's own source goes on here, where its checkpoint says that it has come to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from kip848_client import EmbeddedBroker
from kip848_client.errors import ConfigError
from tests.spark.arrange import committed, consumer, driving
from tests.support.waiting import wait_until


def write(folder: Path, *offsets: str, complete: int, version: str = "v1") -> Path:
    """A checkpoint as Spark writes it, with a batch for each of *offsets*."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1_772_323_200_000, "conf": {}})
    for number, offset in enumerate(offsets):
        (folder / "offsets" / str(number)).write_text(f"{version}\n{metadata}\n{offset}\n-")
        (folder / "offsets" / f".{number}.crc").touch()
        if number < complete:
            (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


BATCHES = ('{"orders":{"0":3,"1":4}}', '{"orders":{"0":90,"1":95}}', '{"orders":{"0":99,"1":99}}')


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_query_goes_on_after_the_last_complete_batch_of_a_checkpoint_of_sparks_source(
    broker: EmbeddedBroker, address: str, tmp_path: Path, scheme: str
) -> None:
    """Partitions that the old query did not have yet begin at their beginning, as they would have there."""
    checkpoint = write(tmp_path, *BATCHES, complete=2)
    with driving(address, startingCheckpoint=f"{scheme}{checkpoint}") as driver:
        driver.run(215)
        wait_until(lambda: committed(broker) == dict.fromkeys(range(4), 100))
    begins = {number: min(at for _, each, at in driver.rows if each == number) for number in range(4)}
    assert begins == {0: 90, 1: 95, 2: 0, 3: 0}


def test_what_the_group_has_committed_wins_over_a_checkpoint(address: str, tmp_path: Path) -> None:
    """A second query with the same options takes over what the first one has read, and does not start over."""
    with consumer(address) as other:
        other.commit(offsets=[TopicPartition("orders", number, 98) for number in range(4)], asynchronous=False)
    with driving(address, startingCheckpoint=write(tmp_path, *BATCHES, complete=2)) as driver:
        driver.run(8)


@pytest.mark.parametrize(
    ("offsets", "complete", "told"),
    [
        (BATCHES, 0, "no complete batch"),
        (('{"logOffset":3}',), 1, "no offsets of Spark's kafka source"),
        ((), 0, "no complete batch"),
    ],
)
def test_what_is_no_such_checkpoint_is_refused(
    address: str, tmp_path: Path, offsets: tuple[str, ...], complete: int, told: str
) -> None:
    """Reading everything again, or nothing, is what a mistyped folder must not do."""
    with driving(address, startingCheckpoint=write(tmp_path, *offsets, complete=complete)) as driver:
        with pytest.raises(ConfigError, match=told):
            driver.plan()
    with driving(address, startingCheckpoint=tmp_path / "nowhere") as driver:
        with pytest.raises(ConfigError, match="cannot be read"):
            driver.plan()
