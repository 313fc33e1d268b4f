"""The tests of ``tests/interop/client/test_wire_reconciling.py``, with AsyncConsumer."""

from tests.interop.client.test_wire_reconciling import *  # noqa: F403
