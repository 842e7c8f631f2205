"""Products of matrices and tensors: MatMul, Gemm, Einsum and their integer forms; determinants."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from fusewise.ir.deciding import known_below, known_one
from fusewise.ir.dtypes import FLOAT32, FLOAT64, INT32, DType
from fusewise.ops.edges import per_operand
from fusewise.ops.expr import Expr, Index, cast, const, index, reduce
from fusewise.ops.indexing import dims, output_dims, spread, value, within
from fusewise.ops.scalar import quantized
from fusewise.ops.spec import Call, Mapping, NotDefined, OpSpec, Sample
from fusewise.records import record

__all__ = ["CONTRACT", "EinsumEquation", "equation_of", "matmul_indices"]

_MANY = Mapping.MANY_TO_MANY
_ONE_TO_MANY = Mapping.ONE_TO_MANY


def matmul_indices(call: Call, at: Index, a: int = 0, b: int = 1) -> tuple[Index, Index, int]:
    """Indices into operands `a` and `b` of a NumPy-style product, with loop variable `k`, and the extent of `k`."""
    left, right = dims(call, a), dims(call, b)
    k = index("k")
    inner = at
    if len(right) > 1:
        inner, column = inner[:-1], inner[-1:]
    if len(left) > 1:
        inner, line = inner[:-1], inner[-1:]
    space = output_dims(call)[: len(inner)]
    into_a = (*spread(inner, left[:-2], space), *line, k) if len(left) > 1 else (k,)
    own = within(k, right[-2 if len(right) > 1 else -1], left[-1])
    into_b = (*spread(inner, right[:-2], space), own, *column) if len(right) > 1 else (own,)
    return into_a, into_b, left[-1]


def _matmul(call: Call, output: int, at: Index) -> Expr:
    into_a, into_b, extent = matmul_indices(call, at)
    return reduce("sum", (("k", extent),), value(call, 0, *into_a) * value(call, 1, *into_b))


def _matmul_flops(call: Call) -> int:
    return 2 * call.output().size * dims(call, 0)[-1]


def _scaled(x: Expr, factor: float) -> Expr:
    if factor == 1.0:
        return x
    if x.dtype.is_float:
        return x * float(np.float32(factor))
    return cast(cast(x, FLOAT32) * float(np.float32(factor)), x.dtype)


def _gemm(call: Call, output: int, at: Index) -> Expr:
    k = index("k")
    line, column = at
    trans_a, trans_b = bool(call.attribute("transA", 0)), bool(call.attribute("transB", 0))
    extent = dims(call, 0)[0 if trans_a else 1]
    a = value(call, 0, *((k, line) if trans_a else (line, k)))
    b = value(call, 1, *((column, k) if trans_b else (k, column)))
    product = _scaled(reduce("sum", (("k", extent),), a * b), float(call.attribute("alpha", 1.0)))
    beta = float(call.attribute("beta", 1.0))
    if not call.has(2) or beta == 0.0:
        return product
    return product + _scaled(value(call, 2, *spread(at, dims(call, 2), output_dims(call))), beta)


def _gemm_flops(call: Call) -> int:
    extent = dims(call, 0)[0 if call.attribute("transA", 0) else 1]
    extra = int(call.has(2)) + sum(float(call.attribute(name, 1.0)) != 1.0 for name in ("alpha", "beta"))
    return call.output().size * (2 * extent + extra)


def _gemm_mapping(call: Call) -> tuple[Mapping, ...]:
    if not call.has(2):
        return (_MANY, _MANY, _ONE_TO_MANY)[: len(call.inputs)]
    whole = dims(call, 2) == output_dims(call)
    return _MANY, _MANY, Mapping.ONE_TO_ONE if whole else _ONE_TO_MANY


# -- Einsum -----------------------------------------------------------------------------------------------------------------


@record(frozen=True)
class EinsumEquation:
    """An einsum with every dimension named: a label per dimension of each operand, and of the output.

    Dimensions an ellipsis stands for have labels `.0`, `.1`, ... counted from the last. `extents` gives each label's size.
    """

    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    extents: dict[str, int]

    @property
    def summed(self) -> tuple[str, ...]:
        """Labels that do not reach the output, in order of appearance."""
        return tuple(dict.fromkeys(c for term in self.operands for c in term if c not in self.output))


def equation_of(call: Call) -> EinsumEquation:
    """The equation of an Einsum call, implicit outputs and ellipses spelled out."""
    text = str(call.attribute("equation")).replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    operands: list[tuple[str, ...]] = []
    extents: dict[str, int] = {}
    hidden = 0
    for i, term in enumerate(terms):
        shape = dims(call, i)
        labels = _labels(term, len(shape))
        hidden = max(hidden, sum(label.startswith(".") for label in labels))
        for label, size in zip(labels, shape, strict=True):
            if known_one(extents.get(label, 1)):
                extents[label] = size
        operands.append(labels)
    ellipsis = tuple(f".{d}" for d in reversed(range(hidden)))
    if arrow:
        before, dots, after = right.partition("...")
        output = (*before, *(ellipsis if dots else ()), *after)
    else:
        letters = "".join(terms).replace(".", "")
        output = (*ellipsis, *sorted(c for c in set(letters) if letters.count(c) == 1))
    return EinsumEquation(tuple(operands), output, extents)


def _labels(term: str, rank: int) -> tuple[str, ...]:
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise NotDefined(f"einsum term {term!r} does not fit an operand of rank {rank}")
    return (*before, *(f".{d}" for d in reversed(range(hidden))), *after)


def _einsum(call: Call, output: int, at: Index) -> Expr:
    equation = equation_of(call)
    place: dict[str, Expr] = dict(zip(equation.output, at, strict=True))
    loops: list[tuple[str, int]] = []
    for n, label in enumerate(equation.summed):
        place[label] = index(f"k{n}")
        loops.append((f"k{n}", equation.extents[label]))
    product: Expr | None = None
    for i, labels in enumerate(equation.operands):
        shape = dims(call, i)
        position = spread([place[c] for c in labels], shape, [equation.extents[c] for c in labels])
        factor = value(call, i, *position)
        product = factor if product is None else product * factor
    assert product is not None
    return reduce("sum", tuple(loops), product)


def _einsum_flops(call: Call) -> int:
    equation = equation_of(call)
    steps = call.output().size
    for label in equation.summed:
        steps *= equation.extents[label]
    return steps * (len(equation.operands) - 1 + bool(equation.summed))


def _einsum_mapping(call: Call) -> tuple[Mapping, ...]:
    """Many-to-Many along an operand with a summed dimension, otherwise a broadcast or a permutation."""
    equation = equation_of(call)

    def along(labels: tuple[str, ...]) -> Mapping:
        if any(c not in equation.output for c in labels):
            return _MANY
        if any(c not in labels and not known_one(equation.extents[c]) for c in equation.output):
            return _ONE_TO_MANY
        if labels == equation.output:
            return Mapping.ONE_TO_ONE
        return Mapping.SHUFFLE

    return tuple(along(labels) for labels in equation.operands)


# -- integers ---------------------------------------------------------------------------------------------------------------


def _zero_point(call: Call, i: int, vector_axis: int, at: Index) -> Expr | None:
    """A zero point: a single element, a vector along the output axis `vector_axis` (negative), or a full tensor."""
    if not call.has(i):
        return None
    shape = dims(call, i)
    if known_one(call.input(i).size):
        return cast(call.at(i, *(0,) * len(shape)), INT32)
    if len(shape) == 1:
        return cast(call.at(i, at[vector_axis]), INT32)
    return cast(call.at(i, *spread(at, shape)), INT32)


def _centred(x: Expr, zero_point: Expr | None) -> Expr:
    wide = cast(x, INT32)
    return wide if zero_point is None else wide - zero_point


def _integer_product(call: Call, at: Index, a: int, b: int, a_zero: int, b_zero: int) -> Expr:
    into_a, into_b, extent = matmul_indices(call, at, a, b)
    left = _centred(call.at(a, *into_a), _zero_point(call, a_zero, -2, at))
    right = _centred(call.at(b, *into_b), _zero_point(call, b_zero, -1, at))
    return reduce("sum", (("k", extent),), left * right)


def _matmul_integer(call: Call, output: int, at: Index) -> Expr:
    return _integer_product(call, at, 0, 1, 2, 3)


def _scale(call: Call, i: int, axis: int, at: Index) -> Expr:
    shape = dims(call, i)
    if known_one(call.input(i).size):
        return value(call, i, *(0,) * len(shape))
    return value(call, i, at[axis]) if len(shape) == 1 else value(call, i, *spread(at, shape))


def _qlinear_matmul(call: Call, output: int, at: Index) -> Expr:
    product = _integer_product(call, at, 0, 3, 2, 5)
    factor = _scale(call, 1, -2, at) * _scale(call, 4, -1, at) / _scale(call, 6, -1, at)
    target: DType = call.output().dtype
    zero = _zero_point(call, 7, -1, at)
    return quantized(cast(product, FLOAT32) * factor, None if zero is None else cast(zero, FLOAT32), target)


# -- determinants -----------------------------------------------------------------------------------------------------------

LARGEST_DETERMINANT = 4
"""Rows up to which a determinant is written out: products of minors, of which there are twice as many with every row."""


def _determinant(call: Call, output: int, at: Index) -> Expr:
    """By minors of the last rows, in float64: Laplace's rule."""
    n = dims(call)[-1]
    if not known_below(n, LARGEST_DETERMINANT + 1) or not isinstance(n, int):
        raise NotDefined(f"a determinant of {n} rows")
    minors: dict[tuple[int, ...], Expr] = {(): const(1.0, FLOAT64)}
    for row in reversed(range(n)):
        wider: dict[tuple[int, ...], Expr] = {}
        for columns in combinations(range(n), n - row):
            for k, column in enumerate(columns):
                term = cast(call.at(0, *at, row, column), FLOAT64) * minors[columns[:k] + columns[k + 1 :]]
                wider[columns] = term if not k else wider[columns] - term if k % 2 else wider[columns] + term
        minors = wider
    return cast(minors[tuple(range(n))], call.output().dtype)


