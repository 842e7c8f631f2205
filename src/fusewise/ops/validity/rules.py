"""The kinds of rules that rows of validity are made of: each takes what it is about and gives a function of one use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fusewise.ir.dtypes import dtype_of_onnx
from fusewise.ops.validity.use import Rule, Size, Use, shown

__all__ = [
    "at_least",
    "axes",
    "axes_of_operand",
    "axis",
    "axis_of_operand",
    "between",
    "counted",
    "dim",
    "divides",
    "element_type",
    "elements",
    "flag",
    "given",
    "needs",
    "one_of",
    "permutation",
    "rank",
    "values_within",
]


def rank(i: int, times: int = 1, less: int = 0) -> Size:
    """The rank of operand `i`, `less` dimensions left out, that many times."""

    def size(use: Use) -> int | None:
        found = use.rank(i)
        return None if found is None else times * max(found - less, 0)

    return size


def dim(i: int, position: int) -> Size:
    """One extent of operand `i`."""
    return lambda use: use.extent(i, position)


def given(name: str) -> Size:
    """The value of an attribute."""
    return lambda use: use.attribute(name)


def _items(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _bounds(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f"must lie between {least} and {most}"
    return f"must be {least} or more" if least is not None else f"must be {most} or less"


def _outside(values: Sequence[Any], least: float | None, most: float | None) -> bool:
    return any(not ((least is None or value >= least) and (most is None or value <= most)) for value in values)


def between(name: str, least: float | None, most: float | None = None) -> Rule:
    """A number, or each of a list of numbers, within bounds."""

    def rule(use: Use) -> str:
        value = use.attribute(name)
        if value is None or not _outside(_items(value), least, most):
            return ""
        return f"its attribute {name} is {shown(value)}; it {_bounds(least, most)}"

    return rule


def at_least(least: float, *names: str) -> Rule:
    """Numbers, or lists of numbers, of which none is smaller."""
    rules = tuple(between(name, least) for name in names)
    return lambda use: _first(rules, use)


def _first(rules: tuple[Rule, ...], use: Use) -> str:
    return next((fault for rule in rules if (fault := rule(use))), "")


def one_of(name: str, *choices: Any) -> Rule:
    """An attribute, or each of a list, with one of a few values."""

    def rule(use: Use) -> str:
        value = use.attribute(name)
        if value is None or all(item in choices for item in _items(value)):
            return ""
        return f"its attribute {name} is {shown(value)}; it must be one of {', '.join(map(repr, choices))}"

    return rule


def flag(*names: str) -> Rule:
    """Attributes that are 0 or 1."""
    rules = tuple(one_of(name, 0, 1) for name in names)
    return lambda use: _first(rules, use)


def element_type(name: str, *, floats: bool = False) -> Rule:
    """An attribute that is the number of an element type, or 0 where that is the default."""

    def rule(use: Use) -> str:
        value = use.attribute(name)
        if value is None or (value == 0 and use.default(name) == 0):
            return ""
        try:
            kind = dtype_of_onnx(value)
        except KeyError:
            return f"its attribute {name} is {value}, which is no element type"
        return f"its attribute {name} is {value}; it must be of floats" if floats and not kind.is_float else ""

    return rule


def axis(name: str = "axis", of: int = 0, more: int = 0, below: int | None = None) -> Rule:
    """An axis of operand `of`, counted from the front or, if negative, from the back.

    `more`: how many dimensions further it may point, such as to a new one. `below`: the lowest value where negative ones
    are not counted from the back.
    """

    def rule(use: Use) -> str:
        value, known = use.attribute(name), use.rank(of)
        if value is None:
            return ""
        least, most = _span(known, more, below)
        if not _outside((value,), least, most):
            return ""
        return f"its attribute {name} is {value}; for {_ranked(use, of)} it {_bounds(least, most)}"

    return rule


def _span(known: int | None, more: int, below: int | None) -> tuple[int | None, int | None]:
    if known is None:
        return below, None
    return (-(known + more) if below is None else below), known + more - 1


def _ranked(use: Use, of: int) -> str:
    return f"{use.operand(of)} of rank {use.rank(of)}"


def axes(name: str = "axes", of: int = 0, more: int = 0) -> Rule:
    """Different axes of operand `of`."""

    def rule(use: Use) -> str:
        value, known = use.attribute(name), use.rank(of)
        if value is None:
            return ""
        fault = _axes_fault(value, known, more)
        return f"its attribute {name} is {shown(value)}; for {_ranked(use, of)} {fault}" if fault else ""

    return rule


def _axes_fault(values: Sequence[int], known: int | None, more: int = 0, distinct: bool = True) -> str:
    """What is wrong with axes into `known` dimensions and `more` new ones for each axis given."""
    if known is None:
        return ""
    span = known + more * len(values)
    if any(not -span <= value < span for value in values):
        return f"each must lie between {-span} and {span - 1}"
    twice = distinct and len({value % span for value in values}) < len(values)
    return "none may occur twice" if twice else ""


def axes_of_operand(i: int, of: int = 0, more: int = 0, distinct: bool = True) -> Rule:
    """Operand `i`, when it is known, holds axes of operand `of`, different ones where that is asked."""

    def rule(use: Use) -> str:
        values = use.values(i)
        fault = "" if values is None else _axes_fault(values, use.rank(of), more, distinct)
        return f"{use.operand(i)} is {shown(values)}; for {_ranked(use, of)} {fault}" if fault else ""

    return rule


def axis_of_operand(i: int, of: int = 0, last: int = 0) -> Rule:
    """Operand `i`, when it is known, is an axis of operand `of`, which is none of its `last` ones."""

    def rule(use: Use) -> str:
        values, known = use.values(i), use.rank(of)
        if values is None or known is None or len(values) != 1:
            return ""
        if -known <= values[0] < known and (values[0] + known) % known < known - last:
            return ""
        return f"{use.operand(i)} is {values[0]}; it must be an axis of {_ranked(use, of)}" + (
            f", and none of the last {last}" if last else ""
        )

    return rule


def permutation(name: str, of: int = 0) -> Rule:
    """Every axis of operand `of`, once each."""

    def rule(use: Use) -> str:
        value = use.attribute(name)
        known = use.rank(of)
        if value is None or sorted(value) == list(range(len(value) if known is None else known)):
            return ""
        wanted = "0, 1, ... in some order" if known is None else f"the numbers from 0 to {known - 1} in some order"
        return f"its attribute {name} is {shown(value)}; it must be {wanted}"

    return rule


def counted(name: str, size: Size, what: str) -> Rule:
    """An attribute that is a list of so many items; `what` says what they are counted by."""

    def rule(use: Use) -> str:
        value, wanted = use.attribute(name), size(use)
        if not value or wanted is None or len(value) == wanted:  # an empty list is as good as none
            return ""
        return f"its attribute {name} has {len(value)} items; it must have {wanted}, {what}"

    return rule


def elements(i: int, size: Size, what: str) -> Rule:
    """Operand `i` has so many elements in one dimension."""

    def rule(use: Use) -> str:
        shape, wanted = use.shape(i), size(use)
        if shape is None or (
            len(shape) == 1 and (wanted is None or shape[0] == wanted or not isinstance(shape[0], int))
        ):
            return ""
        must = "one dimension" if wanted is None else f"the shape [{wanted}]"
        return f"{use.operand(i)} has the shape {shown(shape)}; it must have {must}, {what}"

    return rule


def divides(divisor: Size, size: Size, what: str) -> Rule:
    """One number divides another."""

    def rule(use: Use) -> str:
        small, large = divisor(use), size(use)
        if small is None or large is None or (small > 0 and large % small == 0):
            return ""
        return f"{what}: {large} is no multiple of {small}"

    return rule


def values_within(i: int, least: float | None, most: float | None = None) -> Rule:
    """The elements of operand `i`, when they are known, lie within bounds."""

    def rule(use: Use) -> str:
        values = use.values(i)
        if values is None or not _outside(values, least, most):
            return ""
        what = "it" if len(values) == 1 else "each"
        return f"{use.operand(i)} is {shown(values[0] if len(values) == 1 else values)}; {what} {_bounds(least, most)}"

    return rule


def needs(test: Callable[[Use], bool | None], what: str) -> Rule:
    """Something that must not be false; `what` says so as a whole."""
    return lambda use: what if test(use) is False else ""
