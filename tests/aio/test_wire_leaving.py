"""The tests of ``tests/interop/client/test_wire_leaving.py``, with AsyncConsumer."""

from tests.interop.client.test_wire_leaving import *  # noqa: F403
