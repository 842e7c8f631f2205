"""What an attention computes, by names of its own, and how its rows and keys are shared out.

Elements of operands are expressions over `b` (sample), `h` (head), `g` (the head of keys and values, which several heads may
share), `q` (query), `t` (key), `d` (element of a query and a key) and `e` (element of a value): the operands may lie anyhow, and
whatever was fused is computed on the tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import NoKernel, arguments_of
from fusewise.codegen.gpu.nests import next_power
from fusewise.codegen.gpu.source import Scope
from fusewise.codegen.gpu.words import TritonTerm
from fusewise.codegen.llvm.loops import loop_ranges
from fusewise.codegen.llvm.plain import anchor_call, element_of_anchor, read_operand
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.index import Simplifier
from fusewise.lower.task import ACC, Anchor, Store, Task
from fusewise.ops.attention import attention_sizes
from fusewise.ops.expr import Expr, const, index, load, substitute, substitute_indices
from fusewise.records import record

__all__ = ["LOWEST", "AttentionPlan", "GpuAttention", "Piece", "planned", "understood"]

LOWEST = "-3.4028234663852886e38"
"""The lowest finite float32: no maximum is lower, so that a row without keys gives zeros."""


@record(frozen=True)
class Piece:
    """Elements from `start` on, a power of two of them."""

    start: int
    size: int


@record(frozen=True)
class GpuAttention:
    """out[b, h, q, e] = softmax_t(scale * query[b, h, q, d] . key[b, g, t, d] + mask[b, h, q, t]) . value[b, g, t, e], where
    g = h // sharing.

    `dtype` is that of all three in registers; with a `softcap` c the scaled product is c tanh(product / c). `stores` are those of
    the task by the variables above, with the result as a load of `acc` at no place.
    """

    task: Task
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
    dtype: str
    query: Expr
    key: Expr
    value: Expr
    mask: Expr | None
    stores: tuple[Store, ...]
    simplifier: Simplifier

    @property
    def row_count(self) -> int:
        """Of all samples and heads."""
        return self.batch * self.heads * self.queries

    def store(self, scope: Scope, result: TritonTerm) -> None:
        """Write what is stored of the anchor's result, which is float32, where a scope knows `b h q e`."""
        kind = self.task.anchored.output.dtype
        scope.known[_result(self.task.anchored)] = scope.words.to(result, kind.name)
        for store in self.stores:
            scope.store(store)


def _result(anchor: Anchor) -> Expr:
    return load(ACC, anchor.output.dtype, ())


# --- what it computes -----------------------------------------------------------------------------------------------------


def understood(task: Task) -> GpuAttention:
    """The task as an attention; `NoKernel` where it is none, or a case that the operator's definition leaves out."""
    anchor = task.anchor
    if anchor is None or anchor.op != "Attention":
        raise NoKernel("no attention at the anchor")
    if not task.is_fixed:
        raise NoKernel("a kernel for a GPU is written for known sizes")
    if element_of_anchor(anchor, tuple(index(f"i{k}") for k in range(len(task.extents)))) is None:
        raise NoKernel("the definition of Attention does not cover the case")
    dims = [anchor.operand_type(k).dims for k in range(3)]
    if 0 in task.extents or any(0 in one for one in dims):
        raise NoKernel("an attention of nothing")
    arguments_of(task)
    s = attention_sizes(anchor_call(anchor))
    counts = (s.batch, s.heads, s.shared, s.queries, s.keys, s.size, s.width)
    ranges = dict(zip("bhgqtde", counts, strict=True))
    simplifier = Simplifier(loop_ranges(task) | ranges)

    def element(position: int, head: str, row: str, own: str, count: int) -> Expr:
        at: tuple[Expr, ...] = (index("b"), index(head), index(row), index(own))
        if s.flat:
            at = (index("b"), index(row), index(head) * count + index(own))
        return simplifier.simplify(read_operand(anchor, position, at))

    return GpuAttention(
        task=task,
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
        dtype=anchor.operand_type(0).dtype.name,
        query=element(0, "h", "q", "d", s.size),
        key=element(1, "g", "t", "d", s.size),
        value=element(2, "g", "t", "e", s.width),
        mask=_mask(anchor, simplifier),
        stores=_stores(task, simplifier, s.width, s.flat),
        simplifier=simplifier,
    )


