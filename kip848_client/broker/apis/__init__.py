"""Which APIs the broker serves: one file per API in this folder, found by itself.

Each file says ``API_KEY``, ``VERSIONS = (min, max)`` and ``handle(broker, request, context)``. A file with
``EXTENSION = "<name>"`` is served only if that extension is on. One whose requests may stand for others has
``open_out(broker, request, context)``, which returns the request that is served, or the answer. The requests that go to
the group coordinator share ``group_requests.py``, whose ``APIS`` has a row for each. Nothing else is registered
anywhere: what is not in this folder is not advertised and not answered.

A handler returns the response, or None if it calls ``context.reply`` later. It runs on the broker's loop and never
blocks. One that does much for each entry of its request is a generator: it yields after each entry, where others may
have their turn, and returns the response. Anything that it looked up before a ``yield`` may be gone afterwards.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple

from kip848_client.broker.context import RequestContext, Slices
from kip848_client.broker.state import BrokerState
from kip848_client.wire.schema import Request, Response

__all__ = ["Api", "ApiTable", "Handler", "load_apis"]

Handler = Callable[[BrokerState, Any, RequestContext], Response | Slices | None]


class Api(NamedTuple):
    """One served API."""

    api_key: int
    version_min: int
    version_max: int
    handle: Handler
    extension: str
    """The extension that must be on for it; empty if it is always served."""
    in_slices: bool
    """Whether `handle` is a generator."""
    open_out: Callable[[BrokerState, Any, RequestContext], Request[Response] | Response] | None
    """Makes of a request the one that it stands for; None if each stands for itself."""


class ApiTable:
    """The APIs of one broker, by key.

    Args:
        extensions: those that are on; see `BrokerConfig.extensions`.
    """

    def __init__(self, *, extensions: Collection[str]) -> None:
        self._apis: Final = {
            api.api_key: api for api in load_apis() if not api.extension or api.extension in extensions
        }

    def get(self, api_key: int) -> Api | None:
        """The API, or None if it is not served."""
        return self._apis.get(api_key)

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """API key -> (lowest, highest) version, by ascending key."""
        return {api.api_key: (api.version_min, api.version_max) for api in self}

    def serves(self, api_key: int) -> bool:
        """Whether the API is served."""
        return api_key in self._apis

    def __iter__(self) -> Iterator[Api]:
        """All served APIs by ascending key."""
        return iter(self._apis.values())


@functools.cache
def load_apis() -> tuple[Api, ...]:
    """Import every file of this folder; once."""
    apis = []
    for module_info in pkgutil.iter_modules(__path__):
        if module_info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        in_slices = inspect.isgeneratorfunction(module.handle)
        open_out = getattr(module, "open_out", None)
        rows = getattr(module, "APIS", None) or [(module.API_KEY, module.VERSIONS, getattr(module, "EXTENSION", ""))]
        for api_key, (low, high), extension in rows:
            apis.append(Api(int(api_key), low, high, module.handle, extension, in_slices, open_out))
    return tuple(sorted(apis, key=lambda api: api.api_key))
