"""Settings that single groups override, kept like topics: in the folder, or as long as the broker object lives.

The coordinator decides what they mean and which are allowed (`coordinator.core.group_overrides`). They outlive their
group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kip848_client.broker.storage.data_dir import DataDir

__all__ = ["GroupConfigStore"]


class GroupConfigStore:
    """Overrides by group id.

    Args:
        data_dir: where they are kept; its content is loaded.
    """

    def __init__(self, data_dir: DataDir | None = None) -> None:
        self._data_dir: Final = data_dir
        self._overrides: Final[dict[str, dict[str, str]]] = {}
        if data_dir is not None:
            self._overrides.update({group_id: dict(found) for group_id, found in data_dir.group_configs().items()})

    def get(self, group_id: str) -> Mapping[str, str]:
        """The overrides of a group; empty if there are none."""
        return self._overrides.get(group_id, {})

    def replace(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Override these, and nothing else, for a group.

        Raises:
            DataDirError: it could not be written; the overrides are as before.
        """
        if self._data_dir is not None:
            self._data_dir.set_group_configs(group_id, overrides)
        if overrides:
            self._overrides[group_id] = dict(overrides)
        else:
            self._overrides.pop(group_id, None)

    def group_ids(self) -> list[str]:
        """Groups with overrides, sorted."""
        return sorted(self._overrides)
