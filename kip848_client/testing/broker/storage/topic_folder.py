"""The folder of one topic: the description in it, the files that are ours, and their removal.

``topic.json`` repeats what ``cluster.log`` says about the topic, so that the topic can be found again if that file is
lost. It is written after every change and never read while the other says otherwise.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from kip848_client.errors import BrokerError
from kip848_client.testing.broker.metadata.topic_configs import check_topic_configs
from kip848_client.testing.broker.metadata.topic_name_rules import check_topic_name
from kip848_client.testing.broker.storage.data_folder import write_whole_file
from kip848_client.testing.broker.storage.entry_file import EntryFile

_TOPIC_FILE: Final = "topic.json"
_RECORDS_FILE: Final = re.compile(r"(0|[1-9][0-9]{0,6})\.log")
KIND_RECORDS: Final = b"r"
"""Kind of the files that hold records."""


class TopicFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``topic.json``.

    Attributes:
        partitions: how many the topic has.
        configs: settings of the topic itself.
    """

    topic: str
    topic_id: UUID
    partitions: int
    configs: Mapping[str, str] = {}


class TopicFolder:
    """``topics/<topic id>`` of a data folder. It need not be there."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    @property
    def topic_id(self) -> UUID | None:
        """The id that the folder's name is; None if it is not the name of a topic's folder."""
        with contextlib.suppress(ValueError):
            topic_id = UUID(self.path.name)
            if str(topic_id) == self.path.name:
                return topic_id
        return None

    @property
    def is_real(self) -> bool:
        """Whether it is there, as a folder and not as a link to one."""
        return self.path.is_dir() and not self.path.is_symlink()

    def records_file(self, partition: int) -> Path:
        """Where the records of a partition are."""
        return self.path / f"{partition}.log"

    def partitions(self) -> list[int]:
        """The partitions whose records are there, ascending; empty without the folder."""
        names = [name for name in self._names() if self._is_records_file(name) and (self.path / name).stat().st_size]
        return sorted(int(name.removesuffix(".log")) for name in names)

    def modified_ns(self) -> int:
        """When ``topic.json`` was written; 0 if it is not there."""
        with contextlib.suppress(OSError):
            return (self.path / _TOPIC_FILE).stat().st_mtime_ns
        return 0

    def read(self) -> TopicFile | None:
        """The content of ``topic.json``; None if it is missing or damaged."""
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.json.decode((self.path / _TOPIC_FILE).read_bytes(), type=TopicFile)
        return None

    def read_to_restore(self) -> TopicFile:
        """The content of ``topic.json``, if a topic can be made of it.

        Raises:
            ValueError: why not.
        """
        if not self.is_real:
            raise ValueError("it is not a folder of this broker")
        found = self.read()
        if found is None:
            raise ValueError(f"no topic of that id is known, and it holds no {_TOPIC_FILE} that can be read")
        if found.topic_id != self.topic_id:
            raise ValueError(f"its {_TOPIC_FILE} is about another topic id, {found.topic_id}")
        try:
            check_topic_name(found.topic)
            check_topic_configs(found.configs)
        except BrokerError as error:
            raise ValueError(f"its {_TOPIC_FILE} cannot be used: {error}") from error
        if found.partitions < 1:
            raise ValueError(f"its {_TOPIC_FILE} says {found.partitions} partitions")
        return found

    def write(self, content: TopicFile, *, to_disk: bool = False) -> None:
        """Write ``topic.json``; the folder is made if it is not there.

        Raises:
            OSError: it could not be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
        write_whole_file(self.path / _TOPIC_FILE, text, to_disk=to_disk)

    def remove(self) -> bool:
        """Remove the files that the broker wrote, and then the folder. Follows no link.

        Returns:
            Whether nothing is left of it. Files that the broker did not write are left, and so is their folder.
        """
        if not os.path.lexists(self.path):
            return True
        if not self.is_real:
            return False
        with contextlib.suppress(OSError):
            for name in self._names():
                file = self.path / name
                if name in (_TOPIC_FILE, f"{_TOPIC_FILE}.new") or self._is_records_file(name):
                    file.unlink()
            self.path.rmdir()
        return not os.path.lexists(self.path)

    def _is_records_file(self, name: str) -> bool:
        return _RECORDS_FILE.fullmatch(name) is not None and EntryFile(self.path / name, kind=KIND_RECORDS).is_ours()

    def _names(self) -> list[str]:
        with contextlib.suppress(OSError):
            return os.listdir(self.path)  # noqa: PTH208  names are all that is needed
        return []


def topic_folders(folder: Path) -> Iterator[TopicFolder]:
    """Everything in ``topics/``, by name: folders of topics, and what else may be there."""
    with contextlib.suppress(FileNotFoundError):
        yield from (TopicFolder(folder / name) for name in sorted(os.listdir(folder)))  # noqa: PTH208
