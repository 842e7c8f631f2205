"""Quantisation: to and from integers, with one scale, a scale per axis, or a scale per block."""

from __future__ import annotations

import numpy as np

from fusewise.ir.deciding import known_one
from fusewise.ir.dtypes import FLOAT32, dtype_of_onnx
from fusewise.ops.cost import per_output
from fusewise.ops.edges import every
from fusewise.ops.expr import Expr, Index, binary, cast, compare, index, reduce, select, unary
from fusewise.ops.indexing import compute_type, data_axis, dims, value, within
from fusewise.ops.narrow import from_narrow, is_narrow, to_narrow
from fusewise.ops.scalar import quantized
from fusewise.ops.spec import Call, Mapping, OpSpec, Sample

__all__ = ["QUANT"]


def _parameter(call: Call, i: int, at: Index) -> Expr:
    """The scale or zero point that belongs to element `at`: of the tensor, of its axis, or of its block."""
    shape = dims(call, i)
    if known_one(call.input(i).size):
        return call.at(i, *(0,) * len(shape))
    axis = data_axis(call, 1) if call.input(0).rank > 1 else 0  # nothing else it could be
    block = int(call.attribute("block_size", 0))
    if block:
        return call.at(i, *(place // block if d == axis else place for d, place in enumerate(at)))
    return call.at(i, within(at[axis], shape[0], dims(call)[axis]))


def _quantize(call: Call, output: int, at: Index) -> Expr:
    """Divided in the precision that is asked for, else in the scale's; in float32 where that is a power of two or an integer."""
    target = call.output().dtype
    x, scale = call.at(0, *at), _parameter(call, 1, at)
    precision = int(call.attribute("precision", 0))
    asked = dtype_of_onnx(precision) if precision else scale.dtype
    asked = asked if asked.is_float and not is_narrow(asked) else FLOAT32
    wide = compute_type(asked)
    ratio = cast(cast(x, asked), wide) / cast(cast(_wide(scale), asked), wide)
    ratio = cast(ratio, asked) if asked == wide else cast(cast(ratio, asked), wide)
    zero = cast(_wide(_parameter(call, 2, at)), wide) if call.has(2) else None
    if not is_narrow(target):
        return quantized(ratio, zero, target)
    return to_narrow(ratio if zero is None else ratio + zero, target, bool(call.attribute("saturate", 1)))


def _dequantize(call: Call, output: int, at: Index) -> Expr:
    x = cast(_wide(call.at(0, *at)), FLOAT32)
    if call.has(2):
        x = x - cast(_wide(_parameter(call, 2, at)), FLOAT32)
    return x * cast(_wide(_parameter(call, 1, at)), FLOAT32)


def _wide(x: Expr) -> Expr:
    """A number that code computes with."""
    return from_narrow(x) if is_narrow(x.dtype) else x


def _parameter_mapping(call: Call) -> tuple[Mapping, ...]:
    """One-to-One along the data; a scale is broadcast unless it is as large."""
    size = call.input(0).size

    def along(i: int) -> Mapping:
        whole = i == 0 or not call.has(i) or call.input(i).size == size
        return Mapping.ONE_TO_ONE if whole else Mapping.ONE_TO_MANY

    return tuple(along(i) for i in range(len(call.inputs)))


def _dynamic(call: Call, output: int, at: Index) -> Expr:
    """uint8 with the scale and zero point that just cover the data and zero; outputs: y, scale, zero point."""
    shape = dims(call)

    def extreme(kind: str, prefix: str) -> Expr:
        names = tuple(f"{prefix}{d}" for d in range(len(shape)))
        loops = tuple(zip(names, shape, strict=True))
        return binary(kind, reduce(kind, loops, value(call, 0, *(index(n) for n in names))), 0)

    high, low = extreme("max", "a"), extreme("min", "b")
    scale = select(compare("eq", high, low), 1, high - low) / 255
    zero = unary("round", binary("max", binary("min", -low / scale, 255), 0))
    if output == 1:
        return scale
    if output == 2:
        return cast(zero, call.output(2).dtype)
    return quantized(value(call, 0, *at) / scale, zero, call.output().dtype)


def _integer(name: str, values: object) -> np.ndarray:
    return np.array(values, name)


def _f32(values: object) -> np.ndarray:
    return np.array(values, np.float32)


_U8 = ("uint8", (2, 3, 4))

QUANT: tuple[OpSpec, ...] = (
    OpSpec(
        "QuantizeLinear",
        mapping=_parameter_mapping,
        flops=per_output(5),
        define=_quantize,
        flags=frozenset({"narrow"}),
        samples=(
            Sample((("float32", (2, 5)), _f32(0.1), _integer("uint8", 128)), low=-20, high=20),
            Sample((("float32", (2, 3)), ("float32", (3,)), _integer("int8", [1, -2, 3])), low=0.1, high=3),
            Sample((("float32", (3, 2)), _f32([0.1, 0.2, 0.3]), _integer("int16", [0, 5, -5])), {"axis": 0}),
            Sample((("float32", (4, 2)), ("float32", (2, 2))), {"axis": 0, "block_size": 2}, low=0.5, high=3),
            Sample(
                (("float32", (4,)), _f32([0.5])),
            ),
        ),
    ),
    OpSpec(
        "DequantizeLinear",
        mapping=_parameter_mapping,
        flops=per_output(2),
        define=_dequantize,
        flags=frozenset({"narrow"}),
        samples=(
            Sample((_U8, _f32(0.1), _integer("uint8", 128)), low=0, high=255),
            Sample((_U8, ("float32", (3,)), ("uint8", (3,))), low=0, high=200),
            Sample(
                (("int8", (4, 3)), ("float32", (2, 3)), ("int8", (2, 3))), {"axis": 0, "block_size": 2}, low=-9, high=9
            ),
            Sample((("int32", (2, 3)), _f32(0.5)), low=-900, high=900),
            Sample((("int8", (2, 3)), ("float16", (3,))), low=1, high=9),
        ),
    ),
    OpSpec(
        "DynamicQuantizeLinear",
        mapping=every(Mapping.MANY_TO_MANY),
        flops=lambda call: 6 * call.input(0).size,
        define=_dynamic,
        family="dynamic_quantize",
        samples=(Sample((("float32", (3, 4)),), outputs=3), Sample((("float32", (6,)),), outputs=3, low=1, high=4)),
    ),
)
