"""The tests of ``tests/interop/client/test_wire_positions.py``, with AsyncConsumer."""

from tests.interop.client.test_wire_positions import *  # noqa: F403
