"""The tests of ``tests/interop/client/test_wire_joining.py``, with AsyncConsumer."""

from tests.interop.client.test_wire_joining import *  # noqa: F403