def _mask(anchor: Anchor, simplifier: Simplifier) -> Expr | None:
    """The mask's element, which is broadcast."""
    kind = anchor.inputs[3] if len(anchor.inputs) > 3 else None
    if kind is None:
        return None
    names = ("b", "h", "q", "t")[4 - kind.rank :]
    at = tuple(const(0) if n == 1 else index(name) for name, n in zip(names, kind.dims, strict=True))
    return simplifier.simplify(read_operand(anchor, 3, at))


def _stores(task: Task, simplifier: Simplifier, width: int, flat: bool) -> tuple[Store, ...]:
    places = [index("b"), index("h"), index("q"), index("e")]
    if flat:
        places = [index("b"), index("q"), index("h") * width + index("e")]
    names = {f"i{k}": place for k, place in enumerate(places)}
    result = _result(task.anchored)

    def whole(node: Expr) -> Expr | None:
        return result if node.op == "load" and node.value == ACC else None

    def moved(root: Expr) -> Expr:
        return simplifier.simplify(substitute_indices(substitute(root, whole), names))

    return tuple(Store(s.operand, tuple(map(moved, s.index)), moved(s.value)) for s in task.stores)


# --- how it is shared out -------------------------------------------------------------------------------------------------

_FULL = 0.8
"""Blocks for each multiprocessor, at least, that a tile of more rows must leave."""
_LEAST = 16
"""Rows, columns and elements of a product, at least."""
_PACKED = 64
"""Queries below which heads that share keys share a tile."""
_WORTH_BYTES = 1 << 18
"""Keys and values of a head from which on sharing them out is worth a second launch: about 3 us of one multiprocessor at 80
gigabytes a second. Not measured on a GPU."""
_PART_KEYS = 128
"""Keys of a part, at least."""
_MOST_PARTS = 64
_FROM_SHARED = 90
"""The capability whose tensor cores take float32 from shared memory so that a larger tile was seen not to spill."""
_LANE_KEYS = 32
"""Keys of a step of one row."""


@record(frozen=True)
class _Tiles:
    """What fits a multiprocessor without spilling: rows of a tile with its keys, elements of a value that a block has, and those
    of a query that stay in registers, or are taken at a time."""

    shapes: tuple[tuple[int, int], ...]
    width: int
    kept: int


_TILES: Mapping[str, tuple[_Tiles, ...]] = MappingProxyType(
    {
        "16 bits": (
            _Tiles(((128, 64), (64, 64), (32, 64), (16, 64)), 128, 128),
            _Tiles(((64, 32), (32, 32), (16, 32)), 256, 256),
        ),
        "tf32": (
            _Tiles(((128, 32), (64, 32), (32, 32), (16, 32)), 64, 64),
            _Tiles(((64, 32), (32, 32), (16, 32)), 128, 128),
        ),
        "float32": (_Tiles(((64, 32), (32, 32), (16, 16)), 64, 64), _Tiles(((64, 16), (32, 16)), 128, 64)),
        "float32, fewer keys": (
            _Tiles(((64, 16), (32, 16), (16, 16)), 64, 64),
            _Tiles(((64, 16), (32, 16)), 128, 64),
        ),
        "exact": (_Tiles(((32, 16), (16, 16)), 64, 64), _Tiles(((16, 16),), 128, 128)),
    }
)
"""By how products are computed, in order of width. Found by compiling for every architecture."""


