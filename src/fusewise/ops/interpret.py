"""Evaluate definitions with NumPy over the whole output index space: slow, plain, and independent of code generation.

Every loop variable, of the output and of each reduction, is given an array dimension of its own; a value is an array that
broadcasts over those it depends on. A load is fancy indexing with clipping, so the branch a `select` does not take may
read anywhere; a position from data that is out of bounds raises `InvalidData`. The same walk counts operations, as a check on
what rows declare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field

import numpy as np

from fusewise.errors import InvalidData
from fusewise.ir.dtypes import DType
from fusewise.ir.types import TensorType
from fusewise.ops.cost import ARITHMETIC
from fusewise.ops.definition import definition
from fusewise.ops.expr import Expr, index, walk
from fusewise.ops.indexing import is_static
from fusewise.ops.scalar import identity
from fusewise.ops.spec import Call, NotDefined, OpSpec
from fusewise.records import record

__all__ = ["definition_size", "evaluate_expression", "interpret", "space_size"]


LARGEST_SPACE = 1 << 22
"""Elements of the largest array that is made at once; where one would be larger, the output is evaluated part by part."""


@record
class _Space:
    """Loop variables, each with its dimension and extent, the arrays loads read, and operations counted so far.

    The variable `moved` begins at `first`, the others at zero.
    """

    axes: dict[str, tuple[int, int]]
    operands: Mapping[str, np.ndarray]
    moved: str = ""
    first: int = 0
    done: dict[Expr, np.ndarray] = field(default_factory=dict)
    operations: int = 0

    @property
    def rank(self) -> int:
        return len(self.axes)


def interpret(spec: OpSpec, call: Call, operands: tuple[np.ndarray | None, ...], output: int = 0) -> np.ndarray:
    """Output number `output` of a call, element by element from its definition."""
    if not is_static(call):
        raise NotDefined(f"{call.node.op} has an operand or output without a static shape")
    kind = call.output(output)
    names = tuple(f"i{k}" for k in range(kind.rank))
    body = definition(spec, call, output, tuple(index(name) for name in names))
    assert body.dtype == kind.dtype, (spec.name, body.dtype, kind.dtype)
    loads = {f"#{k}": array for k, array in enumerate(operands) if array is not None}
    extents = dict(zip(names, kind.dims, strict=True))
    parts = -(-space_size(body, extents) // LARGEST_SPACE)
    if parts <= 1 or not kind.rank:
        return evaluate_expression(body, extents, loads)[0]
    axis = max(range(kind.rank), key=lambda d: kind.dims[d])
    step = max(1, kind.dims[axis] // parts)
    found = np.empty(kind.dims, kind.dtype.numpy)
    for first in range(0, kind.dims[axis], step):
        part = extents | {names[axis]: min(step, kind.dims[axis] - first)}
        place = (*(slice(None),) * axis, slice(first, first + part[names[axis]]))
        found[place] = evaluate_expression(body, part, loads, names[axis], first)[0]
    return found


def definition_size(spec: OpSpec, call: Call) -> int:
    """Elements of the largest arrays that the present outputs of a call take together; `NotDefined` as `interpret`."""
    total = 0
    for output, kind in enumerate(call.outputs):
        if isinstance(kind, TensorType):
            names = tuple(f"i{k}" for k in range(kind.rank if is_static(call) else 0))
            body = definition(spec, call, output, tuple(index(name) for name in names))
            total += space_size(body, dict(zip(names, kind.dims, strict=True)))
    return total


def space_size(body: Expr, extents: Mapping[str, int]) -> int:
    """Elements of the largest array that evaluating `body` over `extents` makes: over the loop variables that it depends on."""
    known, largest = dict(extents), math.prod(extents.values())
    variables: dict[Expr, frozenset[str]] = {}
    for node in walk(body):
        known.update(node.value[1] if node.op == "reduce" else ())
    for node in walk(body):  # children first
        found = frozenset((node.value,)) if node.op == "index" else frozenset[str]()
        found = found.union(*(variables[argument] for argument in node.args))
        if node.op == "reduce":
            combined = frozenset(name for name, _ in node.value[1])
            variables[node], found = found - combined, found | combined
        else:
            variables[node] = found
        largest = max(largest, math.prod(known[name] for name in found))
    return largest


def evaluate_expression(
    body: Expr, extents: Mapping[str, int], operands: Mapping[str, np.ndarray], moved: str = "", first: int = 0
) -> tuple[np.ndarray, int]:
    """The array of `body` over the index space `extents`, and the arithmetic operations it took.

    Operations on values that do not depend on a loop variable are counted once, as an optimal schedule would perform
    them; index arithmetic is not counted. The variable `moved` runs from `first` on.
    """
    axes = {name: (k, extent) for k, (name, extent) in enumerate(extents.items())}
    for node in walk(body):
        if node.op == "reduce":
            for name, extent in node.value[1]:
                known = axes.setdefault(name, (len(axes), extent))
                if known[1] != extent or name in extents:
                    raise NotDefined(f"loop variable {name} is bound twice with different extents")
    space = _Space(axes, operands, moved, first)
    with np.errstate(all="ignore"):
        found = _evaluate(body, space)
    shape = tuple(extents.values())
    trimmed = found.reshape(found.shape[: len(shape)])
    return np.broadcast_to(trimmed, shape).copy(), space.operations


def _evaluate(root: Expr, space: _Space) -> np.ndarray:
    with_loads = {node for node in walk(root) if node.op == "load"}
    addresses: set[Expr] = set()
    for node in walk(root):  # children first: a node reads data when an argument does
        if node.op == "load":
            for argument in node.args:
                addresses.update(walk(argument))
        elif any(argument in with_loads for argument in node.args):
            with_loads.add(node)
    for node in walk(root):
        if node in space.done:
            continue
        result = _one(node, [space.done[argument] for argument in node.args], space)
        space.done[node] = result
        if node in with_loads and node not in addresses:
            if node.op in ARITHMETIC:
                space.operations += result.size
            elif node.op == "reduce":
                space.operations += _full_size(space.done[node.args[0]], node, space)
    return space.done[root]


def _full_size(body: np.ndarray, node: Expr, space: _Space) -> int:
    shape = list(body.shape)
    for name, extent in node.value[1]:
        shape[space.axes[name][0]] = extent
    return math.prod(shape)


def _one(node: Expr, args: list[np.ndarray], space: _Space) -> np.ndarray:
    ones = (1,) * space.rank
    if node.op == "const":
        return np.asarray(node.value).astype(node.dtype.numpy).reshape(ones)
    if node.op == "index":
        dimension, extent = space.axes[node.value]
        first = space.first if node.value == space.moved else 0
        return np.arange(first, first + extent, dtype=np.int64).reshape(
            (*ones[:dimension], extent, *ones[dimension + 1 :])
        )
    if node.op == "load":
        found = _as_it_lies(node, space)
        return _load(space.operands[node.value], args, ones) if found is None else found
    if node.op == "bounded":
        return _bounded(args[0], *node.value[:2])
    if node.op == "select":
        return np.where(args[0], args[1], args[2])
    if node.op == "cast":
        return _cast(args[0], node.dtype)
    if node.op == "bits":
        return np.ascontiguousarray(args[0]).view(node.dtype.numpy)
    if node.op == "reduce":
        return _reduce(node, args[0], space)
    return _OPERATIONS[node.op](*args).astype(node.dtype.numpy, copy=False)


def _as_it_lies(node: Expr, space: _Space) -> np.ndarray | None:
    """A load whose indices are loop variables over whole axes, in order, and zeros on single elements: a view, no copy."""
    array, shape, last = space.operands[node.value], [1] * space.rank, -1
    for argument, extent in zip(node.args, array.shape, strict=True):
        if extent == 1 and argument.op == "const":
            continue
        if argument.op != "index" or argument.value == space.moved:
            return None
        dimension, size = space.axes[argument.value]
        if dimension <= last or size != extent:
            return None
        shape[dimension], last = extent, dimension
    return array.reshape(shape) if node.args else None


def _load(array: np.ndarray, indices: list[np.ndarray], ones: tuple[int, ...]) -> np.ndarray:
    if not indices:
        return array.reshape(ones)
    shape = np.broadcast_shapes(*(i.shape for i in indices))
    if array.size == 0:
        return np.zeros(shape, array.dtype)
    found: np.ndarray = array[tuple(np.clip(i, 0, n - 1) for i, n in zip(indices, array.shape, strict=True))]
    return found


def _bounded(position: np.ndarray, low: int, high: int) -> np.ndarray:
    outside = (position < low) | (position > high)
    if outside.any():
        raise InvalidData(f"an index asks for position {position[outside][0]}, but there are only {low} to {high}")
    return position


def _cast(x: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype.kind == "bool":
        return np.asarray(x != 0)
    return x.astype(dtype.numpy)


def _reduce(node: Expr, body: np.ndarray, space: _Space) -> np.ndarray:
    kind, axes = node.value
    shape = list(body.shape)
    for name, extent in axes:
        shape[space.axes[name][0]] = extent
    body = np.broadcast_to(body, shape)
    over = tuple(space.axes[name][0] for name, _ in axes)
    if kind in ("min", "max") and math.prod(extent for _, extent in axes) == 0:
        kept = [1 if d in over else n for d, n in enumerate(shape)]
        return np.full(kept, identity(kind, node.dtype).value, node.dtype.numpy)
    return _REDUCTIONS[kind](body, axis=over, keepdims=True, dtype=node.dtype.numpy)


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "iu":
        return np.asarray(np.divide(a, b))
    quotient = np.floor_divide(a, b)
    off = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return np.asarray(quotient + off.astype(quotient.dtype))


def _erf(x: np.ndarray) -> np.ndarray:
    wide = np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64))
    return np.asarray(wide, dtype=x.dtype)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + small), small / (1 + small)))


_OPERATIONS: Mapping[str, Callable[..., np.ndarray]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sign": np.sign,
    "sigmoid": _sigmoid,
    "not": np.logical_not,
    "bitnot": np.bitwise_not,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _truncated,
    "mod": np.mod,
    "fmod": np.fmod,
    "floordiv": np.floor_divide,
    "floormod": np.mod,
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}

_REDUCTIONS: Mapping[str, Callable[..., np.ndarray]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": lambda x, axis, keepdims, dtype: np.max(x, axis=axis, keepdims=keepdims),
    "min": lambda x, axis, keepdims, dtype: np.min(x, axis=axis, keepdims=keepdims),
    "and": np.logical_and.reduce,
    "or": np.logical_or.reduce,
}
