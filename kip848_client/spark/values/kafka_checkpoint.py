"""Offsets in a checkpoint of Spark's own ``kafka`` source, so that a query can move here and miss and repeat nothing.

Source: Spark's OffsetSeqLog: a file for each batch, named by its number, with a version, a line of metadata, and a line
for each source; a file of the same name in ``commits`` when the batch is complete.
"""

from __future__ import annotations

from typing import Final

from kip848_client.common.model import NamedPartition
from kip848_client.errors import ConfigError
from kip848_client.spark.values.starting import parse_partition_numbers

_OPTION: Final = "startingCheckpoint"


def checkpoint_offsets(location: str) -> dict[NamedPartition, int]:
    """Up to where the last complete batch of a query has read, in all of its ``kafka`` sources.

    Args:
        location: the query's checkpointLocation: a folder of this machine, or what pyarrow can read: ``s3://`` and
            ``s3a://``, ``gs://``, ``abfss://``, ``hdfs://``.

    Raises:
        ConfigError: it cannot be read, no batch is complete, or there is no source of Kafka in it.
    """
    from pyarrow import ArrowException, fs  # pyarrow takes long to import

    uri = "s3://" + location.removeprefix("s3a://") if location.startswith("s3a://") else location
    try:
        system, path = fs.FileSystem.from_uri(uri) if ":/" in uri else (fs.LocalFileSystem(), uri)
        commits = system.get_file_info(fs.FileSelector(f"{path}/commits"))
        numbers = [int(info.base_name) for info in commits if info.base_name.isdecimal()]
        if not numbers:
            raise ConfigError(f"{_OPTION}: {location} holds no complete batch; is it a checkpointLocation?")
        with system.open_input_stream(f"{path}/offsets/{max(numbers)}") as file:
            lines = file.read().decode().splitlines()
    except (OSError, ArrowException) as error:
        raise ConfigError(f"{_OPTION}: {location} cannot be read: {error}") from error
    offsets: dict[NamedPartition, int] = {}
    for line in lines[2:]:  # the version and the metadata come first
        try:
            offsets |= parse_partition_numbers(_OPTION, line)
        except ConfigError:
            continue  # a source of another kind, or one without data
    if not lines or lines[0] != "v1" or not offsets:
        raise ConfigError(f"{_OPTION}: {location} holds no offsets of Spark's kafka source")
    return offsets
