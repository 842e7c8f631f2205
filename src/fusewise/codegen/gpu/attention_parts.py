"""Parts of an attention's keys: each leaves its maximum, its sum and its result, and a second kernel joins them in their order.

What a part leaves is float32 in working memory: results of all parts, rows and elements, behind them maxima, behind these sums.
"""

from __future__ import annotations

from fusewise.codegen.gpu.attention_plan import LOWEST, GpuAttention
from fusewise.codegen.gpu.kernel import SCRATCH, GpuKernel, arguments_of
from fusewise.codegen.gpu.nests import next_power
from fusewise.codegen.gpu.source import Scope, TritonWriter, decoded
from fusewise.codegen.gpu.words import TritonTerm
from fusewise.records import record

__all__ = ["PartAddresses", "joined", "part_addresses", "store_parts"]

_ROWS = 4
"""Rows that a block joins."""
_WIDTH = 256
"""Elements of a row that a block joins at once."""


@record(frozen=True)
class PartAddresses:
    """Where parts lie in working memory, in elements: results from 0 on."""

    maxima: int
    sums: int
    nbytes: int


def part_addresses(s: GpuAttention, parts: int) -> PartAddresses:
    """Of so many parts."""
    rows = parts * s.row_count
    return PartAddresses(rows * s.width, rows * s.width + rows, 4 * (rows * s.width + 2 * rows))


def store_parts(scope: Scope, s: GpuAttention, parts: int, part: TritonTerm, result: TritonTerm, first: bool) -> None:
    """Write a part's `result` of some elements, and beside the `first` its maximum `top` and its sum `total`."""
    writer, words = scope.writer, scope.words
    texts = {name: words.typed(scope.indices[name]) for name in ("b", "h", "q", "e")}
    row = TritonTerm(
        writer.name(
            f"({texts['b']} * {s.heads} + {texts['h']}) * {s.queries} + {texts['q']} + "
            f"{words.typed(part)} * {s.row_count}"
        ),
        "int32",
        (result.shape[0], 1) if result.shape[0] > 1 else (),
    )
    _put(scope, words.term(f"{row.text} * {s.width} + {texts['e']}", "int32", row, scope.indices["e"]), result)
    if first:
        places = part_addresses(s, parts)
        shape = (result.shape[0], 1)
        for start, name in ((places.maxima, "top"), (places.sums, "total")):
            _put(scope, words.term(f"{row.text} + {start}", "int32", row), TritonTerm(name, "float32", shape))


def _put(scope: Scope, offset: TritonTerm, value: TritonTerm) -> None:
    """Write a tile to working memory, in the lanes that are elements."""
    mask, _ = scope.mask(value.shape)
    masked = "" if mask is None else f", mask={scope.words.spread(mask, value.shape)}"
    scope.writer.put(f"tl.store({SCRATCH} + {scope.words.spread(offset, value.shape)}, {value.text}{masked})")


def joined(s: GpuAttention, parts: int) -> GpuKernel:
    """The second kernel: a row's parts, rescaled to the largest maximum, are added up and divided by their sum."""
    writer = TritonWriter(s.task)
    writer.simplifier = s.simplifier
    words, size = writer.words, min(_WIDTH, max(16, next_power(s.width)))
    chunks = -(-s.width // size)
    number = TritonTerm(writer.name("tl.program_id(0)"), "int32")
    at = decoded(writer, number, [("strip", -(-s.row_count // _ROWS)), ("chunk", chunks)])
    row = TritonTerm(
        writer.name(f"{words.typed(at['strip'])} * {_ROWS} + tl.arange(0, {_ROWS})[:, None]"), "int32", (_ROWS, 1)
    )
    start = f"{words.typed(at['chunk'])} * {size} + "
    element = TritonTerm(writer.name(f"{start}tl.arange(0, {size})[None, :]"), "int32", (1, size))
    inside = [words.term(f"{row.text} < {s.row_count}", "int1", row)] if s.row_count % _ROWS else []
    if s.width % size:
        inside.append(words.term(f"{element.text} < {s.width}", "int1", element))
    own = decoded(writer, row, [("b", s.batch), ("h", s.heads), ("q", s.queries)])
    scope = Scope(writer, {**own, "e": element}, tuple(inside))
    _add_up(scope, s, parts, row, element)
    total = TritonTerm(writer.name("tl.where(total == 0.0, 1.0, total)"), "float32", (_ROWS, 1))
    s.store(scope, words.quotient(TritonTerm("found", "float32", (_ROWS, size)), total))
    arguments = arguments_of(s.task) | {SCRATCH: ("fp32", 16)}
    types, alignments = zip(*arguments.values(), strict=True)
    symbol = f"attention_joined_{s.task.digest}"
    blocks = -(-s.row_count // _ROWS) * chunks
    source = writer.source(symbol, arguments)
    return GpuKernel(symbol, source, tuple(arguments), types, alignments, (blocks,), 4, way=f"{parts} parts joined")


def _add_up(scope: Scope, s: GpuAttention, parts: int, row: TritonTerm, element: TritonTerm) -> None:
    """Writes `found` and `total` of rows."""
    writer, places = scope.writer, part_addresses(s, parts)
    rows, size = row.shape[0], element.shape[1]
    mask, _ = scope.mask(row.shape)
    masked = "" if mask is None else f", mask={mask.text}, other=0.0"
    whole, _ = scope.mask((rows, size))
    also = "" if whole is None else f", mask={scope.words.spread(whole, (rows, size))}, other=0.0"
    writer.put(f"top = tl.full([{rows}, 1], {LOWEST}, tl.float32)")
    writer.put(f"total = tl.full([{rows}, 1], 0.0, tl.float32)")
    writer.put(f"found = tl.full([{rows}, {size}], 0.0, tl.float32)")
    part = writer.fresh()
    writer.put(f"for {part} in range({parts}):", 1)
    at = writer.name(f"{row.text} + {part} * {s.row_count}")
    above = writer.name(f"tl.load({SCRATCH} + ({at} + {places.maxima}){masked})")
    share = writer.name(f"tl.load({SCRATCH} + ({at} + {places.sums}){masked})")
    result = writer.name(f"tl.load({SCRATCH} + ({at} * {s.width} + {element.text}){also})")
    top = writer.name(f"tl.maximum(top, {above})")
    fade, weight = writer.name(f"libdevice.exp(top - {top})"), writer.name(f"libdevice.exp({above} - {top})")
    writer.put(f"total = total * {fade} + {share} * {weight}")
    writer.put(f"found = found * {fade} + {result} * {weight}")
    writer.put(f"top = {top}", -1)
