"""Operators of transformers: rotary embeddings and the attention family.

The definition of Attention computes every score anew for every output element. It says what the operator is, and is run only
when the kernel for it is switched off.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fusewise.ir.deciding import known_equal, known_one
from fusewise.ir.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32
from fusewise.ir.size import greatest
from fusewise.ops.cost import per_output
from fusewise.ops.edges import every, per_operand
from fusewise.ops.expr import Expr, Index, binary, compare, const, index, reduce, select, unary
from fusewise.ops.indexing import chosen, dims, spread, value
from fusewise.ops.spec import Call, Mapping, NotDefined, OpSpec, Sample
from fusewise.records import record

__all__ = ["ATTENTION", "ATTENTION_EXTRAS", "AttentionSizes", "attention_sizes"]

_MANY = Mapping.MANY_TO_MANY
_LOWEST = -3.4028234663852886e38  # the lowest finite float32
_NEVER = const(-math.inf, FLOAT32)
_FLOATS = (FLOAT32, FLOAT16, BFLOAT16)

ATTENTION_EXTRAS = (
    ("softmax_precision", 1),
    ("qk_matmul_output_mode", 0),
    ("left_window_size", -1),
    ("right_window_size", -1),
)
"""Attributes of Attention that nothing here computes, with the values at which they do nothing."""


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
    first = const(0) if len(shape) == 4 else at[-1] // size * size  # where the head begins in the last axis

    def element(j: Expr) -> Expr:
        return value(call, 0, *at[:-1], first + j)

    if call.attribute("interleaved", 0):
        pair, second = place // 2, compare("eq", place % 2, 1)
        low, high = pair * 2, pair * 2 + 1
    else:
        pair, second = place % half, compare("ge", place, half)
        low, high = pair, pair + half
    if call.has(3):
        row: tuple[Expr, ...] = (chosen(call, 3, (batch, time), dims(call, 1)[0], wraps=False),)
    else:
        row = (batch, time)
    cosine, sine = value(call, 1, *row, pair), value(call, 2, *row, pair)
    x, y = element(low), element(high)
    rotated = select(second, sine * x + cosine * y, cosine * x - sine * y)
    return rotated if turned == size else select(compare("lt", place, turned), rotated, element(place))


def _attention(call: Call, output: int, at: Index) -> Expr:
    """softmax_j(scale q_i . k_j + mask_ij) . v_j, for operands with or without an axis of heads; with a softcap c, the product is
    c tanh(product / c)."""
    _check_attention(call, output)
    s = attention_sizes(call)
    flat, heads, keys, size, width, softcap = s.flat, s.heads, s.keys, s.size, s.width, s.softcap
    head, query = (at[2] // width, at[1]) if flat else (at[1], at[2])
    element = at[2] % width if flat else at[3]
    group = head // s.sharing

    def operand(i: int, own: Expr, row: Expr, k: Expr, length: int) -> Expr:
        return value(call, i, at[0], row, own * length + k) if flat else value(call, i, at[0], own, row, k)

    def score(key: Expr, axis: str) -> Expr:
        k = index(axis)
        term = operand(0, head, query, k, size) * operand(1, group, key, k, size)
        result = reduce("sum", ((axis, size),), term) * s.scale
        result = result if softcap == 0 else unary("tanh", result / softcap) * softcap
        if call.has(3):
            whole = (s.batch, heads, s.queries, keys)
            place = spread((at[0], head, query, key), dims(call, 3), whole)
            given = value(call, 3, *place)
            result = select(given, result, _NEVER) if call.input(3).dtype == BOOL else result + given
        return select(compare("le", key, query), result, _NEVER) if call.attribute("is_causal", 0) else result

    peak = binary("max", reduce("max", (("m", keys),), score(index("m"), "mk")), const(_LOWEST, FLOAT32))
    total = reduce("sum", (("s", keys),), unary("exp", score(index("s"), "sk") - peak))
    weighted = unary("exp", score(index("t"), "tk") - peak) * operand(2, group, index("t"), element, width)
    return reduce("sum", (("t", keys),), weighted) / select(compare("eq", total, 0.0), const(1.0, FLOAT32), total)


@record(frozen=True)
class AttentionSizes:
    """Heads of queries, and of keys and values (`shared`); how many queries and keys there are; elements of a query and a key
    (`size`), and of a value (`width`). Products are multiplied by `scale`; a `softcap` of 0 is none. `flat`: operands are
    (batch, tokens, heads * size), not (batch, heads, tokens, size)."""

    batch: int
    heads: int
    shared: int
    queries: int
    keys: int
    size: int
    width: int
    scale: Expr | float
    softcap: float
    flat: bool

    @property
    def sharing(self) -> int:
        """Heads of queries that read the same keys and values."""
        return self.heads // self.shared


def attention_sizes(call: Call) -> AttentionSizes:
    """What an Attention without past keys is over; its scale is the root of a query's length, unless it is given."""
    q, k, v = dims(call), dims(call, 1), dims(call, 2)
    flat = len(q) == 3
    heads, shared = _head_counts(call)
    size = q[-1] // heads if flat else q[-1]
    given = call.attribute("scale")
    return AttentionSizes(
        batch=q[0],
        heads=heads,
        shared=shared,
        queries=q[-2],
        keys=k[-2],
        size=size,
        width=v[-1] // shared if flat else v[-1],
        scale=_scale_of(size) if given is None else float(given),
        softcap=max(0.0, float(call.attribute("softcap", 0.0))),
        flat=flat,
    )


