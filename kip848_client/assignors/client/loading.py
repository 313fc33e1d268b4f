"""From what ``group.local.assignors`` may hold to assignor objects: instances, classes, and import paths.

Does not own: the configuration around it (`kip848_client.config.assignors`).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from kip848_client.assignors.client.interface import PartitionAssignor
from kip848_client.common.callables import check_not_async, check_takes
from kip848_client.errors import ConfigError

KEY = "group.local.assignors"
_VERSIONS = range(-(2**15), 2**15)
_METHODS = {"metadata": (), "assign": ("spec",), "on_assignment": ("error", "assignment", "group_metadata")}


def load_assignors(given: object, *, key: str = KEY) -> tuple[PartitionAssignor, ...]:
    """The assignors that *given* names, by priority.

    Args:
        given: one of what `load_assignor` takes, or a collection of them; text may hold several, separated by commas.
        key: of the configuration, for error texts.

    Raises:
        ConfigError: something is not an assignor, or two have the same name.
    """
    items: list[object]
    if isinstance(given, str):
        items = [text.strip() for text in given.split(",") if text.strip()]
    elif isinstance(given, Iterable) and not isinstance(given, (bytes, PartitionAssignor, type)):
        items = list(given)
    else:
        items = [given]
    assignors = tuple(load_assignor(item, key=key) for item in items)
    seen: dict[str, PartitionAssignor] = {}
    for assignor in assignors:
        other = seen.setdefault(assignor.name, assignor)
        if other is not assignor or assignors.count(assignor) > 1:
            raise ConfigError(
                f"{key}: {_type_name(other)} and {_type_name(assignor)} have the same name {assignor.name!r}; the "
                "group tells assignors apart by their names"
            )
    return assignors


def load_assignor(given: object, *, key: str = KEY) -> PartitionAssignor:
    """One assignor.

    Args:
        given: a `PartitionAssignor`, a class of such that needs no arguments, or ``"package.module:Name"`` of either.
        key: of the configuration, for error texts.

    Raises:
        ConfigError: it is none of these, its class cannot be made, or its name or versions are wrong.
    """
    found = _imported(given, key=key) if isinstance(given, str) else given
    if isinstance(found, type):
        if not issubclass(found, PartitionAssignor):
            raise ConfigError(
                f"{key}: {found.__qualname__} is not a subclass of kip848_client.assignors.PartitionAssignor"
            )
        class_name = found.__qualname__
        try:
            found = found()
        except Exception as error:
            raise ConfigError(
                f"{key}: {class_name}() raised {type(error).__name__}: {error}; give an instance if it needs arguments"
            ) from error
    if not isinstance(found, PartitionAssignor):
        raise ConfigError(
            f"{key}: {found!r} is {type(found).__name__}; an assignor is an instance or a subclass of "
            'kip848_client.assignors.PartitionAssignor, or "package.module:Name" of one'
        )
    _check(found, key=key)
    return found


def _imported(path: str, *, key: str) -> object:
    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        raise ConfigError(f'{key}: {path!r} is not an import path; write "package.module:Name"')
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(f"{key}: importing {module_name!r} raised {type(error).__name__}: {error}") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigError(f"{key}: {module_name!r} has no {name!r}") from None
    return found


def _check(assignor: PartitionAssignor, *, key: str) -> None:
    who = _type_name(assignor)
    for method, arguments in _METHODS.items():
        check_not_async(getattr(assignor, method), name=f"{key}: {who}.{method}")
        check_takes(getattr(assignor, method), *arguments, name=f"{key}: {who}.{method}")
    name: object = getattr(assignor, "name", None)
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"{key}: {who} has {'no name' if name is None else f'the name {name!r}'}; set name to a text")
    low: object = assignor.minimum_version
    high: object = assignor.maximum_version
    for attribute, version in (("minimum_version", low), ("maximum_version", high)):
        if not isinstance(version, int) or isinstance(version, bool) or version not in _VERSIONS:
            raise ConfigError(f"{key}: {who}.{attribute} is {version!r}; it must be an integer of two bytes")
    if not -1 <= assignor.minimum_version <= assignor.maximum_version or assignor.maximum_version < 0:
        raise ConfigError(
            f"{key}: {who} has minimum_version {low} and maximum_version {high}; -1 <= minimum <= maximum and "
            "0 <= maximum must hold"
        )


def _type_name(assignor: object) -> str:
    return type(assignor).__qualname__
