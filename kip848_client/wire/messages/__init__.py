"""The registry of messages: API key -> request and response class. One file per API in this folder, imported on use.

A new API is one file, found by the name of its key.
"""

from __future__ import annotations

import functools
import importlib
from typing import NamedTuple

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Request, Response


class MessagePair(NamedTuple):
    """The two messages of one API."""

    request: type[Request[Response]]
    response: type[Response]


@functools.cache
def supported_api_keys() -> frozenset[ApiKey]:
    """Every API that has a file here."""
    import pkgutil  # here: a client knows what it sends

    files = {module.name for module in pkgutil.iter_modules(__path__)}
    return frozenset(key for key in ApiKey if key.name.lower() in files)


@functools.cache
def message_pair(api_key: int) -> MessagePair:
    """The request and response class of *api_key*.

    Raises:
        KeyError: we have no messages for that key.
    """
    try:
        name = ApiKey(api_key).name.lower()
        module = importlib.import_module(f"{__name__}.{name}")
    except (ValueError, ModuleNotFoundError):  # a key that Kafka has not, or that has no file
        raise KeyError(api_key) from None
    stem = "".join(part.capitalize() for part in name.split("_"))
    return MessagePair(getattr(module, f"{stem}Request"), getattr(module, f"{stem}Response"))
