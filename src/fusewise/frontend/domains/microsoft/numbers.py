"""Arithmetic: complex numbers, transforms, inverses, hashes."""

from __future__ import annotations

import numpy as np

from fusewise.frontend.domains.row import DomainCall, DomainRow, integer
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.dtypes import BOOL, FLOAT32, INT32, dtype_named
from fusewise.ops.validity.rules import flag, one_of

__all__ = ["NUMBERS"]

_UINT32 = dtype_named("uint32")
_LARGEST_INVERSE = 64
"""Rows of a matrix that is inverted: every one is written as a dozen nodes."""


def _product(g: DomainWriter, call: DomainCall, sign: float) -> DomainValue:
    """Pairs of real and imaginary parts along the last axis, the second operand conjugated for -1."""
    a, b = call["A"], call["B"]
    (a_real, a_imaginary), (b_real, b_imaginary) = (g.several("Split", 2, x, axis=-1, num_outputs=2) for x in (a, b))
    if sign < 0:
        b_imaginary = -b_imaginary
    real = a_real * b_real - a_imaginary * b_imaginary
    return g.Concat(real, a_real * b_imaginary + a_imaginary * b_real, axis=-1)


def _complex_mul(g: DomainWriter, call: DomainCall) -> DomainValue:
    return _product(g, call, 1)


def _complex_mul_conj(g: DomainWriter, call: DomainCall) -> DomainValue:
    return _product(g, call, -1)


def _rfft(g: DomainWriter, call: DomainCall) -> DomainValue:
    x = g.Unsqueeze(call["X"], [-1])
    return g.DFT(x, None, g.constant(np.array(-2, np.int64)), onesided=1)


def _irfft(g: DomainWriter, call: DomainCall) -> DomainValue:
    """The other half are the conjugates of the inner numbers, backwards."""
    x = call["X"]
    inner = g.Slice(x, [-2], [0], [x.rank - 2], [-1])
    real, imaginary = g.several("Split", 2, inner, axis=-1, num_outputs=2)
    whole = g.Concat(x, g.Concat(real, -imaginary, axis=-1), axis=-2)
    found = g.DFT(whole, None, g.constant(np.array(-2, np.int64)), inverse=1)
    return g.Squeeze(g.slice(found, x.rank - 1, 0, 1), [-1])


def _inverse(g: DomainWriter, call: DomainCall) -> DomainValue:
    """Gauss and Jordan, the pivot being the largest element of its column in a row that was none yet.

    Rows stay where they are; in the end row p[k] of what was the unit matrix is row k of the inverse.
    """
    x = call["X"]
    rows = x.extent(-1)
    if rows is None or rows > _LARGEST_INVERSE:
        raise call.unsupported(
            f"matrices of at most {_LARGEST_INVERSE} rows, a number, are inverted, not of {x.dims[-1]}"
        )
    wide = g.cast(x, FLOAT32) if x.dtype.bits < 32 else x
    unit = g.EyeLike(g.constant(np.zeros((rows, rows), wide.dtype.numpy)))
    both = g.Concat(wide, g.Expand(unit, g.sizes(wide)) if x.rank > 2 else unit, axis=-1)
    places = g.constant(np.arange(rows, dtype=np.int64)[:, np.newaxis])
    unused: DomainValue | None = None
    found = []
    for k in range(rows):
        column = g.slice(both, x.rank - 1, k, k + 1)
        size = g.Abs(column)
        candidates = size if unused is None else g.Where(unused, size, -1.0)
        chosen = g.Equal(g.ArgMax(candidates, axis=-2, keepdims=1), places)
        unused = g.Not(chosen) if unused is None else g.And(unused, g.Not(chosen))
        row = g.ReduceSum(g.Where(chosen, both, 0.0), [-2], keepdims=1)
        row = row / g.slice(row, x.rank - 1, k, k + 1)
        both = g.Where(chosen, row, both - column * row)
        found.append(chosen)
    right = g.slice(both, x.rank - 1, rows, 2 * rows)
    order = g.cast(g.Concat(*found, axis=-1), right.dtype)
    turned = g.permute(order, [*range(x.rank - 2), x.rank - 1, x.rank - 2])
    return g.cast(g.MatMul(turned, right), x.dtype)


