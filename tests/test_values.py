"""`value` makes what ``@dataclass(frozen=True, slots=True)`` makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import InitVar, dataclass, field

import pytest

from kip848_client.values import mutable, value


@value
class Point:
    """Two numbers, and what stands beside them."""

    x: int
    y: int = 2
    notes: list[str] = field(default_factory=list, compare=False)


@dataclass(frozen=True, slots=True)
class StandardPoint:
    """The same by the standard decorator."""

    x: int
    y: int = 2
    notes: list[str] = field(default_factory=list, compare=False)


@value
class Checked:
    """A value that looks at itself."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("negative")


@value
class Empty:
    """No fields at all."""


def test_it_compares_hashes_and_prints_like_the_standard_one() -> None:
    """Messages are compared in tests, kept in sets and written into failures."""
    assert Point(1) == Point(1, 2, ["other"]) != Point(1, 3)
    assert hash(Point(1)) == hash(Point(1, 2)) == hash(StandardPoint(1))
    assert repr(Point(1, notes=["a"])) == repr(StandardPoint(1, notes=["a"])).replace("Standard", "")
    assert Point(1).__eq__(StandardPoint(1)) is NotImplemented
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())
    assert repr(Empty()) == "Empty()"


def test_nothing_of_it_can_be_changed() -> None:
    """A message that changed after it was sent would make replay and live state differ."""
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 5  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.z = 5  # type: ignore[attr-defined]
    assert not hasattr(point, "__dict__")
    assert type(point) is Point


def test_dataclass_functions_and_match_work_on_it() -> None:
    """Callers use `dataclasses.replace` and patterns without knowing which decorator was used."""
    assert dataclasses.replace(Point(1), y=7) == Point(1, 7)
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 2, "notes": []}
    assert [item.name for item in dataclasses.fields(Point)] == ["x", "y", "notes"]
    match Point(1, 4):
        case Point(x, y):
            assert (x, y) == (1, 4)
        case _:
            pytest.fail("the pattern did not match")
    assert str(inspect.signature(Point)).startswith("(x: 'int', y: 'int' = 2, notes: 'list[str]' =")


def test_each_object_has_its_own_default_from_a_factory() -> None:
    """A list that two events share would carry facts from one to the other."""
    assert Point(1).notes is not Point(1).notes


def test_it_survives_pickle_and_copy() -> None:
    """Spark ships values to its workers."""
    point = Point(1, 9, ["a"])
    for other in (pickle.loads(pickle.dumps(point)), copy.copy(point), copy.deepcopy(point)):
        assert other == point
        assert other.notes == ["a"]


def test_it_looks_at_itself_when_it_is_complete() -> None:
    """A check in `__post_init__` sees a finished, frozen object."""
    assert Checked(1).number == 1
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_missing_and_unknown_arguments_are_refused() -> None:
    """A typo in a field name must not make an incomplete message."""
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1, z=2)  # type: ignore[call-arg]


def test_what_it_cannot_do_is_refused_at_once() -> None:
    """Silently ignoring a field option would be found much later."""
    with pytest.raises(TypeError, match="standard"):

        @value
        class _Unset:
            number: int = field(init=False)

    with pytest.raises(TypeError, match="standard"):

        @value
        class _Keyword:
            number: int = field(kw_only=True)

    with pytest.raises(TypeError, match="standard"):

        @value
        class _Child(Checked):
            other: int

    with pytest.raises(TypeError, match="standard"):

        @value
        class _Init:
            number: InitVar[int]


@mutable
class Counter:
    """What a part keeps of one thing under way."""

    name: str
    count: int = 0
    seen: list[int] = field(default_factory=list)


@mutable
class Nothing:
    """No fields at all."""


def test_a_mutable_one_can_be_changed_and_equals_nothing_but_itself() -> None:
    """Two requests under way that look alike are two; mistaking one for the other loses an answer."""
    counter, other = Counter("a"), Counter("a")
    counter.count += 1
    counter.seen.append(5)
    assert repr(counter) == "Counter(name='a', count=1, seen=[5])"
    assert other.seen == []
    assert counter != Counter("a", 1, [5])
    assert len({counter, other}) == 2
    assert dataclasses.replace(counter, count=7).count == 7
    assert not hasattr(counter, "__dict__")
    assert repr(Nothing()) == "Nothing()"


def test_a_field_without_default_behind_one_that_has_one_is_refused_at_once() -> None:
    """Its constructor is written when it is first used, and that may be in production."""
    with pytest.raises(TypeError, match="second has no default, but first before it has one"):

        @value
        class _Wrong:
            first: int = 0
            second: int  # type: ignore[misc]


def test_the_constructor_is_written_once() -> None:
    """Values are made by the thousand; each of them must not write source."""

    @value
    class Late:
        number: int

    assert not inspect.isfunction(Late.__dict__["__init__"])
    assert Late(1).number == 1
    written = Late.__dict__["__init__"]
    assert inspect.isfunction(written)
    assert Late(2).number == 2
    assert Late.__dict__["__init__"] is written
