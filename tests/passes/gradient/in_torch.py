"""A graph computed by PyTorch, so that its autograd can be asked: one function for each ONNX operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from fusewise.ir.graph import Graph
from fusewise.ops.spec import Call
from fusewise.ops.window import Window, transposed_window_of, window_of

Tensor = torch.Tensor


def run(graph: Graph, feeds: Mapping[str, Tensor], added: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """All values of the graph, with what is `added` to some of them."""
    more = added or {}
    values: dict[str, Tensor] = {}

    def enter(name: str, value: Tensor) -> None:
        values[name] = value + more[name] if name in more else value

    for name, constant in graph.constants.items():
        enter(name, torch.from_numpy(np.array(constant.array)))
    for name, feed in feeds.items():
        enter(name, feed)
    for node in graph.nodes:
        call = Call(
            node,
            tuple(graph.types[v] if v else None for v in node.inputs),
            tuple(graph.types[v] if v else None for v in node.outputs),
            tuple(graph.constants.get(v) if v else None for v in node.inputs),
        )
        found = OPERATORS[node.op](call, *(values[v] if v else None for v in node.inputs))
        for name, value in zip(node.outputs, found if isinstance(found, tuple) else (found,), strict=False):
            enter(name, value)
    return values


def gradients(graph: Graph, feeds: Mapping[str, np.ndarray], of: Sequence[str], by: Sequence[str]) -> list[np.ndarray]:
    """The gradient of the sum of each output by each value, by autograd: that by zeros which are added to the value."""
    given = {name: torch.from_numpy(np.array(x)) for name, x in feeds.items()}
    plain = run(graph, given)
    zeros = {name: torch.zeros_like(plain[name], requires_grad=True) for name in by}
    values = run(graph, given, zeros)
    results: list[np.ndarray] = []
    for output in of:
        slopes = torch.autograd.grad(values[output].sum(), list(zeros.values()), allow_unused=True, retain_graph=True)
        results += [
            (torch.zeros_like(zero) if slope is None else slope).detach().numpy()
            for slope, zero in zip(slopes, zeros.values(), strict=True)
        ]
    return results


def _numbers(tensor: Tensor | None) -> list[int]:
    return [] if tensor is None else [int(x) for x in tensor.reshape(-1)]


def _window(call: Call, transposed: bool = False) -> Window:
    kernel = call.attribute("kernel_shape") or call.input(1).dims[2:]
    return (transposed_window_of if transposed else window_of)(call, kernel)


def _padded(x: Tensor, window: Window, value: float = 0.0) -> Tensor:
    pads = [size for pair in zip(window.begins[::-1], window.ends[::-1], strict=True) for size in pair]
    return F.pad(x, pads, value=value)


def _conv(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    window, convolve = _window(call), (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3]
    padded = _padded(x, window)
    return convolve(padded, w, b, stride=window.strides, dilation=window.dilations, groups=call.attribute("group", 1))


def _conv_transpose(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """The whole result, with what the padding cuts off, and zeros where it is not reached."""
    window, convolve = _window(call, transposed=True), (F.conv_transpose1d, F.conv_transpose2d)[x.ndim - 3]
    whole = convolve(x, w, None, stride=window.strides, dilation=window.dilations, groups=call.attribute("group", 1))
    for axis, size in enumerate(call.output(0).dims[2:], 2):
        begin = window.begins[axis - 2]
        whole = whole.narrow(axis, begin, min(size, whole.shape[axis] - begin))
        short = [0, 0] * (whole.ndim - 1 - axis) + [0, size - whole.shape[axis]]
        whole = F.pad(whole, short)
    return whole if b is None else whole + b.reshape(-1, *[1] * (x.ndim - 2))


def _unfolded(x: Tensor, window: Window, outputs: Sequence[int], fill: float) -> Tensor:
    """[n, c, outputs..., taps]: what every window sees."""
    reach = [
        (o - 1) * s + (k - 1) * d + 1
        for o, s, k, d in zip(outputs, window.strides, window.kernel, window.dilations, strict=True)
    ]
    x = _padded(x, window, fill)
    more = [size for r, s in zip(reach[::-1], x.shape[:1:-1], strict=True) for size in (0, max(r - s, 0))]
    x = F.pad(x, more, value=fill)
    taps = []
    for tap in np.ndindex(*window.kernel):
        places = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, window.dilations, outputs, window.strides, strict=True)
        )
        taps.append(x[(slice(None), slice(None), *places)])
    return torch.stack(taps, -1)


def _max_pool(call: Call, x: Tensor) -> Tensor:
    """The first of equal maxima takes the gradient."""
    seen = _unfolded(x, _window(call), call.output(0).dims[2:], -np.inf)
    first = (seen == seen.amax(-1, keepdim=True)).to(torch.int8).argmax(-1, keepdim=True)
    return seen.gather(-1, first)[..., 0]


def _average_pool(call: Call, x: Tensor) -> Tensor:
    window, outputs = _window(call), call.output(0).dims[2:]
    ones = torch.ones_like(x[:1, :1])
    if call.attribute("count_include_pad", 0):
        ones = _padded(ones, window, 1.0)
        bare = Window(
            window.kernel, window.strides, window.dilations, (0,) * window.rank, (0,) * window.rank, window.extents
        )
        counts = _unfolded(ones, bare, outputs, 0.0).sum(-1)
    else:
        counts = _unfolded(ones, window, outputs, 0.0).sum(-1)
    return _unfolded(x, window, outputs, 0.0).sum(-1) / counts


def _batch_norm(call: Call, x: Tensor, s: Tensor, b: Tensor, m: Tensor, v: Tensor) -> Tensor:
    shape = (-1, *[1] * (x.ndim - 2))
    root = torch.sqrt(v + call.attribute("epsilon", 1e-5))
    return (x - m.reshape(shape)) / root.reshape(shape) * s.reshape(shape) + b.reshape(shape)


def _layer_norm(call: Call, x: Tensor, s: Tensor, b: Tensor | None = None) -> Tensor:
    axis = call.attribute("axis", -1) % x.ndim
    y = F.layer_norm(x, x.shape[axis:], eps=call.attribute("epsilon", 1e-5)) * s
    return y if b is None else y + b


def _rms_norm(call: Call, x: Tensor, s: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[call.attribute("axis", -1) % x.ndim :], eps=call.attribute("epsilon", 1e-5)) * s


def _group_norm(call: Call, x: Tensor, s: Tensor, b: Tensor) -> Tensor:
    return F.group_norm(x, call.attribute("num_groups"), s, b, call.attribute("epsilon", 1e-5))


def _gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a, b = (a.T if call.attribute("transA", 0) else a), (b.T if call.attribute("transB", 0) else b)
    y = call.attribute("alpha", 1.0) * (a @ b)
    return y if c is None else y + call.attribute("beta", 1.0) * c


def _reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
        found = _numbers(axes) or ([] if call.attribute("noop_with_empty_axes", 0) else list(range(x.ndim)))
        return function(x, found, bool(call.attribute("keepdims", 1))) if found else x

    return run


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


def _slice(call: Call, x: Tensor, *limits: Tensor) -> Tensor:
    starts, ends, axes, steps = (*(_numbers(t) for t in limits), [], [])[:4]
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = (axes[k] if axes else k) % x.ndim
        step = steps[k] if steps else 1
        stop = None if step < 0 and end < -x.shape[axis] else end
        x = x.index_select(axis, torch.tensor(list(range(x.shape[axis])[slice(start, stop, step)]), dtype=torch.int64))
    return x


def _pad(call: Call, x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None) -> Tensor:
    found = _numbers(pads)
    chosen = [a % x.ndim for a in _numbers(axes)] or list(range(x.ndim))
    half = len(found) // 2
    for axis, before, after in zip(chosen, found[:half], found[half:], strict=True):
        mode = call.attribute("mode", "constant")
        if mode == "constant":
            sides = [0, 0] * (x.ndim - 1 - axis) + [before, after]
            x = F.pad(x, sides, value=0.0 if value is None else float(value))
        else:
            x = x.index_select(axis, torch.from_numpy(np.pad(np.arange(x.shape[axis]), (before, after), mode=mode)))
    return x


def _gather(call: Call, x: Tensor, places: Tensor) -> Tensor:
    axis = call.attribute("axis", 0) % x.ndim
    flat = x.index_select(axis, places.reshape(-1).long() % x.shape[axis])
    return flat.reshape((*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]))


def _split(call: Call, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    axis = call.attribute("axis", 0) % x.ndim
    return torch.split(x, [call.output(k).dims[axis] for k in range(len(call.outputs))], axis)


def _gelu(call: Call, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=call.attribute("approximate", "none"))


def _shaped(call: Call, x: Tensor, *rest: Tensor) -> Tensor:
    return x.reshape(call.output(0).dims)


def _clip(call: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    return x if low is None and high is None else torch.clamp(x, low, high)


def _resize(call: Call, x: Tensor, *rest: Tensor) -> Tensor:
    size = call.output(0).dims[2:]
    if call.attribute("mode", "nearest") == "nearest":
        return F.interpolate(x, size=size, mode="nearest")
    return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


def _where_norm(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return torch.linalg.vector_norm(x, 2, axes, keep)


def _elementwise(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda call, *operands: function(*operands)


def _axis(function: Callable[..., Tensor], name: str = "axis", default: int = -1) -> Callable[..., Tensor]:
    return lambda call, x: function(x, call.attribute(name, default))


def _attention(call: Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    flat = q.ndim == 3
    if flat:
        heads, shared = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
        q, k, v = (x.unflatten(2, (n, -1)).transpose(1, 2) for x, n in ((q, heads), (k, shared), (v, shared)))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, -1e30) if mask.dtype == torch.bool else scores + mask
    if call.attribute("is_causal", 0):
        scores = torch.where(torch.ones(scores.shape[-2:]).tril().bool(), scores, -1e30)
    y = torch.softmax(scores, -1) @ v
    return y.transpose(1, 2).flatten(2) if flat else y


def _selu(x: Tensor) -> Tensor:
    """With ONNX's constants, which are those of the paper in float32."""
    return 1.05070102214813232421875 * torch.where(x > 0, x, 1.67326319217681884765625 * (torch.exp(x) - 1))


