"""SparseAttention: a table lists for each block of queries blocks of keys that they see, as far as their own place."""

from __future__ import annotations

import numpy as np

from fusewise.frontend.domains.microsoft.group_query import Places, last_seen, places_of, projected
from fusewise.frontend.domains.microsoft.rotary import turned
from fusewise.frontend.domains.microsoft.scores import Attending, attended, counted, flat, scattered
from fusewise.frontend.domains.row import DomainCall, DomainRow, Written, integer, real
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.dtypes import INT64
from fusewise.ops.validity.rules import at_least, flag, one_of

__all__ = ["SPARSE"]


def _sparse_attention(g: DomainWriter, call: DomainCall) -> Written:
    """The past is a buffer with room for what is new, which the present is, too."""
    heads, shared = call.attribute("num_heads"), call.attribute("kv_num_heads")
    if heads % shared:
        raise call.invalid(f"num_heads is {heads}; it must be a multiple of kv_num_heads, which is {shared}")
    q, k, v = projected(g, call, heads, shared)
    places = places_of(g, call["key_total_sequence_lengths"], call["total_sequence_length"], q)
    if call.attribute("do_rotary"):
        at = g.Unsqueeze(places.first, [1]) + counted(g, g.dim(q, 2))
        tables = call["cos_cache"], call["sin_cache"]
        q, k = (turned(g, x, tables, at, call.attribute("rotary_interleaved")) for x in (q, k))
    keys, values = (scattered(g, call[f"past_{n}"], x, places.first) for n, x in (("key", k), ("value", v)))
    j = counted(g, g.dim(keys, 2))
    allowed = g.And(g.LessOrEqual(j, last_seen(g, places, q)), _in_blocks(g, call, places, q, j))
    a = Attending(q, keys, values, allowed, scale=call.attribute("scale") or None)
    return flat(g, attended(g, a)), keys, values


def _in_blocks(g: DomainWriter, call: DomainCall, places: Places, q: DomainValue, j: DomainValue) -> DomainValue:
    """Which of the keys at places `j` lie in a block that is listed for the query's, (batch, heads or 1, queries, keys)."""
    size, heads = call.attribute("sparse_block_size"), call.attribute("num_heads")
    blocks = _blocks(g, call)
    layouts = len(blocks)
    if heads % layouts:
        raise call.invalid(f"num_heads is {heads}; it must be a multiple of the layouts of blocks, which are {layouts}")
    width = g.number(size, INT64)
    own = g.Unsqueeze(places.first, [1]) + counted(g, g.dim(q, 2))
    rows = g.Gather(g.constant(blocks), g.Div(own, width), axis=1)
    of_layouts = g.permute(g.Gather(rows, g.Div(j, width), axis=3), (1, 0, 2, 3))
    return of_layouts if layouts == 1 else g.Concat(*[of_layouts] * (heads // layouts), axis=1)


def _blocks(g: DomainWriter, call: DomainCall) -> np.ndarray:
    """Which blocks of keys are listed for each block of queries, (layouts, blocks, blocks)."""
    begins, columns = g.known(call["block_row_indices"]), g.known(call["block_col_indices"])
    if begins is None or columns is None:
        raise call.unsupported("its tables of blocks must be constants")
    count = begins.shape[1] - 1
    found = np.zeros((len(begins), count, count), bool)
    for layout, (row, listed) in enumerate(zip(begins.tolist(), columns.tolist(), strict=True)):
        for block in range(count):
            chosen = listed[row[block] : row[block + 1]]
            if not all(0 <= one < count for one in chosen):
                raise call.invalid(f"its block_col_indices have {chosen} for block {block}; there are {count} blocks")
            found[layout, block, chosen] = True
    return found


SPARSE: tuple[DomainRow, ...] = (
    DomainRow(
        "SparseAttention",
        _sparse_attention,
        operands=(
            *("query", "key?", "value?", "past_key", "past_value", "block_row_indices", "block_col_indices"),
            *("total_sequence_length", "key_total_sequence_lengths", "cos_cache?", "sin_cache?"),
        ),
        attributes=(
            integer("num_heads"),
            integer("kv_num_heads"),
            integer("sparse_block_size"),
            real("scale", None),
            integer("do_rotary", None),
            integer("rotary_interleaved", None),
        ),
        outputs=("output", "present_key", "present_value"),
        shapes="B S ., B S D, B S D, B kv_num_heads P H, B kv_num_heads P H, L ., L ., one, B, M R, M R",
        rules=(
            at_least(1, "num_heads", "kv_num_heads"),
            one_of("sparse_block_size", 16, 32, 64, 128),
            flag("do_rotary", "rotary_interleaved"),
        ),
        opset=24,
    ),
)
