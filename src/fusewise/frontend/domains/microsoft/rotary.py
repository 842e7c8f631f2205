"""Rotary embeddings."""

from __future__ import annotations

from fusewise.frontend.domains.microsoft.scores import counted
from fusewise.frontend.domains.row import DomainCall, DomainRow, Written, integer, real
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ops.validity.rules import at_least, flag

__all__ = ["ROTARY", "turned"]


def turned(
    g: DomainWriter,
    x: DomainValue,
    tables: tuple[DomainValue, DomainValue],
    places: DomainValue,
    interleaved: int | None,
) -> DomainValue:
    """Heads (batch, heads, tokens, size) turned by the angles of their places (batch, tokens).

    `tables`: cosines and sines (places, half of what is turned of a head).
    """
    return g.RotaryEmbedding(
        x, *tables, places, interleaved=interleaved or None, rotary_embedding_dim=_width(g, x, tables[0])
    )


def _width(g: DomainWriter, x: DomainValue, table: DomainValue) -> int | None:
    """How much of a head is turned; None for all of it."""
    half = table.extent(1)
    if half is None:
        raise g.unsupported(f"the shape of {table.name!r} must be known; state it in the model")
    size = x.extent(x.rank - 1)
    if size is not None and 2 * half > size:
        raise g.invalid(f"{table.name!r} turns {2 * half} elements of a head, which has {size}")
    return None if size == 2 * half else 2 * half


def _rotary_embedding(g: DomainWriter, call: DomainCall) -> Written:
    """`scale` and `is_packed_batching` change nothing on a CPU, as in ONNX Runtime."""
    x, places = call["input"], call["position_ids"]
    tables = call["cos_cache"], call["sin_cache"]
    tokens = 1 if x.rank == 3 else 2
    if places.rank == 1:  # one number: the first token's place
        first = g.Unsqueeze(places, [1]) + g.Unsqueeze(counted(g, g.dim(x, tokens)), [0])
        batch = g.dim(x, 0)
        places = first if batch == 1 else g.Expand(first, [batch, g.dim(x, tokens)])
    if x.rank == 4:
        return turned(g, x, tables, places, call.attribute("interleaved"))
    width = x.extent(2)
    half = tables[0].extent(1)
    heads = call.attribute("num_heads")
    if not heads:
        if not width or not half or width % (2 * half):
            raise call.invalid("it needs num_heads, as the width of its input is no multiple of what is turned")
        heads = width // (2 * half)
    x4 = g.Reshape(x, [0, 0, heads, -1 if width is None else width // heads])
    y = turned(g, g.permute(x4, (0, 2, 1, 3)), tables, places, call.attribute("interleaved"))
    return g.Reshape(g.permute(y, (0, 2, 1, 3)), [0, 0, -1 if width is None else width])


def _gemma(g: DomainWriter, call: DomainCall) -> Written:
    angles = g.Unsqueeze(call["emb"], [1])
    sine, cosine = (g.cast(x, call["q"].dtype) for x in (g.Sin(angles), g.Cos(angles)))
    return tuple(call[x] * cosine + call[f"{x}_rot"] * sine for x in ("q", "k"))


_TURNED = (
    integer("num_heads", None),
    integer("rotary_embedding_dim", None),
    integer("interleaved", None),
    integer("is_packed_batching", None),
    real("scale", None),
)

ROTARY: tuple[DomainRow, ...] = (
    DomainRow(
        "RotaryEmbedding",
        _rotary_embedding,
        operands=("input", "position_ids", "cos_cache", "sin_cache"),
        attributes=_TURNED,
        shapes="B S D | B N S D, 1 | B S, M R, M R",
        rules=(at_least(0, "num_heads", "rotary_embedding_dim"), flag("interleaved", "is_packed_batching")),
    ),
    DomainRow(
        "GemmaRotaryEmbedding",
        _gemma,
        operands=("emb", "q", "q_rot", "k", "k_rot"),
        outputs=("output1", "output2"),
        shapes="B S D, B N S D, B N S D, B K S D, B K S D",
    ),
)
