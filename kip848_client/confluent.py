"""`Consumer` for programs that were written for confluent-kafka: errors come as messages, as there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kip848_client.config import ConfigValue, merge_settings
from kip848_client.consumer import consumer
from kip848_client.consumer.records.message import K_co, V_co

__all__ = ["Consumer"]

_DEFAULTS: Final[Mapping[str, ConfigValue]] = {"errors.as.messages": True}


class Consumer(consumer.Consumer[K_co, V_co]):
    """`kip848_client.Consumer` with ``errors.as.messages=true``, so that a program changes its import and nothing else.

    Args:
        config, settings: as for `kip848_client.Consumer`.

    Raises:
        ConfigError: a key or value is wrong; the message says what to do.
    """

    def __init__(self, config: Mapping[str, ConfigValue] | None = None, **settings: ConfigValue) -> None:
        super().__init__({**_DEFAULTS, **merge_settings(config, settings)})
