"""Checks the program of a kernel against its own rules. Takes a module, gives nothing, or raises `BrokenKernel` that says where.

Every value is defined once, before it is used and in a block around its use; operands have the types that `nest.rules` asks for;
what blocks carry and give has the types it is taken up with; a function returns at its end, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from fusewise.codegen.nest.build import Function, Module
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.rules import broken_rule, constant_fits, is_type
from fusewise.codegen.nest.spelling import bare, size_name
from fusewise.codegen.nest.tile import Accumulate, AccumulateTiles, Meanwhile, Reduction, ReductionLoop, Tile, WithTiles
from fusewise.codegen.nest.tree import (
    For,
    Int,
    NestNode,
    Operation,
    Repeat,
    Stage,
    StoreAccumulator,
    Table,
    Value,
    When,
)
from fusewise.errors import BrokenKernel

__all__ = ["verify"]


def verify(module: Module) -> None:
    """Raise `BrokenKernel` unless the program of a kernel keeps the rules. One pass over its nodes."""
    functions: dict[str, Function] = {}
    for function in module.functions:
        if function.name in functions:
            raise BrokenKernel(f"function {function.name!r} is defined twice")
        functions[function.name] = function
    tables: set[str] = set()
    for table in module.tables:
        if table.name in tables or table.name in functions:
            raise BrokenKernel(f"table {table.name!r} is defined twice")
        if not _holds(table):
            raise BrokenKernel(f"table {table.name!r} holds something else than {table.element}")
        tables.add(table.name)
    symbols = tables | functions.keys()
    for function in module.functions:
        _Checked(function, functions, symbols).function()


def _holds(table: Table) -> bool:
    if isinstance(table.values, bytes):
        return table.element == "i8"
    return is_type(table.element) and all(isinstance(v, int) or not table.element.startswith("i") for v in table.values)


class _Checked:
    """One function. `scope` has the types of the values that may be used where the check stands."""

    def __init__(self, function: Function, functions: Mapping[str, Function], symbols: set[str]) -> None:
        self._function = function
        self._functions = functions
        self._symbols = symbols
        self._scope: dict[str, str] = {}
        self._gone: set[str] = set()
        self._unit: Instruction | None = None

    def function(self) -> None:
        function = self._function
        for argument, kind in zip(function.arguments, function.kinds, strict=True):
            if not is_type(bare(kind)):
                raise self._fault("argument", f"of type {kind}, which is none")
            self._define(argument, "argument")
        for number in range(len(function.module.sizes) if function.sizes_at is not None else 0):
            self._define(Value(size_name(number), "i64"), "size")
        *body, last = function.body or (None,)
        if not isinstance(last, Operation) or last.opcode != "ret":
            raise self._fault("the end", "does not return")
        self._block(tuple(one for one in body if one is not None))
        for value in last.operands:
            self._use(value, "ret")
        given = [value.type for value in last.operands] or ["void"]
        if given != [function.result]:
            raise self._fault("ret", f"gives {', '.join(given)}, not {function.result}")

    # --- values ---------------------------------------------------------------------------------------------------

    def _fault(self, where: str, what: str) -> BrokenKernel:
        return BrokenKernel(f"function {self._function.name!r}: {where} {what}")

    def _define(self, value: Value, where: str) -> None:
        if not re.fullmatch(r"%[\w.$-]+", value.text):
            raise self._fault(where, f"gives its result the name {value.text!r}")
        if not is_type(value.type):
            raise self._fault(where, f"gives {value.text} the type {value.type!r}, which is none")
        if value.text in self._scope or value.text in self._gone:
            raise self._fault(where, f"defines {value.text}, which is defined before it")
        self._scope[value.text] = value.type

    def _use(self, value: Value, where: str) -> None:
        text, kind = value.text, value.type
        if text.startswith("%"):
            found = self._scope.get(text)
            if found is None:
                why = "which is another block's" if text in self._gone else "which nothing before it defines"
                raise self._fault(where, f"uses {text}, {why}")
            if found != kind:
                raise self._fault(where, f"uses {text} as {kind}, which is {found}")
        elif text.startswith("@"):
            if kind != "ptr" or text[1:] not in self._symbols:
                raise self._fault(where, f"uses {value}, which is no table nor function")
        elif not is_type(kind) or not constant_fits(text, kind):
            raise self._fault(where, f"uses {value}, which is no constant")

    def _typed(self, value: Int, kind: str, where: str, what: str) -> None:
        """Use a value as something that has a type."""
        if isinstance(value, int):
            return
        self._use(value, where)
        if value.type != kind:
            raise self._fault(where, f"has {what} of type {value.type}, not {kind}")

    def _alike(self, values: Sequence[Value], others: Sequence[Value], where: str, what: str) -> None:
        kinds, wanted = ([value.type for value in each] for each in (values, others))
        if kinds != wanted:
            raise self._fault(where, f"{what}: ({', '.join(kinds)}) and ({', '.join(wanted)})")

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """What is defined meanwhile is used meanwhile alone."""
        before = len(self._scope)
        yield
        for name in list(self._scope)[before:]:
            del self._scope[name]
            self._gone.add(name)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _block(self, nodes: Iterable[NestNode]) -> None:
        for node in nodes:
            if isinstance(node, Operation):
                self._operation(node)
            elif isinstance(node, For):
                self._loop(node)
            elif isinstance(node, When):
                self._when(node)
            elif isinstance(node, Repeat):
                self._repeat(node)
            elif isinstance(node, Stage):
                self._stage(node)
            elif isinstance(node, Accumulate):
                self._accumulate(node)
            elif isinstance(node, AccumulateTiles):
                self._accumulate_tiles(node)
            elif isinstance(node, WithTiles):
                self._with_tiles(node)
            elif isinstance(node, StoreAccumulator):
                self._results(node)
            else:
                raise self._fault(repr(node), "is no node")

    def _operation(self, node: Operation) -> None:
        where = node.opcode if node.result is None else f"{node.result.text} = {node.opcode}"
        for operand in node.operands:
            self._use(operand, where)
        broken = broken_rule(node)
        if broken is not None:
            raise self._fault(where, broken)
        if node.opcode == "ret":
            raise self._fault(where, "stands before the end")
        if node.opcode in ("call", "intrinsic"):
            self._call(node, where)
        if node.result is not None:
            self._define(node.result, where)

    def _call(self, node: Operation, where: str) -> None:
        """Functions of the process and LLVM's own take what they take."""
        if len(node.detail) != 1 or not isinstance(node.detail[0], str):
            raise self._fault(where, "needs the name of a function")
        called = self._functions.get(node.detail[0])
        if called is None:
            return
        self._alike(node.operands, called.arguments, where, f"gives {called.name!r} what it does not take")
        result = "void" if node.result is None else node.result.type
        if result != called.result:
            raise self._fault(where, f"takes {result} from {called.name!r}, which gives {called.result}")

    def _loop(self, node: For) -> None:
        where = f"the loop over {node.counter.text}"
        if node.step < 1:
            raise self._fault(where, f"has the step {node.step}")
        for bound in (node.low, node.high):
            self._typed(bound, "i64", where, "a bound")
        if isinstance(node.low, int) and isinstance(node.high, int) and node.low >= node.high:
            raise self._fault(where, "never runs")
        for value in node.carried:
            self._use(value, where)
        for values, called in ((node.inside, "carries"), (node.after, "goes on with"), (node.results, "ends with")):
            self._alike(values, node.carried, where, f"{called} what it does not begin with")
        with self._inside():
            self._define(node.counter, where)
            if node.counter.type != "i64":
                raise self._fault(where, f"counts in {node.counter.type}")
            for value in node.inside:
                self._define(value, where)
            self._block(node.body)
            for value in node.after:
                self._use(value, f"the end of {where}")
        for value in node.results:
            self._define(value, where)

    def _when(self, node: When) -> None:
        where = f"if {node.condition.text}"
        self._typed(node.condition, "i1", where, "a condition")
        for block, values in ((node.then, node.then_values), (node.otherwise, node.otherwise_values)):
            self._alike(values, node.results, where, "gives what is not taken")
            with self._inside():
                self._block(block)
                for value in values:
                    self._use(value, f"the end of {where}")
        for value in node.results:
            self._define(value, where)

    def _repeat(self, node: Repeat) -> None:
        """What it carries is known behind it, too."""
        where = f"the loop while {node.condition.text}"
        for value in node.carried:
            self._use(value, where)
        for values, called in ((node.inside, "carries"), (node.after, "goes on with")):
            self._alike(values, node.carried, where, f"{called} what it does not begin with")
        for value in node.inside:
            self._define(value, where)
        with self._inside():
            self._block(node.first)
            self._typed(node.condition, "i1", where, "a condition")
            self._block(node.body)
            for value in node.after:
                self._use(value, f"the end of {where}")

    def _stage(self, node: Stage) -> None:
        where = f"the stage of {node.unit if isinstance(node.unit, int) else node.unit.text}"
        self._typed(node.tag, "ptr", where, "a tag")
        self._typed(node.unit, "i64", where, "a unit")
        with self._inside():
            self._block(node.body)

    def _results(self, node: StoreAccumulator) -> None:
        where = f"store of {', '.join(store.operand for store in node.task.stores)}"
        for operand in node.task.operands:
            pointer = node.pointers.get(operand.name)
            if pointer is None:
                raise self._fault(where, f"has no pointer to {operand.name}")
            self._typed(pointer, "ptr", where, f"a pointer to {operand.name}")
        for axis, index in node.indices:
            self._typed(index, "i64", where, f"an index along {axis}")
        self._use(node.value, where)
        if not 0 < node.count <= node.value.lanes:
            raise self._fault(where, f"has {node.count} of {node.value.lanes} lanes")

    # --- the register tile ----------------------------------------------------------------------------------------

    def _accumulate(self, node: Accumulate) -> None:
        tile, reduction, instruction = node.tile, node.reduction, node.tile.instruction
        where = f"accumulate {tile.rows} x {tile.vectors} x {tile.lanes}"
        for value in node.start:
            self._use(value, where)
        wanted = [Value("", tile.kind)] * (tile.rows * tile.vectors)
        self._alike(node.start, wanted, where, "begins with what are not its accumulators")
        self._alike(node.results, wanted, where, "ends with what are not its accumulators")
        if len(reduction.rows) != tile.rows:
            raise self._fault(where, f"has {len(reduction.rows)} rows")
        self._made_of(tile, where)
        if instruction.matrix is not None:
            raise self._fault(where, f"has sums in registers, where {instruction.name} has them in memory")
        if len(reduction.panel.columns) != tile.vectors:
            raise self._fault(where, f"has {len(reduction.panel.columns)} vectors of columns")
        self._addresses(reduction, where)
        self._levels(reduction.levels, where)
        if any(level.phases != 1 for level in reduction.levels):
            raise self._fault(where, "has steps in phases, which are of sums in memory")
        is_single = tile.vectors == instruction.rows == 1
        if reduction.together > 1 and (not is_single or tile.lanes % reduction.together):
            raise self._fault(where, f"does not fall into {reduction.together} groups")
        if reduction.meanwhile is not None:
            self._meanwhile(reduction, reduction.meanwhile, where)
        for value in node.results:
            self._define(value, where)

    def _addresses(self, reduction: Reduction, where: str) -> None:
        panel = reduction.panel
        others = [] if panel.minus is None else [panel.minus.other, panel.minus.made]
        others += [] if panel.following is None else [panel.following]
        for what, values in (
            ("a row", reduction.rows),
            ("columns", panel.columns),
            ("a place", [*others, *(one.start for one in reduction.ahead)]),
        ):
            for value in values:
                self._typed(value, "ptr", where, what)

    def _made_of(self, tile: Tile, where: str) -> None:
        instruction = tile.instruction
        if tile.rows % instruction.rows or (instruction.lanes and tile.lanes != instruction.lanes):
            takes = f"{instruction.rows} x {instruction.lanes or tile.lanes}"
            raise self._fault(where, f"is not made of {instruction.name}, which takes {takes}")

    def _levels(self, levels: Sequence[ReductionLoop], where: str) -> None:
        if not levels or any(level.extent < 0 or level.phases < 1 for level in levels):
            raise self._fault(where, "has no loops")
        for level in levels:
            for bound in (level.low, 0 if level.high is None else level.high):
                self._typed(bound, "i64", where, "a bound")

    def _with_tiles(self, node: WithTiles) -> None:
        where = f"with tiles of {node.instruction.name}"
        if node.instruction.matrix is None or self._unit is not None:
            raise self._fault(where, "is no stretch of a matrix unit, or within one")
        self._unit = node.instruction
        with self._inside():
            self._block(node.body)
        self._unit = None

    def _accumulate_tiles(self, node: AccumulateTiles) -> None:
        tile, instruction = node.tile, node.tile.instruction
        where = f"accumulate tiles {tile.rows} x {tile.vectors} x {tile.lanes}"
        self._made_of(tile, where)
        if instruction != self._unit:
            raise self._fault(where, f"is by {instruction.name}, which is not in use there")
        for what, value in (("sums", node.sums), ("a row", node.left), ("columns", node.right)):
            self._typed(value, "ptr", where, what)
        self._typed(node.left_pitch, "i64", where, "a pitch")
        self._levels(node.levels, where)
        innermost = node.levels[-1]
        is_plain = innermost.stride == innermost.phases == 1 and innermost.high is None
        if not is_plain or innermost.extent % instruction.steps:
            raise self._fault(where, f"does not end with multiples of {instruction.steps} steps side by side")

    def _meanwhile(self, reduction: Reduction, meanwhile: Meanwhile, where: str) -> None:
        if len(reduction.levels) != 1 or meanwhile.parts < 1 or reduction.levels[0].extent % meanwhile.parts:
            raise self._fault(where, f"does not fall into {meanwhile.parts} parts")
        self._typed(meanwhile.reduces, "i1", where, "a condition")
        with self._inside():
            self._define(meanwhile.index, where)
            self._typed(meanwhile.index, "i64", where, "a number of parts")
            self._block(meanwhile.body)
