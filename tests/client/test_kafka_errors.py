"""Our exceptions as a program written for confluent-kafka sees them."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kip848_client import (
    BrokerError,
    CommitFailedError,
    ConfigError,
    Consumer,
    IllegalStateError,
    KafkaError,
    KafkaException,
    Kip848Error,
    RequestTimeoutError,
    errors,
)
from kip848_client.consumer.group.translation import public_callback
from kip848_client.errors import error_for_code

ALL = [getattr(errors, name) for name in errors.__all__]
CLASSES = [item for item in ALL if isinstance(item, type) and issubclass(item, Kip848Error)]

LATE = """
import sys
from pathlib import Path
import kip848_client.errors as errors
assert "confluent_kafka" not in sys.modules, "errors alone loads nothing of librdkafka"
error = errors.RequestTimeoutError("too late")
assert error.args == ("too late",)
import kip848_client
kip848_client.Consumer
from confluent_kafka import KafkaError, KafkaException
assert isinstance(error, KafkaException)
assert error.args[0].code() == KafkaError._TIMED_OUT
"""


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_a_handler_of_kafka_exceptions_catches_every_error_of_ours(error: type[Kip848Error]) -> None:
    """``except KafkaException`` is what ported programs have around their loops; an error past it ends them."""
    assert issubclass(error, KafkaException)
    assert not KafkaError(error.librdkafka_code).name().startswith("ERR_"), "the code is one that librdkafka knows"


def test_errors_tell_code_and_text_as_in_confluent_kafka() -> None:
    """Error handlers written for confluent-kafka branch on ``error.args[0].code()``."""
    error = error_for_code(113, "commit of orders-0")
    [details] = error.args
    assert isinstance(details, KafkaError)
    assert details == KafkaError.STALE_MEMBER_EPOCH
    assert (details.code(), details.name()) == (113, "STALE_MEMBER_EPOCH")
    assert details.str() == str(error) == "STALE_MEMBER_EPOCH(113): commit of orders-0"
    assert not details.fatal()
    assert error_for_code(82, "taken over", stopped=True).args[0].fatal()
    assert error_for_code(16, "moved").args[0].retriable()


def test_a_refused_commit_has_the_code_of_the_coordinators_answer() -> None:
    """A program that waits for a rebalance after code 25 must see 25, whatever we wrap around it."""
    refused = CommitFailedError("offsets of orders-0 were not committed")
    assert refused.args[0].code() == KafkaError._ASSIGNMENT_LOST
    refused.__cause__ = error_for_code(25, "commit")
    assert refused.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID


def test_on_commit_is_given_a_kafka_error_that_leads_to_the_exception() -> None:
    """Callbacks written for confluent-kafka call ``error.code()`` and ``error.str()``."""
    failed = BrokerError("commit", code=28)
    heard: list[KafkaError | None] = []
    public_callback(lambda error, _partitions: heard.append(error))(failed, {})
    [details] = heard
    assert details is not None
    assert (details.code(), details.str()) == (28, "commit")
    assert getattr(details, "exception", None) is failed


def test_builtin_bases_stay() -> None:
    """``except TimeoutError``, ``except ValueError`` and ``except RuntimeError`` catch what they caught."""
    assert issubclass(RequestTimeoutError, TimeoutError)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(IllegalStateError, RuntimeError)
    with pytest.raises(KafkaException, match=r"group\.id") as raised:
        Consumer({"bootstrap.servers": "127.0.0.1:1"})
    assert raised.value.args[0].code() == KafkaError._INVALID_ARG


def test_an_error_can_be_sent_to_another_process() -> None:
    """Executors pickle what a worker raised; an error that cannot be pickled hides the cause."""
    error = pickle.loads(pickle.dumps(RequestTimeoutError("too late")))
    assert type(error) is RequestTimeoutError
    assert str(error) == "too late"


def test_the_errors_alone_do_not_load_librdkafka() -> None:
    """A Spark worker or a simulation imports them without paying 80 ms for a library that it does not use."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_exception_is_on_the_page_about_exceptions_and_in_the_tree() -> None:
    """A user meets a name in a traceback and looks it up; one that is missing leaves them with the source."""
    page = (Path(__file__).resolve().parents[2] / "docs/reference/errors.md").read_text(encoding="utf-8")
    assert [error.__name__ for error in CLASSES if f"`{error.__name__}`" not in page and error is not Kip848Error] == []
    tree = set(re.findall(r"\w+", errors.__doc__ or ""))
    assert [error.__name__ for error in CLASSES if error.__name__ not in tree] == []