def _is_all_finite(g: DomainWriter, call: DomainCall) -> DomainValue:
    none: DomainValue | None = None
    for x in call.tail("input"):
        odd = []
        if not call.attribute("isinf_only"):
            odd.append(g.IsNaN(x))
        if not call.attribute("isnan_only"):
            odd.append(g.IsInf(x))
        flags = odd[0] if len(odd) == 1 else g.Or(*odd)
        most = g.ReduceMax(g.cast(flags, INT32), keepdims=0)
        none = most if none is None else g.Max(none, most)
    if none is None:
        raise call.invalid("it has no inputs")
    return g.Not(g.cast(none, BOOL))


def _murmur_hash(g: DomainWriter, call: DomainCall) -> DomainValue:
    """MurmurHash3_x86_32 of the four bytes of each integer (A. Appleby)."""
    x = call["X"]
    if x.dtype.name not in ("int32", "uint32"):
        raise call.unsupported(f"it is supported for int32 and uint32, not for {x.dtype}")

    def turned(value: DomainValue, bits: int) -> DomainValue:
        left = g.BitShift(value, g.number(bits, _UINT32), direction="LEFT")
        return g.BitwiseOr(left, g.BitShift(value, g.number(32 - bits, _UINT32), direction="RIGHT"))

    def folded(value: DomainValue, bits: int) -> DomainValue:
        return g.BitwiseXor(value, g.BitShift(value, g.number(bits, _UINT32), direction="RIGHT"))

    block = turned(g.cast(x, _UINT32) * g.number(0xCC9E2D51, _UINT32), 15) * g.number(0x1B873593, _UINT32)
    seed = call.attribute("seed") & 0xFFFFFFFF
    state = turned(g.BitwiseXor(block, g.number(seed, _UINT32)), 13)
    state = state * g.number(5, _UINT32) + g.number(0xE6546B64, _UINT32)
    state = folded(g.BitwiseXor(state, g.number(4, _UINT32)), 16) * g.number(0x85EBCA6B, _UINT32)
    state = folded(folded(state, 13) * g.number(0xC2B2AE35, _UINT32), 16)
    return state if call.attribute("positive") else g.cast(state, INT32)


def _gated_add(g: DomainWriter, call: DomainCall) -> DomainValue:
    return call["X"] + call["Y"] * call["gate"]


_SIGNAL = (integer("normalized", 0), integer("onesided", 1))
_ONE_SIDED = (one_of("normalized", 0), one_of("onesided", 1), one_of("signal_ndim", 1))

NUMBERS: tuple[DomainRow, ...] = (
    DomainRow("ComplexMul", _complex_mul, ("A", "B"), outputs=("C",), shapes="... 2, ... 2"),
    DomainRow("ComplexMulConj", _complex_mul_conj, ("A", "B"), outputs=("C",), shapes="... 2, ... 2"),
    DomainRow("Rfft", _rfft, ("X",), (*_SIGNAL, integer("signal_ndim", 1)), ("Y",), shapes="... N", rules=_ONE_SIDED),
    DomainRow("Irfft", _irfft, ("X",), (*_SIGNAL, integer("signal_ndim")), ("Y",), shapes="... N 2", rules=_ONE_SIDED),
    DomainRow("Inverse", _inverse, ("X",), outputs=("Y",), shapes="... N N"),
    DomainRow(
        "IsAllFinite",
        _is_all_finite,
        ("input*",),
        (integer("isinf_only", 0), integer("isnan_only", 0)),
        rules=(flag("isinf_only", "isnan_only"),),
    ),
    DomainRow("MurmurHash3", _murmur_hash, ("X",), (integer("positive", 1), integer("seed", 0)), ("Y",)),
    DomainRow("GatedAdd", _gated_add, ("X", "Y", "gate"), shapes="*S C, *S C, *S 1"),
)
