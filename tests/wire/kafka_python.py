"""The protocol classes of kafka-python by name. Its import uses a deprecated function of the standard library."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.api_message import ApiMessage

    for _module in ("admin", "consumer", "metadata", "producer", "sasl"):
        importlib.import_module(f"kafka.protocol.{_module}")


def _subclasses(cls: type) -> Iterator[type]:
    direct: list[type] = cls.__subclasses__()
    for sub in direct:
        yield sub
        yield from _subclasses(sub)


CLASSES: dict[str, Any] = {cls.__name__: cls for cls in _subclasses(ApiMessage)}
