"""Weights of 2, 4 and 8 bits in blocks: products with them, and rows of them that are gathered.

They are written as DequantizeLinear of constants in ONNX's own narrow types, which are made of the packed bytes when they are read.
"""

from __future__ import annotations

import numpy as np

from fusewise.frontend.bits import unpacked
from fusewise.frontend.domains.microsoft.weights import check_block, check_shape, constant_operand, derived, known_dims
from fusewise.frontend.domains.row import DomainCall, DomainRow, integer
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.dtypes import FLOAT32, INT8, UINT8, DType, dtype_named
from fusewise.ir.graph import LazyConstant
from fusewise.ir.types import TensorType

__all__ = ["NBITS"]

_WIDTHS = (2, 4, 8)
_ROUNDED_BLOCKS = {2: (32, 64, 128), 4: (16, 32, 64, 128, 256), 8: (16, 32, 64, 128, 256)}
"""By width, the blocks for which ONNX Runtime rounds rows where it may."""

INT8_LEVEL = 4
"""The accuracy level at which the left operand is rounded to 8 bits, too."""


def codes_of(packed: np.ndarray, bits: int, axis_length: int, dtype: DType) -> np.ndarray:
    """Numbers of so many bits, several in a byte along the last axis with the first in the lowest bits, as unsigned ones of a type,
    or as signed ones less half their range."""
    codes = np.ascontiguousarray(unpacked(packed, bits)[..., :axis_length])
    if dtype.kind == "int":
        codes ^= np.uint8(1 << (bits - 1))  # less half the range, in so many bits
    return codes.view(dtype.numpy)


def _width(call: DomainCall) -> int:
    bits: int = call.attribute("bits")
    if bits not in _WIDTHS:
        raise call.unsupported(f"its attribute bits is {bits}; weights of 2, 4 and 8 bits are supported")
    return bits


