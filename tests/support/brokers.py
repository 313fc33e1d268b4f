"""The embedded broker of one test, as its markers want it."""

from __future__ import annotations

from typing import Any

import pytest

from kip848_client import EmbeddedBroker


def marked_broker(request: pytest.FixtureRequest, **arguments: Any) -> EmbeddedBroker:
    """A broker with these arguments, unless a marker ``kip848_broker`` says otherwise; a test has its own say first."""
    for marker in reversed(list(request.node.iter_markers("kip848_broker"))):
        arguments |= marker.kwargs
    return EmbeddedBroker(**arguments)
