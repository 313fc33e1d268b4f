"""The registry of messages: API key -> request and response class. One file per API in this folder, imported on use.

A new API is one file, found by the name of its key. More than 16 files, one for each.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Final, NamedTuple

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Request, Response


class MessagePair(NamedTuple):
    """The two messages of one API."""

    request: type[Request[Response]]
    response: type[Response]


_FILES: Final = {module.name for module in pkgutil.iter_modules(__path__)}
SUPPORTED_API_KEYS: Final = frozenset(key for key in ApiKey if key.name.lower() in _FILES)
"""Every API that has a file here."""


@functools.cache
def message_pair(api_key: int) -> MessagePair:
    """The request and response class of *api_key*.

    Raises:
        KeyError: we have no messages for that key.
    """
    if api_key not in SUPPORTED_API_KEYS:
        raise KeyError(api_key)
    name = ApiKey(api_key).name.lower()
    module = importlib.import_module(f"{__name__}.{name}")
    stem = "".join(part.capitalize() for part in name.split("_"))
    return MessagePair(getattr(module, f"{stem}Request"), getattr(module, f"{stem}Response"))
