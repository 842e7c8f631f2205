"""Arithmetic of operators on single elements some of which are sizes; None stands for what is not known.

Shape arithmetic goes through floats, too: `floor(height * 0.5)`. There an element may be a `Ratio` until it is rounded.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from fusewise.ir.deciding import known_below, known_equal
from fusewise.ir.size import Size, greatest, least
from fusewise.records import record

__all__ = ["Ratio", "is_known_size", "on_sizes"]


@record(frozen=True)
class Ratio:
    """A size by a number, as floats have it."""

    whole: int
    by: int


def is_known_size(item: object) -> bool:
    """Is an element of a value an integer or a size?"""
    return isinstance(item, int | Size)


def on_sizes(op: str, operands: tuple[Any, ...], is_whole: bool) -> Any:
    """What `op` makes of elements some of which are sizes; `is_whole` for integers, whose quotients are truncated."""
    if op in ("And", "Or"):
        return _logical(op, operands)
    if op == "Where":
        return _chosen(*operands)
    if any(item is None for item in operands):
        return None
    numbers = tuple(int(item) if isinstance(item, float) and item.is_integer() else item for item in operands)
    if not is_whole and op in _WITH_RATIOS:
        found = _WITH_RATIOS[op](*numbers)
        if found is not None:
            return found
    rule = _RULES.get(op)
    if rule is None or not all(isinstance(item, int | Size) for item in numbers):
        return None
    if not is_whole and op in ("Div", "Mod"):
        return None
    return rule(*numbers)


def _logical(op: str, operands: tuple[Any, ...]) -> bool | None:
    decisive = op == "Or"
    if any(item is decisive for item in operands):
        return decisive
    return None if any(item is None for item in operands) else not decisive


def _chosen(condition: Any, a: Any, b: Any) -> Any:
    if condition is None:
        return a if is_known_size(a) and is_known_size(b) and known_equal(a, b) else None
    return a if condition else b


def _quotient(a: int, b: int) -> int | None:
    """ONNX truncates; what is not known to be negative or not is known where nothing is left over."""
    if not known_below(0, b) and not (isinstance(b, Size) and known_below(-1, b)):
        return None
    return a // b if known_below(-1, a) or known_equal(a % b, 0) else None


def _remainder(a: int, b: int) -> int | None:
    return a % b if known_below(0, b) else None


def _equal(a: int, b: int) -> bool | None:
    if known_equal(a, b):
        return True
    return False if known_below(a, b) or known_below(b, a) or _differ(a - b) else None


def _differ(size: int) -> bool:
    """Is the constant no multiple of what all other terms are?"""
    return isinstance(size, Size) and bool(size.constant % math.gcd(*(factor for _, factor in size.terms)))


def _less(a: int, b: int) -> bool | None:
    return True if known_below(a, b) else False if known_below(b - 1, a) else None


def _divided(a: Any, b: Any) -> Any:
    """A quotient of floats: a size where nothing is left over."""
    if not isinstance(a, Size) or not isinstance(b, int) or isinstance(b, Size) or b <= 0:
        return a // b if is_known_size(a) and isinstance(b, Size) and known_equal(a % b, 0) else None
    return a // b if known_equal(a % b, 0) else Ratio(a, b)


def _multiplied(a: Any, b: Any) -> Any:
    """A product with a float, where that is a fraction that floats have exactly."""
    size, factor = (a, b) if isinstance(a, Size) else (b, a)
    if not isinstance(size, Size) or not isinstance(factor, float) or not 0 < factor < 4096:
        return None
    fraction = Fraction(factor)
    return Ratio(size * fraction.numerator, fraction.denominator) if fraction.denominator <= 4096 else None


def _rounded(up: bool) -> Callable[[Any], Any]:
    def run(a: Any) -> Any:
        if isinstance(a, Ratio):
            return -(-a.whole // a.by) if up else a.whole // a.by
        return a if is_known_size(a) else None

    return run


def _truncated(a: Any) -> Any:
    """A float as an integer."""
    if isinstance(a, Ratio):
        return a.whole // a.by if known_below(-1, a.whole) else None
    return a if is_known_size(a) else None


_RULES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "Abs": lambda a: greatest(a, -a),
        "Add": operator.add,
        "Cast": lambda a: a,
        "Div": _quotient,
        "Equal": _equal,
        "Greater": lambda a, b: _less(b, a),
        "GreaterOrEqual": lambda a, b: _less(b - 1, a),
        "Less": _less,
        "LessOrEqual": lambda a, b: _less(a - 1, b),
        "Max": greatest,
        "Min": least,
        "Mod": _remainder,
        "Mul": operator.mul,
        "Neg": operator.neg,
        "Not": operator.not_,
        "Sub": operator.sub,
    }
)

_WITH_RATIOS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "Cast": _truncated,
        "Ceil": _rounded(up=True),
        "Div": _divided,
        "Floor": _rounded(up=False),
        "Mul": _multiplied,
    }
)
"""The same for floats."""
