"""The tests of ``tests/interop/client/test_wire_oddities.py``, with AsyncConsumer."""

from tests.interop.client.test_wire_oddities import *  # noqa: F403
