"""Weights of 2, 4 and 8 bits in blocks: products with them, and rows of them that are gathered.

They are written as DequantizeLinear of constants in ONNX's own narrow types, which are made of the packed bytes when they are read.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusewise.frontend.domains.row import DomainCall, DomainRow, integer
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.dtypes import UINT8, DType, dtype_named
from fusewise.ir.graph import Constant, LazyConstant
from fusewise.ir.types import TensorType

__all__ = ["NBITS"]

_WIDTHS = (2, 4, 8)
_LEAST_BLOCK = 16


def codes_of(packed: np.ndarray, bits: int, axis_length: int, dtype: DType) -> np.ndarray:
    """Numbers of so many bits, several in a byte along the last axis with the first in the lowest bits, as unsigned ones of a type,
    or as signed ones less half their range."""
    parts = [(packed >> (bits * k)) & ((1 << bits) - 1) for k in range(8 // bits)]
    joined = np.stack(parts, axis=-1).reshape(*packed.shape[:-1], -1)[..., :axis_length]
    if dtype.kind == "uint":
        return np.ascontiguousarray(joined).astype(dtype.numpy)
    return (joined.astype(np.int8) - (1 << (bits - 1))).astype(dtype.numpy) if bits < 8 else _less_half(joined)


def _less_half(codes: np.ndarray) -> np.ndarray:
    """Bytes less 128, as int8."""
    return np.ascontiguousarray(codes ^ np.uint8(128)).view(np.int8)


def _constant(g: DomainWriter, call: DomainCall, name: str) -> Constant:
    """An operand that has to be a constant."""
    found = g.known_constant(call[name])
    if found is None:
        raise call.unsupported(f"its input {name!r} must be a constant of the model")
    return found


def _derived(
    g: DomainWriter,
    source: Constant,
    kind: TensorType,
    what: tuple[object, ...],
    make: Callable[[np.ndarray], np.ndarray],
) -> DomainValue:
    """A constant of that type, made of another when it is read."""
    return g.constant(LazyConstant(kind, lambda: make(source.read_once()), (id(source), *what)))


def _width(call: DomainCall) -> int:
    bits: int = call.attribute("bits")
    if bits not in _WIDTHS:
        raise call.unsupported(f"its attribute bits is {bits}; weights of 2, 4 and 8 bits are supported")
    return bits


def _check_block(call: DomainCall, block: int) -> None:
    if block < _LEAST_BLOCK or block & (block - 1):
        raise call.invalid(f"its attribute block_size is {block}; it must be a power of two, {_LEAST_BLOCK} or more")


def _check_shape(call: DomainCall, name: str, found: TensorType, *allowed: tuple[int, ...]) -> None:
    if found.dims not in allowed:
        wanted = " or ".join(str(list(shape)) for shape in allowed)
        raise call.invalid(f"its input {name!r} has the shape {list(found.dims)}; its attributes ask for {wanted}")


def _matmul(g: DomainWriter, call: DomainCall) -> DomainValue:
    """x by the transpose of weights [N, K] in blocks of K."""
    bits, block, n, k = _width(call), call.attribute("block_size"), call.attribute("N"), call.attribute("K")
    if call.attribute("weight_prepacked"):
        raise call.unsupported("its weights are packed for one device (weight_prepacked); write the model without that")
    _check_block(call, block)
    if min(n, k) < 1:
        raise call.invalid(f"its attributes N and K are {n} and {k}; they must be positive")
    weights, blocks = _constant(g, call, "B"), -(-k // block)
    _check_shape(call, "B", weights.type, (n, blocks, block * bits // 8), (n, blocks * block * bits // 8))
    if weights.dtype != UINT8:
        raise call.invalid(f"its input 'B' is of {weights.dtype.name}; it must be of uint8")
    x, scales, zeros = call["A"], call["scales"], call.get("zero_points")
    if x.extent(-1) not in (None, k):
        raise call.invalid(f"the last dimension of its input 'A' is {x.extent(-1)}; its attribute K is {k}")
    _check_shape(call, "scales", _constant(g, call, "scales").type, (n, blocks), (n * blocks,))
    is_exact = zeros is None or zeros.dtype != UINT8
    signed = dtype_named(f"int{bits}" if is_exact else f"uint{bits}")
    order = _order(g, call, k, block)

    def made(packed: np.ndarray) -> np.ndarray:
        found = codes_of(packed.reshape(n, -1), bits, k, signed)
        return found if order is None else np.ascontiguousarray(found[:, order])

    what = (signed.name, n, k, None if order is None else order.tobytes())
    w = _derived(g, weights, TensorType(signed, (n, k)), what, made)
    x = x if order is None else g.Gather(x, order, axis=-1)
    s, z = _matrix(g, scales, n, blocks), None if is_exact else _zero_points(g, call, bits, n, blocks)
    y = g.MatMul(x, g.Transpose(g.DequantizeLinear(w, s, z, axis=1, block_size=block), perm=[1, 0]))
    if zeros is not None and is_exact:
        y = y - _moved(g, call, x, (k, block, blocks), _matrix(g, zeros, n, blocks) - float(1 << (bits - 1)), s)
    bias = call.get("bias")
    return y if bias is None else y + bias


def _matrix(g: DomainWriter, x: DomainValue, rows: int, columns: int) -> DomainValue:
    """Scales or zero points, which older files have flat."""
    return x if x.rank == 2 else g.reshape(x, [rows, columns])


def _zero_points(g: DomainWriter, call: DomainCall, bits: int, n: int, blocks: int) -> DomainValue:
    """Packed as the weights are."""
    zeros, row = _constant(g, call, "zero_points"), -(-blocks * bits // 8)
    _check_shape(call, "zero_points", zeros.type, (n, row), (n * row,))
    kind = TensorType(dtype_named(f"uint{bits}"), (n, blocks))
    return _derived(
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
)
