"""Operators with random shapes and attributes, one strategy each. Attributes are numbers that float32 holds, as files do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fusewise.ir.dtypes import FLOAT32, FLOAT64
from fusewise.ops.build import GraphBuilder

Draw = Callable[[st.SearchStrategy[Any]], Any]
Case = Callable[[Draw, GraphBuilder], Any]


def _dims(draw: Draw, least: int = 0, most: int = 3, largest: int = 4) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(1, largest), min_size=least, max_size=most)))


def _number(draw: Draw, low: int, high: int) -> int:
    return int(draw(st.integers(low, high)))


def _input(b: GraphBuilder, dims: tuple[int, ...], name: str = "x") -> str:
    return b.input(name, dims, FLOAT64)


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def _part(draw: Draw, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Dimensions that are broadcast to `dims`."""
    kept = dims[_number(draw, 0, len(dims)) :]
    return tuple(size if draw(st.booleans()) else 1 for size in kept)


def _unary(op: str, **attributes: st.SearchStrategy[Any]) -> Case:
    def case(draw: Draw, b: GraphBuilder) -> Any:
        stated = {name: draw(values) for name, values in attributes.items()}
        return b.op(op, _input(b, _dims(draw)), **stated)

    return case


def _binary(op: str, constant: bool = False) -> Case:
    def case(draw: Draw, b: GraphBuilder) -> Any:
        dims = _dims(draw)
        first, second = (dims, _part(draw, dims)) if draw(st.booleans()) else (_part(draw, dims), dims)
        return b.op(op, _input(b, first, "a"), _input(b, second, "b"))

    return case


def _several(op: str) -> Case:
    def case(draw: Draw, b: GraphBuilder) -> Any:
        dims = _dims(draw)
        return b.op(op, _input(b, dims, "a"), _input(b, _part(draw, dims), "b"), _input(b, _part(draw, dims), "c"))

    return case


def _prelu(draw: Draw, b: GraphBuilder) -> Any:
    dims = _dims(draw)
    return b.op("PRelu", _input(b, dims), _input(b, _part(draw, dims), "slope"))


def _where(draw: Draw, b: GraphBuilder) -> Any:
    dims = _dims(draw)
    condition = b.constant(np.arange(int(np.prod(dims))).reshape(dims) % 3 == 0)
    return b.op("Where", condition, _input(b, _part(draw, dims), "a"), _input(b, _part(draw, dims), "b"))


def _clip(draw: Draw, b: GraphBuilder) -> Any:
    low = b.constant(np.array(-0.37)) if draw(st.booleans()) else None
    high = b.constant(np.array(0.61)) if draw(st.booleans()) else None
    return b.op("Clip", _input(b, _dims(draw)), low, high)


def _axes(draw: Draw, rank: int) -> list[int]:
    found = draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    return [axis - rank if draw(st.booleans()) else axis for axis in found]


def _reduction(op: str) -> Case:
    def case(draw: Draw, b: GraphBuilder) -> Any:
        dims = _dims(draw, 1)
        axes = b.constant(_ints(*_axes(draw, len(dims)))) if draw(st.booleans()) else None
        return b.op(op, _input(b, dims), axes, keepdims=_number(draw, 0, 1))

    return case


def _along_axis(op: str, **stated: Any) -> Case:
    def case(draw: Draw, b: GraphBuilder) -> Any:
        dims = _dims(draw, 1)
        return b.op(op, _input(b, dims), axis=_number(draw, -len(dims), len(dims) - 1), **stated)

    return case


def _matmul(draw: Draw, b: GraphBuilder) -> Any:
    n, k, m = (_number(draw, 1, 3) for _ in range(3))
    lead = _dims(draw, 0, 2, 3)
    first = (*_part(draw, lead), n, k) if draw(st.booleans()) else (k,)
    second = (*_part(draw, lead), k, m) if draw(st.booleans()) else (k,)
    return b.op("MatMul", _input(b, first, "a"), _input(b, second, "b"))


def _gemm(draw: Draw, b: GraphBuilder) -> Any:
    n, k, m, ta, tb = *(_number(draw, 1, 3) for _ in range(3)), *(_number(draw, 0, 1) for _ in range(2))
    a, w = _input(b, (k, n) if ta else (n, k), "a"), _input(b, (m, k) if tb else (k, m), "w")
    c = _input(b, draw(st.sampled_from([(m,), (n, m), (1,), (n, 1)])), "c") if draw(st.booleans()) else None
    return b.op("Gemm", a, w, c, transA=ta, transB=tb, alpha=0.5, beta=1.5)


