"""Which APIs the broker serves: one file per API in this folder, found by itself.

Each file says

* ``API_KEY`` and ``VERSIONS = (min, max)``,
* ``requires(permit, request)``: what the ACLs must allow; most are built from the parts in ``_permissions.py``,
* ``handle(broker, request, context)``. Requests for the group coordinator have ``handle = to_group_coordinator``,
* optionally ``EXTENSION = "<name>"``: it is served only if that extension is on,
* optionally ``open_out(broker, request, context)``, if its requests may stand for others: returns the request that is
  served, or the answer.

How a request with several entries is refused and split is declared with its message (`MessageSpec.answered_by`).
Nothing else is registered anywhere: an API without a file here is neither advertised nor answered.

A handler returns the response, or None if it calls ``context.reply`` later. It runs on the broker's loop and never
blocks. One that does much for each entry of its request is a generator: it yields after each entry, where others may
have their turn, and returns the response. A topic or group that it looked up before a ``yield`` may be gone afterwards.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple

from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.security.access import Check
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.schema import Request, Response

Handler = Callable[[BrokerState, Any, RequestContext], Response | Slices | None]


class Api(NamedTuple):
    """One served API."""

    api_key: int
    version_min: int
    version_max: int
    requires: Check
    """The permissions that a request needs; asked only while the broker has ACLs."""
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
        low, high = module.VERSIONS
        extension = getattr(module, "EXTENSION", "")
        apis.append(Api(int(module.API_KEY), low, high, module.requires, module.handle, extension, in_slices, open_out))
    return tuple(sorted(apis, key=lambda api: api.api_key))
