"""Opens keys and values with the application's deserialisers, as confluent_kafka's DeserializingConsumer does.

Runs inside poll() and consume(), on the thread that calls them, just before a record is handed out. One of the few
homes of confluent_kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from confluent_kafka.serialization import MessageField, SerializationContext

from kip848_client.common.callables import check_result_not_async
from kip848_client.config import ConsumerConfig
from kip848_client.consumer.records.message import Message
from kip848_client.errors import DeserializationError, KeyDeserializationError, ValueDeserializationError

Deserializer = Callable[[Any, Any], object]
"""``deserializer(data, context)``: data is bytes or None, the context a `SerializationContext`."""


class Deserializers:
    """Opens one record at a time, in place.

    Args:
        key, value: the application's; None leaves the bytes.
        on_error: given (record, error) of a record that cannot be opened, which is then left out; None raises.
    """

    def __init__(
        self,
        *,
        key: Deserializer | None,
        value: Deserializer | None,
        on_error: Callable[..., object] | None,
    ) -> None:
        self._key: Final = key
        self._value: Final = value
        self._on_error: Final = on_error
        self._opened: dict[int, Message[Any, Any]] = {}
        """Records that were opened and taken back, by identity."""
        self.originals: dict[int, tuple[Any, Any]] | None = None
        """Key and value before they were opened, by id() of the record; None if they are not kept."""

    def introduce(self, cluster_id: Callable[[], object]) -> None:
        """Tell deserialisers that ask for it how to get the cluster's id."""
        for one in (self._key, self._value):
            tell = getattr(one, "set_cluster_id_resolver", None)
            if tell is not None:
                tell(cluster_id)

    def open(self, message: Message) -> bool:
        """Replace key and value of *message* by what the deserialisers make of them.

        Returns:
            Whether to hand it out; False if on_error took it.

        Raises:
            DeserializationError: a deserialiser raised, and there is no on_error. The record is as it was.
        """
        if message.error() is not None or self._opened.pop(id(message), None) is not None:
            return True
        try:
            self._open(message)
        except DeserializationError as error:
            if self._on_error is None:
                raise
            check_result_not_async(self._on_error(message, error), name="on_deserialization_error")
            return False
        return True

    def take_back(self, messages: Iterable[Message[Any, Any]], ready: Iterable[Message]) -> None:
        """These were opened, and will be handed out later; *ready* is what waits."""
        kept = {id(message): message for message in ready if id(message) in self._opened}
        self._opened = kept | {id(message): message for message in messages}

    def _open(self, message: Message) -> None:
        topic = message.topic()
        context = SerializationContext(topic, MessageField.KEY, message.headers())
        key: object = message.key()
        value: object = message.value()
        original = (key, value)
        where = f"{topic}-{message.partition()} offset {message.offset()}"
        try:
            if self._key is not None:
                key = self._key(key, context)
                check_result_not_async(key, name="it")
        except Exception as error:
            text = f"key.deserializer raised {type(error).__name__} at {where}: {error}"
            raise KeyDeserializationError(text, kafka_message=message) from error
        try:
            if self._value is not None:
                context.field = MessageField.VALUE
                value = self._value(value, context)
                check_result_not_async(value, name="it")
        except Exception as error:
            text = f"value.deserializer raised {type(error).__name__} at {where}: {error}"
            raise ValueDeserializationError(text, kafka_message=message) from error
        message.set_key(key)
        message.set_value(value)
        if self.originals is not None:
            self.originals[id(message)] = original


def deserializers_of(config: ConsumerConfig) -> Deserializers | None:
    """The deserialisers of the configuration; None if records are handed out as bytes."""
    if config.key_deserializer is None and config.value_deserializer is None:
        return None
    return Deserializers(
        key=config.key_deserializer, value=config.value_deserializer, on_error=config.on_deserialization_error
    )
