"""Configuration: property names in, checked values out. `consumer/consumer.py` has the keys and defaults.

`security.py` reads TLS and SASL, `assignors.py` client-side assignors, `keys.py` knows librdkafka's names, `reader.py`
checks single values.
"""

from kip848_client.config.consumer import (
    CLASSIC_KEYS,
    ConsumerConfig,
    merge_settings,
    nearest_key,
    parse_consumer_config,
    unlisted_keys,
)
from kip848_client.config.reader import ConfigValue

__all__ = [
    "CLASSIC_KEYS",
    "ConfigValue",
    "ConsumerConfig",
    "merge_settings",
    "nearest_key",
    "parse_consumer_config",
    "unlisted_keys",
]
