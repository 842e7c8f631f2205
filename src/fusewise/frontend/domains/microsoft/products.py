"""Products of matrices, with what is done to their operands and results."""

from __future__ import annotations

from fusewise.frontend.domains.microsoft.activations import activated
from fusewise.frontend.domains.row import DomainCall, DomainRow, integer, real, text
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ops.validity.rules import between, flag

__all__ = ["PRODUCTS"]


def _turned(g: DomainWriter, x: DomainValue, matrix: int, batch: int) -> DomainValue:
    """A matrix with its axes swapped, and with the first axis moved behind the others but the last (`batch`)."""
    order = list(range(x.rank))
    if batch and x.rank > 2:
        order = [*order[1:-1], 0, order[-1]]
    if matrix and x.rank > 1:
        order[-2:] = reversed(order[-2:])
    return g.permute(x, order)


def _transpose_matmul(g: DomainWriter, call: DomainCall, batch_a: int = 0, batch_b: int = 0) -> DomainValue:
    a = _turned(g, call["A"], call.attribute("transA"), batch_a)
    b = _turned(g, call["B"], call.attribute("transB"), batch_b)
    alpha = call.attribute("alpha")
    return g.MatMul(a, b) if alpha == 1 else g.MatMul(a, b) * alpha


def _fused_matmul(g: DomainWriter, call: DomainCall) -> DomainValue:
    return _transpose_matmul(g, call, call.attribute("transBatchA"), call.attribute("transBatchB"))


def _fused_matmul_activation(g: DomainWriter, call: DomainCall) -> DomainValue:
    y, name = _fused_matmul(g, call), call.attribute("activation")
    if name in ("Softmax", "LogSoftmax"):
        axis = call.attribute("activation_axis")
        return g.several(name, 1, y, axis=-1 if axis is None else axis)[0]
    return activated(g, call, y, name, _parameters(call))


def _fused_gemm(g: DomainWriter, call: DomainCall) -> DomainValue:
    given = {name: call.attribute(name) for name in ("alpha", "beta", "transA", "transB")}
    y = g.Gemm(call["A"], call["B"], call.get("C"), **given)
    return activated(g, call, y, call.attribute("activation"), _parameters(call))


def _parameters(call: DomainCall) -> list[float]:
    """Those of the activation, which are attributes of their own."""
    given = (call.attribute(f"activation_{name}") for name in ("alpha", "beta", "gamma"))
    return [value for value in given if value is not None]


def _gemm_fast_gelu(g: DomainWriter, call: DomainCall) -> DomainValue:
    return g.Gelu(g.total(g.MatMul(call["X"], call["W"]), call.get("bias")), approximate="tanh")


def _cdist(g: DomainWriter, call: DomainCall) -> DomainValue:
    """(Squared) distances between rows of A and rows of B, as |a|^2 - 2 ab + |b|^2."""
    a, b = call["A"], call["B"]
    squares = g.ReduceSumSquare(a, [1], keepdims=1)
    total = g.MatMul(a, g.Transpose(b, perm=[1, 0])) * -2.0 + squares
    total = g.Abs(total + g.ReduceSumSquare(b, [1], keepdims=0))
    metric = call.attribute("metric")
    if metric not in ("euclidean", "sqeuclidean"):
        raise call.invalid(f"its attribute metric is {metric!r}; it must be 'euclidean' or 'sqeuclidean'")
    return g.Sqrt(total) if metric == "euclidean" else total


def _pre_mix(g: DomainWriter, call: DomainCall) -> DomainValue:
    """Streams [..., C, H] under factors [..., C], [..., C, 1] or [..., C, H], added."""
    streams = _grouped(g, call, call["streams"])
    mix = _factors(g, call, call["pre_mix"], streams)
    y = g.ReduceSum(streams * g.cast(mix, streams.dtype), [-2], keepdims=0)
    scale = call.attribute("reduction_scale")
    return y if scale == 1 else y * scale


def _post_mix(g: DomainWriter, call: DomainCall) -> DomainValue:
    """What a block gives under factors, added to streams, which a matrix [..., C, C] may mix before."""
    streams, mixing = _grouped(g, call, call["streams"]), call.get("stream_mix")
    if mixing is not None:
        order = [*range(mixing.rank - 2), mixing.rank - 1, mixing.rank - 2]
        mixed = g.MatMul(g.permute(g.cast(mixing, streams.dtype), order), streams)
    else:
        mixed = streams
    factors = g.cast(_factors(g, call, call["post_mix"], streams), streams.dtype)
    y = mixed + factors * g.Unsqueeze(call["block_output"], [-2])
    return g.reshape(y, g.sizes(call["streams"])) if call.attribute("num_branches") else y


def _grouped(g: DomainWriter, call: DomainCall, streams: DomainValue) -> DomainValue:
    branches, width = call.attribute("num_branches"), streams.extent(-1)
    if not branches:
        return streams
    if width is None or width % branches:
        raise call.invalid(f"its last dimension, {width}, does not make {branches} equal parts")
    return g.reshape(streams, [*g.sizes(streams)[:-1], branches, width // branches])


def _factors(g: DomainWriter, call: DomainCall, factors: DomainValue, streams: DomainValue) -> DomainValue:
    if factors.rank == streams.rank:
        return factors
    if factors.extent(-1) == streams.extent(-2):
        return g.Unsqueeze(factors, [-1])
    return _grouped(g, call, factors)


_TRANSPOSES = (integer("transA", 0), integer("transB", 0))
_BATCHES = (integer("transBatchA", 0), integer("transBatchB", 0))
_PARAMETERS = (real("activation_alpha", None), real("activation_beta", None), real("activation_gamma", None))
_FLAGS = (flag("transA", "transB", "transBatchA", "transBatchB"),)
_BRANCHES = integer("num_branches", 0)

PRODUCTS: tuple[DomainRow, ...] = (
    DomainRow(
        "FusedMatMul", _fused_matmul, ("A", "B"), (real("alpha", 1.0), *_TRANSPOSES, *_BATCHES), ("Y",), rules=_FLAGS
    ),
    DomainRow("TransposeMatMul", _transpose_matmul, ("A", "B"), (real("alpha", 1.0), *_TRANSPOSES), ("Y",)),
    DomainRow(
        "FusedMatMulActivation",
        _fused_matmul_activation,
        ("A", "B"),
        (
            *(real("alpha", 1.0), *_TRANSPOSES, *_BATCHES),
            *(text("activation"), integer("activation_axis", None), *_PARAMETERS),
        ),
        ("Y",),
        rules=_FLAGS,
    ),
    DomainRow(
        "FusedGemm",
        _fused_gemm,
        ("A", "B", "C?"),
        (real("alpha", 1.0), real("beta", 1.0), *_TRANSPOSES, text("activation", None), *_PARAMETERS),
        ("Y",),
    ),
    DomainRow("GemmFastGelu", _gemm_fast_gelu, ("X", "W", "bias?"), outputs=("Y",), shapes="... K, K N, N"),
    DomainRow("CDist", _cdist, ("A", "B"), (text("metric", "sqeuclidean"),), ("C",), shapes="M K, N K"),
    DomainRow(
        "HyperConnectionPreMix",
        _pre_mix,
        ("streams", "pre_mix"),
        (_BRANCHES, real("reduction_scale", 1.0)),
        rules=(between("num_branches", 0),),
    ),
    DomainRow(
        "HyperConnectionPostMix",
        _post_mix,
        ("streams", "block_output", "post_mix", "stream_mix?"),
        (_BRANCHES,),
        rules=(between("num_branches", 0),),
    ),
)
