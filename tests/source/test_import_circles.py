"""Modules do not import each other in circles: a reader can begin at the bottom and never has to know what is above."""

from __future__ import annotations

from tests.source.import_circles import circle, circle_of_the_package


def test_the_package_has_no_import_circle() -> None:
    """A circle grows: a module that imports one of its modules depends on all of them."""
    assert circle_of_the_package() == []


def test_a_circle_over_several_modules_is_found() -> None:
    """a imports b, b imports c, and c imports a; d only imports a."""
    assert set(circle({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]})) == {"a", "b", "c"}
