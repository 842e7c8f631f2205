"""Index arithmetic that operator rows share: broadcasting, reshaping, axes and integer parameters.

Everything here takes a call (static shapes) and an output index, one expression per dimension, and gives the index into an
operand. Unit dimensions are always read at 0, so that the maps stay short.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fusewise.ir.deciding import hint, known_below, known_equal, known_one
from fusewise.ir.dtypes import FLOAT32, INT64, DType
from fusewise.ir.graph import Constant
from fusewise.ir.size import Size
from fusewise.ir.types import TensorType
from fusewise.ops.expr import Expr, binary, bounded, cast, compare, const, select
from fusewise.ops.spec import Call, NotDefined

__all__ = [
    "aligned",
    "chosen",
    "clamped",
    "compute_type",
    "data_axis",
    "dims",
    "integers",
    "is_static",
    "known_integers",
    "linear",
    "may_be_equal",
    "output_dims",
    "reshaped",
    "spread",
    "unlinear",
    "value",
    "within",
    "wrapped",
]


def dims(call: Call, i: int = 0) -> tuple[int, ...]:
    """The static shape of operand `i`."""
    return call.input(i).dims


def output_dims(call: Call, output: int = 0) -> tuple[int, ...]:
    """The static shape of an output; a call whose output 0 was not asked for has none."""
    return call.output(output).dims


def compute_type(dtype: DType) -> DType:
    """The type arithmetic on `dtype` is done in: float16 and bfloat16 are computed as float32. On narrower ones there is none."""
    return FLOAT32 if dtype.is_float and dtype.bits == 16 else dtype


def value(call: Call, i: int, *index: Expr | int) -> Expr:
    """The element of operand `i` at `index`, widened to the type arithmetic is done in."""
    return cast(call.at(i, *index), compute_type(call.input(i).dtype))


def spread(index: Sequence[Expr], shape: Sequence[int], space: Sequence[int] | None = None) -> tuple[Expr, ...]:
    """The index into a tensor of `shape` that is broadcast, NumPy style, to the space `index` runs over.

    With the extents of that `space`, a dimension of which it is not known whether it is 1 or as large is read no further than
    it goes.
    """
    tail = index[len(index) - len(shape) :] if shape else ()
    found = tuple(const(0) if known_one(size) else at for at, size in zip(tail, shape, strict=True))
    if space is None:
        return found
    return tuple(map(within, found, shape, space[len(space) - len(shape) :]))


def within(at: Expr, size: int, whole: int) -> Expr:
    """An index that runs over `whole` elements, of which it is only checked while running that there are so many."""
    fits = (type(size) is int and type(whole) is int) or known_one(size) or known_below(whole, size + 1)
    return at if fits else binary("min", at, size - 1)


def aligned(call: Call, i: int, index: Sequence[Expr]) -> tuple[Expr, ...]:
    """The index into operand `i` of an elementwise operator, given the output index."""
    whole = call.outputs[0]
    space = whole.dims if isinstance(whole, TensorType) and whole.rank == len(index) else None
    return spread(index, dims(call, i), space)


def data_axis(call: Call, default: int, operand: int = 0, name: str = "axis") -> int:
    """The attribute `axis` of a call, counted from the front of operand `operand`."""
    axis = int(call.attribute(name, default))
    rank = call.input(operand).rank
    return axis + rank if axis < 0 else axis


def integers(call: Call, operand: int, name: str) -> tuple[int, ...] | None:
    """Integers, sizes among them, given by a constant operand (newer opsets) or by an attribute (older ones); None when absent.

    Raises `NotDefined` when the operand is there but not constant.
    """
    if call.has(operand):
        return tuple(v if isinstance(v, Size) else int(v) for v in np.asarray(call.known(operand)).reshape(-1).tolist())
    found = call.attribute(name)
    if isinstance(found, Constant):
        return tuple(int(v) for v in found.array.reshape(-1).tolist())
    if found is None:
        return None
    return tuple(int(v) for v in found) if isinstance(found, tuple) else (int(found),)


def known_integers(call: Call, operand: int, name: str) -> tuple[int, ...]:
    """As `integers`, but `NotDefined` when absent."""
    found = integers(call, operand, name)
    if found is None:
        raise NotDefined(f"{call.node.op} has no {name}")
    return found


def linear(index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """Row-major position of `index` in a tensor of `shape`."""
    position: Expr = const(0)
    for at, size in zip(index, shape, strict=True):
        position = position * size + (const(0) if known_one(size) else at)
    return position


def unlinear(position: Expr, shape: Sequence[int], *, bounded: bool = True) -> tuple[Expr, ...]:
    """The index whose row-major position in a tensor of `shape`, which has elements, is `position`; modulo their number where that
    is not known to be more."""
    found: list[Expr] = []
    for depth, size in enumerate(shape):
        if known_one(size):
            found.append(const(0))
            continue
        quotient = position // math.prod(shape[depth + 1 :])
        outermost = bounded and known_one(math.prod(shape[:depth]))
        found.append(quotient if outermost else quotient % size)
    return tuple(found)


def reshaped(index: Sequence[Expr], shape: Sequence[int], source: Sequence[int]) -> tuple[Expr, ...]:
    """The index into a tensor of shape `source` for the element at `index` of its reshape to `shape`.

    Dimensions are matched in the shortest runs of equal product, so only what is really split or joined is divided:
    (2, 3, 4) read as (2, 12) at (a, b) is (a, b // 4, b % 4). Of sizes it may only be checked while running that there are as many
    elements.
    """
    if not may_be_equal(math.prod(source), math.prod(shape)):
        raise NotDefined(f"{list(source)} elements cannot be shaped as {list(shape)}")
    if known_equal(math.prod(source), 0):
        return tuple(const(0) for _ in source)
    found: list[Expr] = []
    i = j = 0
    while j < len(source):
        start_i, start_j = i, j
        have, want = 1, source[j]
        j += 1
        while not known_equal(have, want) and (i < len(shape) or j < len(source)):
            if i < len(shape) and (j == len(source) or _is_less(have, want)):
                have *= shape[i]
                i += 1
            else:
                want *= source[j]
                j += 1
        run, target = shape[start_i:i], source[start_j:j]
        if len(run) == len(target) and all(map(known_equal, run, target)):
            found.extend(const(0) if known_one(n) else at for at, n in zip(index[start_i:i], run, strict=True))
        else:
            found.extend(unlinear(linear(index[start_i:i], run), target, bounded=known_equal(have, want)))
    return tuple(found)


def may_be_equal(a: int, b: int) -> bool:
    """Are two sizes not known to be different?"""
    return not known_below(a, b) and not known_below(b, a)


def _is_less(have: int, want: int) -> bool:
    """Is a product of leading dimensions less than another? Of sizes, does it divide the other, or fit better at a glance?"""
    if type(have) is int and type(want) is int:
        return have < want
    if known_equal(want % have, 0):
        return True
    return not known_equal(have % want, 0) and hint(have) < hint(want)


def wrapped(position: Expr, size: int) -> Expr:
    """An index read from data: cast to int64, negative ones counted from the end."""
    at = cast(position, INT64)
    if at.op == "const" and (known_below(at.value, 0) or known_below(-1, at.value)):
        return const(at.value + size if known_below(at.value, 0) else at.value)
    return select(compare("lt", at, 0), at + size, at)


def chosen(call: Call, i: int, at: Sequence[Expr | int], size: int, *, wraps: bool = True) -> Expr:
    """Element `at` of the index operand `i` as a position in 0 .. size - 1.

    Negative ones count from the end if it `wraps`. What lies outside is reported when it is met while a model runs."""
    known = call.constant(i) if known_one(call.input(i).size) else None
    given = call.at(i, *at) if known is None else const(known.reshape(-1).tolist()[0])
    return bounded(wrapped(given, size) if wraps else cast(given, INT64), 0, size - 1, i, wraps)


def clamped(position: Expr, size: int) -> Expr:
    """`position` limited to 0 .. size - 1."""
    return binary("min", binary("max", position, 0), size - 1)


def is_static(call: Call) -> bool:
    """Are the shapes of all operands and outputs known? Operands that are not tensors count as unknown."""
    return call.is_static
