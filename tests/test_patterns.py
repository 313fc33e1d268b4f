"""Patterns of topic names, with google-re2 and without it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest

from kip848_client.common import patterns

TAKEN = {
    "orders-.*": ("orders-eu", "orders"),
    "(?i)orders|billing": ("BILLING", "shipping"),
    r"[^\]a-c\d]+": ("xyz", "x1"),
    r"a{1000}": ("a" * 1000, "a"),
    r"\w+": ("orders", "\u00e4"),
    r"[(?=]+": ("(?", "a"),
    r"a\(\?=b": ("a(?=b", "ab"),
}
"""Pattern -> a name that it matches, and one that it does not."""

REFUSED = (
    *("[", "*", "(", "(?=a)b", "(?<!x)y", r"(a)\1", "(?P<a>x)(?P=a)", "(?>a)b", "a*+", "a++", "a{2}+", "a{1001}"),
    *("a{1,1001}", r"a\Z", "(?#a)b", "(a)?(?(1)b|c)", "\ud800"),
)


@pytest.fixture(params=["google-re2", "re"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Match with google-re2, and as if it were not installed."""
    if request.param == "re":
        monkeypatch.setitem(sys.modules, "re2", None)
    patterns._engine.cache_clear()
    yield request.param
    patterns._engine.cache_clear()


@pytest.mark.parametrize("pattern", TAKEN)
def test_a_pattern_matches_the_same_names_with_both(pattern: str) -> None:
    """A group of members with and without google-re2 subscribes to the same topics."""
    name, other = TAKEN[pattern]
    made = patterns.compiled(pattern)
    assert (bool(made.fullmatch(name)), bool(made.fullmatch(other))) == (True, False)


@pytest.mark.parametrize("pattern", REFUSED, ids=repr)
def test_what_re2_refuses_is_refused_with_both(pattern: str) -> None:
    """A pattern that passes a test without google-re2 is not refused by Kafka later."""
    with pytest.raises(ValueError, match=r"."):
        patterns.compiled(pattern)


def test_the_missing_package_is_said_once(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    """Who runs without google-re2 reads in one line what follows."""
    with caplog.at_level(logging.WARNING, "kip848_client"):
        patterns.compiled("a")
        patterns.compiled("b")
    assert len(caplog.records) == (0 if engine == "google-re2" else 1)
