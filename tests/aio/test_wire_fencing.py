"""The tests of ``tests/interop/client/test_wire_fencing.py``, with AsyncConsumer."""

from tests.interop.client.test_wire_fencing import *  # noqa: F403

# A KeyboardInterrupt inside a listener ends an event loop; that it is in order is in test_cancellation.
del test_an_interrupted_callback_is_reported  # noqa: F821
