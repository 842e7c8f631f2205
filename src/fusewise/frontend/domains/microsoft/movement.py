"""What moves, picks and repeats elements."""

from __future__ import annotations

import numpy as np

from fusewise.frontend.domains.row import DomainCall, DomainRow, Written, integer, real, text
from fusewise.frontend.domains.writer import DomainValue, DomainWriter, Extent
from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.ops.validity.rules import between, flag, one_of

__all__ = ["MOVEMENT"]


def _same(g: DomainWriter, call: DomainCall) -> DomainValue:
    return g.Identity(call["X"])


def _trilu(g: DomainWriter, call: DomainCall) -> DomainValue:
    return g.Trilu(call["X"], call.get("k"), upper=call.attribute("upper"))


def _expand_dims(g: DomainWriter, call: DomainCall) -> DomainValue:
    axis = g.known(call["axis"])
    if axis is not None:
        return g.Unsqueeze(call["X"], [int(axis.reshape(-1)[0])])
    return g.Unsqueeze(call["X"], g.reshape(g.cast(call["axis"], INT64), [1]))


def _unique(g: DomainWriter, call: DomainCall) -> Written:
    """In the order in which they occur."""
    y, _, inverse, counts = g.several("Unique", 4, call["x"], sorted=0)
    return y, inverse, counts


def _pad(g: DomainWriter, call: DomainCall) -> DomainValue:
    value = call.get("value")
    pads = g.reshape(call["pads"], [-1])
    return g.Pad(call["data"], pads, None if value is None else g.reshape(value, []), mode=call.attribute("mode"))


def _range(g: DomainWriter, call: DomainCall) -> DomainValue:
    start, delta = call["start"], call.get("delta")
    step = g.number(1, start.dtype) if delta is None else g.reshape(delta, [])
    return g.Range(g.reshape(start, []), g.reshape(call["limit"], []), step)


def _gather_nd(g: DomainWriter, call: DomainCall) -> DomainValue:
    return g.GatherND(call["data"], g.cast(call["indices"], INT64))


def _embedding(g: DomainWriter, call: DomainCall) -> DomainValue:
    return g.Gather(call["weight"], call["indices"])


def _grid_sample(g: DomainWriter, call: DomainCall) -> DomainValue:
    modes = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}
    given = {name: call.attribute(name) for name in ("align_corners", "padding_mode")}
    return g.GridSample(call["X"], call["Grid"], mode=modes[call.attribute("mode")], **given)


def _unfold(g: DomainWriter, call: DomainCall) -> DomainValue:
    """Windows along one axis, as a further axis at the end."""
    x, size, step = call["input"], call.attribute("size"), call.attribute("step")
    axis = call.attribute("dim") % max(x.rank, 1)
    extent = g.dim(x, axis)
    begins = _begins(g, extent, size, step)
    places = begins + g.constant(np.arange(size)[np.newaxis])
    windows = g.Gather(x, places, axis=axis)
    order = [i for i in range(x.rank + 1) if i != axis + 1]
    return g.permute(windows, [*order, axis + 1])


def _begins(g: DomainWriter, extent: Extent, size: int, step: int) -> DomainValue:
    """Where windows begin, [windows, 1]."""
    if isinstance(extent, int):
        return g.constant(np.arange(0, extent - size + 1, step, dtype=np.int64)[:, np.newaxis])
    end = g.Squeeze(extent + (1 - size), [0])
    return g.Unsqueeze(g.Range(0, end, step), [1])


def _not_below_zero(g: DomainWriter, extent: Extent, more: int) -> Extent:
    return max(extent + more, 0) if isinstance(extent, int) else g.Max(extent + more, 0)


def _ngram_repeat_block(g: DomainWriter, call: DomainCall) -> DomainValue:
    """Minus infinity for each token that would make the last tokens of a row a sequence which that row has already."""
    ids, scores, length = call["input_ids"], call["scores"], call.attribute("ngram_size")
    last = np.iinfo(np.int64).max
    ends = [j - length + 1 or last for j in range(length)]
    tokens = g.slice(ids, 1, length - 1, last)
    repeated: DomainValue | None = None
    for j in range(length - 1):
        equal = g.Equal(
            g.slice(ids, 1, j, ends[j]), g.Gather(ids, [_not_below_zero(g, g.dim(ids, 1), j - length + 1)], axis=1)
        )
        repeated = equal if repeated is None else g.And(repeated, equal)
    banned, free = g.number(-np.inf, scores.dtype), g.number(np.inf, scores.dtype)
    if repeated is None:
        repeated = g.Equal(tokens, tokens)
    update = g.Where(repeated, banned, free)
    return g.ScatterElements(scores, tokens, update, axis=1, reduction="min")


