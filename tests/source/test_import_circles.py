"""Modules do not import each other in circles: a reader can begin at the bottom and never has to know what is above."""

from __future__ import annotations

import ast

from tests.source.import_circles import ALLOWED, circles, circles_of_the_package, imports


def test_the_package_has_no_import_circle_but_those_that_are_known() -> None:
    """A circle grows: whoever imports one of its modules depends on all of them."""
    new = [sorted(circle) for circle in circles_of_the_package() if not any(circle <= allowed for allowed in ALLOWED)]
    assert new == []


def test_a_circle_that_was_broken_is_not_allowed_any_more() -> None:
    """Else it could come back unseen."""
    found = circles_of_the_package()
    assert [sorted(allowed) for allowed in ALLOWED if not any(circle <= allowed for circle in found)] == []


def test_a_circle_over_several_modules_is_found() -> None:
    """a imports b, b imports c, and c imports a; d only imports a."""
    graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("a"), "d": frozenset("a")}
    assert circles(graph) == [frozenset("abc")]


def test_imports_for_type_checkers_and_inside_functions_count() -> None:
    """They are how a circle is usually hidden."""
    source = "if TYPE_CHECKING:\n    from p.a import A\ndef f():\n    import p.b\n    from p import c\n"
    assert set(imports(ast.parse(source), dict.fromkeys(("p", "p.a", "p.b", "p.c")))) == {"p.a", "p.b", "p.c"}
