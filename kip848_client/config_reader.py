"""Typed access to a raw configuration mapping. Knows kinds of values, and no key.

Secrets are never shown: the value of a key that holds one is left out of error texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from kip848_client.config_keys import is_secret
from kip848_client.errors import ConfigError

ConfigValue: TypeAlias = str | int | float | bool | Callable[..., object] | object
"""What a configuration mapping may hold: as confluent-kafka accepts it."""


class ConfigReader:
    """Typed access to a raw mapping; every refusal is a `ConfigError` that names the key.

    Args:
        conf: as the user gave it.
        aliases: other names of keys, and what they stand for.
    """

    def __init__(self, conf: Mapping[str, ConfigValue], *, aliases: Mapping[str, str]) -> None:
        if not isinstance(conf, Mapping):
            raise ConfigError(f"configuration must be a mapping of property names, got {type(conf).__name__}")
        self.conf: dict[str, ConfigValue] = {}
        for key, value in conf.items():
            if not isinstance(key, str):
                raise ConfigError(f"configuration keys are strings, got {key!r}")
            self.conf[aliases.get(key, key)] = value

    def text(self, key: str) -> str:
        """A string that must be there."""
        value = self.optional_text(key)
        if value is None:
            raise ConfigError(f"{key} is missing")
        return value

    def optional_text(self, key: str) -> str | None:
        """A string, or None if the key is absent."""
        value = self.conf.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise ConfigError(f"{key} must be a string, got {self.show(key, value)}")
        return value

    def not_blank(self, key: str) -> str | None:
        """A string with something in it, or None if the key is absent."""
        value = self.optional_text(key)
        if value is not None and not value.strip():
            raise ConfigError(f"{key} is blank; leave it out, or give a value")
        return value

    def integer(self, key: str, *, default: int, low: int, high: int) -> int:
        """A whole number from *low* to *high*."""
        value = self.conf.get(key)
        if value is None:
            return default
        try:
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                raise ValueError
            number = int(value)
        except ValueError:
            raise ConfigError(f"{key} must be an integer, got {self.show(key, value)}") from None
        if not low <= number <= high:
            raise ConfigError(f"{key}={number} is outside {low}..{high}")
        return number

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false, also spelled as text."""
        value = self.conf.get(key, default)
        if isinstance(value, bool):
            return value
        text = str(value).strip().lower()
        if text in {"true", "1", "yes", "on"}:
            return True
        if text in {"false", "0", "no", "off"}:
            return False
        raise ConfigError(f"{key} must be true or false, got {self.show(key, value)}")

    def one_of(self, key: str, allowed: Mapping[str, str], *, default: str) -> str:
        """The meaning that *allowed* gives to the value, whatever its case."""
        value = self.conf.get(key)
        if value is None:
            return default
        found = allowed.get(str(value).lower())
        if found is None:
            raise ConfigError(f"{key} must be one of {', '.join(allowed)}, got {self.show(key, value)}")
        return found

    def callback(self, key: str) -> Callable[..., object] | None:
        """A callable, or None if the key is absent."""
        value = self.conf.get(key)
        if value is not None and not callable(value):
            raise ConfigError(f"{key} must be callable, got {self.show(key, value)}")
        return value

    def show(self, key: str, value: object) -> str:
        """*value* for an error text; not that of a secret."""
        return "a value that is not shown" if is_secret(key) else repr(value)
