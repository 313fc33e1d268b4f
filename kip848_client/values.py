"""`value`: frozen slotted dataclasses that are cheap to declare and to make; `mutable`: others. Nothing about Kafka.

What ``@dataclass(frozen=True, slots=True)`` makes, minus two costs that a package of two hundred classes feels: the
standard decorator compiles six functions for each class, which was half of what importing a consumer took, where this
one compiles ``__init__`` alone, and only when it is first looked at; and the standard ``__init__`` calls
``object.__setattr__`` for each field, which takes a microsecond or more for a heartbeat.

A class made here is a dataclass (`dataclasses.fields`, `replace`, `asdict` and ``match`` work), compares and hashes by
value, pickles and copies, and refuses assignment with `FrozenInstanceError`. Not supported, and refused: ``InitVar``,
``kw_only``, ``field(init=False)`` and dataclasses as bases; use the standard decorator for these.
``benchmarks/imports.py`` measures what a declaration costs.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NoReturn, TypeVar, dataclass_transform

__all__ = ["mutable", "mutable_twin", "value"]

ValueT = TypeVar("ValueT")

_MISSING: Final = dataclasses.MISSING
_FACTORY: Final = object()
"""Default of a field with a factory: it is called for each object."""
_set_class: Final = object.__dict__["__class__"].__set__
_FEW: Final = 3
"""Fields that are sooner written one by one past the checks than by becoming the mutable twin and back."""


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def value(cls: type[ValueT]) -> type[ValueT]:
    """Make *cls* a frozen, slotted dataclass.

    Raises:
        TypeError: a field uses what is not supported here.
    """
    made: Any = _declare(cls)
    made.__dataclass_params__.frozen = True
    made.__init__ = _InitWhenUsed(made, frozen=True)
    _add_comparison(made, tuple(field.name for field in dataclasses.fields(made) if field.compare))
    made.__setattr__ = _refuse_assignment
    made.__delattr__ = _refuse_deletion
    made.__reduce__ = _reduce
    result: type[ValueT] = made
    return result


@dataclass_transform(eq_default=False, field_specifiers=(dataclasses.field,))
def mutable(cls: type[ValueT]) -> type[ValueT]:
    """Make *cls* a slotted dataclass whose fields are assigned as things go on. It equals nothing but itself.

    Raises:
        TypeError: a field uses what is not supported here.
    """
    made: Any = _declare(cls)
    made.__init__ = _InitWhenUsed(made, frozen=False)
    result: type[ValueT] = made
    return result


def _declare(cls: type) -> type:
    if any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:]):
        raise TypeError(
            f"{cls.__qualname__} has a dataclass as its base: use the standard dataclass decorator for this"
        )
    if any("InitVar" in str(annotation) for annotation in cls.__annotations__.values()):
        raise TypeError(f"{cls.__qualname__} has an InitVar: use the standard decorator for this")
    if cls.__doc__ is None:
        cls.__doc__ = cls.__qualname__  # or the standard decorator writes a signature, which takes milliseconds
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    with_default = None
    for field in dataclasses.fields(made):
        if not field.init or field.kw_only:
            raise TypeError(f"{cls.__qualname__}.{field.name}: use the standard dataclass decorator for this")
        if field.default is not _MISSING or field.default_factory is not _MISSING:
            with_default = field.name
        elif with_default is not None:
            raise TypeError(f"{cls.__qualname__}.{field.name} has no default, but {with_default} before it has one")
    if "__repr__" not in cls.__dict__:
        made.__repr__ = _repr
    declared: type = made
    return declared


def mutable_twin(cls: type) -> type:
    """A class laid out as the slotted *cls* but without its checks against writing.

    An instance of the twin is filled slot by slot and then told that its ``__class__`` is *cls*: a third of the time
    that a frozen ``__init__`` needs.
    """
    slots = cls.__dict__["__slots__"]
    return type(f"Mutable{cls.__name__}", cls.__bases__, {"__slots__": slots, "__doc__": None})


class _InitWhenUsed:
    """Stands where ``__init__`` will be, and puts it there when somebody asks: many classes are never instantiated."""

    def __init__(self, cls: type, *, frozen: bool) -> None:
        self._cls: Any = cls
        self._frozen = frozen

    def __get__(self, instance: object, owner: type) -> Callable[..., None]:
        made = self._cls.__init__ = _make_init(self._cls, frozen=self._frozen)
        init: Callable[..., None] = made.__get__(instance, owner)
        return init


def _make_init(cls: Any, *, frozen: bool) -> Callable[..., None]:
    """``__init__`` with the signature of the standard one. A frozen object is of the mutable twin's class meanwhile."""
    fields = dataclasses.fields(cls)
    scope: dict[str, object] = {"FACTORY": _FACTORY}
    parameters, body = ["self"], []
    turns = frozen and len(fields) > _FEW
    if turns:
        scope |= {"set_class": _set_class, "twin": mutable_twin(cls), "cls": cls}
        body.append(" set_class(self, twin)")
    for field in fields:
        name = field.name
        if field.default is not _MISSING:
            scope[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
        elif field.default_factory is not _MISSING:
            scope[f"factory_{name}"] = field.default_factory
            parameters.append(f"{name}=FACTORY")
            body.append(f" if {name} is FACTORY: {name} = factory_{name}()")
        else:
            parameters.append(name)
        if frozen and not turns:
            scope[f"set_{name}"] = cls.__dict__[name].__set__
            body.append(f" set_{name}(self, {name})")
        else:
            body.append(f" self.{name} = {name}")
    if turns:
        body.append(" set_class(self, cls)")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    # The names of `scope` are arguments of a function around it: fields may have any name but these.
    lines = [f"def make({', '.join(scope)}):", f" def __init__({', '.join(parameters)}):"]
    lines += [f" {line}" for line in body or [" pass"]]
    lines.append(" return __init__")
    made: dict[str, Any] = {}
    exec("\n".join(lines), vars(sys.modules[cls.__module__]), made)  # noqa: S102  source made of identifiers only
    init: Callable[..., None] = made["make"](**scope)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {field.name: field.type for field in fields} | {"return": None}
    return init


def _add_comparison(cls: Any, names: tuple[str, ...]) -> None:
    key: Callable[[object], object] = attrgetter(*names) if names else (lambda _: ())

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        if self is other:  # very often: what did not change is passed on
            return True
        return key(self) == key(other) if other.__class__ is cls else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(key(self))

    if "__eq__" not in cls.__dict__:
        cls.__eq__ = __eq__
        cls.__hash__ = __hash__


def _repr(self: Any) -> str:
    shown = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _reduce(self: Any) -> tuple[type, tuple[object, ...]]:
    return type(self), tuple(getattr(self, field.name) for field in dataclasses.fields(self))


def _refuse_assignment(self: object, name: str, _value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
