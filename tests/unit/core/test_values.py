"""`value`: frozen classes that share their methods."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, field, fields, replace
from types import FunctionType

import pytest

from pinfold.core.values import value


@value()
class Point:
    """Where something is."""

    x: int
    y: int = 0


@value()
class Spot:
    """The same fields in another class."""

    x: int
    y: int = 0


@value(kw_only=True)
class Named:
    """Fields that are always named."""

    why: str
    note: str = field(default="", metadata={"for": "people"})


def test_values_are_equal_if_their_class_and_fields_are() -> None:
    assert Point(1) == Point(1, 0)
    assert Point(1) != Point(2)
    others: list[object] = [Spot(1), (1, 0)]
    assert Point(1) not in others
    assert len({Point(1), Point(1, 0), Point(2)}) == 2


def test_a_field_is_neither_set_nor_deleted() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="'x'"):
        point.x = 2  # type: ignore[misc]  # what is tried
    with pytest.raises(FrozenInstanceError, match="'y'"):
        del point.y
    assert not hasattr(point, "__dict__")


def test_a_value_is_copied_pickled_replaced_and_matched_as_a_dataclass() -> None:
    point = Point(1, 2)
    assert copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point  # noqa: S301 - our own
    assert replace(point, y=3) == Point(1, 3)
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_fields_can_be_given_by_name_only() -> None:
    assert repr(Named(why="so")) == "Named(why='so', note='')"
    assert [each.metadata.get("for") for each in fields(Named)] == [None, "people"]
    with pytest.raises(TypeError):
        Named("so")  # type: ignore[call-arg]  # what is tried


def test_two_classes_share_all_methods_so_that_a_class_takes_little_memory() -> None:
    methods = {name: made for name, made in vars(Point).items() if isinstance(made, FunctionType)}
    assert {"__init__", "__eq__", "__hash__", "__repr__", "__setattr__", "__delattr__"} <= methods.keys()
    assert all(vars(Spot)[name] is made for name, made in methods.items())


@pytest.mark.parametrize(
    ("given", "named", "told"),
    [
        pytest.param((), {"y": 1}, "0 by position, y", id="a field without a default is left out"),
        pytest.param((1, 2, 3), {}, "3 by position", id="too many"),
        pytest.param((1,), {"z": 1}, "1 by position, z", id="a field of another class"),
        pytest.param((1,), {"x": 1}, "1 by position, x", id="by position and by name"),
    ],
)
def test_wrong_fields_are_refused(given: tuple[int, ...], named: dict[str, int], told: str) -> None:
    with pytest.raises(TypeError, match=f"^Point has x, y; given were {told}$"):
        Point(*given, **named)


def test_a_class_keeps_the_methods_that_it_writes_itself() -> None:
    @value()
    class Told:
        x: int

        def __repr__(self) -> str:
            return "told"

    assert repr(Told(1)) == "told"
