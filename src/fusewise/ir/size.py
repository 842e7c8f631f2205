"""Dimensions that are not numbers: integer polynomials over symbols, and over quotients, remainders and extrema of such.

A `Size` is always in canonical form, so two that are equal for all values of their symbols are nearly always one; what is a number
after all is a plain `int`. To the type checker a size is an `int`, and code that computes with dimensions takes both. Where only a
number will do (`range`, `int`, an array of numbers), a size raises `SizeNeeded`, so none is taken for one by mistake.

    (batch * sequence * 768) // 768          ->  batch*sequence
    (2 * n + 1) // 2                         ->  n
    -(-n // 2)                               ->  (n + 1)//2

Divisors are taken to be positive. Comparisons are answered by structure and ranges; what these do not tell is answered by
`ir.deciding`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from fusewise.errors import ResourceLimit
from fusewise.ir.asking import DECIDER, Decider, Undecided, is_nonnegative, is_zero, known
from fusewise.ir.bounds import Written, bounds_of
from fusewise.ir.monomial import (
    LARGEST,
    Atom,
    Compound,
    Monomial,
    Symbol,
    key_of,
    lone_atom,
    lone_quotient,
    order,
    over,
    shares,
    text_of_sum,
    times,
)

__all__ = [
    "COMPOUNDS",
    "DECIDER",
    "LARGEST",
    "Compound",
    "Decider",
    "Size",
    "SizeNeeded",
    "Symbol",
    "Undecided",
    "evaluate",
    "greatest",
    "is_nonnegative",
    "is_zero",
    "known",
    "least",
    "quotient",
    "remainder",
    "size_of",
    "substitute",
    "symbols_of",
]


class SizeNeeded(TypeError):
    """A number is needed where only a size in terms of symbols is known."""


if TYPE_CHECKING:
    _Base = int
else:
    _Base = object


class Size(_Base):
    """constant + sum of coefficient * product of atoms; at least one term, no coefficient 0."""

    __slots__ = ("_bounds", "_hash", "_text", "constant", "terms")

    constant: int
    terms: tuple[tuple[Monomial, int], ...]
    _bounds: tuple[int, int] | None
    _hash: int
    _text: str

    def __new__(cls, constant: int, terms: tuple[tuple[Monomial, int], ...]) -> Size:
        self = object.__new__(cls)
        self.constant, self.terms, self._bounds, self._text = constant, terms, None, ""
        self._hash = hash((constant, terms))
        return self

    @property
    def symbol(self) -> Symbol | None:
        """The symbol that it is, if it is one."""
        atom = lone_atom(self.constant, self.terms)
        return atom if isinstance(atom, Symbol) else None

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest that it can be, as far as is known; beyond +-2**200 nothing is."""
        if self._bounds is None:
            self._bounds = bounds_of(Written(self), _made)
        return self._bounds

    # --- arithmetic -----------------------------------------------------------------------------------------------

    def __add__(self, other: int) -> Any:
        right = _number(other)
        if right is None:
            return NotImplemented
        if isinstance(right, int) and not isinstance(right, Size):
            return Size(self.constant + right, self.terms) if right else self
        return _made(self.constant + right.constant, [*self.terms, *right.terms])

    def __mul__(self, other: int) -> Any:
        right = _number(other)
        if right is None:
            return NotImplemented
        if isinstance(right, Size):
            return _product(self, right)
        if right in (0, 1):
            return self if right else 0
        return Size(self.constant * right, tuple([(m, c * right) for m, c in self.terms]))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return _negated(self)

    def __sub__(self, other: int) -> Any:
        right = _number(other)
        return NotImplemented if right is None else self.__add__(-right)

    def __rsub__(self, other: int) -> int:
        left = _number(other)
        return NotImplemented if left is None else left + _negated(self)

    def __floordiv__(self, other: int) -> int:
        right = _number(other)
        return NotImplemented if right is None else quotient(self, right)

    def __rfloordiv__(self, other: int) -> int:
        left = _number(other)
        return NotImplemented if left is None else quotient(left, self)

    def __mod__(self, other: int) -> int:
        right = _number(other)
        return NotImplemented if right is None else remainder(self, right)

    def __rmod__(self, other: int) -> int:
        left = _number(other)
        return NotImplemented if left is None else remainder(left, self)

    def __divmod__(self, other: int) -> tuple[int, int]:
        return self // other, self % other

    def __pow__(self, other: int) -> Any:  # type: ignore[override]
        return math.prod([self] * operator.index(other))

    def __abs__(self) -> Any:
        return greatest(self, -self)

    # --- comparison -----------------------------------------------------------------------------------------------

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        right = _number(other)
        if right is None:
            return NotImplemented
        if isinstance(right, Size) and self._hash == right._hash and self._is(right):
            return True
        return is_zero(self - right)

    def __ne__(self, other: object) -> bool:
        found = self.__eq__(other)
        return found if found is NotImplemented else not found

    def __le__(self, other: int) -> bool:
        right = _number(other)
        return NotImplemented if right is None else is_nonnegative(right - self)

    def __lt__(self, other: int) -> bool:
        right = _number(other)
        return NotImplemented if right is None else is_nonnegative(right - self - 1)

    def __ge__(self, other: int) -> bool:
        right = _number(other)
        return NotImplemented if right is None else is_nonnegative(self - right)

    def __gt__(self, other: int) -> bool:
        right = _number(other)
        return NotImplemented if right is None else is_nonnegative(self - right - 1)

    def __bool__(self) -> bool:
        return not is_zero(self)

    def _is(self, other: Size) -> bool:
        """Are both written alike? Compares keys, since comparing parts could ask for a decision."""
        return self.constant == other.constant and str(self) == str(other) and symbols_of(self) == symbols_of(other)

    # --- what only numbers can ------------------------------------------------------------------------------------

    def _needs(self, *_: object) -> NoReturn:
        raise SizeNeeded(f"a number is needed here, and {self} is not one")

    __index__ = __int__ = __float__ = __trunc__ = __round__ = _needs
    __truediv__ = __rtruediv__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _needs
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _needs
    bit_length = __bytes__ = _needs

    def __str__(self) -> str:
        if not self._text:
            self._text = text_of_sum(self.constant, self.terms)
        return self._text

    __repr__ = __str__

    def __format__(self, specification: str) -> str:
        return format(str(self), specification)

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (self.constant, self.terms)


