"""Scaled dot-product attention: queries by blocks of keys, with a running maximum and sum, so that scores are never in memory.

    for block of keys:  scores = queries keys^T, scaled and masked
                        maximum' = max(maximum, scores);  p = exp(scores - maximum');  a = exp(maximum - maximum')
                        sum = a sum + p;  result = a result + p values
    result / sum

after Dao et al., "FlashAttention" (2022), and Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018). Scores,
sums and results are float32; operands are multiplied as the type that they are of, for which probabilities are rounded to 16 bits,
too. Where heads share keys, a tile has the few queries of all of them. One row alone (a decoder's next token) is no product: each
lane takes every so many keys with a maximum and a sum of its own, without tensor cores.

Few rows over many keys would leave the device idle, so keys are shared out to blocks, too; a second kernel joins their results, in
the order of the keys (`attention_parts`). Keys behind the last query of a block are not read where they are masked (`is_causal`).
In exact code they are, since infinite values and NaN make NaN with their weight of zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from fusewise.codegen.gpu.attention_parts import joined, part_addresses, store_parts
from fusewise.codegen.gpu.attention_plan import LOWEST, AttentionPlan, GpuAttention, Piece, planned, understood
from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import SCRATCH, GpuKernel, arguments_of
from fusewise.codegen.gpu.source import Scope, TritonWriter, decoded
from fusewise.codegen.gpu.words import TritonTerm, literal
from fusewise.ir.dtypes import BOOL
from fusewise.lower.task import Task
from fusewise.ops.expr import Expr
from fusewise.records import record

__all__ = ["attention"]


def attention(task: Task, device: Device, precision: str) -> GpuKernel:
    """A kernel for a task with Attention at its anchor, and one that joins parts of the keys; `NoKernel` for others."""
    s = understood(task)
    plan = planned(s, device, precision)
    writer = TritonWriter(s.task)
    writer.simplifier = s.simplifier
    _Writing(writer, s, plan).write()
    arguments = arguments_of(task) | ({SCRATCH: ("fp32", 16)} if plan.parts > 1 else {})
    types, alignments = zip(*arguments.values(), strict=True)
    symbol = f"attention_{task.digest}"
    return GpuKernel(
        symbol,
        writer.source(symbol, arguments),
        tuple(arguments),
        types,
        alignments,
        (plan.blocks(s),),
        plan.warps,
        plan.stages,
        plan.way,
        part_addresses(s, plan.parts).nbytes if plan.parts > 1 else 0,
        (joined(s, plan.parts),) if plan.parts > 1 else (),
    )


@record
class _Writing:
    """Writes one attention's kernel: a tile of `rows` queries, or the one row, by all keys or some."""

    writer: TritonWriter
    s: GpuAttention
    plan: AttentionPlan
    block: Scope = field(init=False)
    rows: Scope = field(init=False)
    part: TritonTerm = field(init=False)
    chunk: TritonTerm = field(init=False)
    first: str = ""
    turn: str = ""

    def write(self) -> None:
        self._place()
        queries = [self._queries(piece) for piece in self.plan.sizes] if self.plan.keeps_queries else []
        self._begin()
        low, high = self._span()
        start = self.writer.fresh()
        self.writer.put(f"for {start} in range({low}, {high}, {self.plan.keys}):", 1)
        scores = self._scores(start, queries)
        self._step(start, scores)
        self.writer.depth = 1
        if self.plan.rows == 1:
            self._over_lanes()
        self._end()

    # --- where a block is ----------------------------------------------------------------------------------------

    def _place(self) -> None:
        """Which head, rows, part of the keys and of the result's elements a block has."""
        s, plan, writer = self.s, self.plan, self.writer
        number = TritonTerm(writer.name("tl.program_id(0)"), "int32")
        heads = ("g", s.heads // s.sharing) if plan.packed else ("h", s.heads)
        strips = plan.strips(s)
        axes = [("b", s.batch), heads, ("strip", strips), ("part", plan.parts), ("chunk", plan.chunks)]
        at = decoded(writer, number, axes)
        self.chunk, self.part = at.pop("chunk"), at.pop("part")
        strip = at.pop("strip")
        count = plan.row_count(s)
        if plan.rows == 1:
            row, bounds = TritonTerm("0", "int32", (), 0), []
        else:
            text = f"{writer.words.typed(strip)} * {plan.rows} + tl.arange(0, {plan.rows})[:, None]"
            row = TritonTerm(writer.name(text), "int32", (plan.rows, 1))
            bounds = [writer.words.term(f"{row.text} < {count}", "int1", row)] if count % plan.rows else []
        if plan.packed:
            inner = decoded(writer, row, [("s", s.sharing), ("q", s.queries)])
            base = f"{writer.words.typed(at['g'])} * {s.sharing}"
            head = TritonTerm(writer.name(f"{base} + {writer.words.typed(inner['s'])}"), "int32", inner["s"].shape)
            own = {"h": head, "q": inner["q"]}
        else:
            own = {"q": row}
            if s.sharing > 1:
                at["g"] = writer.words.term(f"{writer.words.typed(at['h'])} // {s.sharing}", "int32", at["h"])
            else:
                at["g"] = at["h"]
        self.block = Scope(writer, at)
        self.rows = Scope(writer, {**at, **own}, tuple(bounds))
        self.first = f"{writer.words.typed(strip)} * {plan.rows}"

    def _span(self) -> tuple[str, str]:
        """The keys of a block, from the first up to before the last."""
        s, plan, writer = self.s, self.plan, self.writer
        low, ends, last = "0", [], s.keys
        if plan.parts > 1:
            low = writer.name(f"{writer.words.typed(self.part)} * {plan.part_keys}")
            ends.append(f"{low} + {plan.part_keys}")
        trims = s.causal and not plan.is_exact
        if trims and plan.strips(s) == 1:
            last = min(last, s.queries)
        elif trims:
            ends.append(f"{self.first} + {plan.rows}")
        high = str(last)
        for end in ends:
            high = writer.name(f"tl.minimum({end}, {high})")
        return low, high

    # --- tiles of operands ---------------------------------------------------------------------------------------

    def _along(self, start: str, count: int, extent: int, last: bool) -> tuple[TritonTerm, list[TritonTerm]]:
        """Positions along a tile's last or first axis, and the bound that they need."""
        writer = self.writer
        axis, shape = ("[None, :]", (1, count)) if last else ("[:, None]", (count, 1))
        term = TritonTerm(writer.name(f"{start}tl.arange(0, {count}){axis}"), "int32", shape)
        return term, [writer.words.term(f"{term.text} < {extent}", "int1", term)]

    def _piece(
        self, name: str, piece: Piece, extent: int, last: bool
    ) -> tuple[dict[str, TritonTerm], list[TritonTerm]]:
        start = f"{piece.start} + " if piece.start else ""
        several = self.plan.chunks if name == "e" else self.plan.turns
        if several > 1:
            start = f"{self.chunk.text if name == 'e' else self.turn} * {piece.size} + "
        term, bounds = self._along(start, piece.size, extent, last)
        is_whole = extent % piece.size == 0 if several > 1 else piece.start + piece.size <= extent
        return {name: term}, [] if is_whole else bounds

    def _tile(self, scope: Scope, element: Expr, shape: tuple[int, int], fills: Sequence[TritonTerm]) -> str:
        """An operand's elements over a tile, 0 beyond the bounds `fills`, along which products are added up."""
        words = self.writer.words
        value = scope.value(element)
        text = words.spread(value, shape)
        if fills and not (_is_read(element) and value.shape == shape):
            bound = words.every(fills)
            assert bound is not None
            return words.name(f"tl.where({words.spread(bound, shape)}, {text}, 0.0).to(tl.{value.type})")
        return words.name(text)

    def _queries(self, piece: Piece) -> str:
        lane = self.plan.rows == 1
        at, bounds = self._piece("d", piece, self.s.size, last=not lane)
        shape = (piece.size, 1) if lane else (self.plan.rows, piece.size)
        return self._tile(self.rows.inside(at, *bounds), self.s.query, shape, bounds)

    def _keys(self, piece: Piece, key: TritonTerm, bounds: Sequence[TritonTerm]) -> str:
        at, own = self._piece("d", piece, self.s.size, last=False)
        scope = self.block.inside({**at, "t": key}, *own, *bounds)
        return self._tile(scope, self.s.key, (piece.size, self.plan.keys), own)

    def _values(self, piece: Piece, start: str) -> str:
        """Of a product: (keys, elements); of one row: (elements, keys)."""
        lane = self.plan.rows == 1
        key, bounds = self._key(start, last=lane)
        at, own = self._piece("e", piece, self.s.width, last=not lane)
        scope = self.block.inside({**at, "t": key}, *own, *bounds)
        shape = (piece.size, self.plan.keys) if lane else (self.plan.keys, piece.size)
        return self._tile(scope, self.s.value, shape, bounds)

    def _key(self, start: str, last: bool) -> tuple[TritonTerm, list[TritonTerm]]:
        term, bounds = self._along(f"{start} + ", self.plan.keys, self.s.keys, last)
        return term, bounds if self.s.keys % self.plan.keys else []

    # --- a step --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """The maximum, the sum and the result before any key. Of one row each lane has its own."""
        shape = [1, self.plan.keys] if self.plan.rows == 1 else [self.plan.rows, 1]
        self.writer.put(f"top = tl.full({shape}, {LOWEST}, tl.float32)")
        self.writer.put(f"total = tl.full({shape}, 0.0, tl.float32)")
        for k, piece in enumerate(self.plan.widths):
            whole = [piece.size, self.plan.keys] if self.plan.rows == 1 else [self.plan.rows, piece.size]
            self.writer.put(f"sum{k} = tl.full({whole}, 0.0, tl.float32)")

    def _scores(self, start: str, queries: list[str]) -> TritonTerm:
        """Products of queries and keys, scaled and masked: -inf where a key takes no part."""
        s, plan, writer, words = self.s, self.plan, self.writer, self.writer.words
        key, bounds = self._key(start, last=True)
        found = ""
        if plan.turns > 1:
            found, self.turn = writer.name(f"tl.full([{plan.rows}, {plan.keys}], 0.0, tl.float32)"), writer.fresh()
            writer.put(f"for {self.turn} in range({plan.turns}):", 1)
        for k, piece in enumerate(plan.sizes):
            left = queries[k] if queries else self._queries(piece)
            right = self._keys(piece, key, bounds)
            if plan.rows == 1:
                text = f"tl.sum({left}.to(tl.float32) * {right}.to(tl.float32), 0)[None, :]"
                found = writer.name(f"{found} + {text}" if found else text)
            else:
                text = f"tl.dot({left}, {right}{', ' + found if found else ''}{plan.precision_word})"
                if plan.turns > 1:
                    writer.put(f"{found} = {text}", -1)
                else:
                    found = writer.name(text)
        score = TritonTerm(found, "float32", (plan.rows, plan.keys))
        score = words.term(f"{score.text} * {literal(s.scale)}", "float32", score)
        if s.softcap:
            small = words.quotient(score, words.constant(s.softcap, "float32"))
            score = words.term(f"libdevice.tanh({small.text}) * {s.softcap!r}", "float32", score)
        return self._masked(score, key, bounds)

    def _masked(self, score: TritonTerm, key: TritonTerm, bounds: Sequence[TritonTerm]) -> TritonTerm:
        s, words = self.s, self.writer.words
        scope = self.rows.inside({"t": key}, *bounds)
        conditions = list(bounds)
        if s.mask is not None:
            given = scope.value(s.mask)
            if s.mask.dtype == BOOL:
                conditions.append(given)
            else:
                score = words.term(f"{score.text} + {words.typed(words.to(given, 'float32'))}", "float32", score)
        if s.causal:
            query = self.rows.indices["q"]
            conditions.append(words.term(f"{key.text} <= {words.typed(query)}", "int1", key, query))
        kept = words.every(conditions)
        if kept is None:
            return score
        return words.term(f'tl.where({words.spread(kept, score.shape)}, {score.text}, float("-inf"))', "float32", score)

    def _step(self, start: str, score: TritonTerm) -> None:
        """What a block of keys adds."""
        plan, writer = self.plan, self.writer
        lane = plan.rows == 1
        highest = score.text if lane else f"tl.max({score.text}, 1)[:, None]"
        top = writer.name(f"tl.maximum(top, {highest})")
        p = writer.name(self._exp(f"{score.text} - {top}"))
        fade = writer.name(self._exp(f"top - {top}"))
        writer.put(f"total = total * {fade} + " + (p if lane else f"tl.sum({p}, 1)[:, None]"))
        for k, piece in enumerate(plan.widths):
            value = self._values(piece, start)
            if lane:
                writer.put(f"sum{k} = sum{k} * {fade} + {p} * {value}.to(tl.float32)")
            else:
                rounded = p if self.s.dtype == "float32" else f"{p}.to(tl.{self.s.dtype})"
                writer.put(f"sum{k} = tl.dot({rounded}, {value}, sum{k} * {fade}{plan.precision_word})")
        writer.put(f"top = {top}")

    def _exp(self, text: str) -> str:
        """Of what is not above 0: by the machine's instruction, but where answers are to be exact."""
        return f"libdevice.exp({text})" if self.plan.is_exact else f"tl.exp({text})"

    # --- behind the last key -------------------------------------------------------------------------------------

    def _over_lanes(self) -> None:
        """One row: the lanes' maxima, sums and results become one."""
        writer = self.writer
        top = writer.name("tl.max(top, 1)[:, None]")
        weight = writer.name(self._exp(f"top - {top}"))
        writer.put(f"total = tl.sum(total * {weight}, 1)[:, None]")
        for k in range(len(self.plan.widths)):
            writer.put(f"sum{k} = tl.sum(sum{k} * {weight}, 1)[None, :]")
        writer.put(f"top = {top}")

    def _end(self) -> None:
        writer, plan, s = self.writer, self.plan, self.s
        rows = 1 if plan.rows == 1 else plan.rows
        total = TritonTerm("total", "float32", (rows, 1))
        if plan.parts == 1:
            total = TritonTerm(writer.name("tl.where(total == 0.0, 1.0, total)"), "float32", (rows, 1))
        for k, piece in enumerate(plan.widths):
            at, bounds = self._piece("e", piece, s.width, last=True)
            scope = self.rows.inside(at, *bounds)
            result = TritonTerm(f"sum{k}", "float32", (rows, piece.size))
            if plan.parts > 1:
                store_parts(scope, s, plan.parts, self.part, result, first=k == 0)
            else:
                s.store(scope, writer.words.quotient(result, total))


def _is_read(element: Expr) -> bool:
    """Is it what was read, 0 where nothing was?"""
    while element.op == "cast":
        (element,) = element.args
    return element.op == "load"
