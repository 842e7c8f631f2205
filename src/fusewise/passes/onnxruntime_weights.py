"""Products with packed weights by ONNX Runtime's own operators, which read them as they are stored: MatMulNBits and MatMulBnb4.

What `frontend.domains.microsoft` reads them as is what they are recognised by, so they come back to the bit:

    MatMul(x, Transpose(DequantizeLinear(w, s, z)))                  w[N, K] of four bits, in blocks along axis 1
    MatMul(x, Transpose(DequantizeLinear(Gather(t, Cast(w)), s)))    t the table of NF4 or of FP4

Weights of 2 and 8 bits stay as they are: MatMulNBits takes longer for them there than dequantised ones do (docs/lab/files.md).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusewise.frontend.domains.microsoft.four_bits import TABLE_ONE, integer_table
from fusewise.ir.dtypes import FLOAT32, UINT8, DType, dtype_named
from fusewise.ir.graph import Constant, LazyConstant, Node
from fusewise.ir.types import TensorType
from fusewise.passes.recogniser import Recogniser, Recognition, own
from fusewise.records import record

__all__ = ["PRODUCTS", "product_of_packed"]

PRODUCTS = frozenset({"MatMulBnb4", "MatMulNBits"})
"""The operators that are written here."""

_INT4, _UINT4 = dtype_named("int4"), dtype_named("uint4")

_BLOCKS = (16, 32, 64, 128, 256)
"""Runs of the depth with one scale that ONNX Runtime has kernels for."""


@record(frozen=True)
class _Packed:
    """Weights [N, K] behind a product: what dequantises them, its block, and where all of this stands that nothing else reads."""

    weights: Node
    block: int
    covered: tuple[int, ...]


def product_of_packed(site: Recogniser, node: Node) -> Recognition | None:
    """x by weights of four bits that are stored by columns."""
    x, found = site.kind(node.inputs[0]), _packed(site, node)
    if found is None or x is None or x.rank < 2:
        return None
    return _of_a_table(site, node, found) or _in_blocks(site, node, found)


def _packed(site: Recogniser, node: Node) -> _Packed | None:
    """Weights that a product dequantises, in blocks of the depth and turned."""
    turned = site.maker(node.inputs[1], "Transpose")
    weights = None if turned is None else site.maker(turned[1].inputs[0], "DequantizeLinear")
    if turned is None or weights is None:
        return None
    kind, block = site.kind(weights[1].outputs[0]), weights[1].attribute("block_size", 0)
    if kind is None or kind.rank != 2 or not kind.is_fixed or turned[1].attribute("perm", (1, 0)) != (1, 0):
        return None
    if weights[1].attribute("axis", 1) not in (1, -1) or block not in _BLOCKS:
        return None
    scales = site.graph.constants.get(weights[1].inputs[1])
    if scales is None or scales.dtype != FLOAT32 or scales.type.dims != (kind.dims[0], -(-kind.dims[1] // block)):
        return None
    return _Packed(weights[1], block, _alone(site, (node.inputs[1], turned[0]), (turned[1].inputs[0], weights[0])))


def _alone(site: Recogniser, *chain: tuple[str, int]) -> tuple[int, ...]:
    """Of nodes one before the other, by a value and where it is made, those that only this chain reads."""
    places = []
    for value, place in chain:
        if not site.graph.is_inner(value):
            break
        places.append(place)
    return tuple(places)


def _in_blocks(site: Recogniser, node: Node, found: _Packed) -> Recognition | None:
    """MatMulNBits, whose codes have no sign: those that have one are 8 less."""
    codes, scales, *rest = found.weights.inputs
    stored, zeros = site.graph.constants.get(codes), site.graph.constants.get(rest[0]) if any(rest) else None
    if stored is None or stored.dtype not in (_INT4, _UINT4) or (any(rest) and zeros is None):
        return None
    n, k = stored.type.dims
    blocks = -(-k // found.block)
    made = [
        _made(stored, (n, blocks, found.block // 2), lambda array: _nibbles(array, blocks * found.block)),
        _made(site.graph.constants[scales], (n, blocks), lambda array: array, FLOAT32),
    ]
    if zeros is not None:
        made.append(_made(zeros, (n, -(-blocks // 2)), lambda array: _nibbles(array, blocks + blocks % 2)))
    elif stored.dtype == _UINT4:
        made.append(Constant(np.zeros((n, -(-blocks // 2)), np.uint8)))
    given = {"K": k, "N": n, "bits": 4, "block_size": found.block}
    return _recognised(site, own(node, "MatMulNBits", node.inputs[0], **given), made, found.covered)


def _of_a_table(site: Recogniser, node: Node, found: _Packed) -> Recognition | None:
    """MatMulBnb4, where the table is one of its two."""
    numbers, scales, *rest = found.weights.inputs
    gather = site.maker(numbers, "Gather")
    cast = None if gather is None else site.maker(gather[1].inputs[1], "Cast")
    if gather is None or cast is None or any(rest) or gather[1].attribute("axis", 0) not in (0, -1):
        return None
    table, stored = site.graph.array(gather[1].inputs[0]), site.graph.constants.get(cast[1].inputs[0])
    if stored is None or stored.dtype != _UINT4 or table is None or table.dtype != np.int32:
        return None
    which = next((kind for kind in (0, 1) if np.array_equal(table, integer_table(kind))), None)
    (n, k), block = stored.type.dims, found.block
    if which is None or k % block:
        return None
    made = [
        _made(stored, (n * k // 2,), _high_first),
        _made(site.graph.constants[scales], (n * k // block,), lambda array: array * np.float32(TABLE_ONE), FLOAT32),
    ]
    covered = found.covered
    if len(covered) == 2:
        covered += _alone(site, (numbers, gather[0]), (gather[1].inputs[1], cast[0]))
    given = {"K": k, "N": n, "block_size": block, "quant_type": which}
    return _recognised(site, own(node, "MatMulBnb4", node.inputs[0], **given), made, covered)


def _recognised(site: Recogniser, node: Node, made: list[Constant], covered: tuple[int, ...]) -> Recognition:
    """The node with constants of its own."""
    names = [site.fresh(f"{node.label}_{stem}") for stem in ("packed", "scales", "zeros")[: len(made)]]
    read = node.with_inputs((*node.inputs, *names))
    return Recognition(read, covered, constants=tuple(zip(names, made, strict=True)))


def _made(
    source: Constant, shape: tuple[int, ...], make: Callable[[np.ndarray], np.ndarray], dtype: DType = UINT8
) -> Constant:
    """A constant made of another when it is read."""
    kind = TensorType(dtype, shape)
    return LazyConstant(kind, lambda: make(source.read_once()).reshape(shape), None, again=True)


def _nibbles(codes: np.ndarray, length: int) -> np.ndarray:
    """Numbers of four bits as bytes, the first of two in the lowest bits, with zeros behind a row up to a length."""
    bits = codes.view(np.uint8) & np.uint8(15)
    if codes.dtype == _INT4.numpy:
        bits ^= np.uint8(8)
    wide = np.zeros((len(bits), length), np.uint8)
    wide[:, : bits.shape[1]] = bits
    return wide[:, ::2] | (wide[:, 1::2] << np.uint8(4))


def _high_first(codes: np.ndarray) -> np.ndarray:
    """The same with the first of two in the highest bits."""
    bits = (codes.view(np.uint8) & np.uint8(15)).reshape(-1, 2)
    return (bits[:, 0] << np.uint8(4)) | bits[:, 1]
