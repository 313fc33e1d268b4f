"""Typed access to a raw configuration mapping. Knows kinds of values, and no key.

One error names all problems of a configuration: `ConfigReader` continues after the first one, and `check` raises.
Secrets are never shown: the value of a key that holds one is left out of error texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

from kip848_client.common.callables import check_not_async, check_takes
from kip848_client.config.keys import is_secret
from kip848_client.errors import ConfigError

ConfigValue: TypeAlias = str | int | float | bool | Callable[..., object] | object
"""Values of a configuration mapping, as confluent-kafka accepts them."""


ValueT = TypeVar("ValueT")


class ConfigReader:
    """Typed access to a raw mapping; every refusal names the key.

    A refused value is read as its default, and `check` raises the problem; inside `at_once` it is raised at once.

    Args:
        conf: as the user gave it.
        aliases: other name of a key -> the key.
    """

    def __init__(self, conf: Mapping[str, ConfigValue], *, aliases: Mapping[str, str]) -> None:
        if not isinstance(conf, Mapping):
            raise ConfigError(f"configuration must be a mapping of property names, got {type(conf).__name__}")
        self.conf: dict[str, ConfigValue] = {}
        for key, value in conf.items():
            if not isinstance(key, str):
                raise ConfigError(f"configuration keys are strings, got {key!r}")
            self.conf[aliases.get(key, key)] = value
        self.problems: Final[list[str]] = []
        """The problems, in the order in which they were found."""
        self._refuse_unsendable()
        self._at_once = False

    def _refuse_unsendable(self) -> None:
        """Text ends at a NUL for librdkafka, and a group.id that is no UTF-8 lets it abort the process."""
        for key, value in self.conf.items():
            if isinstance(value, str) and ("\0" in value or any("\ud800" <= char <= "\udfff" for char in value)):
                self.problems.append(f"{key} has a NUL or half a surrogate pair, got {self.show(key, value)}")

    def refuse(self, problem: str, instead: ValueT) -> ValueT:
        """Keep *problem* for `check`, or raise it inside `at_once`. Returns *instead*.

        Raises:
            ConfigError: inside `at_once`.
        """
        if self._at_once:
            raise ConfigError(problem)
        self.problems.append(problem)
        return instead

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within it, reading stops at the first problem, which is kept: keys that depend on each other are read so."""
        self._at_once = True
        try:
            yield
        except ConfigError as error:
            self.problems.append(str(error))
        finally:
            self._at_once = False

    def check(self) -> None:
        """Raise one error with all problems.

        Raises:
            ConfigError: there are any.
        """
        problems = list(dict.fromkeys(self.problems))  # some keys are read twice
        if len(problems) == 1:
            raise ConfigError(problems[0])
        if problems:
            listed = "; ".join(f"({number}) {text}" for number, text in enumerate(problems, 1))
            raise ConfigError(f"the configuration has {len(problems)} mistakes: {listed}")

    def text(self, key: str, *, advice: str = "") -> str:
        """A required string; *advice* says what to do if it is missing."""
        value = self.optional_text(key)
        if value is None:
            return self.refuse(f"{key} is missing{advice and '; '}{advice}", "") if self.conf.get(key) is None else ""
        return value

    def optional_text(self, key: str) -> str | None:
        """A string, or None if the key is absent."""
        value = self.conf.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            return self.refuse(f"{key} must be a string, got {self.show(key, value)}", None)
        return value

    def not_blank(self, key: str) -> str | None:
        """A string that is not blank, or None if the key is absent."""
        value = self.optional_text(key)
        if value is not None and not value.strip():
            return self.refuse(f"{key} is blank; leave it out, or give a value", None)
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
            return self.refuse(f"{key} must be an integer, got {self.show(key, value)}", default)
        if not low <= number <= high:
            return self.refuse(f"{key}={number} is outside {low}..{high}", default)
        return number

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false, also spelled as text in one of librdkafka's ways."""
        value = self.conf.get(key, default)
        if isinstance(value, bool):
            return value
        text = str(value).lower()
        if text in {"true", "t", "1"}:
            return True
        if text in {"false", "f", "0"}:
            return False
        return self.refuse(f"{key} must be true or false, got {self.show(key, value)}", default)

    def one_of(self, key: str, allowed: Mapping[str, str], *, default: str) -> str:
        """The meaning that *allowed* gives to the value, in upper or lower case."""
        value = self.conf.get(key)
        if value is None:
            return default
        found = allowed.get(str(value).lower())
        if found is None:
            return self.refuse(f"{key} must be one of {', '.join(allowed)}, got {self.show(key, value)}", default)
        return found

    def callback(self, key: str, *arguments: str, hint: str = "") -> Callable[..., object] | None:
        """A callable, or None if the key is absent. An async function is refused: it would never run.

        Args:
            arguments: what it is called with, and must take.
            hint: the way out for one that does not.
        """
        value = self.conf.get(key)
        if value is not None and not callable(value):
            return self.refuse(f"{key} must be callable, got {self.show(key, value)}", None)
        try:
            check_not_async(value, name=key)
            check_takes(value, *arguments, name=key, hint=hint)
        except ConfigError as error:
            return self.refuse(str(error), None)
        return value

    def show(self, key: str, value: object) -> str:
        """*value* for an error text; secrets are hidden."""
        return "a hidden value" if is_secret(key) else repr(value)