@record(frozen=True)
class AttentionPlan:
    """A block has `rows` queries, of all heads that share keys where `packed` (1: one row by lanes, without products), and goes
    over `keys` at a time; `parts` blocks have `part_keys` keys each.

    `sizes` are the pieces of a query, or the one piece of which there are many (`turns`); `widths` those of a value that a block
    has, of which there are `chunks`.
    """

    rows: int
    keys: int
    parts: int
    part_keys: int
    packed: bool
    sizes: tuple[Piece, ...]
    turns: int
    widths: tuple[Piece, ...]
    chunks: int
    keeps_queries: bool
    warps: int
    stages: int
    precision_word: str
    is_exact: bool

    def row_count(self, s: GpuAttention) -> int:
        """Rows that a head of keys has."""
        return s.queries * (s.sharing if self.packed else 1)

    def strips(self, s: GpuAttention) -> int:
        """Tiles of rows that a head of keys has."""
        return -(-self.row_count(s) // self.rows)

    def blocks(self, s: GpuAttention) -> int:
        heads = s.heads // (s.sharing if self.packed else 1)
        return s.batch * heads * self.strips(s) * self.parts * self.chunks

    @property
    def way(self) -> str:
        rows = "one row by lanes" if self.rows == 1 else f"{self.rows} rows to a block"
        parts = f", in {self.parts} parts of {self.part_keys}" if self.parts > 1 else ""
        return f"attention, {rows}, {self.keys} keys at a time{parts}"


def planned(s: GpuAttention, device: Device, precision: str) -> AttentionPlan:
    """How the work is shared out: the most rows to a block that leave blocks for most multiprocessors."""
    is_exact = precision == "exact" or s.task.exact
    kind = (
        "16 bits" if s.dtype != FLOAT32.name else "exact" if is_exact else "tf32" if precision == "tf32" else "float32"
    )
    packed = s.sharing > 1 and s.queries < _PACKED
    count = s.queries * (s.sharing if packed else 1)
    outer = s.batch * (s.heads // (s.sharing if packed else 1))
    has_fewer = kind == "float32" and device.capability != _FROM_SHARED
    choices = _TILES["float32, fewer keys" if has_fewer else kind]
    tiles = next((one for one in choices if max(s.width, s.size) <= one.width), choices[-1])
    if count == 1:
        return _one_row(s, device, outer, is_exact)
    widths, chunks = _pieces(s.width), 1
    if s.width > tiles.width:
        widths, chunks = (Piece(0, tiles.width),), -(-s.width // tiles.width)
    turns = 1 if s.size <= tiles.width else _ceiling(s.size, tiles.kept)
    rows, keys = _shape(tiles.shapes, count, outer * chunks, device)
    parts, part_keys = _parts(s, device, outer * -(-count // rows) * chunks, keys)
    words = {"exact": "ieee", "tf32": "tf32", "float32": "tf32x3"}
    return AttentionPlan(
        rows=rows,
        keys=keys,
        parts=parts,
        part_keys=part_keys,
        packed=packed,
        sizes=_pieces(s.size, tiles.kept) if turns == 1 else (Piece(0, tiles.kept),),
        turns=turns,
        widths=widths,
        chunks=chunks,
        keeps_queries=s.size <= tiles.kept,
        warps=max(1, rows // _LEAST) * (2 if has_fewer else 1),  # one spills with ViT's ragged rows on sm_80 and sm_86
        stages=2,
        precision_word=f', input_precision="{words[kind]}"' if kind in words else "",
        is_exact=is_exact,
    )


def _one_row(s: GpuAttention, device: Device, outer: int, is_exact: bool) -> AttentionPlan:
    chunk = 256
    widths, chunks = (_pieces(s.width), 1) if s.width <= chunk else ((Piece(0, chunk),), -(-s.width // chunk))
    parts, part_keys = _parts(s, device, outer * chunks, _LANE_KEYS)
    return AttentionPlan(
        1, _LANE_KEYS, parts, part_keys, False, _pieces(s.size, chunk), 1, widths, chunks, True, 4, 3, "", is_exact
    )


def _shape(choices: tuple[tuple[int, int], ...], count: int, outer: int, device: Device) -> tuple[int, int]:
    """Rows and keys of a tile: not twice as many rows as there are, and few enough for all multiprocessors."""
    least = choices[-1]
    fitting = [one for one in choices if one == least or one[0] < 2 * count]
    return next((one for one in fitting if outer * _ceiling(count, one[0]) >= _FULL * device.sms), least)


def _parts(s: GpuAttention, device: Device, blocks: int, keys: int) -> tuple[int, int]:
    """Parts of the keys, and keys of a part: several where blocks leave multiprocessors idle for long."""
    nbytes = s.keys * (s.size + s.width) * s.task.anchored.operand_type(1).dtype.itemsize
    idle = device.sms // max(1, blocks)
    if idle < 2 or nbytes < _WORTH_BYTES or s.row_count * (s.width + 2) * _MOST_PARTS >= 2**31:
        return 1, s.keys
    wanted = max(1, min(_MOST_PARTS, 2 * idle, s.keys // _PART_KEYS))
    each = _ceiling(_ceiling(s.keys, wanted), keys) * keys
    parts = -(-s.keys // each)
    return (parts, each) if parts > 1 else (1, s.keys)


def _ceiling(count: int, by: int) -> int:
    return (count + by - 1) // by


def _pieces(count: int, most: int = 256) -> tuple[Piece, ...]:
    """Powers of two that cover so many elements, with few beyond them: 80 is 64 and 16."""
    found, start = list[Piece](), 0
    while start < count:
        rest = count - start
        size = min(most, next_power(rest))
        if size > rest and size - rest >= size // 4 and size > _LEAST:
            size //= 2
        found.append(Piece(start, max(_LEAST, size)))
        start += found[-1].size
    return tuple(found)
