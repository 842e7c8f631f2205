"""What one output element is, as an expression: the closed vocabulary that op rows are written in.

An operator's definition maps an output index to an expression over loads of its operands. Fusion is then substitution:
a load of a value made inside the group is replaced by that value's own expression. LLVM code, the interpreter and the
printer are three readings of the same tree.

Index expressions are ordinary expressions of dtype int64. Division and remainder of integers: `floordiv` and `floormod`
round to minus infinity (index arithmetic), `div` truncates as C does, with `fmod` as its remainder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from fusewise.ir.deciding import known_below, mapped
from fusewise.ir.dtypes import BOOL, INT64, DType
from fusewise.ir.size import Size, greatest, least

__all__ = [
    "BINARY",
    "COMPARE",
    "UNARY",
    "Expr",
    "Index",
    "IndexLike",
    "assignments",
    "binary",
    "bits",
    "bounded",
    "cast",
    "compare",
    "const",
    "index",
    "listing",
    "load",
    "reduce",
    "select",
    "substitute",
    "unary",
    "walk",
]

UNARY = frozenset(
    "neg abs sqrt exp expm1 log log1p erf sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh".split()
    + "floor ceil round sign sigmoid not bitnot isnan isinf".split()
)
"""`round` is half-to-even; `not` is logical (bool), `bitnot` bitwise; `isnan` and `isinf` give bool."""

BINARY = frozenset(
    "add sub mul div mod fmod floordiv floormod pow min max and or xor bitand bitor bitxor shl shr".split()
)
"""`min` and `max` propagate NaN, as ONNX's do; `mod` follows the sign of the divisor for floats and integers alike
(Python), `fmod` that of the dividend (C); `shr` is logical on unsigned types."""

COMPARE = frozenset("lt le eq ne gt ge".split())

REDUCE = frozenset("sum prod max min and or".split())


class Expr:
    """One expression node: `op`, result `dtype`, `args`, and a `value` for leaves and reductions.

    Leaves: `const` (value: a Python number), `index` (value: the axis name), `load` (value: the operand's name; args:
    one index per dimension of the operand). `reduce` has value `(kind, ((axis, extent), ...))` and one argument, its
    body; `bounded` has `(low, high, where the position was read)` and the position. Also `select` (condition, then, else),
    `cast`, and `bits`, which reads the bits of a number as one of another type. Hash is computed once, so deep trees are
    cheap keys.
    """

    __slots__ = ("_hash", "args", "dtype", "op", "value")

    op: str
    dtype: DType
    args: tuple[Expr, ...]
    value: Any
    _hash: int

    def __init__(self, op: str, dtype: DType, args: tuple[Expr, ...] = (), value: Any = None) -> None:
        self.op = op
        self.dtype = dtype
        self.args = args
        self.value = value
        # repr of the value keeps 0, False, 0.0 and -0.0 apart
        self._hash = hash((op, dtype.name, repr(value) if op == "const" else value, tuple(a._hash for a in args)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expr) or not self._is_like(other):
            return False
        waiting = [(x, y) for x, y in zip(self.args, other.args, strict=True) if x is not y]
        seen = set[tuple[int, int]]()
        while waiting:  # pairs, each once: written out, shared parts are many more, and deeper than the stack
            a, b = waiting.pop()
            if not a._is_like(b):
                return False
            for x, y in zip(a.args, b.args, strict=True):
                if x is not y and (id(x), id(y)) not in seen:
                    seen.add((id(x), id(y)))
                    waiting.append((x, y))
        return True

    def _is_like(self, other: Expr) -> bool:
        """Are both equal but for what their arguments are?"""
        if self._hash != other._hash or self.op != other.op or self.dtype != other.dtype:
            return False
        same = repr(self.value) == repr(other.value) if self.op == "const" else self.value == other.value
        return same and len(self.args) == len(other.args)

    def __repr__(self) -> str:
        return self.text([repr(a) for a in self.args])

    def text(self, args: Sequence[str]) -> str:
        """The expression in words, with texts for its arguments."""
        if self.op == "const":
            return f"{self.value}"
        if self.op == "index":
            return str(self.value)
        inside = ", ".join(args)
        if self.op == "load":
            return f"{self.value}[{inside}]"
        if self.op == "reduce":
            kind, axes = self.value
            return f"{kind}({', '.join(f'{a}<{n}' for a, n in axes)}: {inside})"
        if self.op in ("cast", "bits"):
            return f"{'' if self.op == 'cast' else 'bits as '}{self.dtype.name}({inside})"
        return f"{self.op}({inside})"

    def with_sizes(self, one_size: Callable[[Size], int]) -> Expr:
        """The same with what `one_size` gives for sizes among constants, extents and bounds."""

        def one(e: Expr) -> Expr | None:
            value = mapped(e.value, one_size) if e.op in ("const", "reduce", "bounded") else e.value
            return None if value is e.value else Expr(e.op, e.dtype, e.args, value)

        return substitute(self, one)

    # arithmetic reads as algebra in the op rows; a Python number takes the dtype of its partner
    def __add__(self, other: IndexLike) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: IndexLike) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: IndexLike) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: IndexLike) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: IndexLike) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: IndexLike) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: IndexLike) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: IndexLike) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: IndexLike) -> Expr:
        return binary("floordiv", self, other)

    def __mod__(self, other: IndexLike) -> Expr:
        return binary("floormod", self, other)

    def __neg__(self) -> Expr:
        return unary("neg", self)


IndexLike = Expr | int | float

Index = tuple[Expr, ...]
"""A place in a tensor: one expression for each dimension."""


def const(value: int | float | bool, dtype: DType = INT64) -> Expr:
    """A number of the given dtype; of a size that is none yet, an int64 that is converted to it."""
    if isinstance(value, Size):
        return cast(Expr("const", INT64, (), value), dtype)
    if dtype.kind == "bool":
        value = bool(value)
    elif dtype.is_integer:
        return _whole(int(value), dtype)
    elif dtype.is_float:
        value = float(value)
    return Expr("const", dtype, (), value)


@lru_cache(maxsize=4096)
def _whole(value: int, dtype: DType) -> Expr:
    return Expr("const", dtype, (), value)


@cache
def index(name: str) -> Expr:
    """The loop variable `name`, an int64."""
    return Expr("index", INT64, (), name)


def load(operand: str, dtype: DType, indices: tuple[IndexLike, ...]) -> Expr:
    """The element of `operand` at `indices`, one per dimension."""
    return Expr("load", dtype, tuple(as_expr(i, INT64) for i in indices), operand)


def as_expr(value: IndexLike, dtype: DType) -> Expr:
    """A Python number becomes a constant of `dtype`; an expression stays."""
    return value if isinstance(value, Expr) else const(value, dtype)


def unary(op: str, x: Expr) -> Expr:
    """Apply one of `UNARY`."""
    assert op in UNARY, op
    return Expr(op, BOOL if op in ("isnan", "isinf", "not") else x.dtype, (x,))


def binary(op: str, a: IndexLike, b: IndexLike) -> Expr:
    """Apply one of `BINARY`; integer index arithmetic on constants is folded on the spot."""
    assert op in BINARY, op
    dtype = a.dtype if isinstance(a, Expr) else b.dtype if isinstance(b, Expr) else INT64
    left, right = as_expr(a, dtype), as_expr(b, dtype)
    if dtype == INT64:
        folded = _fold_index(op, left, right)
        if folded is not None:
            return folded
    return Expr(op, dtype, (left, right))


_INDEX_FOLD: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "min": least,
    "max": greatest,
}


def _fold_index(op: str, a: Expr, b: Expr) -> Expr | None:
    if a.op != "const" and b.op != "const":
        return None
    known = a.op == "const" and b.op == "const" and op in _INDEX_FOLD
    if known and (op not in ("floordiv", "floormod") or not _is_number(b, 0)):
        result = _INDEX_FOLD[op](a.value, b.value)
        return const(result) if isinstance(result, Size) or -(2**63) <= result < 2**63 else None
    if op == "add":
        if _is_number(a, 0):
            return b
        if _is_number(b, 0):
            return a
    if op == "sub" and _is_number(b, 0):
        return a
    if op == "mul":
        for x, y in ((a, b), (b, a)):
            if _is_number(x, 1):
                return y
            if _is_number(x, 0):
                return x
    if op == "floordiv" and _is_number(b, 1):
        return a
    if op == "floormod" and _is_number(b, 1):
        return const(0)
    return None


def _is_number(e: Expr, number: int) -> bool:
    """Is it this very number, and no size that may be it?"""
    return e.op == "const" and type(e.value) is int and e.value == number


def compare(op: str, a: IndexLike, b: IndexLike) -> Expr:
    """Apply one of `COMPARE`; the result is bool. NaN compares false, but `ne` true."""
    assert op in COMPARE, op
    dtype = a.dtype if isinstance(a, Expr) else b.dtype if isinstance(b, Expr) else INT64
    return Expr(op, BOOL, (as_expr(a, dtype), as_expr(b, dtype)))


def select(condition: Expr, then: IndexLike, otherwise: IndexLike) -> Expr:
    """`then` where `condition` holds, else `otherwise`. Loads in the branch not taken are not performed."""
    dtype = then.dtype if isinstance(then, Expr) else otherwise.dtype if isinstance(otherwise, Expr) else INT64
    return Expr("select", dtype, (condition, as_expr(then, dtype), as_expr(otherwise, dtype)))


def bounded(position: Expr, low: int, high: int, operand: int, wraps: bool = False) -> Expr:
    """An int64 position that comes from data, kept between `low` and `high`, both included.

    One that lies elsewhere is read as `low`, and reported as found in that operand of the row's call; where it `wraps`, negative
    ones there were counted from the end, which is `high`.
    """
    if position.op == "const" and known_below(low - 1, position.value) and known_below(position.value, high + 1):
        return position
    return Expr("bounded", INT64, (position,), (low, high, (operand, wraps)))


def cast(x: Expr, dtype: DType) -> Expr:
    """Convert as ONNX `Cast` does without saturation options: float to integer truncates, to bool is `!= 0`."""
    return x if x.dtype == dtype else Expr("cast", dtype, (x,))


def bits(x: Expr, dtype: DType) -> Expr:
    """The number of a type of the same width in memory that has the bits of `x`."""
    if x.op == "bits":
        return bits(x.args[0], dtype)
    assert x.dtype.itemsize == dtype.itemsize, (x.dtype, dtype)
    return x if x.dtype == dtype else Expr("bits", dtype, (x,))


def reduce(kind: str, axes: tuple[tuple[str, int], ...], body: Expr) -> Expr:
    """Combine `body` over the index space of `axes` (name, extent); the order of combination is unspecified.

    An empty index space gives the identity of `kind`.
    """
    assert kind in REDUCE, kind
    return Expr("reduce", body.dtype, (body,), (kind, axes)) if axes else body


def walk(root: Expr, known: Container[Expr] = ()) -> list[Expr]:
    """Every distinct node below and including `root`, children before parents. What is `known` is left out, with all below it."""
    seen: dict[Expr, None] = {}
    stack = [root]
    while stack:
        depth = len(stack)
        for arg in stack[-1].args:
            if arg not in seen and arg not in known:
                stack.append(arg)
        if len(stack) == depth:
            seen[stack.pop()] = None
    return list(seen)


def rebuild(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """`node` with other arguments; index arithmetic folds again."""
    if all(a is b for a, b in zip(node.args, args, strict=True)):
        return node
    if node.op in BINARY:
        return binary(node.op, *args)
    return Expr(node.op, node.dtype, args, node.value)


def substitute(root: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild `root` from the leaves up; `replace` sees each rebuilt node and may return another in its place."""
    done: dict[Expr, Expr] = {}
    for node in walk(root):
        fresh = rebuild(node, tuple(done[arg] for arg in node.args))
        other = replace(fresh)
        done[node] = fresh if other is None else other
    return done[root]


