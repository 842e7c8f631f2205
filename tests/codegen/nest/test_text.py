"""Programs of kernels are printed, and read back as they were."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codegen.nest.programs import ROWS, TASK, TEXT
from tests.codegen.subjects import UNIT_KERNELS, ways_of_all_kernels
from tests.codegen.ways import program_of

from fusewise.codegen.candidates import KERNELS, PLAIN_KERNELS
from fusewise.codegen.instructions.table import INSTRUCTIONS
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.parse import parsed
from fusewise.codegen.nest.spelling import literal
from fusewise.codegen.nest.text import printed
from fusewise.codegen.nest.tile import Accumulate, Ahead, Difference, Meanwhile, Panel, Reduction, ReductionLoop, Tile
from fusewise.codegen.nest.tree import (
    Block,
    For,
    Int,
    NestNode,
    Operation,
    Repeat,
    Stage,
    StoreAccumulator,
    Value,
    When,
    vector,
)
from fusewise.codegen.target import TARGETS, Target
from fusewise.errors import UsageError
from fusewise.ir.dtypes import BFLOAT16, FLOAT32
from fusewise.lower.task import Task


def _of_blocks(nodes: Block) -> Iterator[NestNode]:
    for node in nodes:
        yield node
        for name in ("body", "then", "otherwise", "first"):
            yield from _of_blocks(getattr(node, name, ()))


def tasks_in(module: Module) -> dict[str, Task]:
    nodes = (node for function in module.functions for node in _of_blocks(function.body))
    return {node.task.digest: node.task for node in nodes if isinstance(node, StoreAccumulator)}


@cache
def kernels(target: Target) -> Mapping[str, Sequence[Module]]:
    """Programs of all kernels that run on a machine, by the kernel's name."""
    found: dict[str, list[Module]] = {}
    for way in ways_of_all_kernels(target, workers=2, tasks=1, schedules=1):
        found.setdefault(way.kernel.name, []).append(program_of(way, target.instructions, "k"))
    return found


def test_a_kernel_of_every_kind_of_node_is_read_and_printed() -> None:
    module = parsed(TEXT, {"task": TASK}, ROWS)
    assert printed(module) == TEXT.replace("#task", f"#{TASK.digest}")
    loop = module.functions[0].body[1]
    assert isinstance(loop, For)
    assert (loop.high, loop.step, loop.rolled) == (Value("%a1", "i64"), 2, True)
    fused = loop.body[-1]
    assert isinstance(fused, Operation)
    assert fused.operands[1] == Value(f"splat (float {literal(0.1, 'float')})", "<4 x float>")


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_kernels_are_read_back_as_they_were(target: Target) -> None:
    for name, modules in kernels(target).items():
        for module in modules:
            assert parsed(printed(module), tasks_in(module), ROWS).contents == module.contents, name


def test_every_kernel_is_looked_at() -> None:
    known = {kernel.name for row in (*KERNELS.values(), PLAIN_KERNELS) for kernel in row}
    units = {kernel.name for kernel in UNIT_KERNELS}
    assert set().union(*(kernels(target).keys() for target in TARGETS)) == known - units


def test_what_is_read_back_is_written_as_the_same_text() -> None:
    target = TARGETS[0]
    for modules in kernels(target).values():
        again = parsed(printed(modules[0]), tasks_in(modules[0]), ROWS)
        assert llvm_text(again, target.instructions) == llvm_text(modules[0], target.instructions)


@pytest.mark.parametrize(
    "change, complaint",
    [
        (("step 2", "step"), "line 5 .*expected a number"),
        (("next %v8", "next %v99"), "line 11 .*%v99 has no type"),
        (("#task", "#other"), "line 35 .*'other' is no task"),
        (("accumulate fma", "accumulate ruler"), "line 28 .*'ruler' is no instruction"),
        (("  ret()\n}\n", "  ret()\n"), "line 36 .*a block has no end"),
        (("%v13: i64 =", "%v13: i64, %v17: i64 ="), "line 20 .*one result"),
        (("lanes 0 .. 3", "lanes ?"), "line 9 .*expected"),
    ],
)
def test_what_cannot_be_read_is_named(change: tuple[str, str], complaint: str) -> None:
    assert TEXT.count(change[0]) == 1
    with pytest.raises(UsageError, match=complaint):
        parsed(TEXT.replace(*change), {"task": TASK}, ROWS)


