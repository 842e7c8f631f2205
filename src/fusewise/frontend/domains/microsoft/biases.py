"""What is added to attention's scores for the distance between tokens."""

from __future__ import annotations

import math

from fusewise.frontend.domains.microsoft.scores import by_heads, counted
from fusewise.frontend.domains.row import DomainCall, DomainRow, Written, integer
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.ops.validity.rules import at_least, flag

__all__ = ["BIASES"]


def _relative(g: DomainWriter, call: DomainCall) -> Written:
    """T5's: a number for each head and bucket of distances (Raffel et al., 2020), the table stored by heads."""
    table = call["bias_table"]
    buckets, heads = table.extent(0), table.extent(1)
    if buckets is None or heads is None:
        raise call.unsupported("the shape of its table must be known; state it in the model")
    queries, keys = (g.cast(g.Reshape(call[name], [1]), INT64) for name in ("query_length", "key_length"))
    ahead = g.Unsqueeze(counted(g, keys), [0]) - g.Unsqueeze(counted(g, queries), [1])
    places = _buckets(g, ahead, buckets, call.attribute("max_distance"), bool(call.attribute("is_bidirectional")))
    return g.Unsqueeze(g.Gather(g.Reshape(table, [heads, buckets]), places, axis=1), [0])


def _buckets(g: DomainWriter, ahead: DomainValue, buckets: int, furthest: int, both: bool) -> DomainValue:
    """The bucket of each distance: one for each that is short, then wider ones up to `furthest`."""
    zero = g.number(0, INT64)
    first = zero
    if both:
        buckets //= 2
        first = g.Where(g.Greater(ahead, zero), g.number(buckets, INT64), zero)
        distance = g.Abs(ahead)
    else:
        distance = -g.Min(ahead, zero)
    exact = buckets // 2
    if exact < 1 or furthest <= exact:
        raise g.invalid(f"max_distance is {furthest}; it must be more than {exact}, a part of the {buckets} buckets")
    ratio = g.Log(g.Max(g.cast(distance, FLOAT32), 1) / exact) * ((buckets - exact) / math.log(furthest / exact))
    wide = g.Min(g.cast(ratio, INT64) + exact, g.number(buckets - 1, INT64))
    return first + g.Where(g.Less(distance, g.number(exact, INT64)), distance, wide)


def _gated(g: DomainWriter, call: DomainCall) -> Written:
    if "token_offset" in call:
        raise call.unsupported("tokens without padding ('token_offset') are not supported")
    heads, weight = call.attribute("num_heads"), call["weight"]
    width = weight.extent(1)
    if width is None or width % 2:
        raise call.invalid(f"its weight has {width} columns; they must be known, and even")
    query = by_heads(g, call["query_layer"] + call["query_bias"], heads)
    gates = g.MatMul(query, weight) + call["bias"]
    sums = g.ReduceSum(g.Reshape(gates, [0, heads, -1, 2, width // 2]), [-1], keepdims=0)
    update, reset = (
        g.Unsqueeze(g.Squeeze(x, [3]), [3]) for x in g.several("Split", 2, g.Sigmoid(sums), axis=3, num_outputs=2)
    )
    return (update * (reset * call["eco_a"] - 1) + 2) * call["rel_pos"]


BIASES: tuple[DomainRow, ...] = (
    DomainRow(
        "RelativePositionBias",
        _relative,
        operands=("bias_table", "query_length", "key_length"),
        attributes=(integer("max_distance"), integer("is_bidirectional", 0)),
        shapes="K N, one, one",
        rules=(at_least(1, "max_distance"), flag("is_bidirectional")),
    ),
    DomainRow(
        "GatedRelativePositionBias",
        _gated,
        operands=("query_layer", "query_bias", "rel_pos", "weight", "bias", "eco_a", "token_offset?"),
        attributes=(integer("num_heads"),),
        shapes="B S D, D, 1 num_heads S S, H E, E, 1 num_heads 1 1",
        rules=(at_least(1, "num_heads"),),
    ),
)
