"""Operators of transformers: rotary embeddings and the attention family.

Attention itself has no element definition here: written as one it would recompute every score for every output element.
It has a function body in ONNX, of products and a Softmax, and is best expanded before lowering.
"""

from __future__ import annotations

from collections.abc import Callable

from fusewise.ir.dtypes import INT64
from fusewise.ops.cost import per_output
from fusewise.ops.edges import every, per_operand
from fusewise.ops.expr import Expr, cast, compare, select
from fusewise.ops.indexing import dims, value
from fusewise.ops.spec import Call, Mapping, OpSpec, Sample

__all__ = ["ATTENTION"]

Index = tuple[Expr, ...]
_MANY = Mapping.MANY_TO_MANY


def _rotary(call: Call, output: int, at: Index) -> Expr:
    """Pairs of a head's elements are turned by an angle of their position (Su et al., 2021).

    Data is (batch, sequence, heads * size) or (batch, heads, sequence, size). The first `rotary_embedding_dim` elements of
    a head are paired: neighbours when interleaved, else element j with j + half.
    """
    shape = dims(call)
    heads = int(call.attribute("num_heads", 0)) if len(shape) == 3 else shape[1]
    size = shape[-1] if len(shape) == 4 else shape[-1] // heads
    turned = int(call.attribute("rotary_embedding_dim", 0))
    turned = size if turned == 0 else turned
    half = turned // 2
    batch, time = at[0], at[2] if len(shape) == 4 else at[1]
    place = at[-1] if len(shape) == 4 else at[-1] % size
    first = at[-1] - place  # where the head begins in the last axis

    def element(j: Expr) -> Expr:
        return value(call, 0, *at[:-1], first + j)

    if call.attribute("interleaved", 0):
        pair, second = place // 2, compare("eq", place % 2, 1)
        low, high = pair * 2, pair * 2 + 1
    else:
        pair, second = place % half, compare("ge", place, half)
        low, high = pair, pair + half
    if call.has(3):
        row: tuple[Expr, ...] = (cast(call.at(3, batch, time), INT64),)
    else:
        row = (batch, time)
    cosine, sine = value(call, 1, *row, pair), value(call, 2, *row, pair)
    x, y = element(low), element(high)
    rotated = select(second, sine * x + cosine * y, cosine * x - sine * y)
    return rotated if turned == size else select(compare("lt", place, turned), rotated, element(place))


def _attention_flops(call: Call) -> int:
    """Two products of queries with keys and scores with values, and five operations per score."""
    q, k = dims(call, 0), dims(call, 1)
    past = dims(call, 4)[2] if call.has(4) else 0
    keys = k[-2] + past
    if len(q) == 4:
        heads, head_size = q[1], q[3]
    else:
        heads = int(call.attribute("q_num_heads", 1))
        head_size = q[2] // heads
    value_size = call.output().size // (q[0] * heads * q[-2]) if call.output().size else 0
    scores = q[0] * heads * q[-2] * keys
    return scores * (2 * head_size + 2 * value_size + 5)


def _without_definition(name: str, cost: Callable[[Call], int]) -> OpSpec:
    return OpSpec(name, mapping=every(_MANY), flops=cost, family="attention")


def _f32(*shape: int) -> tuple[str, tuple[int, ...]]:
    return "float32", shape


ATTENTION: tuple[OpSpec, ...] = (
    OpSpec(
        "RotaryEmbedding",
        mapping=per_operand(_MANY),
        flops=per_output(3),
        define=_rotary,
        samples=(
            Sample((_f32(1, 2, 3, 4), _f32(1, 3, 2), _f32(1, 3, 2))),
            Sample((_f32(2, 2, 3, 4), _f32(5, 2), _f32(5, 2), ("int64", (2, 3))), {"interleaved": 1}, low=0, high=4),
            Sample((_f32(1, 3, 12), _f32(1, 3, 2), _f32(1, 3, 2)), {"num_heads": 2, "rotary_embedding_dim": 4}),
        ),
    ),
    OpSpec(
        "Attention",
        mapping=every(_MANY),
        flops=_attention_flops,
        family="attention",
        samples=(Sample((_f32(1, 2, 3, 4), _f32(1, 2, 5, 4), _f32(1, 2, 5, 4))),),
    ),
    _without_definition("LinearAttention", lambda call: 4 * call.input(0).size * dims(call, 2)[-1]),
    _without_definition("CausalConvWithState", lambda call: 2 * call.output().size * dims(call, 1)[-1]),
)
