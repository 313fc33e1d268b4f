"""The tests of ``tests/interop/client/test_wire_commits.py``, with AsyncConsumer."""

from tests.interop.client.test_wire_commits import *  # noqa: F403

# They look at the thread of a callback; that it is the event loop's is in test_async_consumer.
del test_an_asynchronous_commit_is_one_attempt  # noqa: F821
del test_fenced_instance_on_an_asynchronous_commit_comes_out_of_poll  # noqa: F821
