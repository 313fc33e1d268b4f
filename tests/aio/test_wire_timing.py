"""The tests of ``tests/interop/client/test_wire_timing.py``, with AsyncConsumer."""

from tests.interop.client.test_wire_timing import *  # noqa: F403