def _crop_and_resize(g: DomainWriter, call: DomainCall) -> DomainValue:
    """Boxes [y0, x0, y1, x1] in fractions of the image, corners on corners, each sampled at `crop_size` places."""
    x, boxes, crop = call["X"], call["rois"], g.known(call["crop_size"])
    if crop is None:
        raise call.unsupported("its input 'crop_size' must be a constant")
    (down, inside_down), (along, inside_along) = (
        _sampled_places(g, boxes, k, int(crop.reshape(-1)[k]), g.dim(x, 2 + k)) for k in range(2)
    )
    samples = g.Unsqueeze(g.cast(call["batch_indices"], INT64), [1, 2])
    image = g.permute(x, [0, 2, 3, 1])
    down, along = g.Unsqueeze(down, [2]), g.Unsqueeze(along, [1])

    def at(rows: DomainValue, columns: DomainValue) -> DomainValue:
        """[boxes, rows, columns, channels]"""
        found = [g.cast(g.Floor(place), INT64) for place in (rows, columns)]
        shape = g.Shape(g.Add(g.Add(samples, found[0]), found[1]))
        parts = [g.Unsqueeze(g.Expand(part, shape), [3]) for part in (samples, *found)]
        return g.GatherND(image, g.Concat(*parts, axis=3))

    if call.attribute("mode") == "nearest":
        y = at(down + 0.5, along + 0.5)
    else:
        right, below = (g.Unsqueeze(place - g.Floor(place), [3]) for place in (along, down))
        rows = []
        for row in (down, g.Ceil(down)):
            left = at(row, along)
            rows.append(left + (at(row, g.Ceil(along)) - left) * right)
        y = rows[0] + (rows[1] - rows[0]) * below
    inside = g.And(g.Unsqueeze(inside_down, [2, 3]), g.Unsqueeze(inside_along, [1, 3]))
    return g.permute(g.Where(inside, y, call.attribute("extrapolation_value")), [0, 3, 1, 2])


def _sampled_places(
    g: DomainWriter, boxes: DomainValue, axis: int, count: int, extent: Extent
) -> tuple[DomainValue, DomainValue]:
    """Where along one axis of the image boxes are sampled, [boxes, count], and whether that is inside; outside it is 0."""
    last = g.cast(g.scalar(extent), FLOAT32) - 1.0
    start, end = (g.slice(boxes, 1, axis + k, axis + k + 1) for k in (0, 2))
    if count > 1:
        scale = (end - start) * last / float(count - 1)
        parts = [start * last + g.constant(np.arange(count - 1, dtype=np.float32)[np.newaxis]) * scale, end * last]
        places = g.Concat(*parts, axis=1)
    else:
        places = (start + end) * 0.5 * last
    inside = g.And(g.GreaterOrEqual(places, 0.0), g.LessOrEqual(places, last))
    return g.Where(inside, places, 0.0), inside


_LONGEST_WINDOW = 2**20
"""Elements of a window, and from one to the next: each is an index that is written into the graph."""

_LONGEST_SEQUENCE = 256
"""Tokens that may not be repeated in a row: each is compared by a node of its own."""

MOVEMENT: tuple[DomainRow, ...] = (
    DomainRow("SampleOp", _same, ("X",), outputs=("Y",)),
    DomainRow(
        "Trilu", _trilu, ("X", "k?"), (integer("upper", 1),), ("Y",), shapes="... H W, one", rules=(flag("upper"),)
    ),
    DomainRow("ExpandDims", _expand_dims, ("X", "axis"), outputs=("Y",), shapes="_, one"),
    DomainRow("Unique", _unique, ("x",), outputs=("y", "idx", "counts"), shapes="N"),
    DomainRow(
        "Pad",
        _pad,
        ("data", "pads", "value?"),
        (text("mode", "constant"),),
        shapes="_, P | 1 P, one",
        rules=(one_of("mode", "constant", "reflect", "edge"),),
    ),
    DomainRow("Range", _range, ("start", "limit", "delta?"), outputs=("Y",), shapes="one, one, one"),
    DomainRow("GatherND", _gather_nd, ("data", "indices")),
    DomainRow(
        "TorchEmbedding",
        _embedding,
        ("weight", "indices", "padding_idx?", "scale_grad_by_freq?"),
        outputs=("Y",),
        shapes="N H, _, one, one",
    ),
    DomainRow(
        "GridSample",
        _grid_sample,
        ("X", "Grid"),
        (integer("align_corners", 0), text("mode", "bilinear"), text("padding_mode", "zeros")),
        ("Y",),
        shapes="N C H W, N P Q 2",
        rules=(one_of("mode", "bilinear", "nearest", "bicubic"), flag("align_corners")),
    ),
    DomainRow(
        "UnfoldTensor",
        _unfold,
        ("input",),
        (integer("dim", -1), integer("size"), integer("step", 1)),
        rules=(between("size", 1, _LONGEST_WINDOW), between("step", 1, _LONGEST_WINDOW)),
    ),
    DomainRow(
        "NGramRepeatBlock",
        _ngram_repeat_block,
        ("input_ids", "scores"),
        (integer("ngram_size"),),
        ("scores_out",),
        shapes="B L, B V",
        rules=(between("ngram_size", 1, _LONGEST_SEQUENCE),),
    ),
    DomainRow(
        "CropAndResize",
        _crop_and_resize,
        ("X", "rois", "batch_indices", "crop_size"),
        (real("extrapolation_value", 0.0), text("mode", "bilinear")),
        ("Y",),
        shapes="N C H W, R 4, R, 2",
        rules=(one_of("mode", "bilinear", "nearest"),),
    ),
)
