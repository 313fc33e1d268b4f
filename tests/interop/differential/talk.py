"""A conversation that a seed draws step by step, told to our broker and to Kafka: every outcome has to be the same."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import pytest

SideT = TypeVar("SideT")


class Talk(Generic[SideT]):
    """One conversation.

    Args:
        sides: ours and Kafka's.
    """

    def __init__(self, seed: int, sides: tuple[SideT, SideT]) -> None:
        self.random: Final = random.Random(seed)
        self.sides: Final = sides
        self.transcript: Final[list[str]] = []
        self._seed: Final = seed

    @abstractmethod
    def go(self) -> None:
        """Draw steps and tell them."""

    def hold(self) -> None:
        """All of it; a difference fails the test, with what was said up to there."""
        try:
            self.go()
        except AssertionError as difference:
            pytest.fail(f"again: KIP848_DIFFERENTIAL_SEEDS={self._seed}\n{difference}", pytrace=False)

    def tell(self, what: str, step: Callable[[SideT], Any]) -> Any:
        """The outcome on both sides.

        Raises:
            AssertionError: they differ.
        """
        ours, kafka = (step(side) for side in self.sides)
        self.transcript.append(f"{what}\n      " + (f"both   {ours}" if ours == kafka else f"ours   {ours}"))
        assert ours == kafka, "\n".join([*self.transcript, f"      Kafka  {kafka}"])
        return ours
