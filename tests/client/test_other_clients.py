"""Errors for names of other Kafka clients: they say what to write instead."""

from __future__ import annotations

import pickle

import pytest

import kip848_client
from kip848_client import AsyncConsumer, Consumer
from kip848_client.config.keys import DATA_PLANE_KEYS
from kip848_client.config.other_clients import KEYS, METHODS, NAMES


def test_a_class_of_another_client_is_refused_with_ours() -> None:
    """The first line of a ported program fails; "cannot import name" would tell its author nothing."""
    with pytest.raises(ImportError, match="has no KafkaConsumer: use Consumer"):
        from kip848_client import KafkaConsumer  # type: ignore[attr-defined]  # noqa: F401


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_a_method_of_another_client_is_refused_with_ours(kind: type[Consumer | AsyncConsumer]) -> None:
    """The author of a ported program reads the way out where it fails; unknown names keep Python's own text."""
    consumer = kind.__new__(kind)
    with pytest.raises(AttributeError, match=r"'seek_to_beginning': use seek\(TopicPartition"):
        consumer.seek_to_beginning  # type: ignore[union-attr]  # noqa: B018
    with pytest.raises(AttributeError, match=r"'wakeup': use hand_over\(\)"):
        consumer.wakeup  # type: ignore[union-attr]  # noqa: B018
    with pytest.raises(AttributeError, match=r"object has no attribute 'nonsense'$"):
        consumer.nonsense  # type: ignore[union-attr]  # noqa: B018


def test_an_attribute_error_inside_a_property_of_a_subclass_is_shown() -> None:
    """A bug in a property of the application must not read as if the property did not exist."""

    class Service(Consumer):
        @property
        def name(self) -> str:
            raise AttributeError("the settings have no name")

    with pytest.raises(AttributeError, match="the settings have no name"):
        Service.__new__(Service).name  # noqa: B018


def test_no_hint_names_something_that_is_here() -> None:
    """A hint outlives the day on which its method is added, and would then hide a key that works."""
    assert not NAMES.keys() & set(dir(kip848_client))
    assert not [name for name in METHODS if hasattr(Consumer, name) or hasattr(AsyncConsumer, name)]
    assert not KEYS.keys() & DATA_PLANE_KEYS


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer, kip848_client.EmbeddedBroker])
def test_what_belongs_to_one_process_is_not_sent_to_another(kind: type[object]) -> None:
    """multiprocessing and Spark pickle arguments; pickle's own error names an inner object that no user knows."""
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        pickle.dumps(kind.__new__(kind))
