"""Products with weights of four bits that are stored otherwise than MatMulNBits has them: as places in a table of numbers, and in
blocks that begin with their scale.
"""

from __future__ import annotations

import numpy as np

from fusewise.frontend.domains.microsoft.weights import check_block, check_shape, constant_operand, derived
from fusewise.frontend.domains.row import DomainCall, DomainRow, integer
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.dtypes import FLOAT32, INT32, INT64, UINT8, dtype_named
from fusewise.ir.graph import LazyConstant
from fusewise.ir.types import TensorType

__all__ = ["FOUR_BITS", "TABLE_ONE", "integer_table"]

_UINT4 = dtype_named("uint4")


def _bnb4(g: DomainWriter, call: DomainCall) -> DomainValue:
    """x by weights [N, K], or by their transpose, in blocks of all their elements one behind the other, as numbers of a table."""
    block, n, k, which = (call.attribute(name) for name in ("block_size", "N", "K", "quant_type"))
    check_block(call, block)
    if which not in (0, 1):
        raise call.invalid(f"its attribute quant_type is {which}; it must be 0 or 1")
    packed, largest, size = constant_operand(g, call, "B"), constant_operand(g, call, "absmax"), n * k
    check_shape(call, "B", packed.type, (-(-size // 2),))
    check_shape(call, "absmax", largest.type, (-(-size // block),))
    dtype = call["A"].dtype
    x, is_turned = call["A"], bool(call.attribute("transB"))
    if is_turned and k % block == 0:
        codes = derived(
            *(g, packed, TensorType(_UINT4, (n, k)), ("first in highest", n, k)),
            lambda both: _halves(both, 2 * both.size).reshape(-1, k),
            per_row=k // 2,
        )
        numbers = g.Gather(integer_table(which), g.cast(codes, INT32), axis=0)
        blocks = k // block
        scales = derived(
            *(g, largest, TensorType(FLOAT32, (n, blocks)), ("scales of a table", n, blocks)),
            lambda array: (array.astype(np.float32) / np.float32(TABLE_ONE)).reshape(-1, blocks),
            per_row=blocks,
        )
        weights = g.DequantizeLinear(numbers, scales, axis=1, block_size=block)
        return g.cast(g.MatMul(g.cast(x, FLOAT32), g.Transpose(weights, perm=[1, 0])), dtype)

    def made() -> np.ndarray:  # a block has the end of a row and the beginning of the next
        scales = np.repeat(largest.read_once().astype(np.float32), block)[:size]
        table = np.array(_TABLES[which], np.float32)
        return (table[_halves(packed.read_once(), size).view(np.uint8)] * scales).reshape(n, k).astype(dtype.numpy)

    recipe = (id(packed), id(largest), "bnb4", which, block, n, k)
    matrix = g.constant(LazyConstant(TensorType(dtype, (n, k)), made, recipe, again=True))
    return g.MatMul(x, g.Transpose(matrix, perm=[1, 0]) if is_turned else matrix)


def _halves(packed: np.ndarray, size: int) -> np.ndarray:
    """So many numbers of four bits, the first of a byte in its highest bits; a last half may be left over."""
    both = np.empty((packed.size, 2), np.uint8)
    np.right_shift(packed, 4, out=both[:, 0])
    np.bitwise_and(packed, 15, out=both[:, 1])
    return both.reshape(-1)[:size].view(_UINT4.numpy)


TABLE_ONE = float(1 << 30)
"""What 1 is among integers that stand for the numbers of a table: all of these are exact in 32 bits, and scales are divided by it,
which rounds nothing."""


def integer_table(which: int) -> np.ndarray:
    """int32[16]: what four bits are by a `quant_type` (0 is FP4, 1 NF4), by `TABLE_ONE`."""
    return (np.array(_TABLES[which], np.float32) * TABLE_ONE).astype(np.int32)


_FP4 = (0.0, 0.00520833, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)

_TABLES = (
    (*_FP4, *(-number for number in _FP4)),
    (
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
        *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
        *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941),
        *(0.7229568362236023, 1.0),
    ),
)
"""What four bits are, of FP4 and of NF4 (T. Dettmers et al., QLoRA, 2023, appendix E)."""


_BLOCK, _SCALE_BYTES = 32, 4
"""Of the depth that has one scale, and bytes of that (MLAS, `q4gemm`)."""

_CHECKED = 1 << 16
"""Blocks whose zero points are looked at at a time."""


def _fp_q4(g: DomainWriter, call: DomainCall) -> DomainValue:
    """x by weights [K, N] that are stored column by column in blocks: a scale, a zero point if there are any, 32 numbers."""
    packed, sizes = constant_operand(g, call, "B"), constant_operand(g, call, "B_shape")
    if sizes.type != TensorType(INT64, (2,)):
        raise call.invalid(f"its input 'B_shape' is {sizes.type}; it must be K and N, int64[2]")
    k, n = sizes.array.tolist()
    if min(n, k) < 1:
        raise call.invalid(f"its input 'B_shape' says that K and N are {k} and {n}; they must be positive")
    has_zeros, blocks = call.attribute("blk_quant_type") != 0, -(-k // _BLOCK)
    first = _SCALE_BYTES + has_zeros
    row = first + _BLOCK // 2
    check_shape(call, "B", packed.type, (n * blocks * row,))
    if packed.dtype != UINT8:
        raise call.invalid(f"its input 'B' is of {packed.dtype.name}; it must be of uint8")
    x = call["A"]
    if x.extent(-1) not in (None, k):
        raise call.invalid(f"the last dimension of its input 'A' is {x.extent(-1)}; its input 'B_shape' says {k}")
    parts = (packed.rows(at * row, min(at + _CHECKED, n * blocks) * row) for at in range(0, n * blocks, _CHECKED))
    if has_zeros and any(part.reshape(-1, row)[:, _SCALE_BYTES].max() > 15 for part in parts):
        raise call.unsupported("a zero point is more than 15, which numbers of four bits never are")
    kind = dtype_named("uint4" if has_zeros else "int4")

    def scales(array: np.ndarray) -> np.ndarray:
        given = np.ascontiguousarray(array.reshape(-1, blocks, row)[..., :_SCALE_BYTES])
        return given.view("<f4").reshape(-1, blocks).astype(np.float32, copy=False)

    def codes(array: np.ndarray) -> np.ndarray:
        halves = array.reshape(-1, blocks, row)[..., first:]
        found = np.empty((len(halves), blocks, 2, _BLOCK // 2), np.uint8)
        np.bitwise_and(halves, 15, out=found[:, :, 0])
        np.right_shift(halves, 4, out=found[:, :, 1])
        if not has_zeros:
            found ^= np.uint8(8)  # less 8, in four bits
        return np.ascontiguousarray(found.reshape(len(halves), -1)[:, :k]).view(kind.numpy)

    def zeros(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array.reshape(-1, blocks, row)[..., _SCALE_BYTES]).view(kind.numpy)

    what = ("blocks with scales", has_zeros, n, k)
    w = derived(g, packed, TensorType(kind, (n, k)), ("codes", *what), codes, per_row=blocks * row)
    s = derived(g, packed, TensorType(FLOAT32, (n, blocks)), ("scales", *what), scales)
    z = derived(g, packed, TensorType(kind, (n, blocks)), ("zeros", *what), zeros) if has_zeros else None
    return g.MatMul(x, g.Transpose(g.DequantizeLinear(w, s, z, axis=1, block_size=_BLOCK), perm=[1, 0]))


FOUR_BITS: tuple[DomainRow, ...] = (
    DomainRow(
        "MatMulBnb4",
        _bnb4,
        ("A", "B", "absmax"),
        (
            *(integer("K"), integer("N"), integer("block_size"), integer("quant_type")),
            *(integer("training_mode", 0), integer("transB", 1)),
        ),
        ("Y",),
    ),
    DomainRow("MatMulFpQ4", _fp_q4, ("A", "B", "B_shape"), (integer("blk_quant_type", 1),), ("Y",)),
)
