"""A mixture of experts: of several networks, the few that each token is sent to."""

from __future__ import annotations

from collections.abc import Callable

from fusewise.frontend.domains.row import DomainCall, DomainRow, integer, real, text
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ops.validity.rules import between, flag, one_of
from fusewise.ops.validity.use import Rule

__all__ = ["EXPERTS", "EXPERT_RULES", "are_picked", "biased", "gated", "mixed", "picked_of", "routed"]


_FEWER = 4
"""Of so many experts one is worth to be picked from the weights, where there is one token."""


def routed(g: DomainWriter, call: DomainCall, logits: DomainValue) -> tuple[DomainValue, DomainValue | None]:
    """The share of each expert in each token, [tokens, experts], 0 for those that it is not sent to.

    Of one token, where it is sent to few: [1, k], and which experts these are [k].
    """
    if call.attribute("use_sparse_mixer"):
        raise call.unsupported("its attribute use_sparse_mixer is not supported")
    shares = g.Softmax(logits, axis=-1)
    best, places = g.several("TopK", 2, shares, [call.attribute("k")], axis=-1)
    if call.attribute("normalize_routing_weights"):
        best = best / g.ReduceSum(best, [-1], keepdims=1)
    if are_picked(call, logits):
        return best, g.reshape(places, [-1])
    return g.ScatterElements(shares * 0.0, places, best, axis=-1), None


def are_picked(call: DomainCall, logits: DomainValue) -> bool:
    """Is there one token, which is sent to so few experts that theirs are picked from the weights?"""
    experts = logits.extent(-1)
    return logits.extent(0) == 1 and experts is not None and call.attribute("k") * _FEWER <= experts


def gated(g: DomainWriter, call: DomainCall, x: DomainValue) -> DomainValue:
    """SwiGLU of pairs of gate and linear part, which lie beside one another or in two halves."""
    if call.attribute("swiglu_fusion") == 1:
        pairs = g.reshape(x, [*g.sizes(x)[:-1], -1, 2])
        gate, linear = (g.Squeeze(part, [-1]) for part in g.several("Split", 2, pairs, axis=-1, num_outputs=2))
    else:
        gate, linear = g.several("Split", 2, x, axis=-1, num_outputs=2)
    return _swiglu(g, call, gate, linear)


def _swiglu(g: DomainWriter, call: DomainCall, gate: DomainValue, linear: DomainValue) -> DomainValue:
    limit = call.attribute("swiglu_limit")
    if limit is not None:
        gate, linear = g.Clip(gate, None, limit), g.Clip(linear, -limit, limit)
    alpha, beta = call.attribute("activation_alpha"), call.attribute("activation_beta")
    return gate * g.Sigmoid(gate * alpha) * (linear + beta if beta else linear)


Linear = Callable[[str, DomainValue], DomainValue]
"""A layer by its name, `fc1` to `fc3`, of tokens [tokens, in] or [experts, tokens, in]: [experts, tokens, out]."""


def mixed(g: DomainWriter, call: DomainCall, shares: DomainValue, linear: Linear) -> DomainValue:
    """Every expert on every token, [experts, tokens, ...], and their results by the shares of the tokens."""
    x = call["input"]
    tokens = g.reshape(x, [-1, g.dim(x, -1)])
    first = linear("fc1", tokens)
    kind = call.attribute("activation_type")
    if kind == "swiglu":
        fused = call.attribute("swiglu_fusion")
        inner = gated(g, call, first) if fused else _swiglu(g, call, first, linear("fc3", tokens))
    else:
        if "fc3_experts_weights" in call:
            raise call.unsupported("a third layer is supported only with the activation 'swiglu'")
        inner = _activated(g, kind, first)
    last = linear("fc2", inner) * g.Unsqueeze(g.permute(shares, [1, 0]), [2])
    return g.reshape(g.ReduceSum(last, [0], keepdims=0), g.sizes(x))


def biased(
    g: DomainWriter, call: DomainCall, name: str, y: DomainValue, picked: DomainValue | None = None
) -> DomainValue:
    """The results of a layer with its bias [experts, out], if it has one; `picked` are the experts, if not all."""
    bias = call.get(f"{name}_experts_bias")
    return y if bias is None else y + g.Unsqueeze(picked_of(g, bias, picked), [1])


def picked_of(g: DomainWriter, weights: DomainValue, picked: DomainValue | None) -> DomainValue:
    """What belongs to the experts that are picked, of what has them along its first axis."""
    return weights if picked is None else g.Gather(weights, picked, axis=0)


def _moe(g: DomainWriter, call: DomainCall) -> DomainValue:
    shares, picked = routed(g, call, call["router_probs"])

    def linear(name: str, x: DomainValue) -> DomainValue:
        turned = g.Transpose(call[f"{name}_experts_weights"], perm=[0, 2, 1])
        return biased(g, call, name, g.MatMul(x, picked_of(g, turned, picked)), picked)

    return mixed(g, call, shares, linear)


def _activated(g: DomainWriter, kind: str, x: DomainValue) -> DomainValue:
    if kind == "gelu":
        return g.Gelu(x, approximate="tanh")
    if kind == "silu":
        return x * g.Sigmoid(x)
    return g.Relu(x) if kind == "relu" else x


EXPERT_RULES: tuple[Rule, ...] = (
    between("k", 1),
    flag("normalize_routing_weights", "use_sparse_mixer"),
    one_of("activation_type", "relu", "gelu", "silu", "swiglu", "identity"),
    between("swiglu_fusion", 0, 2),
)
"""What attributes of experts may be, whatever their weights are stored as."""

EXPERTS: tuple[DomainRow, ...] = (
    DomainRow(
        "MoE",
        _moe,
        (
            *("input", "router_probs", "fc1_experts_weights", "fc1_experts_bias?", "fc2_experts_weights"),
            *("fc2_experts_bias?", "fc3_experts_weights?", "fc3_experts_bias?"),
        ),
        (
            real("activation_alpha", 1.0),
            real("activation_beta", 0.0),
            text("activation_type", "relu"),
            integer("k", 1),
            integer("normalize_routing_weights", 0),
            integer("swiglu_fusion", 0),
            real("swiglu_limit", None),
            integer("use_sparse_mixer", 0),
        ),
        shapes="... H, T E, E F H, E F, E H I, E H, E I H, E I",
        rules=EXPERT_RULES,
    ),
)