def test_long_tables_may_be_left_out() -> None:
    module = Module()
    module.table("long", "i64", range(20))
    module.table("short", "i8", b"ab")
    assert printed(module, longest=16) == 'table @long: i64 = 20 elements\ntable @short: i8 = bytes "6162"\n\n'[:-1]


# --- odd trees --------------------------------------------------------------------------------------------------------

ELEMENTS = ("i1", "i8", "i64", "i128", "half", "bfloat", "float", "double", "ptr")

NUMBERS = st.floats() | st.sampled_from([0.0, -0.0, 1.0, 0.1, 1e30, math.inf, -math.inf, math.nan])


@st.composite
def constants(draw: st.DrawFn, kind: str) -> Value:
    """A number, one for every lane, or what nobody spells so."""
    element = Value("", kind).element

    def number() -> str:
        odd = st.sampled_from(["null", "0x7FF0000000000001", "0xFFF8000000000000", 'a "b" \\', "", "1.5", "inf"])
        if element == "ptr" or draw(st.integers(0, 9)) == 0:
            return draw(odd)
        return literal(draw(st.integers(-(2**70), 2**70) if element.startswith("i") else NUMBERS), element)

    if kind == element:
        return Value(number(), kind)
    lanes = ", ".join(f"{element} {number()}" for _ in range(Value("", kind).lanes))
    choice = draw(st.sampled_from([f"splat ({element} {number()})", f"<{lanes}>", "poison", "zeroinitializer", "5"]))
    return Value(choice, kind)


