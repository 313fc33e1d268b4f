"""Small changes to the code of a function, as a careless hand makes them: `<` for `<=`, a statement that is missing.

Every change has a name that says where it is and what it does; it stays the same when lines above it move. Changes that
no behaviour can show are not made: assertions, texts of errors, type annotations. Nor is anything outside of functions.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from tests.mutants.sources import modules, path_of, short

_LONGEST: Final = 110


class Mutation(msgspec.Struct, frozen=True):
    """One change.

    Args:
        name: module, function, before and after; unique.
        line: where the statement begins in which it is.
        last_line: where that ends, or its head if it has a body.
    """

    module: str
    name: str
    line: int
    last_line: int


class _Site(NamedTuple):
    function: str
    statement: ast.stmt
    before: str
    after: str
    apply: Callable[[], None]


_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}

_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.Pow: ast.Mult,
}

_CALLS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


def mutations(module: str) -> list[Mutation]:
    """Every change to *module*, in the order of its text."""
    return [mutation for mutation, _ in _named(module, ast.parse(path_of(module).read_bytes()))]


def mutate(module: str, tree: ast.Module, name: str) -> ast.Module:
    """*tree*, with the change of that name made in place.

    Raises:
        KeyError: there is no such change.
    """
    for mutation, site in _named(module, tree):
        if mutation.name == name:
            site.apply()
            return tree
    raise KeyError(name)


def every_mutation() -> list[Mutation]:
    """The changes of all modules."""
    return [mutation for module in modules() for mutation in mutations(module)]


def sample(candidates: list[Mutation], *, count: int, seed: int) -> list[Mutation]:
    """Choose *count*. A mutation that is still there in a later version of the code is mostly chosen again."""
    ordered = sorted(candidates, key=lambda mutation: hashlib.sha256(f"{seed}/{mutation.name}".encode()).digest())
    return sorted(ordered[:count], key=lambda mutation: (mutation.module, mutation.line, mutation.name))


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """(qualified name, function) of every function and method, but not of those inside functions."""
    yield from _functions(tree.body, "")


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of statements right inside *node*."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            yield block
    for field in ("handlers", "cases"):
        for part in getattr(node, field, ()):
            yield part.body


# ---------------------------------------------------------------------------------------------------------- finding


def _named(module: str, tree: ast.Module) -> Iterator[tuple[Mutation, _Site]]:
    seen: Counter[str] = Counter()
    for function, node in functions(tree):
        for site in _Finder(function).in_function(node):
            name = f"{short(module)} {site.function}: {site.before} => {site.after}"
            seen[name] += 1
            if seen[name] > 1:
                name = f"{name} #{seen[name]}"
            yield Mutation(module, name, site.statement.lineno, _last_line(site.statement)), site


class _Finder:
    """Finds the places in one function where something can be changed."""

    def __init__(self, function: str) -> None:
        self._function = function

    def in_function(self, node: ast.FunctionDef) -> Iterator[_Site]:
        body = node.body
        if ast.get_docstring(node, clean=False) is not None:
            body = body[1:]
        returns_nothing = isinstance(node.returns, ast.Constant) and node.returns.value is None
        is_generator = any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node))
        if len(body) > 1 and returns_nothing and not is_generator:

            def gut() -> None:
                node.body = [ast.Pass()]

            yield _Site(self._function, body[0], "its body", "pass", gut)
        yield from self._block(node.body, skip=len(node.body) - len(body))
        if isinstance(node.returns, ast.Name) and node.returns.id == "bool":
            yield from self._returned_bools(body)

    def _block(self, block: list[ast.stmt], *, skip: int = 0) -> Iterator[_Site]:
        for position in range(skip, len(block)):
            statement = block[position]
            if isinstance(statement, ast.Assert | ast.Pass | ast.ClassDef) or _asserts(statement):
                continue
            if isinstance(statement, ast.Raise):
                yield self._deletion(block, position)
                continue
            if isinstance(statement, ast.FunctionDef):
                yield from self._block(statement.body)
                continue
            if _is_action(statement):
                yield self._deletion(block, position)
            if (
                isinstance(statement, ast.Return)
                and statement.value is not None
                and not isinstance(statement.value, ast.Constant)
            ):
                yield from self._none_returned(statement)
            yield from self._conditions(statement)
            for inner in blocks(statement):
                yield from self._block(inner)
            for field, value in ast.iter_fields(statement):
                if field == "annotation":
                    continue
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.expr):
                        yield from self._expression(statement, child, statement)
                    elif isinstance(child, ast.match_case) and child.guard is not None:
                        yield from self._expression(statement, child.guard, statement)

    def _deletion(self, block: list[ast.stmt], position: int) -> _Site:
        statement = block[position]

        def delete() -> None:
            block[position] = ast.copy_location(ast.Pass(), statement)

        return _Site(self._function, statement, _text(statement), "nothing", delete)

    def _none_returned(self, statement: ast.Return) -> Iterator[_Site]:
        def apply() -> None:
            statement.value = None

        yield _Site(self._function, statement, _text(statement), "return None", apply)

    def _returned_bools(self, body: list[ast.stmt]) -> Iterator[_Site]:
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Return) and node.value is not None and not _flips(node.value):
                    yield self._negation(node, node, "value")

    def _conditions(self, statement: ast.stmt) -> Iterator[_Site]:
        if isinstance(statement, ast.If | ast.While) and not _flips(statement.test):
            yield self._negation(statement, statement, "test")

    def _negation(self, statement: ast.stmt, owner: ast.AST, field: str) -> _Site:
        value: ast.expr = getattr(owner, field)

        def apply() -> None:
            setattr(owner, field, ast.UnaryOp(ast.Not(), value))

        return _Site(self._function, statement, _text(value), f"not ({_text(value)})", apply)

    def _expression(self, statement: ast.stmt, node: ast.expr, parent: ast.AST) -> Iterator[_Site]:
        if isinstance(node, ast.JoinedStr):
            return  # text for people
        yield from self._change(statement, node, parent)
        if isinstance(node, ast.IfExp) and not _flips(node.test):
            yield self._negation(statement, node, "test")
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from self._expression(statement, child, node)
            elif isinstance(child, ast.keyword):
                yield from self._expression(statement, child.value, node)
            elif isinstance(child, ast.comprehension):
                yield from self._expression(statement, child.iter, node)
                for position, test in enumerate(child.ifs):
                    yield from self._expression(statement, test, node)
                    yield self._filter_dropped(statement, child, position)

    def _filter_dropped(self, statement: ast.stmt, comprehension: ast.comprehension, position: int) -> _Site:
        before = f"if {_text(comprehension.ifs[position])}"

        def apply() -> None:
            comprehension.ifs[position] = ast.Constant(True)

        return _Site(self._function, statement, before, "every one", apply)

    def _change(self, statement: ast.stmt, node: ast.expr, parent: ast.AST) -> Iterator[_Site]:
        around = parent if isinstance(parent, ast.expr) else node
        match node:
            case ast.Compare():
                for position, operator in enumerate(node.ops):
                    for other in _COMPARISONS.get(type(operator), ()):
                        yield self._swap(statement, node, node.ops, position, other())
            case ast.BoolOp(op=operator):
                yield self._swap(statement, node, node, "op", ast.Or() if isinstance(operator, ast.And) else ast.And())
            case ast.UnaryOp(op=ast.Not()):

                def drop(node: ast.UnaryOp = node) -> None:
                    node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)

                yield _Site(self._function, statement, _text(node), _text(node.operand), drop)
            case ast.BinOp(op=arithmetic) if type(arithmetic) in _ARITHMETIC:
                yield self._swap(statement, node, node, "op", _ARITHMETIC[type(arithmetic)]())
            case ast.Constant(value=bool(value)):
                yield self._swap(statement, around, node, "value", not value)
            case ast.Constant(value=int(number)):
                yield self._swap(statement, around, node, "value", number + 1)
            case ast.Call(func=ast.Name(id=name) as function) if name in _CALLS:
                yield self._swap(statement, node, function, "id", _CALLS[name])
            case _:
                return

    def _swap(self, statement: ast.stmt, shown: ast.expr, owner: Any, key: Any, other: object) -> _Site:
        """*other* in the place of an attribute of *owner*, or of an item if that is a list; its name is *shown*."""
        is_list = isinstance(owner, list)
        put: Callable[[object], None] = partial(owner.__setitem__ if is_list else partial(setattr, owner), key)
        was, before = owner[key] if is_list else getattr(owner, key), _text(shown)
        put(other)
        after = _text(shown)
        put(was)
        return _Site(self._function, statement, before, after, partial(put, other))


def _last_line(statement: ast.stmt) -> int:
    inner = next((block[0].lineno for block in blocks(statement) if block), None)
    if inner is None:
        return statement.end_lineno or statement.lineno
    return max(statement.lineno, inner - 1)


def _is_action(statement: ast.stmt) -> bool:
    """Whether it does something that others can see; without a local variable a function just ends in an error."""
    match statement:
        case ast.Expr(value=ast.Call() | ast.Await()):
            return True
        case ast.Assign(targets=targets):
            return all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
        case ast.Delete(targets=targets):
            return not all(isinstance(target, ast.Name) for target in targets)  # a parameter that is not used
        case ast.AugAssign() | ast.Continue() | ast.Break():
            return True
        case ast.Return(value=None):
            return True
        case _:
            return False


def _asserts(statement: ast.stmt) -> bool:
    """Whether it says that this place is never reached: `assert_never()`, or an `AssertionError`."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
            return True
        case ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError"))):
            return True
        case _:
            return False


def _flips(node: ast.expr) -> bool:
    """Whether a change of its operator comes to the same as its negation."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Constant):
        return True
    return isinstance(node, ast.Compare) and len(node.ops) == 1


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