def _u8(*values: int) -> np.ndarray:
    return np.array(values, np.uint8) if len(values) > 1 else np.array(values[0], np.uint8)


def _f32(x: float) -> np.ndarray:
    return np.array(x, np.float32)


_LINEAR = frozenset({"linear"})

CONTRACT: tuple[OpSpec, ...] = (
    OpSpec(
        "MatMul",
        mapping=per_operand(_MANY, _MANY),
        flops=_matmul_flops,
        define=_matmul,
        family="matmul",
        flags=frozenset({"associative", "linear"}),
        distributes_over=("Add", "Sub"),
        samples=(
            Sample((("float32", (3, 4)), ("float32", (4, 5)))),
            Sample((("float32", (2, 1, 3, 4)), ("float32", (5, 4, 2)))),
            Sample((("float32", (4,)), ("float32", (2, 4, 3)))),
            Sample((("float32", (2, 3, 4)), ("float32", (4,)))),
            Sample((("float16", (3, 4)), ("float16", (4, 2)))),
            Sample((("float32", (3, 0)), ("float32", (0, 2)))),
            Sample((("int32", (3, 4)), ("int32", (4, 2)))),
            Sample((("float32", (4,)), ("float32", (4,)))),
        ),
    ),
    OpSpec(
        "Gemm",
        mapping=_gemm_mapping,
        flops=_gemm_flops,
        define=_gemm,
        family="gemm",
        flags=_LINEAR,
        samples=(
            Sample((("float32", (3, 4)), ("float32", (4, 5)), ("float32", (5,)))),
            Sample(
                (("float32", (4, 3)), ("float32", (5, 4)), ("float32", (3, 1))),
                {"transA": 1, "transB": 1, "alpha": 0.5},
            ),
            Sample((("float32", (3, 4)), ("float32", (5, 4)), ("float32", (3, 5))), {"transB": 1, "beta": 0.25}),
            Sample((("float32", (3, 4)), ("float32", (4, 5)))),
            Sample((("float16", (3, 4)), ("float16", (4, 2)), ("float16", ()))),
        ),
    ),
    OpSpec(
        "Einsum",
        mapping=_einsum_mapping,
        flops=_einsum_flops,
        define=_einsum,
        family="einsum",
        flags=_LINEAR,
        samples=(
            Sample((("float32", (2, 3)), ("float32", (3, 4))), {"equation": "ij,jk->ik"}),
            Sample((("float32", (2, 3, 4)), ("float32", (2, 4, 2))), {"equation": "...ij,...jk"}),
            Sample((("float32", (3, 3)),), {"equation": "ii->i"}),
            Sample((("float32", (2, 3)),), {"equation": "ij->ji"}),
            Sample((("float32", (2, 3)),), {"equation": "ij->"}),
            Sample((("float32", (2, 3)), ("float32", (4,)), ("float32", (2,))), {"equation": "ij, k, i -> kj"}),
        ),
    ),
    OpSpec(
        "MatMulInteger",
        mapping=per_operand(_MANY, _MANY),
        flops=_matmul_flops,
        define=_matmul_integer,
        family="matmul_integer",
        samples=(
            Sample((("uint8", (3, 4)), ("uint8", (4, 2))), low=0, high=255),
            Sample((("uint8", (2, 3, 4)), ("int8", (4, 2)), _u8(120), np.array(3, np.int8)), low=0, high=255),
            Sample((("uint8", (3, 4)), ("uint8", (4, 2)), None, _u8(3, 200)), low=0, high=255),
        ),
    ),
    OpSpec(
        "QLinearMatMul",
        mapping=per_operand(_MANY, _ONE_TO_MANY, _ONE_TO_MANY, _MANY),
        flops=lambda call: call.output().size * (2 * dims(call, 0)[-1] + 3),
        define=_qlinear_matmul,
        family="matmul_integer",
        samples=(
            Sample(
                (
                    ("uint8", (3, 4)),
                    _f32(0.02),
                    _u8(110),
                    ("uint8", (4, 5)),
                    _f32(0.03),
                    _u8(140),
                    _f32(0.07),
                    _u8(100),
                ),
                low=0,
                high=255,
            ),
            Sample(
                (
                    ("int8", (2, 3, 4)),
                    _f32(0.02),
                    np.array(3, np.int8),
                    ("int8", (2, 4, 2)),
                    _f32(0.02),
                    np.array(0, np.int8),
                    _f32(0.1),
                    np.array(-4, np.int8),
                ),
                low=-128,
                high=127,
            ),
        ),
    ),
    OpSpec(
        "Det",
        mapping=per_operand(_MANY),
        flops=lambda call: 2 * dims(call)[-1] * call.input(0).size // 3,
        define=_determinant,
        samples=tuple(Sample((("float32", shape),)) for shape in ((1, 1), (2, 2), (3, 2, 2), (2, 3, 3), (1, 2, 4, 4))),
    ),
)
