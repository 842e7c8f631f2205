"""Normalisations, with what is added before them and the activation after them."""

from __future__ import annotations

from collections.abc import Callable

from fusewise.frontend.domains.row import DomainCall, DomainRow, Written, integer, real, text
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.dtypes import FLOAT32, INT32
from fusewise.ops.validity.rules import between, flag, one_of

__all__ = ["NORMS", "channels_first"]


def _layer_normalization(g: DomainWriter, call: DomainCall) -> Written:
    outputs = 3 if call.wants("Mean") or call.wants("InvStdDev") else 1
    given = {name: call.attribute(name) for name in ("axis", "epsilon", "stash_type")}
    return g.several("LayerNormalization", outputs, call["X"], call["Scale"], call.get("B"), **given)


def _skip_layer_normalization(g: DomainWriter, call: DomainCall) -> Written:
    total = g.total(call["input"] + call["skip"], call.get("bias"))
    outputs = 3 if call.wants("mean") or call.wants("inv_std_var") else 1
    given = {"axis": -1, "epsilon": call.attribute("epsilon")}
    found = g.several("LayerNormalization", outputs, total, call["gamma"], call.get("beta"), **given)
    return (*found, *(None,) * (3 - outputs), total)


def _root_mean_square(
    g: DomainWriter, x: DomainValue, scale: DomainValue, epsilon: float, axis: int = -1
) -> DomainValue:
    return g.RMSNormalization(x, scale, axis=axis, epsilon=epsilon)


def _inverse_deviation(g: DomainWriter, x: DomainValue, epsilon: float, axis: int) -> DomainValue:
    """1 / sqrt(mean(x * x) + epsilon) over the axes from `axis` on, in float32."""
    wide = g.cast(x, FLOAT32) if x.dtype.bits < 32 else x
    axes = list(range(axis % x.rank, x.rank))
    return 1 / g.Sqrt(g.ReduceMean(wide * wide, axes, keepdims=1) + epsilon)


def _simplified_layer_normalization(g: DomainWriter, call: DomainCall) -> Written:
    x, axis, epsilon = call["X"], call.attribute("axis"), call.attribute("epsilon")
    y = _root_mean_square(g, x, call["scale"], epsilon, axis)
    return y, _inverse_deviation(g, x, epsilon, axis) if call.wants("inv_std_var") else None


def _skip_simplified_layer_normalization(g: DomainWriter, call: DomainCall) -> Written:
    total, epsilon = g.total(call["input"] + call["skip"], call.get("bias")), call.attribute("epsilon")
    y = _root_mean_square(g, total, call["gamma"], epsilon)
    return y, None, _inverse_deviation(g, total, epsilon, -1) if call.wants("inv_std_var") else None, total


def _embed_layer_normalization(g: DomainWriter, call: DomainCall) -> Written:
    """Words, positions (by default each token's place) and segments, added and normalised; and how many of each mask are 1."""
    ids, positions, segments, mask = (call.get(name) for name in ("input_ids", "position_ids", "segment_ids", "mask"))
    assert ids is not None
    if positions is None:
        place = g.slice(call["position_embedding"], 0, 0, g.dim(ids, 1))
    else:
        place = g.Gather(call["position_embedding"], positions)
    total = g.Gather(call["word_embedding"], ids) + place
    if segments is not None:
        total = total + g.Gather(call["segment_embedding"], segments)
    y = g.LayerNormalization(total, call["gamma"], call["beta"], axis=-1, epsilon=call.attribute("epsilon"))
    count = None
    if call.wants("mask_index"):
        ones = g.Cast(g.Equal(ids if mask is None else mask, 1), to=INT32.onnx)
        count = g.ReduceSum(ones, [1], keepdims=0)
        count = g.Mul(count, 0) if mask is None else count
    return y, count, total


def channels_first(g: DomainWriter, x: DomainValue, change: Callable[[DomainValue], DomainValue]) -> DomainValue:
    """`change`, which wants channels in dimension 1, of what has them last."""
    rank = x.rank
    turned = change(g.permute(x, [0, rank - 1, *range(1, rank - 1)]))
    return g.permute(turned, [0, *range(2, rank), 1])