def size_of(symbol: Symbol) -> int:
    """A symbol as a size; the number itself where it can only be one."""
    return symbol.low if symbol.low == symbol.high else Size(0, ((((symbol, 1),), 1),))


def least(*sizes: int) -> Any:
    """The smallest of several, as a size where it is not known which."""
    return _extremum("min", sizes) if Size in map(type, sizes) else min(sizes)


def greatest(*sizes: int) -> Any:
    """The largest of several, as a size where it is not known which."""
    return _extremum("max", sizes) if Size in map(type, sizes) else max(sizes)


def symbols_of(size: int) -> frozenset[Symbol]:
    """The symbols that occur in a size."""
    if not isinstance(size, Size):
        return frozenset()
    found: set[Symbol] = set()
    for atom in (atom for monomial, _ in size.terms for atom, _ in monomial):
        if isinstance(atom, Symbol):
            found.add(atom)
        else:
            found = found.union(*map(symbols_of, atom.args))
    return frozenset(found)


def substitute(size: int, values: Mapping[str, int]) -> int:
    """With numbers or sizes for symbols, by name; those that are not mentioned stay."""
    if not isinstance(size, Size):
        return size
    total: int = size.constant
    for monomial, coefficient in size.terms:
        term: int = coefficient
        for atom, power in monomial:
            if isinstance(atom, Symbol):
                value = values.get(atom.name, size_of(atom))
            else:
                value = COMPOUNDS[atom.op](*(substitute(a, values) for a in atom.args))
            term = term * value**power
        total = total + term
    return total


def evaluate(size: int, values: Mapping[str, int]) -> int:
    """The number that a size is for these values of its symbols. Raises `KeyError` for one without, `ZeroDivisionError`."""
    if not isinstance(size, Size):
        return size
    total = size.constant
    for monomial, coefficient in size.terms:
        for atom, power in monomial:
            coefficient *= _value(atom, values) ** power
        total += coefficient
    return total


