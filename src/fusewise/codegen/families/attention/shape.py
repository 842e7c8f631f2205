"""What an attention computes and where its operands lie.

Queries, keys and values are (batch, heads, tokens, size) or (batch, tokens, heads * size) in ONNX; both are the same four strides.
Heads, sizes and widths are numbers; batch, queries, keys and strides may be in terms of symbols.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusewise.codegen.llvm.plain import anchor_call
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int
from fusewise.codegen.view import OperandView, short_view_of, view_of
from fusewise.ir.deciding import known_equal, known_one
from fusewise.ir.dtypes import BOOL, FLOAT32, DType
from fusewise.ir.size import Size
from fusewise.lower.task import Anchor, RefusalReason, Task
from fusewise.ops.attention import ATTENTION_EXTRAS, attention_sizes
from fusewise.records import record

__all__ = ["AttentionShape", "Heads", "understand"]


@record(frozen=True)
class Heads:
    """An operand by batch, head, row (a token, or for the mask a query) and element (for the mask a key); strides in elements."""

    operand: str
    offset: int
    batch: int
    head: int
    row: int
    element: int

    def at(self, f: Function, batch: Int, head: Int, row: Int) -> Int:
        """The offset of element 0 of a row."""
        offset: Int = self.offset
        for index, stride in ((batch, self.batch), (head, self.head), (row, self.row)):
            offset = f.add(offset, f.mul(index, stride))
        return offset


@record(frozen=True)
class AttentionShape:
    """out[b, h, i] = softmax_j(scale * query[b, h, i] . key[b, g, j] + mask[b, h, i, j]) . value[b, g, j], g = h // sharing.

    With a `softcap` c, the scaled product is c tanh(product / c). `size` is the length of a query and a key, `width` of a value.
    `dtype` is that of all three, but where it is float32 keys and values may be `stored` in 16 bits, which are widened as they are
    read; a mask of booleans (`mask_dtype`) says which keys take part. `flat`: the output is (batch, tokens, heads * width).
    `free_queries` and `free_keys`: how many there are is not known, also where schedules are made for some number of them.
    `trims`: keys behind the last query of a strip need not be read.
    """

    batch: int
    heads: int
    sharing: int
    queries: int
    keys: int
    size: int
    width: int
    scale: float
    softcap: float
    causal: bool
    query: Heads
    key: Heads
    value: Heads
    dtype: DType
    stored: DType
    mask: Heads | None
    mask_dtype: DType
    flat: bool
    free_queries: bool = False
    free_keys: bool = False
    trims: bool = False

    def place(self, f: Function, batch: Int, head: Int, query: Int, element: Int) -> tuple[dict[str, Int], str]:
        """The output's index, and the name of its last variable."""
        if self.flat:
            return {"i0": batch, "i1": query, "i2": f.add(f.mul(head, self.width), element)}, "i2"
        return {"i0": batch, "i1": head, "i2": query, "i3": element}, "i3"


def understand(
    task: Task, dtypes: Collection[DType] = (FLOAT32,), *, widens: bool = False
) -> AttentionShape | RefusalReason:
    """The task as an attention of one of these types that kernels compute, or why it is none; of one that `widens` keys and values
    of 16 bits, these, too."""
    anchor = task.anchor
    if anchor is None or anchor.op != "Attention":
        return RefusalReason("no attention at the anchor")
    extras = [name for name, off in ATTENTION_EXTRAS if anchor.attribute(name, off) != off]
    if any(known_equal(0, extent) for extent in task.extents) or extras:
        return RefusalReason("a case that the attention kernel leaves out", ", ".join(extras))
    if any(kind is not None for kind in anchor.inputs[4:]):
        return RefusalReason("past keys and values")
    views: list[OperandView] = []
    are_short = widens and not any(isinstance(short_view_of(task, position), RefusalReason) for position in (1, 2))
    for position in range(3):
        view = short_view_of(task, position) if are_short and position else view_of(task, position)
        if isinstance(view, RefusalReason):
            return view
        is_of = view.operand.dtype in dtypes or (are_short and position)
        if not is_of or any(known_equal(0, extent) for extent in view.shape):
            return RefusalReason("element type has no attention kernel", view.operand.dtype.name)
        views.append(view)
    dtype, stored, other = (view.operand.dtype for view in views)
    if stored != other or (dtype != FLOAT32 if are_short else dtype != stored):
        return RefusalReason("queries, keys and values are of different types")
    counts = [view.shape[1] for view in views if len(view.shape) == 4] + [view.shape[-1] for view in views]
    if any(isinstance(n, Size) for n in counts):
        return RefusalReason("how many heads or numbers in one there are is not known")
    s = attention_sizes(anchor_call(anchor))
    q, k, v = (_heads(view, count) for view, count in zip(views, (s.heads, s.shared, s.shared), strict=True))
    mask = _mask(task, anchor, (s.batch, s.heads, s.queries, s.keys), dtype)
    if isinstance(mask, RefusalReason):
        return mask
    return AttentionShape(
        batch=s.batch,
        heads=s.heads,
        sharing=s.sharing,
        queries=s.queries,
        keys=s.keys,
        size=s.size,
        width=s.width,
        scale=float(s.scale),  # type: ignore[arg-type]  # of a number it is one
        softcap=s.softcap,
        causal=bool(anchor.attribute("is_causal", 0)),
        query=q,
        key=k,
        value=v,
        dtype=dtype,
        stored=stored,
        mask=None if mask is None else mask[0],
        mask_dtype=FLOAT32 if mask is None else mask[1],
        flat=s.flat,
        free_queries=isinstance(s.queries, Size),
        free_keys=isinstance(s.keys, Size),
        trims=bool(anchor.attribute("is_causal", 0)) and not task.exact,
    )


def _heads(view: OperandView, heads: int) -> Heads:
    if len(view.shape) == 4:
        return Heads(view.operand.name, view.offset, *view.strides)
    batch, row, element = view.strides
    return Heads(view.operand.name, view.offset, batch, view.shape[-1] // heads * element, row, element)


def _covers(extent: int, whole: int) -> bool:
    """Does an axis of a mask cover a whole one, or is it the same for all of it?"""
    return known_one(extent) or known_equal(extent, whole) or extent == whole


def _mask(task: Task, anchor: Anchor, whole: Sequence[int], dtype: DType) -> tuple[Heads, DType] | RefusalReason | None:
    """The mask, broadcast, and what it is of."""
    if len(anchor.inputs) < 4 or anchor.inputs[3] is None:
        return None
    view = view_of(task, 3)
    if isinstance(view, RefusalReason):
        return view
    if view.operand.dtype not in (FLOAT32, BOOL, dtype):
        return RefusalReason("element type has no attention kernel", view.operand.dtype.name)
    if len(view.shape) > 4 or not all(map(_covers, view.shape[::-1], whole[::-1])):
        return RefusalReason("the mask covers a part of the keys only")
    strides = [0 if known_one(n) else stride for n, stride in zip(view.shape, view.strides, strict=True)]
    full = [0] * (4 - len(strides)) + strides
    return Heads(view.operand.name, view.offset, *full), view.operand.dtype
