"""Reads the printed form of `nest.text` back: text in, an equal program out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.spelling import literal
from fusewise.codegen.nest.text import HEXADECIMAL
from fusewise.codegen.nest.tile import (
    Accumulate,
    AccumulateTiles,
    Ahead,
    Difference,
    Meanwhile,
    Panel,
    Reduction,
    ReductionLoop,
    Tile,
    WithTiles,
)
from fusewise.codegen.nest.tokens import Tokens
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
)
from fusewise.errors import UsageError
from fusewise.ir.dtypes import DTYPES, DType
from fusewise.lower.task import Task
from fusewise.records import record

__all__ = ["parsed"]

_ENDS = ("}", "next", "give", "while")

T = TypeVar("T")


def parsed(text: str, tasks: Mapping[str, Task], instructions: Mapping[str, Instruction]) -> Module:
    """The module that `printed` printed.

    `tasks` holds tasks by their digests, `instructions` rows by their names: what the text does not spell out. Blank lines are
    skipped. Raises `UsageError` with the line at fault.
    """
    reader = _Reader(text, tasks, instructions)
    try:
        return reader.module()
    except ValueError as error:
        lines = text.splitlines()
        line = min(reader.line, len(lines))
        raise UsageError(f"line {line} of the program's text: {error} in {lines[line - 1].strip()!r}") from error


def _known(table: Mapping[str, T], name: str, what: str) -> T:
    if name not in table:
        raise ValueError(f"{name!r} is no {what}")
    return table[name]


@record(frozen=True)
class _Head:
    """What stands before the body of a loop."""

    counter: Value
    low: Int
    high: Int
    step: int
    rolled: bool
    inside: tuple[Value, ...]
    carried: tuple[Value, ...]


class _Reader(Tokens):
    """A text being read. `types` are those of the values that have been defined so far."""

    def __init__(self, text: str, tasks: Mapping[str, Task], instructions: Mapping[str, Instruction]) -> None:
        super().__init__(text)
        self._tasks = tasks
        self._instructions = instructions
        lanes = [dtype for row in instructions.values() for dtype in (row.left, row.right, row.sum, row.lane)]
        self._dtypes = {dtype.name: dtype for dtype in (*lanes, *DTYPES)}
        self._types: dict[str, str] = {}

    def _dtype(self) -> DType:
        return _known(self._dtypes, self._word(), "element type")

    # --- values ---------------------------------------------------------------------------------------------------

    def _value(self) -> Value:
        if self._kind() == "name":
            name = self._next("name")
            if name not in self._types:
                raise ValueError(f"{name} has no type")
            return Value(name, self._types[name])
        kind = self._type()
        if self._kind() == "name":
            return Value(self._next("name"), kind)
        return Value(self._constant(kind), kind)

    def _integer(self) -> Int:
        """A value, or a number that was known before."""
        return self._int() if self._kind() == "number" else self._value()

    def _constant(self, kind: str) -> str:
        element = Value("", kind).element
        if self._kind() == "string":
            return self._word()
        if self._is("poison", "zeroinitializer"):
            return self._next("word")
        if self._meets("["):
            lanes = self._several(lambda: f"{element} {self._number(element)}")
            self._expect("]")
            return f"<{', '.join(lanes)}>"
        number = self._number(element)
        return number if kind == element else f"splat ({element} {number})"

    def _number(self, element: str) -> str:
        text = self._next("number", "word")
        is_spelled = element.startswith("i") or re.fullmatch(HEXADECIMAL, text)
        return text if is_spelled else literal(float(text), element)

    def _defined(self) -> Value:
        name = self._next("name")
        self._expect(":")
        self._types[name] = kind = self._type()
        return Value(name, kind)

    def _results(self) -> tuple[Value, ...]:
        """What stands left of an equals sign, if any does."""
        if self._kind() != "name":
            return ()
        found = self._several(self._defined)
        self._expect("=")
        return found

    def _carried(self) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        def one() -> tuple[Value, Value]:
            name = self._next("name")
            self._expect(":")
            inside = Value(name, self._type())
            self._expect("=")
            return inside, self._value()

        pairs = self._several(one) if self._meets("carrying") else ()
        self._types.update((inside.text, inside.type) for inside, _ in pairs)
        return tuple(inside for inside, _ in pairs), tuple(start for _, start in pairs)

    def _last(self, word: str) -> tuple[Value, ...]:
        """The values at the end of a block."""
        found = self._several(self._value) if self._meets(word) else ()
        self._meets("\n")
        return found

    # --- modules --------------------------------------------------------------------------------------------------

    def module(self) -> Module:
        module = Module()
        tables: dict[str, str] = {}
        while self._kind() != "end":
            if self._meets("\n"):
                continue
            if self._meets("table"):
                self._table(module, tables)
            else:
                self._types = dict(tables)
                self._function(module)
        return module

    def _table(self, module: Module, tables: dict[str, str]) -> None:
        name = self._next("name")
        self._expect(":")
        element = self._type()
        self._expect("=")
        if self._meets("bytes"):
            module.table(name[1:], element, bytes.fromhex(self._word()))
        else:
            module.table(name[1:], element, self._several(self._plain) if self._kind() == "number" else ())
        tables[name] = "ptr"
        self._expect("\n")

    def _plain(self) -> int | float:
        text = self._next("number")
        return int(text) if text.lstrip("-").isdigit() else float(text)

    def _function(self, module: Module) -> None:
        self._expect("function")
        name = self._word()
        arguments = self._listed(self._argument)
        self._expect("->")
        result = self._type()
        linkage = self._word() if self._meets("linkage") else ""
        attributes = self._word() if self._meets("attributes") else ""
        function = module.function(name, arguments, result, attributes, linkage)
        function.hides_counters = self._meets("hides", "counters")
        self._types.update((one.text, one.type) for one in function.arguments)
        self._opened()
        function.include(self._block())
        self._expect("}", "\n")
        numbers = (int(value[2:]) for value in self._types if re.fullmatch(r"%v\d+", value))
        function.values = max(numbers, default=0)

    def _argument(self) -> str:
        words = [self._word() if self._kind() == "string" else self._type()]
        while self._kind() != "name":
            words.append(self._next("word"))
        self._next("name")
        return " ".join(words)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _opened(self) -> None:
        self._expect("{", "\n")

    def _block(self) -> Block:
        """Nodes up to the end of their block."""
        found: list[NestNode] = []
        while not self._is(*_ENDS):
            if self._kind() == "end":
                raise ValueError("a block has no end")
            if not self._meets("\n"):
                found.append(self._node())
                self._expect("\n")
        return tuple(found)

    def _node(self) -> NestNode:
        results = self._results()
        if self._meets("for"):
            return self._loop(results)
        if self._meets("if"):
            return self._when(results)
        if self._meets("accumulate", "tiles"):
            return self._accumulate_tiles()
        if self._meets("with", "tiles"):
            return self._with_tiles()
        if self._meets("accumulate"):
            return self._accumulate(results)
        if len(results) > 1:
            raise ValueError("an operation has one result")
        if self._meets("store", "results"):
            return self._stores()
        if self._meets("repeat"):
            return self._repeat()
        if self._meets("stage"):
            return self._stage()
        return self._operation(results[0] if results else None)

    def _operation(self, result: Value | None) -> Operation:
        words = [self._next("word")]
        while not self._is("("):
            words.append(self._next("word"))
        operands = self._listed(self._value)
        detail: tuple[str | int, ...] = ()
        if self._kind() == "word":
            self._next("word")
            detail = self._several(lambda: self._int() if self._kind() == "number" else self._text())
        if self._meets(".."):
            (first,) = map(int, detail)
            detail = tuple(range(first, self._int() + 1))
        return Operation(" ".join(words), result, operands, detail)

    def _text(self) -> str:
        return self._type() if self._kind() == "vector" else self._word()

    def _loop(self, results: tuple[Value, ...]) -> For:
        head = self._head()
        self._opened()
        body = self._block()
        after = self._last("next")
        self._expect("}")
        bounds = head.counter, head.low, head.high, head.step
        return For(*bounds, head.carried, head.inside, body, after, results, head.rolled)

    def _head(self) -> _Head:
        name = self._next("name")
        kind = self._type() if self._meets(":") else "i64"
        self._expect("in")
        low = self._integer()
        self._expect("..")
        high, step = self._integer(), self._after("step")
        self._types[name] = kind
        rolled = self._meets("rolled")
        inside, carried = self._carried()
        return _Head(Value(name, kind), low, high, step, rolled, inside, carried)

    def _when(self, results: tuple[Value, ...]) -> When:
        condition, rarely = self._value(), self._meets("rarely")
        self._opened()
        then, then_values = self._block(), self._last("give")
        self._expect("}")
        otherwise: tuple[Block, tuple[Value, ...]] = (), ()
        if self._meets("else"):
            self._opened()
            otherwise = self._block(), self._last("give")
            self._expect("}")
        return When(condition, then, then_values, *otherwise, results, rarely)

    def _repeat(self) -> Repeat:
        inside, carried = self._carried()
        self._opened()
        first = self._block()
        self._expect("while")
        condition = self._value()
        self._expect("\n")
        body, after = self._block(), self._last("next")
        self._expect("}")
        return Repeat(carried, inside, first, condition, body, after)

    def _stage(self) -> Stage:
        unit = self._integer()
        self._expect("noted", "at")
        tag = self._value()
        self._opened()
        body = self._block()
        self._expect("}")
        return Stage(tag, unit, body)

    def _stores(self) -> StoreAccumulator:
        self._expect("of")
        task = _known(self._tasks, self._next("digest"), "task that is given")
        self._expect("at")
        indices = self._listed(lambda: self._named(self._integer))
        count = self._after("lanes")
        self._expect("along")
        lane = self._word()
        self._expect("of")
        value = self._value()
        self._expect("with")
        return StoreAccumulator(task, dict(self._listed(lambda: self._named(self._value))), indices, lane, value, count)

    def _named(self, one: Callable[[], T]) -> tuple[str, T]:
        name = self._word()
        self._expect("=")
        return name, one()

    # --- the register tile ----------------------------------------------------------------------------------------

    def _tile(self) -> Tile:
        instruction = _known(self._instructions, self._word(), "instruction that is given")
        return Tile(self._int(), self._after("x"), self._after("x"), instruction)

    def _with_tiles(self) -> WithTiles:
        self._expect("of")
        instruction = _known(self._instructions, self._word(), "instruction that is given")
        self._opened()
        body = self._block()
        self._expect("}")
        return WithTiles(instruction, body)

    def _accumulate_tiles(self) -> AccumulateTiles:
        tile = self._tile()
        self._expect("at")
        sums, from_zero = self._value(), self._meets("from", "zero")
        self._opened()
        self._expect("rows")
        left = self._value()
        self._expect("pitch")
        left_pitch = self._integer()
        self._expect("\n", "panel")
        right = self._value()
        right_pitch, levels = self._after("pitch"), self._levels()
        self._expect("\n", "}")
        return AccumulateTiles(tile, sums, left, left_pitch, right, right_pitch, levels, from_zero)

    def _levels(self) -> tuple[ReductionLoop, ...]:
        levels = []
        while self._meets("\n", "level"):
            extent, stride = self._int(), self._after("stride")
            low = self._integer() if self._meets("from") else 0
            high = self._integer() if self._meets("to") else None
            phases = (self._int(), self._after("stride")) if self._meets("phases") else (1, 0)
            levels.append(ReductionLoop(extent, stride, low, high, *phases))
        return tuple(levels)

    def _accumulate(self, results: tuple[Value, ...]) -> Accumulate:
        tile = self._tile()
        self._expect("from")
        start = self._several(self._value)
        self._opened()
        reduction = self._reduction()
        self._expect("}")
        return Accumulate(tile, reduction, start, results)

    def _reduction(self) -> Reduction:
        self._expect("rows")
        rows = self._several(self._value)
        self._expect("of")
        dtype = self._dtype()
        self._expect("\n", "panel")
        panel, levels, ahead = self._panel(), self._levels(), []
        while self._meets("\n", "ahead"):
            ahead.append(Ahead(self._value(), self._after("step"), self._after("locality")))
        together = self._int() if self._meets("\n", "together") else 1
        meanwhile = self._meanwhile() if self._meets("\n", "meanwhile") else None
        self._expect("\n")
        return Reduction(rows, panel, levels, dtype, together, tuple(ahead), meanwhile)

    def _panel(self) -> Panel:
        columns, pitch = self._several(self._value), self._after("pitch")
        dtype = self._dtype() if self._meets("of") else None
        following = self._value() if self._meets("following") else None
        minus = None
        if self._meets("minus"):
            other = self._value()
            self._expect("into")
            minus = Difference(other, self._value())
        return Panel(columns, pitch, dtype, following, minus)

    def _meanwhile(self) -> Meanwhile:
        index, parts = self._defined(), self._after("of")
        self._expect("where")
        reduces = self._value()
        self._opened()
        body = self._block()
        self._expect("}")
        return Meanwhile(parts, index, body, reduces)