def _value(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        return values[atom.name]
    args = [evaluate(a, values) for a in atom.args]
    if atom.op in ("min", "max"):
        return min(args) if atom.op == "min" else max(args)
    return args[0] // args[1] if atom.op == "floordiv" else args[0] % args[1]


# --- canonical forms ----------------------------------------------------------------------------------------------------


def _number(value: object) -> Any:
    """A size or an int; None for what is neither."""
    if isinstance(value, Size):
        return value
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _made(constant: int, terms: list[tuple[Monomial, int]]) -> Any:
    """The sum, equal monomials joined: a size, or a number."""
    found: dict[tuple[tuple[str, int], ...], tuple[Monomial, int]] = {}
    for monomial, coefficient in terms:
        key = key_of(monomial)
        before = found.get(key)
        found[key] = monomial, coefficient + (0 if before is None else before[1])
    kept = [term for term in found.values() if term[1]]
    return Size(constant, tuple(sorted(kept, key=order))) if kept else constant


def _negated(size: Size) -> Any:
    return Size(-size.constant, tuple((monomial, -coefficient) for monomial, coefficient in size.terms))


def _all_terms(size: int) -> list[tuple[Monomial, int]]:
    """Terms with the constant among them."""
    if not isinstance(size, Size):
        return [((), size)] if size else []
    return [*size.terms, ((), size.constant)] if size.constant else list(size.terms)


def _sum(terms: list[tuple[Monomial, int]]) -> Any:
    return _made(sum(c for m, c in terms if not m), [term for term in terms if term[0]])


MOST_TERMS = 1024
"""Of a size; a product that would have more is refused."""


@lru_cache(maxsize=4096)
def _product(left: int, right: int) -> Any:
    a, b = (len(size.terms) + 1 if isinstance(size, Size) else 1 for size in (left, right))
    if a * b > MOST_TERMS and min(a, b) > 1:
        raise ResourceLimit(f"the product of two sizes would be a sum of {a * b:,} terms; the limit is {MOST_TERMS:,}")
    return _sum([(times(m, n), c * d) for m, c in _all_terms(left) for n, d in _all_terms(right)])


def _divided(whole: int, by: int) -> tuple[Any, Any]:
    """whole = quotient * by + rest, with as much in the quotient as goes by whole terms."""
    terms, divisor = _all_terms(whole), _all_terms(by)
    (leading, coefficient), quotient = divisor[0], []
    rest: Any = whole
    for _ in range(64):
        for monomial, c in _all_terms(rest):
            share = over(monomial, leading)
            if share is not None and c // coefficient and (len(divisor) == 1 or c % coefficient == 0):
                piece = [(share, c // coefficient)]
                break
        else:
            break
        quotient += piece
        rest = rest - _product(_sum(piece), by)
    if len(divisor) > 1 and isinstance(rest, Size) and len(_all_terms(rest)) >= len(terms):
        return 0, whole  # no simpler than before
    return _sum(quotient), rest


def quotient(whole: int, by: int) -> Any:
    """whole // by."""
    if not isinstance(whole, Size) and whole == 0:
        return 0
    if not isinstance(by, Size):
        if by == 1:
            return whole
        if by < 0:
            return quotient(-whole, -by)
        if by == 0:
            raise ZeroDivisionError("a size is divided by zero")
    if not isinstance(whole, Size) and not isinstance(by, Size):
        return whole // by
    if not isinstance(by, Size):
        assert isinstance(whole, Size)
        inside = _made(whole.constant // by, shares(whole.terms, by))
        rest = whole - inside * by
        if _first(rest) < 0 <= _first(by - 1 - rest):
            return inside - quotient(by - 1 - rest, by)
        return inside + _small_quotient(rest, by)
    if _first(whole) < 0 <= _first(by - 1 - whole):
        return -quotient(by - 1 - whole, by)
    inside, rest = _divided(whole, by)
    if _first(rest) < 0 <= _first(by - 1 - rest):
        return inside - quotient(by - 1 - rest, by)
    return inside + _small_quotient(rest, by)


def _first(size: int) -> int:
    """The coefficient of the first term; a number itself."""
    return size.terms[0][1] if isinstance(size, Size) else size


def _small_quotient(rest: int, by: int) -> Any:
    if not isinstance(rest, Size) and (rest == 0 or not isinstance(by, Size)):
        return rest // by if rest else 0
    if _provably(rest) and _provably(by - 1 - rest):
        return 0
    if isinstance(rest, Size) and not isinstance(by, Size):
        factor = math.gcd(by, *(c for _, c in rest.terms))
        if factor > 1:
            parts = [(m, c // factor) for m, c in rest.terms]
            return quotient(_made(rest.constant // factor, parts), by // factor)
    lone = lone_atom(rest.constant, rest.terms) if isinstance(rest, Size) else None
    if isinstance(lone, Compound) and lone.op in ("min", "max") and not isinstance(by, Size):
        return _extremum(lone.op, tuple(quotient(a, by) for a in lone.args))
    inner = lone_quotient(rest.constant, rest.terms) if isinstance(rest, Size) else None
    if inner is not None:
        first, second = inner.args
        return quotient(first + (rest - _atom(inner.op, inner.args)) * second, _product(second, by))
    return _atom("floordiv", (rest, by))


def remainder(whole: int, by: int) -> Any:
    """whole % by; by a number, what its quotient leaves over."""
    if not isinstance(whole, Size) and whole == 0:
        return 0
    if not isinstance(whole, Size) and not isinstance(by, Size):
        return whole % by
    if not isinstance(by, Size):
        return whole - quotient(whole, by) * by
    whole = _divided(whole, by)[1]
    if not isinstance(whole, Size) and whole == 0:
        return 0
    for candidate in (whole, whole + by):
        if _provably(candidate) and _provably(by - 1 - candidate):
            return candidate
    return _atom("mod", (whole, by))


def _extremum(op: str, sizes: tuple[int, ...]) -> Any:
    flat: list[int] = []
    for size in sizes:
        inner = lone_atom(size.constant, size.terms) if isinstance(size, Size) else None
        flat.extend(inner.args if isinstance(inner, Compound) and inner.op == op else (size,))
    kept: list[int] = []
    for one in flat:
        if any(_goes_before(op, other, one) for other in kept):
            continue
        kept = [other for other in kept if not _goes_before(op, one, other)] + [one]
    return kept[0] if len(kept) == 1 else _atom(op, tuple(sorted(kept, key=str)))


def _goes_before(op: str, a: int, b: int) -> bool:
    """Is a never above (for `max`: below) b?"""
    return _provably(b - a if op == "min" else a - b)


def _atom(op: str, args: tuple[int, ...]) -> Size:
    return Size(0, ((((Compound(op, args), 1),), 1),))


COMPOUNDS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"floordiv": quotient, "mod": remainder, "min": least, "max": greatest}
)
"""What makes a compound, by its name."""


def _provably(size: int) -> bool:
    """Is it never negative?"""
    return size.bounds[0] >= 0 if isinstance(size, Size) else size >= 0