def _einsum(draw: Draw, b: GraphBuilder) -> Any:
    equation = draw(st.sampled_from(["ij,jk->ik", "bij,bjk->bik", "ij,kj->i", "ij->", "ij->ji", "i,j->ij", "ijk,ij"]))
    sizes = {letter: _number(draw, 1, 3) for letter in "ijkb"}
    terms = equation.split("->")[0].split(",")
    values = [_input(b, tuple(sizes[x] for x in term), f"t{k}") for k, term in enumerate(terms)]
    return b.op("Einsum", *values, equation=equation)


def _geometry(draw: Draw, rank: int) -> dict[str, Any]:
    return {
        "kernel": [_number(draw, 1, 3) for _ in range(rank)],
        "strides": [_number(draw, 1, 3) for _ in range(rank)],
        "dilations": [_number(draw, 1, 2) for _ in range(rank)],
    }


def _padding(draw: Draw, rank: int, kernel: list[int]) -> dict[str, Any]:
    mode = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if mode != "NOTSET":
        return {"auto_pad": mode}
    return {"pads": [_number(draw, 0, max(k - 1, 0)) for k in (*kernel, *kernel)]}


def _extents(draw: Draw, g: dict[str, Any]) -> tuple[int, ...]:
    return tuple((k - 1) * d + _number(draw, 1, 5) for k, d in zip(g["kernel"], g["dilations"], strict=True))