def listing(roots: tuple[Expr, ...]) -> str:
    """The expressions as numbered instructions, shared parts once: a compact text, equal for equal expressions."""
    numbers: dict[Expr, int] = {}
    lines: list[str] = []
    for root in roots:
        for node in walk(root):
            if node not in numbers:
                numbers[node] = len(numbers)
                lines.append(f"{node.op} {node.dtype.name} {node.value!r} {[numbers[a] for a in node.args]}")
    return "\n".join([*lines, str([numbers[root] for root in roots])])


def assignments(roots: Mapping[str, Expr]) -> list[tuple[str, str]]:
    """The expressions in words, as (name, text): before them, as `t0 t1 ...`, what stands in several places or is long."""
    parts = list(dict.fromkeys(node for root in roots.values() for node in walk(root)))
    uses = Counter(arg for node in parts for arg in node.args)
    texts: dict[Expr, str] = {}
    found: list[tuple[str, str]] = []
    for node in parts:
        texts[node] = node.text([texts[arg] for arg in node.args])
        if len(texts[node]) > (_SHORT if uses[node] > 1 else _LONG):
            found.append((f"t{len(found)}", texts[node]))
            texts[node] = found[-1][0]
    return [*found, *((name, texts[root]) for name, root in roots.items())]


_SHORT, _LONG = 24, 100
"""Characters up to which a part is written out wherever it stands, and where it stands once."""


def substitute_indices(root: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replace loop variables by expressions."""
    return substitute(root, lambda e: values.get(e.value) if e.op == "index" else None)