def _matmul(g: DomainWriter, call: DomainCall) -> DomainValue:
    """x by the transpose of weights [N, K] in blocks of K."""
    bits, block, n, k = _width(call), call.attribute("block_size"), call.attribute("N"), call.attribute("K")
    if call.attribute("weight_prepacked"):
        raise call.unsupported("its weights are packed for one device (weight_prepacked); write the model without that")
    check_block(call, block)
    if min(n, k) < 1:
        raise call.invalid(f"its attributes N and K are {n} and {k}; they must be positive")
    weights, blocks = constant_operand(g, call, "B"), -(-k // block)
    check_shape(call, "B", weights.type, (n, blocks, block * bits // 8), (n, blocks * block * bits // 8))
    if weights.dtype != UINT8:
        raise call.invalid(f"its input 'B' is of {weights.dtype.name}; it must be of uint8")
    x, scales, zeros = call["A"], call["scales"], call.get("zero_points")
    if x.extent(-1) not in (None, k):
        raise call.invalid(f"the last dimension of its input 'A' is {x.extent(-1)}; its attribute K is {k}")
    check_shape(call, "scales", TensorType(scales.dtype, known_dims(call, "scales")), (n, blocks), (n * blocks,))
    is_exact = zeros is None or zeros.dtype != UINT8
    signed = dtype_named(f"int{bits}" if is_exact else f"uint{bits}")
    order = _order(g, call, k, block)

    def made(packed: np.ndarray) -> np.ndarray:
        found = codes_of(packed.reshape(len(packed), -1), bits, k, signed)
        return found if order is None else np.ascontiguousarray(found[:, order])

    what = (signed.name, n, k, None if order is None else order.tobytes())
    w = derived(g, weights, TensorType(signed, (n, k)), what, made, per_row=1)
    x = x if order is None else g.Gather(x, order, axis=-1)
    is_packed = order is None and (zeros is None or not is_exact) and block in _ROUNDED_BLOCKS[bits]
    s, z = _matrix(g, scales, n, blocks), None if is_exact else _zero_points(g, call, bits, n, blocks)
    if call.attribute("accuracy_level") == INT8_LEVEL and is_packed:  # others are not rounded there, either
        x, s = _rounded(g, x, k, block), g.cast(s, FLOAT32)
    y = g.MatMul(x, g.Transpose(g.DequantizeLinear(w, s, z, axis=1, block_size=block), perm=[1, 0]))
    y = g.cast(y, call["A"].dtype)
    if zeros is not None and is_exact:
        y = y - _moved(g, call, x, (k, block, blocks), _matrix(g, zeros, n, blocks) - float(1 << (bits - 1)), s)
    bias = call.get("bias")
    if bias is not None:
        check_shape(call, "bias", TensorType(bias.dtype, known_dims(call, "bias")), (n,))
    return y if bias is None else y + bias


def _matrix(g: DomainWriter, x: DomainValue, rows: int, columns: int) -> DomainValue:
    """Scales or zero points, which older files have flat."""
    return x if x.rank == 2 else g.reshape(x, [rows, columns])


def _rounded(g: DomainWriter, x: DomainValue, k: int, block: int) -> DomainValue:
    """x as integers from -127 to 127 and a scale for each block, and that as floats."""
    missing, blocks = -k % block, -(-k // block)
    wide = g.cast(x, FLOAT32)
    whole = g.Pad(wide, [0] * (2 * x.rank - 1) + [missing]) if missing else wide
    parts = g.reshape(whole, [*g.sizes(x)[:-1], blocks, block])
    largest = g.ReduceMax(g.Abs(parts), [-1], keepdims=1)
    factor = g.Where(g.Greater(largest, 0.0), g.number(127.0, FLOAT32) / largest, 0.0)
    codes = g.reshape(g.cast(g.Round(parts * factor), INT8), [*g.sizes(x)[:-1], blocks * block])
    codes = g.slice(codes, -1, 0, k) if missing else codes
    scales = g.reshape(largest / 127.0, [*g.sizes(x)[:-1], blocks])
    return g.DequantizeLinear(codes, scales, axis=-1, block_size=block)


def _zero_points(g: DomainWriter, call: DomainCall, bits: int, n: int, blocks: int) -> DomainValue:
    """Packed as the weights are."""
    zeros, row = constant_operand(g, call, "zero_points"), -(-blocks * bits // 8)
    check_shape(call, "zero_points", zeros.type, (n, row), (n * row,))
    kind = TensorType(dtype_named(f"uint{bits}"), (n, blocks))
    return derived(
        g,
        zeros,
        kind,
        (kind.dtype.name, n, blocks),
        lambda array: codes_of(array.reshape(n, row), bits, blocks, kind.dtype),
    )


def _moved(
    g: DomainWriter, call: DomainCall, x: DomainValue, cut: tuple[int, int, int], zeros: DomainValue, s: DomainValue
) -> DomainValue:
    """What zero points that are floats take from the product: sums of x over blocks, by zero points and scales."""
    k, block, blocks = cut
    missing = blocks * block - k
    if missing:
        x = g.Pad(x, [0] * (2 * x.rank - 1) + [missing])
    sums = g.ReduceSum(g.reshape(x, [*g.sizes(x)[:-1], blocks, block]), [-1], keepdims=0)
    return g.MatMul(sums, g.Transpose(zeros * s, perm=[1, 0]))


def _order(g: DomainWriter, call: DomainCall, k: int, block: int) -> np.ndarray | None:
    """The steps of the depth so that those of a block are neighbours, where `g_idx` says that they are not."""
    given = call.get("g_idx")
    if given is None:
        return None
    groups = g.known(given)
    if groups is None:
        raise call.unsupported("its input 'g_idx' must be a constant of the model")
    if groups.shape not in ((k,), (-(-k // block) * block,)):
        raise call.invalid(f"its input 'g_idx' has the shape {list(groups.shape)}; its attributes ask for [{k}]")
    groups = groups[:k]
    order = np.argsort(groups, kind="stable").astype(np.int64)
    if not np.array_equal(groups[order], np.arange(k) // block):
        raise call.unsupported("its input 'g_idx' makes blocks of other sizes than block_size")
    return None if np.array_equal(order, np.arange(k)) else order


def _gather(g: DomainWriter, call: DomainCall) -> DomainValue:
    """Rows as they are stored, dequantised; zeros where an index is none."""
    data, block = call["data"], call.attribute("block_size")
    rank, dtype = data.rank, data.dtype
    if dtype.name not in ("int4", "uint4", "uint8"):
        raise call.unsupported(f"its input 'data' is of {dtype.name}; int4, uint4 and uint8 are supported")
    bits = _width(call) if dtype == UINT8 else 4
    check_block(call, block)
    for name in ("gather_axis", "quantize_axis"):
        if not -rank <= call.attribute(name) < rank:
            raise call.invalid(f"its attribute {name} is {call.attribute(name)}; its input 'data' has {rank} axes")
    along, over = call.attribute("gather_axis") % rank, call.attribute("quantize_axis") % rank
    if along == over or (dtype == UINT8 and along):
        raise call.unsupported("rows are gathered along the first axis, blocks lie along another; choose these axes")
    stored = known_dims(call, "data")
    dims = (*stored[:-1], stored[-1] * (8 // bits if dtype == UINT8 else 1))
    blocks = tuple(-(-dim // block) if axis == over else dim for axis, dim in enumerate(dims))
    check_shape(call, "scales", TensorType(call["scales"].dtype, known_dims(call, "scales")), blocks)
    index = call["indices"]
    inside = g.And(g.GreaterOrEqual(index, -dims[along]), g.Less(index, dims[along]))
    index = g.Where(inside, index, 0)
    codes = _gathered_codes(g, call, "data", bits, dims, index, along)
    zeros = _gathered_zeros(g, call, bits, blocks, index, along)
    behind = over + (index.rank - 1 if over > along else 0)
    scales = g.Gather(call["scales"], index, axis=along)
    found = g.DequantizeLinear(codes, scales, zeros, axis=behind, block_size=block)
    return g.Where(g.reshape(inside, [*g.sizes(inside), *(1 for _ in range(rank - 1 - along))]), found, 0.0)


def _gathered_codes(
    g: DomainWriter, call: DomainCall, name: str, bits: int, dims: tuple[int, ...], index: DomainValue, along: int
) -> DomainValue:
    """Some rows as unsigned bytes, one for each weight: rows of whole bytes are gathered as they are stored, and parted then."""
    parts, stored = 8 // bits, call[name]
    if stored.dtype != UINT8:
        parts, data = 1 if dims[-1] % 2 or along == len(dims) - 1 else 2, constant_operand(g, call, name)
        kind = TensorType(UINT8, (*dims[:-1], dims[-1] // parts))
        stored = derived(g, data, kind, ("bytes", parts), lambda array: _bytes_of(array, parts))
    rows = g.Gather(stored, index, axis=along)
    if parts == 1:
        return rows
    shifted = [g.BitShift(rows, bits * k, direction="RIGHT") if k else rows for k in range(parts)]
    single = [g.Unsqueeze(g.BitwiseAnd(one, (1 << bits) - 1), [-1]) for one in shifted]
    length = known_dims(call, name)[-1] * parts if call[name].dtype == UINT8 else dims[-1]
    found = g.reshape(g.Concat(*single, axis=-1), [*g.sizes(rows)[:-1], length])
    return found if length == dims[-1] else g.slice(found, -1, 0, dims[-1])


def _bytes_of(codes: np.ndarray, parts: int) -> np.ndarray:
    """Numbers of four bits as bytes, one or two in each; signed ones and half their range."""
    found = codes.astype(np.int8)
    found = found + np.int8(8) if codes.dtype == dtype_named("int4").numpy else found
    wide = found.view(np.uint8)
    return np.ascontiguousarray(wide if parts == 1 else wide[..., ::2] | wide[..., 1::2] << 4)


def _gathered_zeros(
    g: DomainWriter, call: DomainCall, bits: int, blocks: tuple[int, ...], index: DomainValue, along: int
) -> DomainValue:
    """Zero points of some rows as bytes; without any, half the range, and that of uint4 none."""
    dtype = call["data"].dtype
    if "zero_points" in call:
        stored = -(-blocks[-1] * bits // 8) if dtype == UINT8 else blocks[-1]
        check_shape(call, "zero_points", TensorType(dtype, known_dims(call, "zero_points")), (*blocks[:-1], stored))
        return _gathered_codes(g, call, "zero_points", bits, blocks, index, along)
    usual = 0 if dtype.name == "uint4" else 1 << (bits - 1)
    kind, recipe = TensorType(UINT8, blocks), ("zero points", usual, blocks)
    every = LazyConstant(kind, lambda: np.full(blocks, usual, np.uint8), recipe, again=True)
    return g.Gather(every, index, axis=along)


NBITS: tuple[DomainRow, ...] = (
    DomainRow(
        "MatMulNBits",
        _matmul,
        ("A", "B", "scales", "zero_points?", "g_idx?", "bias?"),
        (
            *(integer("K"), integer("N"), integer("bits", 4), integer("block_size")),
            *(integer("accuracy_level", 0), integer("weight_prepacked", 0)),
        ),
        ("Y",),
        newer=("bits", 2, 25),
    ),
    DomainRow(
        "GatherBlockQuantized",
        _gather,
        ("data", "indices", "scales", "zero_points?"),
        (integer("bits", 4), integer("block_size", 128), integer("gather_axis", 0), integer("quantize_axis", 1)),
    ),
)