def _conv(draw: Draw, b: GraphBuilder) -> Any:
    rank, groups = _number(draw, 1, 2), _number(draw, 1, 3)
    g = _geometry(draw, rank)
    channels, filters = groups * _number(draw, 1, 2), groups * _number(draw, 1, 2)
    x = _input(b, (_number(draw, 1, 2), channels, *_extents(draw, g)))
    w = _input(b, (filters, channels // groups, *g["kernel"]), "w")
    bias = _input(b, (filters,), "b") if draw(st.booleans()) else None
    padding = _padding(draw, rank, g["kernel"])
    return b.op("Conv", x, w, bias, group=groups, strides=g["strides"], dilations=g["dilations"], **padding)


def _conv_transpose(draw: Draw, b: GraphBuilder) -> Any:
    rank, groups = _number(draw, 1, 2), _number(draw, 1, 2)
    g = _geometry(draw, rank)
    channels, filters = groups * _number(draw, 1, 2), _number(draw, 1, 2)
    x = _input(b, (_number(draw, 1, 2), channels, *(_number(draw, 2, 4) for _ in range(rank))))
    w = _input(b, (channels, filters, *g["kernel"]), "w")
    bias = _input(b, (groups * filters,), "b") if draw(st.booleans()) else None
    stated: dict[str, Any] = {"output_padding": [_number(draw, 0, stride - 1) for stride in g["strides"]]}
    if draw(st.booleans()):
        stated["pads"] = [
            _number(draw, 0, min(1, (k - 1) * d)) for k, d in zip(g["kernel"], g["dilations"], strict=True)
        ] * 2
    return b.op("ConvTranspose", x, w, bias, group=groups, strides=g["strides"], dilations=g["dilations"], **stated)


def _pool(op: str) -> Case:
    def case(draw: Draw, b: GraphBuilder) -> Any:
        rank = _number(draw, 1, 2)
        g = _geometry(draw, rank)
        x = _input(b, (_number(draw, 1, 2), _number(draw, 1, 2), *_extents(draw, g)))
        stated = _padding(draw, rank, g["kernel"])
        if op == "AveragePool":
            stated["count_include_pad"] = _number(draw, 0, 1)
        if "pads" in stated:
            stated["ceil_mode"] = _number(draw, 0, 1)
        return b.op(op, x, kernel_shape=g["kernel"], strides=g["strides"], dilations=g["dilations"], **stated)

    return case


def _global(op: str) -> Case:
    return lambda draw, b: b.op(op, _input(b, (_number(draw, 1, 2), _number(draw, 1, 3), *_dims(draw, 1, 2))))


def _normalised(op: str) -> Case:
    def case(draw: Draw, b: GraphBuilder) -> Any:
        dims = _dims(draw, 1, 3)
        axis = _number(draw, 0, len(dims) - 1)
        scale = _input(b, dims[axis:], "s")
        bias = [_input(b, dims[axis:], "b")] if op == "LayerNormalization" and draw(st.booleans()) else []
        return b.op(op, _input(b, dims), scale, *bias, axis=axis, epsilon=2.0**-7)

    return case


def _per_channel(op: str, *more: str) -> Case:
    def case(draw: Draw, b: GraphBuilder) -> Any:
        groups = _number(draw, 1, 2)
        channels = groups * _number(draw, 1, 2)
        stated = {"num_groups": groups} if op == "GroupNormalization" else {}
        vectors = [_input(b, (channels,), name) for name in ("s", "b", *more)]
        dims = (_number(draw, 1, 2), channels, *(_number(draw, 2, 3) for _ in range(_number(draw, 1, 2))))
        return b.op(op, _input(b, dims), *vectors, epsilon=2.0**-7, **stated)

    return case


def _reshape(draw: Draw, b: GraphBuilder) -> Any:
    dims = _dims(draw, 1)
    op = draw(st.sampled_from(["Reshape", "Flatten", "Squeeze", "Unsqueeze"]))
    x = _input(b, (1, *dims))
    if op == "Flatten":
        return b.op(op, x, axis=_number(draw, 0, len(dims) + 1))
    given = {"Reshape": [*dims[::-1], 1], "Squeeze": [0], "Unsqueeze": [_number(draw, 0, len(dims) + 1)]}[op]
    return b.op(op, x, b.constant(_ints(*given)))


def _transpose(draw: Draw, b: GraphBuilder) -> Any:
    dims = _dims(draw, 1)
    order = list(draw(st.permutations(range(len(dims))))) if draw(st.booleans()) else None
    return b.op("Transpose", _input(b, dims), perm=order)


def _expand(draw: Draw, b: GraphBuilder) -> Any:
    dims = _dims(draw, 1)
    return b.op("Expand", _input(b, _part(draw, dims)), b.constant(_ints(*dims)))


def _concat(draw: Draw, b: GraphBuilder) -> Any:
    dims = _dims(draw, 1)
    axis = _number(draw, 0, len(dims) - 1)
    parts = [
        _input(b, (*dims[:axis], _number(draw, 1, 3), *dims[axis + 1 :]), f"x{k}") for k in range(_number(draw, 1, 3))
    ]
    return b.op("Concat", *parts, axis=axis - len(dims) if draw(st.booleans()) else axis)


def _split(draw: Draw, b: GraphBuilder) -> Any:
    dims = _dims(draw, 1)
    axis, sizes = _number(draw, 0, len(dims) - 1), [_number(draw, 1, 3) for _ in range(2)]
    x = _input(b, (*dims[:axis], sum(sizes), *dims[axis + 1 :]))
    first, second = b.op("Split", x, b.constant(_ints(*sizes)), axis=axis, outputs=2)
    return draw(st.sampled_from([(first,), (second,), (first, second)]))


def _slice(draw: Draw, b: GraphBuilder) -> Any:
    dims = _dims(draw, 1, 3, 6)
    axes = [axis % len(dims) for axis in _axes(draw, len(dims))]
    steps = [draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in axes]
    starts, ends = [], []
    for axis, step in zip(axes, steps, strict=True):
        low = _number(draw, 0, dims[axis] - 1)
        high = _number(draw, low, dims[axis] - 1)
        starts.append(low if step > 0 else high)
        ends.append(high + 1 if step > 0 else low - 1 - dims[axis] if low == 0 else low - 1)
    return b.op("Slice", _input(b, dims), *(b.constant(_ints(*v)) for v in (starts, ends, axes, steps)))


def _pad(draw: Draw, b: GraphBuilder) -> Any:
    mode = draw(st.sampled_from(["constant", "reflect", "edge", "wrap"]))
    least = 0 if mode != "constant" else -1
    dims = tuple(size + 2 for size in _dims(draw, 1))
    pads = [_number(draw, least, 1) for _ in range(2 * len(dims))]
    return b.op("Pad", _input(b, dims), b.constant(_ints(*pads)), mode=mode)


def _tile(draw: Draw, b: GraphBuilder) -> Any:
    dims = _dims(draw, 1)
    return b.op("Tile", _input(b, dims), b.constant(_ints(*(_number(draw, 1, 3) for _ in dims))))


def _gather(draw: Draw, b: GraphBuilder) -> Any:
    dims = _dims(draw, 1)
    axis = _number(draw, -len(dims), len(dims) - 1)
    shape = _dims(draw, 0, 2)
    places = [_number(draw, -dims[axis], dims[axis] - 1) for _ in range(int(np.prod(shape, dtype=int)))]
    return b.op("Gather", _input(b, dims), b.constant(np.array(places, np.int64).reshape(shape)), axis=axis)


def _gather_elements(draw: Draw, b: GraphBuilder) -> Any:
    dims = _dims(draw, 1)
    axis = _number(draw, 0, len(dims) - 1)
    places = np.array([_number(draw, 0, dims[axis] - 1) for _ in range(int(np.prod(dims)))], np.int64)
    return b.op("GatherElements", _input(b, dims), b.constant(places.reshape(dims)), axis=axis)


def _scatter(draw: Draw, b: GraphBuilder) -> Any:
    dims = _dims(draw, 1)
    axis = _number(draw, 0, len(dims) - 1)
    places = np.argsort(np.random.default_rng(_number(draw, 0, 99)).normal(size=dims), axis)
    mode = draw(st.sampled_from(["none", "add"]))
    updates = _input(b, dims, "u")
    return b.op("ScatterElements", _input(b, dims), b.constant(places), updates, axis=axis, reduction=mode)


def _resize(draw: Draw, b: GraphBuilder) -> Any:
    dims, factors = [_number(draw, 1, 4) for _ in range(2)], [_number(draw, 1, 3) for _ in range(2)]
    sizes = b.constant(_ints(1, 2, *(d * f for d, f in zip(dims, factors, strict=True))))
    mode = draw(st.sampled_from(["nearest", "linear"]))
    how = "asymmetric" if mode == "nearest" else "half_pixel"
    x = _input(b, (1, 2, *dims))
    return b.op("Resize", x, None, None, sizes, mode=mode, coordinate_transformation_mode=how, nearest_mode="floor")


def _top(draw: Draw, b: GraphBuilder) -> Any:
    dims = _dims(draw, 1)
    axis = _number(draw, 0, len(dims) - 1)
    k = b.constant(_ints(_number(draw, 1, dims[axis])))
    return b.op("TopK", _input(b, dims), k, axis=axis, largest=_number(draw, 0, 1), outputs=2)[:1]


def _attention(draw: Draw, b: GraphBuilder) -> Any:
    samples, shared, times, queries, keys, size, width = (_number(draw, 1, 2) for _ in range(7))
    heads, keys = shared * times, keys + 1
    flat = draw(st.booleans())

    def operand(name: str, count: int, length: int, last: int) -> str:
        dims = (samples, length, count * last) if flat else (samples, count, length, last)
        return _input(b, dims, name)

    q, k = operand("q", heads, queries, size), operand("k", shared, keys, size)
    v = operand("v", shared, keys, width)
    kind = draw(st.sampled_from(["none", "bool", "float"]))
    mask = None
    if kind == "bool":
        mask = b.constant(np.arange(queries * keys).reshape(queries, keys) % keys <= 1)
    elif kind == "float":
        mask = _input(b, (queries, keys), "mask")
    stated = {"q_num_heads": heads, "kv_num_heads": shared} if flat else {}
    return b.op("Attention", q, k, v, mask, is_causal=_number(draw, 0, 1), **stated)


def _blocks(op: str) -> Case:
    def case(draw: Draw, b: GraphBuilder) -> Any:
        size, channels = _number(draw, 1, 2), _number(draw, 1, 2)
        n, h, w = (_number(draw, 1, 2) for _ in range(3))
        if op == "DepthToSpace":
            mode = draw(st.sampled_from(["DCR", "CRD"]))
            return b.op(op, _input(b, (n, channels * size**2, h, w)), blocksize=size, mode=mode)
        return b.op(op, _input(b, (n, channels, h * size, w * size)), blocksize=size)

    return case


def _named_shape(op: str) -> Case:
    def case(draw: Draw, b: GraphBuilder) -> Any:
        dims = _dims(draw, 1)
        if op == "Flatten":
            return b.op(op, _input(b, dims), axis=_number(draw, 0, len(dims)))
        return b.op(op, _input(b, (1, *dims)), b.constant(_ints(0)))

    return case


_SMOOTH = "Exp Sin Cos Tan Atan Sinh Cosh Asinh Erf Sigmoid Tanh Neg Identity Mish Softplus HardSwish Selu Relu Abs"

CASES: dict[str, Case] = {
    **{op: _unary(op) for op in _SMOOTH.split()},
    **{
        op: _unary(op)
        for op in ("Log", "Sqrt", "Reciprocal", "Acosh", "Asin", "Acos", "Atanh", "Floor", "Round", "Sign")
    },
    "Gelu": _unary("Gelu", approximate=st.sampled_from(["none", "tanh"])),
    "Softsign": lambda draw, b: b.op("Softsign", _input(b, _dims(draw, 1))),
    "PRelu": _prelu,
    "HardSigmoid": _unary("HardSigmoid", alpha=st.sampled_from([0.25, 0.375]), beta=st.just(0.4375)),
    "LeakyRelu": _unary("LeakyRelu", alpha=st.sampled_from([0.0625, 0.25])),
    "Elu": _unary("Elu", alpha=st.sampled_from([1.0, 0.5])),
    "ThresholdedRelu": _unary("ThresholdedRelu", alpha=st.just(0.375)),
    **{op: _binary(op) for op in "Add Sub Mul Div Pow Max Min".split()},
    "Sum": _several("Sum"),
    "Mean": _several("Mean"),
    "Where": _where,
    "Clip": _clip,
    **{
        f"Reduce{op}": _reduction(f"Reduce{op}")
        for op in "Sum Mean Max Min Prod L1 L2 SumSquare LogSum LogSumExp".split()
    },
    "Softmax": _along_axis("Softmax"),
    "LogSoftmax": _along_axis("LogSoftmax"),
    "LpNormalization": _along_axis("LpNormalization", p=2),
    "CumSum": lambda draw, b: b.op("CumSum", _input(b, _dims(draw, 1)), b.constant(np.array(0, np.int64))),
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _pool("MaxPool"),
    "AveragePool": _pool("AveragePool"),
    "GlobalAveragePool": _global("GlobalAveragePool"),
    "GlobalMaxPool": _global("GlobalMaxPool"),
    "BatchNormalization": _per_channel("BatchNormalization", "m", "positive"),
    "InstanceNormalization": _per_channel("InstanceNormalization"),
    "GroupNormalization": _per_channel("GroupNormalization"),
    "LayerNormalization": _normalised("LayerNormalization"),
    "RMSNormalization": _normalised("RMSNormalization"),
    "LRN": lambda draw, b: b.op(
        "LRN", _input(b, (1, 5, 2, 2)), size=draw(st.sampled_from([1, 3, 5])), alpha=0.25, beta=0.625
    ),
    "shapes": _reshape,
    "Transpose": _transpose,
    "Expand": _expand,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Tile": _tile,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "ScatterElements": _scatter,
    "TopK": _top,
    "Resize": _resize,
    "Attention": _attention,
}
"""By operator, or by what several have in common. Their gradients are taken."""

MORE: dict[str, Case] = {
    **{op: _named_shape(op) for op in ("Flatten", "Squeeze", "Unsqueeze")},
    **{op: _blocks(op) for op in ("DepthToSpace", "SpaceToDepth")},
    "Celu": lambda draw, b: b.op("Celu", b.input("x", _dims(draw), FLOAT32), alpha=draw(st.sampled_from([1.0, 0.5]))),
    "Shrink": _unary("Shrink", lambd=st.sampled_from([0.5, 0.2]), bias=st.sampled_from([0.0, 0.1])),
    "MeanVarianceNormalization": lambda draw, b: b.op(
        "MeanVarianceNormalization", _input(b, (2, 3, 2, _number(draw, 1, 3)))
    ),
    **{op: _several(op) for op in ("Max", "Min")},
}
"""Further operators, or forms of them."""

BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("Log", "Sqrt", "Reciprocal", "Div", "Pow", "ReduceLogSum"), (0.5, 2.0)),
    "Acosh": (1.5, 3.0),
    "Tan": (-1.2, 1.2),
    **dict.fromkeys(("Asin", "Acos", "Atanh"), (-0.8, 0.8)),
}
"""Where inputs of an operator come from, if it is not -2 to 2; `positive` is always from 0.5 on."""