def _grouped(g: DomainWriter, call: DomainCall, x: DomainValue) -> DomainValue:
    """Normalised by groups of channels in the type of the scale, then perhaps x * sigmoid(x)."""
    gamma, beta = call["gamma"], call["beta"]

    def change(x: DomainValue) -> DomainValue:
        given = {"num_groups": call.attribute("groups"), "epsilon": call.attribute("epsilon")}
        return g.GroupNormalization(x, gamma, beta, **given)

    wide = g.cast(x, gamma.dtype)
    y = g.cast(channels_first(g, wide, change) if call.attribute("channels_last") else change(wide), x.dtype)
    return y * g.Sigmoid(y) if call.attribute("activation") else y


def _group_norm(g: DomainWriter, call: DomainCall) -> DomainValue:
    return _grouped(g, call, call["X"])


def _skip_group_norm(g: DomainWriter, call: DomainCall) -> Written:
    """`skip` is like the operand, or one row of channels for each sample."""
    x, skip = call["X"], call["skip"]
    last = call.attribute("channels_last")
    if skip.rank == 2:
        skip = g.Unsqueeze(skip, [1, 2] if last else [2, 3])
    bias = call.get("bias")
    if bias is not None and not last:
        bias = g.reshape(bias, [-1, 1, 1])
    total = g.total(x + skip, bias)
    return _grouped(g, call, total), total


def _gated_rms_norm(g: DomainWriter, call: DomainCall) -> DomainValue:
    """Over stretches of the last axis as long as the scale, in float32, times an activation of the gate."""
    x, gate, scale = (g.cast(call[name], FLOAT32) for name in ("X", "gate", "scale"))
    width, sizes = g.dim(scale, 0), g.sizes(x)
    parts = g.reshape(x, [*sizes[:-1], -1, width]) if isinstance(width, int) else x
    y = g.reshape(_root_mean_square(g, parts, scale, call.attribute("epsilon")), sizes)
    factor = g.Sigmoid(gate) if call.attribute("activation") == "sigmoid" else gate * g.Sigmoid(gate)
    return g.cast(y * factor, call["X"].dtype)


def _branchwise_rms_norm(g: DomainWriter, call: DomainCall) -> DomainValue:
    """Each branch [H] of [..., C, H] or [..., C * H] by itself, in float32."""
    x, scale, branches = call["X"], call.get("scale"), call.attribute("num_branches")
    wide, sizes = g.cast(x, FLOAT32), g.sizes(x)
    if branches:
        wide = g.reshape(wide, [*sizes[:-1], branches, _part(call, sizes[-1], branches)])
    y = wide * _inverse_deviation(g, wide, call.attribute("epsilon"), -1)
    if scale is not None:
        if scale.rank == 1 and wide.extent(-1) != scale.extent(0):
            scale = g.reshape(scale, [g.dim(wide, -2), -1])
        y = y * g.cast(scale, FLOAT32)
    return g.cast(g.reshape(y, sizes) if branches else y, x.dtype)


def _part(call: DomainCall, whole: object, parts: int) -> int:
    if not isinstance(whole, int) or whole % parts:
        raise call.invalid(f"its last dimension, {whole}, does not make {parts} equal parts")
    return whole // parts


def _normed(g: DomainWriter, x: DomainValue, scale: DomainValue, epsilon: float) -> DomainValue:
    """By the root of its mean square along the last axis, in float32; the scale may have further axes."""
    wide = g.cast(x, FLOAT32)
    return wide * _inverse_deviation(g, wide, epsilon, -1) * g.cast(scale, FLOAT32)


