"""Marks that are made: which cases of a test run at once, and which with the slow tests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from _pytest.mark.structures import ParameterSet


def crossed(first: Sequence[object], second: Sequence[object]) -> list[ParameterSet]:
    """All pairs for ``parametrize``: each value of the longer one is in one quick pair, all other pairs are slow."""
    short = min(len(first), len(second))
    return [
        pytest.param(one, other, marks=() if row % short == column % short else pytest.mark.slow)
        for row, one in enumerate(first)
        for column, other in enumerate(second)
    ]