def _hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    return torch.clamp(call.attribute("alpha", 0.2) * x + call.attribute("beta", 0.5), 0, 1)


def _cast(call: Call, x: Tensor, *rest: Tensor) -> Tensor:
    return x.to(torch.from_numpy(np.zeros(1, call.output(0).dtype.numpy)).dtype)


_OF_ONE = "Abs Exp Log Sqrt Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf Sigmoid Tanh Neg Reciprocal"

OPERATORS: dict[str, Callable[..., Any]] = {
    **{name: _elementwise(getattr(torch, name.lower())) for name in _OF_ONE.split()},
    **{
        name: _elementwise(getattr(torch, name.lower()))
        for name in "Add Sub Mul Div Pow Where Greater Less Floor Ceil Round Sign".split()
    },
    "Equal": _elementwise(torch.eq),
    "Or": _elementwise(torch.logical_or),
    "And": _elementwise(torch.logical_and),
    "Not": _elementwise(torch.logical_not),
    "ConstantOfShape": lambda call, shape: torch.full(_numbers(shape), call.attribute("value").array[0]),
    "Relu": _elementwise(torch.relu),
    "Identity": _elementwise(lambda x: x),
    "Max": _elementwise(torch.maximum),
    "Min": _elementwise(torch.minimum),
    "Sum": _elementwise(lambda *x: sum(x)),
    "Mean": _elementwise(lambda *x: sum(x) / len(x)),
    "Gelu": _gelu,
    "HardSwish": _elementwise(F.hardswish),
    "HardSigmoid": _hard_sigmoid,
    "Mish": _elementwise(F.mish),
    "Softplus": _elementwise(F.softplus),
    "Softsign": _elementwise(F.softsign),
    "LeakyRelu": lambda call, x: F.leaky_relu(x, call.attribute("alpha", 0.01)),
    "PRelu": _elementwise(lambda x, s: torch.where(x < 0, s * x, x)),
    "Elu": lambda call, x: F.elu(x, call.attribute("alpha", 1.0)),
    "Celu": lambda call, x: F.celu(x, call.attribute("alpha", 1.0)),
    "Attention": _attention,
    "Selu": _elementwise(_selu),
    "ThresholdedRelu": lambda call, x: F.threshold(x, call.attribute("alpha", 1.0), 0.0),
    "Clip": _clip,
    "Cast": _cast,
    "Softmax": _axis(torch.softmax),
    "LogSoftmax": _axis(torch.log_softmax),
    "CumSum": lambda call, x, axis: torch.cumsum(x, int(axis)),
    "MatMul": _elementwise(torch.matmul),
    "Einsum": lambda call, *x: torch.einsum(call.attribute("equation"), *x),
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _elementwise(lambda x: x.mean(tuple(range(2, x.ndim)), keepdim=True)),
    "GlobalMaxPool": _elementwise(lambda x: x.amax(tuple(range(2, x.ndim)), keepdim=True)),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": lambda call, x, s, b: F.instance_norm(
        x, weight=s, bias=b, eps=call.attribute("epsilon", 1e-5)
    ),
    "LRN": lambda call, x: F.local_response_norm(
        x,
        call.attribute("size"),
        call.attribute("alpha", 1e-4),
        call.attribute("beta", 0.75),
        call.attribute("bias", 1.0),
    ),
    "LpNormalization": lambda call, x: (
        x / torch.linalg.vector_norm(x, call.attribute("p", 2), call.attribute("axis", -1), keepdim=True)
    ),
    "ReduceSum": _reduction(lambda x, axes, keep: x.sum(axes, keepdim=keep)),
    "ReduceMean": _reduction(lambda x, axes, keep: x.mean(axes, keepdim=keep)),
    "ReduceMax": _reduction(lambda x, axes, keep: x.amax(axes, keepdim=keep)),
    "ReduceMin": _reduction(lambda x, axes, keep: x.amin(axes, keepdim=keep)),
    "ReduceProd": _reduction(_product),
    "ReduceL1": _reduction(lambda x, axes, keep: x.abs().sum(axes, keepdim=keep)),
    "ReduceL2": _reduction(_where_norm),
    "ReduceSumSquare": _reduction(lambda x, axes, keep: (x * x).sum(axes, keepdim=keep)),
    "ReduceLogSum": _reduction(lambda x, axes, keep: x.sum(axes, keepdim=keep).log()),
    "ReduceLogSumExp": _reduction(torch.logsumexp),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _shaped),
    "Transpose": lambda call, x: x.permute(call.attribute("perm") or tuple(range(x.ndim))[::-1]),
    "Expand": lambda call, x, shape: x.expand(call.output(0).dims),
    "Concat": lambda call, *x: torch.cat(x, call.attribute("axis")),
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Tile": lambda call, x, repeats: x.repeat(_numbers(repeats)),
    "Gather": _gather,
    "GatherElements": lambda call, x, places: torch.gather(x, call.attribute("axis", 0), places),
    "ScatterElements": lambda call, x, places, u: (
        torch.scatter_add if call.attribute("reduction", "none") == "add" else torch.scatter
    )(x, call.attribute("axis", 0), places, u),
    "TopK": lambda call, x, k: tuple(
        torch.topk(x, int(k), call.attribute("axis", -1), bool(call.attribute("largest", 1)))
    ),
    "Resize": _resize,
}
