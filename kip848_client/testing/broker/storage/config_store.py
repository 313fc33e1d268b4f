"""Settings of one kind of resource that were changed while a broker ran: kept in the folder, or with the broker.

The caller decides what they mean and which are allowed. They outlive what they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kip848_client.testing.broker.storage.cluster_log import ConfigKind

if TYPE_CHECKING:
    from kip848_client.testing.broker.storage.data_dir import DataDir


class ConfigStore:
    """Settings by the name of their resource.

    Args:
        data_dir: where they are kept; its content is loaded.
    """

    def __init__(self, kind: ConfigKind, data_dir: DataDir | None = None) -> None:
        self._kind: Final[ConfigKind] = kind
        self._data_dir: Final = data_dir
        self._settings: Final[dict[str, dict[str, str]]] = {}
        if data_dir is not None:
            self._settings.update({name: dict(found) for name, found in data_dir.configs(kind).items()})

    def get(self, name: str) -> Mapping[str, str]:
        """The settings of a resource; empty if there are none."""
        return self._settings.get(name, {})

    def replace(self, name: str, settings: Mapping[str, str]) -> None:
        """Set these, and nothing else, for a resource.

        Raises:
            DataDirError: it could not be written; the settings are as before.
        """
        if self._data_dir is not None:
            self._data_dir.set_configs(self._kind, name, settings)
        if settings:
            self._settings[name] = dict(settings)
        else:
            self._settings.pop(name, None)

    def names(self) -> list[str]:
        """Resources with settings, sorted."""
        return sorted(self._settings)
