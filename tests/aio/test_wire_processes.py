"""The tests of ``tests/interop/client/test_wire_processes.py``, with AsyncConsumer."""

from tests.interop.client.test_wire_processes import *  # noqa: F403