def _scale_of(size: int) -> Expr | float:
    if isinstance(size, int):
        return 1 / math.sqrt(max(1, size))
    return 1 / unary("sqrt", const(greatest(size, 1), FLOAT32))


def _head_counts(call: Call) -> tuple[int, int]:
    """Heads of queries, and of keys and values."""
    if len(dims(call)) == 4:
        return dims(call)[1], dims(call, 1)[1]
    return int(call.attribute("q_num_heads", 1)), int(call.attribute("kv_num_heads", 1))


def _check_attention(call: Call, output: int) -> None:
    """Refuse what the definition leaves out."""
    if output or any(call.has(i) for i in (4, 5, 6)):
        raise NotDefined("Attention with past or present keys and values")
    for name, off in ATTENTION_EXTRAS:
        if call.attribute(name, off) != off:
            raise NotDefined(f"Attention with {name}")
    dtype = call.input(0).dtype
    if dtype not in _FLOATS or any(call.input(i).dtype != dtype for i in range(3)):
        raise NotDefined("Attention on float64, or on different types")
    if call.has(3):
        whole = (dims(call)[0], _head_counts(call)[0], dims(call)[-2], dims(call, 1)[-2])
        if call.input(3).dtype not in (*_FLOATS, BOOL):
            raise NotDefined("Attention with a mask of another type")
        if not all(known_one(n) or known_equal(n, m) for n, m in zip(dims(call, 3)[::-1], whole[::-1], strict=False)):
            raise NotDefined("Attention with a mask for a part of the keys")


def _attention_flops(call: Call) -> int:
    """Two products of queries with keys and scores with values, and five operations per score."""
    q, k = dims(call, 0), dims(call, 1)
    past = dims(call, 4)[2] if call.has(4) else 0
    heads, keys = _head_counts(call)[0], k[-2] + past
    head_size = q[-1] // (heads if len(q) == 3 else 1)
    value_size = call.output().size // (q[0] * heads * q[-2]) if call.output().size else 0
    scores = q[0] * heads * q[-2] * keys
    return scores * (2 * head_size + 2 * value_size + 5)


def _without_definition(name: str, cost: Callable[[Call], int], family: str = "", domain: str = "") -> OpSpec:
    return OpSpec(name, mapping=every(_MANY), flops=cost, family=family, domain=domain)


def _linear_flops(call: Call) -> int:
    """A step goes over the whole state of a head: to write, to read for every query, and to see what is there for the rules that
    correct."""
    heads, shared = int(call.attribute("q_num_heads", 1)), int(call.attribute("kv_num_heads", 1))
    shape, width = dims(call), dims(call, 2)[-1] // max(1, shared)
    state = shape[2] // max(1, heads) * width
    return 2 * shape[0] * shape[1] * state * (heads + shared * (2 if call.has(5) else 1))


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
        define=_attention,
        family="attention",
        samples=(
            Sample((_f32(1, 2, 3, 4), _f32(1, 2, 5, 4), _f32(1, 2, 5, 4))),
            Sample((_f32(2, 4, 3, 2), _f32(2, 2, 5, 2), _f32(2, 2, 5, 3), _f32(3, 5)), {"is_causal": 1, "scale": 0.75}),
            Sample((_f32(2, 3, 4), _f32(2, 3, 4), _f32(2, 3, 6)), {"q_num_heads": 2, "kv_num_heads": 2}),
            Sample((_f32(1, 1, 3, 2), _f32(1, 1, 4, 2), _f32(1, 1, 4, 2), ("bool", (1, 1, 3, 4)))),
        ),
    ),
    _without_definition("LinearAttention", _linear_flops, "linear_attention"),
    _without_definition("CausalConvWithState", lambda call: 2 * call.output().size * dims(call, 1)[-1]),
    _without_definition("FlexAttention", _attention_flops, domain="ai.onnx.preview"),
)
