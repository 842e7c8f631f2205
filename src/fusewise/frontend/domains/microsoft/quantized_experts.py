"""A mixture of experts whose weights have 2, 4 or 8 bits, with a scale for each row or for each block of one."""

from __future__ import annotations

import numpy as np

from fusewise.frontend.domains.microsoft.experts import EXPERT_RULES, are_picked, biased, mixed, picked_of
from fusewise.frontend.domains.microsoft.nbits import codes_of
from fusewise.frontend.domains.row import DomainCall, DomainRow, integer, real, text
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.dtypes import INT8, UINT8, DType, dtype_named
from fusewise.ir.graph import LazyConstant
from fusewise.ir.types import TensorType

__all__ = ["QUANTIZED_EXPERTS"]


def _codes(
    g: DomainWriter, call: DomainCall, name: str, bits: int, dtype: DType, shape: tuple[int, ...]
) -> DomainValue:
    """A constant operand of packed bytes, several numbers in a byte along the last axis of `shape`, as numbers of `dtype`, which
    may have more bits."""
    source = g.known_constant(call[name])
    if source is None:
        raise call.unsupported(f"its input {name!r} must be a constant of the model")
    packed = (*shape[:-1], -(-shape[-1] * bits // 8))
    if source.dtype != UINT8 or source.type.dims != packed:
        raise call.invalid(
            f"its input {name!r} is {source.dtype.name}{list(source.type.dims)}; its weights ask for uint8{list(packed)}"
        )
    key = (id(source), dtype.name, bits, shape)

    def made() -> np.ndarray:
        if dtype != INT8 or bits == 8:
            return codes_of(source.read_once(), bits, shape[-1], dtype)
        return codes_of(source.read_once(), bits, shape[-1], UINT8).view(np.int8) - np.int8(1 << (bits - 1))

    return g.constant(LazyConstant(TensorType(dtype, shape), made, key))


def _weights(g: DomainWriter, call: DomainCall, name: str, picked: DomainValue | None) -> DomainValue:
    """Those of a layer, [experts, out, in], in floats; `picked` are the experts, if not all."""
    own = call.attribute(f"{name}_expert_weight_bits")
    bits = call.attribute("expert_weight_bits") if own is None else own
    if bits not in (2, 4, 8):
        raise call.unsupported(f"its weights of {name} have {bits} bits; 2, 4 and 8 are supported")
    packed = g.known_constant(call[f"{name}_experts_weights"])
    if packed is None or packed.type.rank != 3:
        raise call.unsupported(f"its input '{name}_experts_weights' must be a constant of three dimensions")
    experts, rows, width = packed.type.dims
    columns, block = width * 8 // bits, call.attribute("block_size") or 0
    blocks = columns // block if block > 0 else 1
    if block > 0 and columns % block:
        raise call.invalid(f"its attribute block_size is {block}; it must divide the {columns} columns of {name}")
    scales, zeros = call[f"{name}_scales"], None
    given = f"{name}_zero_points" in call
    width = (
        bits if picked is None and bits > 2 else 8
    )  # ONNX gathers no shorter numbers, and has those of 2 bits since opset 25
    dtype = dtype_named(f"{'uint' if given else 'int'}{width}")
    codes = _codes(g, call, f"{name}_experts_weights", bits, dtype, (experts, rows, columns))
    if given:
        shape = (experts, rows, blocks) if block > 0 else (experts, rows)
        zeros = g.reshape(_codes(g, call, f"{name}_zero_points", bits, dtype, shape), [experts, rows, blocks])
    if scales.shape != (experts, rows, blocks) and not (blocks == 1 and scales.shape == (experts, rows)):
        raise call.invalid(
            f"its input '{name}_scales' has the shape {list(scales.dims)}; its weights ask for {[experts, rows, blocks]}"
        )
    scales = g.reshape(scales, [experts, rows, blocks])
    codes, scales = picked_of(g, codes, picked), picked_of(g, scales, picked)
    zeros = None if zeros is None else picked_of(g, zeros, picked)
    return g.DequantizeLinear(codes, scales, zeros, axis=2, block_size=columns // blocks)


def _shares(g: DomainWriter, call: DomainCall) -> tuple[DomainValue, DomainValue | None]:
    """Of each expert in each token, [tokens, experts]: a softmax over the best, or weights that are given for them.

    Of one token, where it is sent to few: [1, k], and which experts these are [k].
    """
    logits, weights = call["router_probs"], call.get("router_weights")
    if call.attribute("use_sparse_mixer"):
        raise call.unsupported("its attribute use_sparse_mixer is not supported")
    best, places = g.several("TopK", 2, logits, [call.attribute("k")], axis=-1)
    if weights is None:
        chosen = g.Softmax(best, axis=-1)
    else:
        chosen = g.GatherElements(weights, places, axis=-1)
        if call.attribute("normalize_routing_weights"):
            chosen = chosen / g.ReduceSum(chosen, [-1], keepdims=1)
    if are_picked(call, logits):
        return chosen, g.reshape(places, [-1])
    return g.ScatterElements(logits * 0.0, places, chosen, axis=-1), None


def _moe(g: DomainWriter, call: DomainCall) -> DomainValue:
    if call.attribute("quant_type") != "int":
        raise call.unsupported(f"weights of quant_type {call.attribute('quant_type')!r} are not supported, only 'int'")
    if call.attribute("weights_prepacked") > 0:
        raise call.unsupported(
            "its weights are packed for one device (weights_prepacked); write the model without that"
        )
    shares, picked = _shares(g, call)

    def linear(name: str, x: DomainValue) -> DomainValue:
        turned = g.Transpose(_weights(g, call, name, picked), perm=[0, 2, 1])
        return biased(g, call, name, g.MatMul(x, turned), picked)

    return mixed(g, call, shares, linear)


QUANTIZED_EXPERTS: tuple[DomainRow, ...] = (
    DomainRow(
        "QMoE",
        _moe,
        operands=(
            *("input", "router_probs", "fc1_experts_weights", "fc1_scales?", "fc1_experts_bias?"),
            *("fc2_experts_weights", "fc2_scales?", "fc2_experts_bias?", "fc3_experts_weights?", "fc3_scales?"),
            *("fc3_experts_bias?", "fc1_zero_points?", "fc2_zero_points?", "fc3_zero_points?", "router_weights?"),
            *("fc1_global_scale?", "fc2_global_scale?", "fc1_act_scale?", "fc2_act_scale?"),
            *("fc1_act_block_scale?", "fc2_act_block_scale?"),
        ),
        attributes=(
            integer("accuracy_level", 0),
            real("activation_alpha", 1.0),
            real("activation_beta", 0.0),
            text("activation_type", "relu"),
            integer("block_size", None),
            integer("expert_weight_bits", 4),
            integer("fc1_expert_weight_bits", None),
            integer("fc2_expert_weight_bits", None),
            integer("fc3_expert_weight_bits", None),
            integer("k", 1),
            integer("normalize_routing_weights", 0),
            text("quant_type", "int"),
            integer("swiglu_fusion", 0),
            real("swiglu_limit", None),
            integer("use_sparse_mixer", 0),
            integer("weights_prepacked", -1),
        ),
        shapes="... H, T E, E . ., _, _, E H ., _, _, E . ., _, _, _, _, _, T E",
        rules=EXPERT_RULES,
    ),
)
