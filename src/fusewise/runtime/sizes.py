"""What inputs say about a program's symbols, and what is wrong with shapes and elements that do not fit each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

from fusewise.errors import NamesContradicted, UsageError
from fusewise.ir.deciding import Condition
from fusewise.ir.graph import Check
from fusewise.ir.size import LARGEST, Size, Symbol, evaluate, size_of, symbols_of
from fusewise.ir.types import Dim, TensorType
from fusewise.lower.program import Port
from fusewise.records import record

__all__ = ["SymbolReader", "divided_by_zero", "named", "negative_output", "symbol_of", "told"]

Shape = tuple[int, ...]


def symbol_of(dim: Dim) -> Symbol | None:
    """The symbol that a dimension is, if it is one alone."""
    return dim.symbol if isinstance(dim, Size) else None


def named(port: Port) -> Port:
    """A port as users see it: with the names of its symbols for dimensions that are free, and other sizes written out."""
    kind = port.type
    if not isinstance(kind, TensorType) or kind.shape is None:
        return port
    return Port(
        port.name, TensorType(kind.dtype, tuple(str(d) if isinstance(d, Size) else d for d in kind.shape)), port.buffer
    )


def told(values: Mapping[str, int], size: int | None = None) -> str:
    """The values of symbols, of those in a size if one is given: `batch=2, sequence=128`."""
    names = values if size is None else sorted(symbol.name for symbol in symbols_of(size))
    return ", ".join(f"{name}={values[name]}" for name in names)


def divided_by_zero(shapes: Sequence[Shape]) -> UsageError:
    """What is said of inputs of such shapes."""
    dims = ", ".join("x".join(map(str, shape)) or "()" for shape in shapes)
    return UsageError(f"the model divides a size by 0 for inputs of the shapes {dims}: use larger ones")


def negative_output(outputs: Sequence[Port], values: Mapping[str, int]) -> UsageError | None:
    """What is said of the first output that would have less than no elements for these values of symbols."""
    for port in outputs:
        for axis, dim in enumerate(port.type.dims if isinstance(port.type, TensorType) and port.type.is_static else ()):
            number = evaluate(dim, values)
            if number < 0:
                return UsageError(
                    f"output {port.name!r} would have {number} elements along axis {axis} for {told(values)}"
                )
    return None


@record(frozen=True, slots=True)
class _Axis:
    """A dimension, or an element, of an input: the number of the row, and the place in it."""

    row: int
    axis: int


class SymbolReader:
    """Reads the values of symbols from the inputs: each from the first dimension that is just it, or else from such an element.

    It is given rows of numbers: the shapes of the inputs at `shaped`, then the elements of those at `read` (`rows`).

    `ValueError` for a symbol that no input has by itself.
    """

    def __init__(self, symbols: Sequence[Symbol], inputs: Sequence[Port], checks: Sequence[Check]) -> None:
        self.symbols = tuple(symbols)
        self.shaped = tuple(k for k, port in enumerate(inputs) if _shape_of(port) is not None)
        self.read = tuple(k for k, port in enumerate(inputs) if port.contents)
        self._names = tuple(inputs[k].name for k in (*self.shaped, *self.read))
        shapes = [_shape_of(inputs[k]) or () for k in self.shaped]
        self._shapes: tuple[Shape, ...] = (*shapes, *(inputs[k].contents for k in self.read))
        self.ranks = tuple(map(len, self._shapes))
        self._checks = tuple(checks)
        found: dict[str, _Axis] = {}
        for number, shape in enumerate(self._shapes):
            for axis, dim in enumerate(shape):
                symbol = symbol_of(dim)
                if symbol is not None:
                    found.setdefault(symbol.name, _Axis(number, axis))
        missing = [symbol.name for symbol in symbols if symbol.name not in found]
        if missing:
            raise ValueError(f"dimension {missing[0]!r} is that of no input")
        self._where = tuple((symbol.name, found[symbol.name]) for symbol in symbols)

    def rows(self, values: Sequence[Any]) -> tuple[Shape, ...]:
        """What is read of the inputs."""
        shapes = [values[k].shape for k in self.shaped]
        return tuple(shapes + [tuple(values[k].reshape(-1).tolist()) for k in self.read] if self.read else shapes)

    @property
    def positions(self) -> dict[str, int]:
        """Of each symbol the position of its number among those of all rows, one behind the other."""
        starts = list(accumulate(map(len, self._shapes), initial=0))
        return {name: starts[at.row] + at.axis for name, at in self._where}

    @property
    def dimensions(self) -> list[tuple[int, int]]:
        """Positions and sizes of all numbers that are not just read."""
        read = set(self.positions.values())
        return [(k, dim) for k, dim in enumerate(chain.from_iterable(self._shapes)) if k not in read]

    @property
    def conditions(self) -> list[Condition]:
        """What must hold of symbols: their ranges, and the program's checks."""
        ranges = [
            Condition("nonnegative", difference)
            for symbol in self.symbols
            for difference in (size_of(symbol) - symbol.low, symbol.high - size_of(symbol))
        ]
        return [*ranges, *(check.condition for check in self._checks)]

    def values(self, shapes: Sequence[Shape]) -> dict[str, int]:
        """The symbols' values by name, given the rows. `UsageError` for shapes that do not fit."""
        for number, (wanted, shape) in enumerate(zip(self._shapes, shapes, strict=True)):
            numbers = all(isinstance(want, Size) or want == have for want, have in zip(wanted, shape, strict=False))
            if len(wanted) != len(shape) or not numbers:
                expected, found = ("x".join(map(str, dims)) if dims else "() (a scalar)" for dims in (wanted, shape))
                what = "shape" if number < len(self.shaped) else "elements"
                raise UsageError(f"input {self._names[number]!r}: expected {what} {expected}, found {found}")
        values = {name: shapes[at.row][at.axis] for name, at in self._where}
        for symbol, (_, at) in zip(self.symbols, self._where, strict=True):
            if not symbol.low <= values[symbol.name] <= symbol.high:
                allowed = f"at least {symbol.low}" if symbol.high == LARGEST else f"{symbol.low} to {symbol.high}"
                raise UsageError(
                    f"dimension {symbol.name!r} is {values[symbol.name]} in {self._place(at)}, and must be {allowed}"
                )
        for number, (wanted, shape) in enumerate(zip(self._shapes, shapes, strict=True)):
            for axis, (want, have) in enumerate(zip(wanted, shape, strict=True)):
                if isinstance(want, Size):
                    self._compare(_Axis(number, axis), want, have, values)
        return values

    def check(self, values: Mapping[str, int]) -> None:
        """Raise `UsageError` for the first check of the program that these values fail."""
        for check in self._checks:
            if not check.condition.holds(values):
                size = check.condition.size
                raise UsageError(f"{check.sentence} ({size} is {evaluate(size, values)} for {told(values, size)})")

    def _compare(self, at: _Axis, want: Size, have: int, values: Mapping[str, int]) -> None:
        wanted = evaluate(want, values)
        if wanted == have:
            return
        origin = dict(self._where)
        if want.symbol is not None:
            first = self._place(origin[want.symbol.name])
            raise NamesContradicted(
                f"dimension {want.symbol.name!r} is {wanted} in {first} and {have} in {self._place(at)}"
            )
        parts = ", ".join(
            f"{s.name}={values[s.name]} ({self._place(origin[s.name])})"
            for s in sorted(symbols_of(want), key=lambda s: s.name)
        )
        raise UsageError(f"{self._place(at)} is {have}, where {want} is {wanted} for {parts}")

    def _place(self, at: _Axis) -> str:
        what = "axis" if at.row < len(self.shaped) else "element"
        return f"{what} {at.axis} of input {self._names[at.row]!r}"


def _shape_of(port: Port) -> Shape | None:
    """The shape of a tensor of known rank that is known in terms of symbols."""
    return port.type.dims if isinstance(port.type, TensorType) and port.type.is_static else None
