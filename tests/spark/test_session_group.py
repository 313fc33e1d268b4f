"""Two streams of one Spark session in one group: refused, because each would read a part. No Spark."""

from __future__ import annotations

import threading

import pytest

from kip848_client.errors import ConfigError
from kip848_client.spark.source.session_group import SessionGroup
from tests.support.waiting import TIMEOUT_S


def group(session: int = 7, group_id: str = "billing", cluster: str = "a:1") -> SessionGroup:
    return SessionGroup(session, cluster=cluster, group_id=group_id)


def test_a_second_stream_of_one_topic_in_one_group_is_refused_with_the_line_to_write() -> None:
    """Two queries from one DataFrame, or a self-join, silently read half of the rows each."""
    first = group()
    first.enter({"orders", "payments"})
    try:
        with pytest.raises(ConfigError, match=r'read orders in group .*\.option\("kafka\.group\.id", "billing-2"\)'):
            group().enter({"invoices", "orders"}, wait_s=0)
        for other in (group(group_id="billing-2"), group(session=8), group(cluster="b:1")):
            other.enter({"orders"}, wait_s=0)
            other.close()
        second = group()
        second.enter({"invoices"}, wait_s=0)  # a union of two topics; and the refused stream holds nothing
        second.close()
    finally:
        first.close()


def test_a_query_may_start_again_when_it_has_stopped() -> None:
    """From the same DataFrame, in the same session."""
    for _ in range(2):
        stream = group()
        stream.enter({"orders"}, wait_s=0)
        stream.close()


def test_a_second_stream_does_not_wait_for_the_end_of_a_query_that_runs() -> None:
    """Two queries with AvailableNow from one DataFrame: the second read nothing, without an error, after the first."""
    running, second = group(), group()
    running.enter({"orders"})
    ask = threading.Timer(0.1, running.note_asked)
    ask.start()
    try:
        with pytest.raises(ConfigError, match="read orders in group"):
            second.enter({"orders"}, wait_s=TIMEOUT_S)
    finally:
        ask.join()
        running.close()