class Odd:
    """Trees of any shape: names are new where they are defined, and anything where they are used."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.numbers = count(1)
        self.known = [Value("%a0", "ptr"), Value("@table", "ptr")]

    def kind(self) -> str:
        return vector(self.draw(st.sampled_from(ELEMENTS)), self.draw(st.sampled_from([1, 1, 2, 4])))

    def new(self, kind: str | None = None) -> Value:
        value = Value(f"%v{next(self.numbers)}", kind or self.kind())
        self.known.append(value)
        return value

    def used(self) -> Value:
        which = self.draw(st.integers(0, 9))
        if which > 3:
            return self.draw(st.sampled_from(self.known))
        return Value("%elsewhere", self.kind()) if which == 0 else self.draw(constants(self.kind()))

    def integer(self) -> Int:
        return self.draw(st.integers(-9, 99)) if self.draw(st.booleans()) else self.used()

    def several(self, make: Any, least: int = 0, most: int = 3) -> tuple[Any, ...]:
        return tuple(make() for _ in range(self.draw(st.integers(least, most))))

    def block(self, depth: int) -> Block:
        return self.several(lambda: self.node(depth))

    def node(self, depth: int) -> NestNode:
        leaves = [self.operation, self.results]
        others = [self.loop, self.when, self.repeat, self.stage, self.accumulate]
        which = self.draw(st.integers(0, len(leaves) + (len(others) if depth else 0) - 1))
        return leaves[which]() if which < len(leaves) else others[which - len(leaves)](depth - 1)

    def operation(self) -> Operation:
        opcode = self.draw(
            st.sampled_from(["fadd", "add nsw", "load", "llvm.vector.reduce.or", "shufflevector", "call"])
        )
        result = self.new() if self.draw(st.booleans()) else None
        word = st.sampled_from(["float", "<4 x float>", "f.g", "a-b", "inf", "7", "", "step"])
        detail = self.draw(st.lists(st.integers(-2, 40) | word, max_size=4) | st.just([3, 4, 5]) | st.just([1, 2]))
        return Operation(opcode, result, self.several(self.used), tuple(detail))

    def results(self) -> StoreAccumulator:
        indices = tuple((f"i{k}", self.integer()) for k in range(self.draw(st.integers(0, 3))))
        return StoreAccumulator(TASK, {"out0": self.used(), "a b": self.used()}, indices, "i1", self.used(), 3)

    def carried(self) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        starts = self.several(self.used)
        return starts, tuple(self.new(start.type) for start in starts)

    def loop(self, depth: int) -> For:
        carried, inside = self.carried()
        counter = self.new(self.draw(st.sampled_from(["i64", "i32"])))
        body = self.block(depth)
        after, results = self.several(self.used), self.several(self.new)
        rolled = self.draw(st.booleans())
        return For(counter, self.integer(), self.integer(), 3, carried, inside, body, after, results, rolled)

    def when(self, depth: int) -> When:
        then, otherwise = ((self.block(depth), self.several(self.used)) for _ in range(2))
        return When(self.used(), *then, *otherwise, self.several(self.new), self.draw(st.booleans()))

    def repeat(self, depth: int) -> Repeat:
        carried, inside = self.carried()
        return Repeat(carried, inside, self.block(depth), self.used(), self.block(depth), self.several(self.used))

    def stage(self, depth: int) -> Stage:
        return Stage(self.used(), self.integer(), self.block(depth))

    def level(self) -> ReductionLoop:
        high, phases = self.perhaps(self.integer), self.draw(st.sampled_from(((1, 0), (2, 7))))
        return ReductionLoop(4, 5, self.integer(), high, *phases)

    def perhaps(self, make: Any) -> Any:
        return make() if self.draw(st.booleans()) else None

    def accumulate(self, depth: int) -> Accumulate:
        dtypes = st.sampled_from([FLOAT32, BFLOAT16, ROWS["dpbf16"].lane])
        minus = self.perhaps(lambda: Difference(self.used(), self.used()))
        dtype = self.perhaps(lambda: self.draw(dtypes))
        panel = Panel(self.several(self.used, 1), 7, dtype, self.perhaps(self.used), minus)
        reduction = Reduction(
            self.several(self.used, 1),
            panel,
            self.several(self.level),
            self.draw(dtypes),
            self.draw(st.sampled_from([1, 2])),
            self.several(lambda: Ahead(self.used(), 15, 2)),
            self.perhaps(lambda: Meanwhile(2, self.new(), self.block(depth), self.used())),
        )
        tile = Tile(2, 3, 4, self.draw(st.sampled_from(INSTRUCTIONS)))
        return Accumulate(tile, reduction, self.several(self.used, 1), self.several(self.new))


@st.composite
def odd_modules(draw: st.DrawFn) -> Module:
    module = Module()
    numbers: Iterable[int | float] = draw(st.lists(st.integers() | st.floats(allow_nan=False), max_size=4))
    module.table("table", "double", tuple(numbers))
    module.table("bytes", "i8", draw(st.binary(max_size=4)))
    for k in range(draw(st.integers(0, 2))):
        kinds = draw(
            st.lists(st.sampled_from(["ptr", "ptr noalias", "ptr align(8) nonnull", "<4 x float>"]), max_size=3)
        )
        name = draw(st.sampled_from(["k", "k.body", "a-b"])) + str(k)
        how = draw(st.sampled_from([("void", "", ""), ("<2 x i1>", 'a="b" c', "internal"), ("float", "hides", "")]))
        function = module.function(name, kinds, *how)
        function.hides_counters = draw(st.booleans())
        function.include(Odd(draw).block(2))
    return module


@given(odd_modules())
@settings(deadline=None, max_examples=60)
def test_odd_trees_are_read_back_as_they_were(module: Module) -> None:
    text = printed(module)
    again = parsed(text, {TASK.digest: TASK}, ROWS)
    assert again.contents == module.contents
    assert printed(again) == text
