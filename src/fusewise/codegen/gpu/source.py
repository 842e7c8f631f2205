"""Expressions over a task's operands in Triton's language: what is read where, under which mask, and in which integers.

A kernel works on tiles. Every variable of the index space is a term: a scalar, or a tile along one of its axes. Lanes that are no
element are masked, and so are those that a condition leaves out: a load of a branch that is not taken is not performed.

    select(i0 < 3, in0[i0], in1[i0 - 3])

    v1 = i0 < 3
    v2 = b0 & v1                                   b0: the lane is an element
    v3 = tl.load(in0 + (i0), mask=v2, other=0)
    v4 = v1 == False
    v5 = b0 & v4
    v6 = tl.load(in1 + (i0 + (-3)), mask=v5, other=0)
    v7 = tl.where(v1, v3, v6)

Names are never used outside the loop that defines them: Triton's compiler refuses that, its interpreter does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from fusewise.codegen.gpu.kernel import FAULT
from fusewise.codegen.gpu.words import LIBDEVICE, TritonTerm, Words, identity, joined_shape, literal, register_type
from fusewise.codegen.llvm.loops import loop_ranges, offset_of
from fusewise.ir.dtypes import BOOL, FLOAT32, INT64, DType
from fusewise.lower.index import Linear, Simplifier
from fusewise.lower.task import Operand, Store, Task
from fusewise.ops.expr import BINARY, COMPARE, UNARY, Expr, index, substitute_indices, walk
from fusewise.records import record

__all__ = [
    "LaneSharing",
    "Scope",
    "TritonWriter",
    "decoded",
    "goes_over_lanes",
    "in_column",
    "is_int32",
    "reduction_type",
]

_INDEX_WORDS = frozenset("add sub mul neg floordiv floormod min max select".split())
_EARLY = LIBDEVICE | {"sigmoid", "erf", "sqrt", "reduce", "load"}
"""What is computed before a loop that it does not depend on."""


def is_int32(low: int, high: int) -> bool:
    """Does an integer of 32 bits hold everything from the one to the other?"""
    return low >= -(2**31) and high < 2**31


def reduction_type(dtype: DType) -> str:
    """The type that a reduction is computed in."""
    return FLOAT32.name if dtype.is_float and dtype.bits < 32 else register_type(dtype)


@record
class TritonWriter:
    """The text of a kernel of one task, line by line, and what is known of the task's expressions."""

    task: Task
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    names: int = 0
    _free: dict[Expr, frozenset[str]] = field(default_factory=dict)
    _touching: dict[Expr, bool] = field(default_factory=dict)
    _narrow: dict[Expr, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.simplifier = Simplifier(loop_ranges(self.task))
        self.words = Words(self.name, self.put)

    def put(self, text: str, deeper: int = 0) -> None:
        """A line; the next one stands `deeper`."""
        self.lines.append("    " * self.depth + text)
        self.depth += deeper

    def fresh(self) -> str:
        """A name that nothing has."""
        self.names += 1
        return f"v{self.names}"

    def name(self, text: str) -> str:
        """A new name for what `text` computes."""
        found = self.fresh()
        self.put(f"{found} = {text}")
        return found

    def free(self, root: Expr) -> frozenset[str]:
        """The loop variables that a value depends on, those of its own reductions excepted."""
        for node in walk(root, self._free):
            names = frozenset((node.value,)) if node.op == "index" else frozenset[str]()
            names = names.union(*(self._free[a] for a in node.args))
            self._free[node] = names - {n for n, _ in node.value[1]} if node.op == "reduce" else names
        return self._free[root]

    def touches_memory(self, root: Expr) -> bool:
        """Is memory read or written where this is computed?"""
        for node in walk(root, self._touching):
            own = node.op in ("load", "bounded", "reduce")
            self._touching[node] = own or any(self._touching[a] for a in node.args)
        return self._touching[root]

    def is_narrow(self, root: Expr) -> bool:
        """Is it an index that is computed in 32 bits?"""
        for node in walk(root, self._narrow):
            self._narrow[node] = node.dtype == INT64 and self._is_narrow(node)
        return self._narrow[root]

    def _is_narrow(self, node: Expr) -> bool:
        if not is_int32(*self.simplifier.bounds(node)):
            return False
        if node.op in ("const", "index", "bounded"):
            return True
        if node.op == "cast":
            return node.args[0].dtype == BOOL or (node.args[0].dtype.is_integer and node.args[0].dtype.bits < 64)
        return node.op in _INDEX_WORDS and all(self._narrow[a] for a in node.args if a.dtype == INT64)

    def kind(self, node: Expr) -> str:
        """The type of an expression in registers."""
        if node.dtype == INT64:
            return "int32" if self.is_narrow(node) else "int64"
        return register_type(node.dtype)

    def source(self, symbol: str, arguments: Iterable[str]) -> str:
        """The whole function."""
        body = "\n".join(self.lines or ["    pass"])
        return f"@triton.jit\ndef {symbol}({', '.join(arguments)}):\n{body}\n"


@record(frozen=True)
class LaneSharing:
    """How a reduction is computed by all lanes of a tile's last axis together, for each of `rows` rows.

    In chunks of so many lanes; or with a `column` of some `extent`, at one go along the lanes of this variable, which is then what
    the reduction's own variable is called: what it reads is what others read there.
    """

    rows: int
    chunk: int
    column: str = ""
    extent: int = 0

    @property
    def tile(self) -> tuple[int, ...]:
        return (self.chunk,) if self.rows == 1 else (self.rows, self.chunk)

    def along(self, text: str) -> str:
        """Lanes 0, 1, ... as a tile of one row."""
        return f"{text}tl.arange(0, {self.chunk}){'' if self.rows == 1 else '[None, :]'}"


@record
class Scope:
    """A place in a kernel's text where expressions are computed, each once.

    `indices` are the loop variables that are known here; `bounds` the conditions under which a lane is an element, one for an axis
    of the tile at most; `taken` the conditions of the path to here. `known` has what was computed and is in sight. With `lanes`,
    reductions go over these; else each lane makes its own.
    """

    writer: TritonWriter
    indices: Mapping[str, TritonTerm]
    bounds: tuple[TritonTerm, ...] = ()
    taken: TritonTerm | None = None
    known: dict[Expr, TritonTerm] = field(default_factory=dict)
    lanes: LaneSharing | None = None

    @property
    def words(self) -> Words:
        return self.writer.words

    # --- scopes --------------------------------------------------------------------------------------------------

    def under(self, condition: TritonTerm) -> Scope:
        """Where a condition holds, too."""
        conditions = [condition] if self.taken is None else [self.taken, condition]
        return Scope(self.writer, self.indices, self.bounds, self.words.every(conditions), dict(self.known))

    def inside(self, indices: Mapping[str, TritonTerm], *bounds: TritonTerm) -> Scope:
        """Inside a loop, or on a larger tile: with more variables and bounds. What depends on others so called is unknown."""
        known = dict(self.known)
        if again := set(indices) & set(self.indices):
            known = {e: term for e, term in known.items() if not self.writer.free(e) & again}
        return Scope(self.writer, {**self.indices, **indices}, (*self.bounds, *bounds), self.taken, known)

    def over(self, lanes: LaneSharing) -> Scope:
        """The same place, where reductions go over lanes."""
        return replace(self, lanes=lanes)

    def mask(self, shape: tuple[int, ...]) -> tuple[TritonTerm | None, tuple[int, ...]]:
        """What must hold where memory is touched by lanes of this shape, and the shape that this takes."""
        if self.taken is not None:
            shape = joined_shape((shape, self.taken.shape))
        bounds = [b for b in self.bounds if shape and joined_shape((shape, b.shape)) == shape]
        return self.words.every([*bounds, *([] if self.taken is None else [self.taken])]), shape

    # --- values --------------------------------------------------------------------------------------------------

    def value(self, root: Expr) -> TritonTerm:
        """The value here; parts of it that are known already are not computed again."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self.known:
                stack.pop()
                continue
            first = node.args[:1] if node.op == "select" else () if node.op in ("load", "reduce") else node.args
            missing = [arg for arg in first if arg not in self.known]
            if missing:
                stack.extend(missing)
            else:
                self.known[stack.pop()] = self._made(node)
        return self.known[root]

    def _made(self, node: Expr) -> TritonTerm:
        words, kind, op = self.words, self.writer.kind(node), node.op
        if op == "const":
            return words.constant(node.value, kind)
        if op == "index":
            return words.to(self.indices[node.value], kind)
        if op == "load":
            return self._load(node)
        if op == "select":
            return self._select(node)
        if op == "reduce":
            return self._reduced(node)
        args = [self.known[arg] for arg in node.args]
        source = node.args[0].dtype
        if op == "bounded":
            return self._bounded(node, args[0])
        if op == "cast":
            return words.cast(args[0], source, kind, node.dtype)
        if op == "bits":
            return words.bits(words.to(args[0], "int64") if source == INT64 else args[0], source, kind, node.dtype)
        if source == INT64:
            narrow = kind == "int32" or (op not in BINARY | UNARY and all(a.type == "int32" for a in args))
            args = [words.to(a, "int32" if narrow else "int64") for a in args]
        if op in COMPARE:
            return words.compare(op, args[0], args[1])
        if op in UNARY:
            return words.unary(op, args[0], source)
        if op in ("floordiv", "floormod") and kind == "int32":
            (low, _), (least, _) = (self.writer.simplifier.bounds(a) for a in node.args)
            return words.divided(op, args[0], args[1], natural=low >= 0 and least > 0)
        assert op in BINARY, op
        return words.binary(op, args[0], args[1], source)

    def _select(self, node: Expr) -> TritonTerm:
        words, kind = self.words, self.writer.kind(node)
        condition = self.known[node.args[0]]
        branches = []
        for branch, holds in zip(node.args[1:], (True, False), strict=True):
            if not self.writer.touches_memory(branch):
                branches.append(words.to(self.value(branch), kind))
                continue
            way = condition if holds else words.unary("not", condition, BOOL)
            branches.append(words.to(self.under(way).value(branch), kind))
        return words.where(condition, *branches)

    # --- memory --------------------------------------------------------------------------------------------------

    def _offset(self, form: Linear) -> TritonTerm:
        """Where an element lies, in elements from where the argument points; in 32 bits if that holds all of them."""
        words = self.words
        kind = "int32" if is_int32(*self.writer.simplifier.range_of(form)) else "int64"
        texts, terms = [], []
        for atom, step in form.terms:
            term = words.to(self.value(atom), kind)
            terms.append(term)
            factor = words.constant(step, kind)
            texts.append(words.typed(term) if step == 1 else f"{words.typed(term)} * {self._literal(factor)}")
        if not terms:
            return words.constant(form.constant, kind)
        if form.constant:
            texts.append(self._literal(words.constant(form.constant, kind)))
        return TritonTerm(" + ".join(texts), kind, joined_shape(t.shape for t in terms))

    def _literal(self, x: TritonTerm) -> str:
        """An integer beside a term of its type."""
        return x.text if x.number is not None and is_int32(int(x.number), int(x.number)) else self.words.typed(x)

    def _load(self, node: Expr) -> TritonTerm:
        """An element that is read once, however its place is written."""
        operand, simplifier = self.writer.task.operand(node.value), self.writer.simplifier
        if 0 in operand.shape:
            for place in node.args:
                if self.writer.touches_memory(place):  # what is wrong with it is reported
                    self.value(place)
            return self.words.constant(0, register_type(operand.dtype))
        form = offset_of(simplifier, operand, node.args)
        terms = tuple(sorted(form.terms, key=repr))
        place = simplifier.expression(Linear(form.constant, terms))
        one = Expr("load", node.dtype, (place,), (node.value,))
        if one not in self.known:
            self.known[one] = self._read(operand, form)
        return self.known[one]

    def _read(self, operand: Operand, form: Linear) -> TritonTerm:
        kind = register_type(operand.dtype)
        offset = self._offset(form)
        mask, shape = self.mask(offset.shape)
        pointer = f"{operand.name} + ({offset.text if shape == offset.shape else self.words.spread(offset, shape)})"
        masked = "" if mask is None else f", mask={mask.text}, other=0"
        found = TritonTerm(
            self.writer.name(f"tl.load({pointer}{masked})"), "int8" if operand.dtype == BOOL else kind, shape
        )
        if operand.dtype == BOOL:
            return self.words.compare("ne", found, self.words.constant(0, "int8"))
        return self.words.wrapped(found, operand.dtype)

    def store(self, store: Store, word: str = "store", how: str = "") -> None:
        """Compute one store's value and write it, in the lanes that are elements; by an atomic operation where `word` is one, `how`
        that is ordered."""
        words, operand = self.words, self.writer.task.operand(store.operand)
        value = self.value(store.value)
        if operand.dtype == BOOL:
            value = TritonTerm(f"{words.typed(value)}.to(tl.int8)", "int8", value.shape)
        elif operand.dtype == INT64:
            value = words.to(value, "int64")
        offset = self._offset(offset_of(self.writer.simplifier, operand, store.index))
        mask, shape = self.mask(joined_shape((offset.shape, value.shape)))
        place = offset.text if shape == offset.shape else words.spread(offset, shape)
        masked = "" if mask is None else f", mask={mask.text}"
        written = words.typed(value) if not shape or value.shape == shape else words.spread(value, shape)
        self.writer.put(f"tl.{word}({operand.name} + ({place}), {written}{masked}{how})")

    def _bounded(self, node: Expr, position: TritonTerm) -> TritonTerm:
        """A position from data: `low` where it is out of bounds, which is reported to the words of its site in `fault`."""
        words = self.words
        low, high, site = node.value
        text = words.typed(position)
        if high < low:
            outside = TritonTerm(words.spread(words.constant(True, "int1"), position.shape), "int1", position.shape)
        else:
            outside = words.term(f"({text} < {literal(low)}) | ({text} > {literal(high)})", "int1", position)
        mask, shape = self.mask(position.shape)
        wrong = words.every([outside] if mask is None else [outside, mask])
        assert wrong is not None
        for word, value in ((2 * site, "1"), (2 * site + 1, words.spread(words.to(position, "int64"), shape))):
            where = words.spread(words.constant(word, "int32"), shape) if shape else str(word)
            self.writer.put(
                f"tl.store({FAULT} + {where}, {value}, mask={words.spread(wrong, shape) if shape else wrong.text})"
            )
        kept = words.where(outside, words.constant(low, position.type), position)
        return words.to(kept, self.writer.kind(node))

    # --- reductions ----------------------------------------------------------------------------------------------

    def prepare(self, body: Expr, axes: Iterable[str]) -> None:
        """Compute reductions, loads, functions that certainly stand in the body of a loop over `axes` and do not depend on it."""
        seen = set[tuple[Expr, frozenset[str]]]()
        stack, found = [(body, frozenset(axes))], list[Expr]()
        while stack:
            node, bound = stack.pop()
            if (node, bound) in seen or node in self.known:
                continue
            seen.add((node, bound))
            free = self.writer.free(node)
            if node.op in _EARLY and not free & bound and free <= self.indices.keys():
                found.append(node)
                continue
            if node.op == "reduce":
                if any(extent == 0 for _, extent in node.value[1]):
                    continue
                bound |= {name for name, _ in node.value[1]}
            stack += [(arg, bound) for arg in (node.args[:1] if node.op == "select" else node.args)]
        for node in reversed(found):
            self.value(node)

    def _reduced(self, node: Expr) -> TritonTerm:
        kind, axes = node.value
        if any(extent == 0 for _, extent in axes):
            return self.words.constant(identity(kind, node.dtype), self.writer.kind(node))
        if self.lanes is None or not goes_over_lanes(node):
            return self._looped(node)
        if not self.lanes.column:
            return self._rounded(self._in_chunks(node, self.lanes), node)
        if [n for _, n in axes] != [self.lanes.extent] or self.lanes.column in self.writer.free(node):
            return self._looped(node)
        body = self.words.to(self.value(in_column(node, self.lanes.column)), reduction_type(node.dtype))
        bound = next((b for b in self.bounds if b.shape and b.shape[-1] == self.lanes.chunk), None)
        return self._rounded(self._over_lanes(node, self._filled(node, body, bound), self.lanes), node)

    def _looped(self, node: Expr) -> TritonTerm:
        """A reduction by each lane for itself, one step after the other."""
        writer, words = self.writer, self.words
        kind, axes = node.value
        computed = reduction_type(node.dtype)
        neutral = words.constant(identity(kind, node.dtype), computed)
        self.prepare(node.args[0], [name for name, _ in axes])
        result, start, depth = writer.fresh(), len(writer.lines), writer.depth
        indices: dict[str, TritonTerm] = {}
        for name, extent in axes:
            if extent == 1:
                indices[name] = words.constant(0, "int32")
                continue
            step = writer.fresh()
            writer.put(f"for {step} in range({extent}):", 1)
            indices[name] = TritonTerm(writer.name(f"tl.full([], 0, tl.int32) + {step}"), "int32")
        body = words.to(self.inside(indices).value(node.args[0]), computed)
        shape = body.shape
        combined = words.combine(
            kind, TritonTerm(result, computed, shape), TritonTerm(words.typed(body), computed, shape), node.dtype
        )
        writer.put(f"{result} = {combined.text}")
        before = f"{result} = {words.spread(neutral, shape) if shape else words.typed(neutral)}"
        writer.lines.insert(start, "    " * depth + before)
        writer.depth = depth
        return self._rounded(TritonTerm(result, computed, shape), node)

    def _in_chunks(self, node: Expr, lanes: LaneSharing) -> TritonTerm:
        """A reduction by all lanes, each of which takes every `chunk`-th step; then over the lanes."""
        writer, words = self.writer, self.words
        kind, axes = node.value
        total, depth = math.prod(extent for _, extent in axes), writer.depth
        computed = reduction_type(node.dtype)
        self.prepare(node.args[0], [name for name, _ in axes])
        several = total > lanes.chunk
        if several:
            neutral = words.constant(identity(kind, node.dtype), computed)
            result, start = writer.name(words.spread(neutral, lanes.tile)), writer.fresh()
            writer.put(f"for {start} in range(0, {total}, {lanes.chunk}):", 1)
        shape = lanes.tile if lanes.rows == 1 else (1, lanes.chunk)
        step = TritonTerm(writer.name(lanes.along(f"{start} + " if several else "")), "int32", shape)
        bounds = [words.term(f"{step.text} < {total}", "int1", step)] if total % lanes.chunk else []
        inner = self.inside(decoded(writer, step, axes), *bounds)
        body = words.to(inner.value(node.args[0]), computed)
        body = self._filled(node, body, bounds[0] if bounds else None)
        if several:
            whole = TritonTerm(words.spread(body, lanes.tile), computed, lanes.tile)
            combined = words.combine(kind, TritonTerm(result, computed, lanes.tile), whole, node.dtype)
            writer.put(f"{result} = {combined.text}")
            body, writer.depth = TritonTerm(result, computed, lanes.tile), depth
        return self._over_lanes(node, body, lanes)

    def _filled(self, node: Expr, body: TritonTerm, bound: TritonTerm | None) -> TritonTerm:
        """A reduction's elements, and what changes nothing in lanes that have none."""
        if bound is None:
            return body
        neutral = self.words.constant(identity(node.value[0], node.dtype), body.type)
        return self.words.where(bound, TritonTerm(self.words.typed(body), body.type, body.shape), neutral)

    def _over_lanes(self, node: Expr, x: TritonTerm, lanes: LaneSharing) -> TritonTerm:
        """One number for each row; NaN wins in minima and maxima."""
        kind, words, axis = node.value[0], self.words, len(lanes.tile) - 1
        rows = () if lanes.rows == 1 else (lanes.rows, 1)
        column = "[:, None]" if rows else ""
        text = words.spread(x, lanes.tile)
        if x.type == "int1":
            word = "min" if kind in ("prod", "and", "min") else "max"
            return TritonTerm(words.name(f"tl.{word}(({text}).to(tl.int32), {axis}){column} != 0"), "int1", rows)
        found = words.name(f"tl.{kind}({text}, {axis}){column}.to(tl.{x.type})")
        if kind != "sum" and node.dtype.is_float:
            whole = words.name(text)
            wrong = words.name(f"tl.max(({whole} != {whole}).to(tl.int32), {axis}){column} != 0")
            found = words.name(f'tl.where({wrong}, float("nan"), {found})')
        return TritonTerm(found, x.type, rows)

    def _rounded(self, x: TritonTerm, node: Expr) -> TritonTerm:
        """The result of a reduction, from the type that it was computed in."""
        kind = self.writer.kind(node)
        return x if x.type == kind else self.words.term(f"{self.words.typed(x)}.to(tl.{kind})", kind, x)


def goes_over_lanes(node: Expr) -> bool:
    """Is there a word for the reduction over a tile's lanes?"""
    return node.dtype == BOOL or node.value[0] in ("sum", "min", "max")


def in_column(node: Expr, column: str) -> Expr:
    """The body of a reduction over one variable, which is called `column`."""
    ((name, _),) = node.value[1]
    return substitute_indices(node.args[0], {name: index(column)})


def decoded(writer: TritonWriter, flat: TritonTerm, axes: Sequence[tuple[str, int]]) -> dict[str, TritonTerm]:
    """The variables of some axes, from the number of an element in their order."""
    found: dict[str, TritonTerm] = {}
    rest = flat
    for position, (name, extent) in reversed(list(enumerate(axes))):
        if extent == 1:
            found[name] = TritonTerm("0", flat.type, (), 0)
        elif all(n == 1 for _, n in axes[:position]):
            found[name] = rest
        else:
            found[name] = writer.words.term(f"{rest.text} % {extent}", flat.type, flat)
            rest = writer.words.term(f"{rest.text} // {extent}", flat.type, flat)
    return found
