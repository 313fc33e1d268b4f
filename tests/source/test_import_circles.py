"""Modules do not import each other in circles: a reader can begin at the bottom and never has to know what is above."""

from __future__ import annotations

import ast

from tests.source.import_circles import circles, circles_of_the_package, imports


def test_the_package_has_no_import_circle() -> None:
    """A circle grows: a module that imports one of its modules depends on all of them."""
    assert [sorted(circle) for circle in circles_of_the_package()] == []


def test_a_circle_over_several_modules_is_found() -> None:
    """a imports b, b imports c, and c imports a; d only imports a."""
    graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("a"), "d": frozenset("a")}
    assert circles(graph) == [frozenset("abc")]


def test_imports_for_type_checkers_and_inside_functions_count() -> None:
    """They are how a circle is usually hidden."""
    source = "if TYPE_CHECKING:\n    from p.a import A\ndef f():\n    import p.b\n    from p import c\n"
    assert set(imports(ast.parse(source), dict.fromkeys(("p", "p.a", "p.b", "p.c")))) == {"p.a", "p.b", "p.c"}