def _engram_gate(g: DomainWriter, call: DomainCall) -> Written:
    """The value under a gate: a sigmoid of the root of how alike key and query are, both normalised."""
    key, query, value = call["key"], call["query"], call["value"]
    epsilon, width = call.attribute("epsilon"), key.extent(-1)
    if width is None:
        raise call.unsupported("the last dimension of its input 'key' must be a number")
    near = _normed(g, key, call["key_norm_scale"], epsilon) * _normed(g, query, call["query_norm_scale"], epsilon)
    dot = g.ReduceSum(near, [-1], keepdims=1) * float(width) ** -0.5
    gate = g.Sigmoid(g.Sign(dot) * g.Sqrt(g.Max(g.Abs(dot), 1e-6)))
    y = gate * g.Unsqueeze(g.cast(value, FLOAT32), [2])
    normed = None
    if call.wants("gated_value_normed"):
        normed = g.cast(_normed(g, y, call["conv_norm_scale"], epsilon), key.dtype)
    return g.cast(y, key.dtype), normed


_GROUPS = (integer("activation"), integer("channels_last", 1), integer("groups"), real("epsilon", 1e-5))
_GROUP_RULES = (between("groups", 1), flag("activation", "channels_last"))
_LAYER = (integer("axis", -1), real("epsilon", 1e-5), integer("stash_type", 1))

NORMS: tuple[DomainRow, ...] = (
    DomainRow(
        "LayerNormalization",
        _layer_normalization,
        operands=("X", "Scale", "B?"),
        attributes=_LAYER,
        outputs=("Y", "Mean?", "InvStdDev?"),
        shapes="... .",
        domain="",
    ),
    DomainRow(
        "SimplifiedLayerNormalization",
        _simplified_layer_normalization,
        operands=("X", "scale"),
        attributes=_LAYER,
        outputs=("Y", "inv_std_var?"),
        shapes="... .",
        domain="",
    ),
    DomainRow(
        "SkipLayerNormalization",
        _skip_layer_normalization,
        operands=("input", "skip", "gamma", "beta?", "bias?"),
        attributes=(real("epsilon", 1e-12),),
        outputs=("output", "mean?", "inv_std_var?", "input_skip_bias_sum?"),
        shapes="*S H, ... H, H, H, H",
    ),
    DomainRow(
        "SkipSimplifiedLayerNormalization",
        _skip_simplified_layer_normalization,
        operands=("input", "skip", "gamma", "bias?"),
        attributes=(real("epsilon", 1e-12),),
        outputs=("output", "mean?", "inv_std_var?", "input_skip_bias_sum?"),
        shapes="*S H, ... H, H, H",
    ),
    DomainRow(
        "EmbedLayerNormalization",
        _embed_layer_normalization,
        operands=(
            *("input_ids", "segment_ids?", "word_embedding", "position_embedding", "segment_embedding?"),
            *("gamma", "beta", "mask?", "position_ids?"),
        ),
        attributes=(real("epsilon", 1e-12), integer("mask_index_type", None)),
        outputs=("output", "mask_index?", "embedding_sum?"),
        shapes="B S, B S, V H, P H, T H, H, H, B S, B S | 1 S",
    ),
    DomainRow(
        "GroupNorm", _group_norm, ("X", "gamma", "beta"), _GROUPS, ("Y",), shapes="..., C, C", rules=_GROUP_RULES
    ),
    DomainRow(
        "SkipGroupNorm",
        _skip_group_norm,
        ("X", "gamma", "beta", "skip", "bias?"),
        _GROUPS,
        ("Y", "S?"),
        shapes="N . . ., C, C, _, C",
        rules=_GROUP_RULES,
    ),
    DomainRow(
        "GatedRMSNorm",
        _gated_rms_norm,
        ("X", "scale", "gate"),
        (text("activation", "silu"), real("epsilon", 1e-5)),
        ("Y",),
        shapes="*S, C, *S",
        rules=(one_of("activation", "silu", "swish", "sigmoid"),),
    ),
    DomainRow(
        "BranchwiseRMSNorm",
        _branchwise_rms_norm,
        ("X", "scale?"),
        (real("epsilon", 1e-5), integer("num_branches", 0)),
        ("Y",),
        shapes="... .",
        rules=(between("num_branches", 0),),
    ),
    DomainRow(
        "EngramGate",
        _engram_gate,
        ("key", "query", "value", "key_norm_scale", "query_norm_scale", "conv_norm_scale?"),
        (real("epsilon", 1e-5),),
        ("output", "gated_value_normed?"),
        shapes="B S M H, B S M H, B S H, M H, M H, M H",
    ),
)
