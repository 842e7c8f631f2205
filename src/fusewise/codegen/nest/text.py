"""The printed form of a kernel's program, one line per node; `nest.parse` reads it back.

    table @signs: float = 1.0, -1.0

    function k(ptr noalias %a0, i64 %a1) -> void attributes "nounwind" {
      %v1: float = load(%a0) align 4
      %v7: float = for %v2 in 0 .. %a1 step 1 rolled carrying %v3: float = %v1 {
        %v4: ptr = getelementptr inbounds(%a0, %v2) of float
        %v5: float = load(%v4) align 4
        %v6: float = fadd(%v3, %v5)
        next %v6
      }
      if %v9 rarely {
        store(%v7, %a0) align 4
      }
      ret()
    }

A value's type stands where it is defined, and before constants: `i64 5`, `<8 x float> 0.5` (in every lane), `<2 x i64> [0, 1]`;
bare integers are numbers that were known when the program was built. `#digest` is a task, which only its own text could spell out;
instructions stand by their names.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from fusewise.codegen.nest.build import Function, Module
from fusewise.codegen.nest.spelling import bare, literal
from fusewise.codegen.nest.tile import Accumulate, AccumulateTiles, Panel, Reduction, ReductionLoop, WithTiles
from fusewise.codegen.nest.tree import (
    Block,
    Composite,
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

__all__ = ["DETAILS", "HEXADECIMAL", "printed"]

DETAILS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("load", "store", "memcpy", "memset"), "align"),
        **dict.fromkeys(("getelementptr", "getelementptr inbounds", "alloca"), "of"),
        **dict.fromkeys(("call", "intrinsic"), "to"),
        "prefetch": "locality",
        "shufflevector": "lanes",
    }
)
"""The word before what an operation needs beside its operands; `with` of others."""

HEXADECIMAL = r"0x[HR]?[0-9A-F]+"
"""A float that has no decimal, as LLVM spells it."""

_WORD = re.compile(r"(?!(?:inf|nan)\b)[A-Za-z_][\w.]*", re.ASCII)
_NAME = re.compile(r"[%@][\w.$-]+", re.ASCII)
_VECTOR = re.compile(r"<\d+ x \w+>", re.ASCII)
_WORDS = re.compile(r"\w+(?: \w+)*", re.ASCII)

_STEP = "  "


def printed(module: Module, longest: int | None = None) -> str:
    """The whole module as text that ends in a newline.

    Where `longest` is given, tables with more elements are left out, which reads well but does not parse back.
    """
    parts = ["\n".join(_table(table, longest) for table in module.tables)] if module.tables else []
    tables = {f"@{table.name}": "ptr" for table in module.tables}
    parts += ["\n".join(_Printed(tables).function(function)) for function in module.functions]
    return "\n\n".join(parts) + "\n"


def _word(text: str) -> str:
    """Bare where it looks like a word, else a JSON string."""
    return text if _WORD.fullmatch(text) else json.dumps(text)


def _table(table: Table, longest: int | None) -> str:
    start = f"table @{table.name}: {table.element} ="
    if longest is not None and len(table.values) > longest:
        return f"{start} {len(table.values)} elements"
    if isinstance(table.values, bytes):
        return f"{start} bytes {json.dumps(table.values.hex())}"
    return f"{start} {', '.join(_plain(value) for value in table.values)}"


def _plain(value: int | float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


def _decimal(text: str, element: str) -> str:
    """A float as people write it, where that means the same bits."""
    if element in ("float", "double") and re.fullmatch(r"0x[0-9A-F]{16}", text):
        (value,) = struct.unpack(">d", bytes.fromhex(text[2:]))
        shorter = (f"{value:.{digits}g}" for digits in (6, 7, 8, 9)) if element == "float" else iter(())
        for shown in (*shorter, repr(value)):
            if literal(float(shown), element) == text:
                return f"{shown}.0" if shown.lstrip("-").isdigit() else shown
    return text


def _number(text: str, element: str) -> str | None:
    """A scalar constant, if this is one."""
    if element.startswith("i"):
        return text if re.fullmatch(r"-?\d+|true|false", text, re.ASCII) else None
    return _decimal(text, element) if re.fullmatch(HEXADECIMAL, text) else None


def _constant(value: Value) -> str:
    """A constant behind its type."""
    text, element = value.text, value.element
    shown: str | None = None
    if text in ("poison", "zeroinitializer"):
        shown = text
    elif value.type == element:
        shown = _number(text, element)
    elif text.startswith(before := f"splat ({element} ") and text.endswith(")"):
        shown = _number(text[len(before) : -1], element)
    elif text.startswith("<") and text.endswith(">"):
        lanes = [one.partition(" ") for one in text[1:-1].split(", ")]
        numbers = [_number(number, element) if kind == element else None for kind, _, number in lanes]
        shown = None if None in numbers else f"[{', '.join(map(str, numbers))}]"
    return f"{value.type} {json.dumps(text) if shown is None else shown}"


def _detail(detail: tuple[str | int, ...]) -> str:
    """What stands beside operands; numbers that count upwards by their first and last."""
    first, last = detail[0], detail[-1]
    if len(detail) > 2 and isinstance(first, int) and isinstance(last, int) and detail == tuple(range(first, last + 1)):
        return f"{first} .. {last}"
    return ", ".join(
        str(one) if isinstance(one, int) else one if _VECTOR.fullmatch(one) else _word(one) for one in detail
    )


def _argument(kind: str, name: str) -> str:
    rest = kind[len(bare(kind)) :]
    plain = not rest or (rest.startswith(" ") and _WORDS.fullmatch(rest[1:]))
    return f"{kind if plain else json.dumps(kind)} {name}"


class _Printed:
    """A function being printed. `types` are those of the values that have been defined so far, in the order of the text."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = dict(types)

    def function(self, function: Function) -> Iterator[str]:
        arguments = [_argument(kind, one.text) for kind, one in zip(function.kinds, function.arguments, strict=True)]
        self._types.update((one.text, one.type) for one in function.arguments)
        line = f"function {_word(function.name)}({', '.join(arguments)}) -> {function.result}"
        line += f" linkage {_word(function.linkage)}" if function.linkage else ""
        line += f" attributes {json.dumps(function.attributes)}" if function.attributes else ""
        line += " hides counters" if function.hides_counters else ""
        yield f"{line} {{"
        yield from self._block(function.body, _STEP)
        yield "}"

    # --- values ---------------------------------------------------------------------------------------------------

    def _value(self, value: Int) -> str:
        if isinstance(value, int):
            return str(value)
        if _NAME.fullmatch(value.text):
            return value.text if self._types.get(value.text) == value.type else f"{value.type} {value.text}"
        return _constant(value)

    def _values(self, values: Sequence[Value]) -> str:
        return ", ".join(map(self._value, values))

    def _defined(self, *values: Value) -> str:
        self._types.update((value.text, value.type) for value in values)
        return ", ".join(f"{value.text}: {value.type}" for value in values)

    def _results(self, values: Sequence[Value]) -> str:
        return f"{self._defined(*values)} = " if values else ""

    def _carried(self, inside: Sequence[Value], carried: Sequence[Value]) -> str:
        """Each value as it begins; that is said before any of them is known."""
        starts = [self._value(value) for value in carried]
        pairs = (f"{self._defined(a)} = {b}" for a, b in zip(inside, starts, strict=True))
        return f" carrying {', '.join(pairs)}" if inside else ""

    def _last(self, word: str, values: Sequence[Value], indent: str) -> Iterator[str]:
        if values:
            yield f"{indent}{word} {self._values(values)}"

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _block(self, nodes: Block, indent: str) -> Iterator[str]:
        for node in nodes:
            yield from self._node(node, indent)

    def _node(self, node: NestNode, indent: str) -> Iterator[str]:
        if isinstance(node, Operation):
            yield indent + self._operation(node)
        elif isinstance(node, For):
            yield from self._loop(node, indent)
        elif isinstance(node, When):
            yield from self._when(node, indent)
        elif isinstance(node, Repeat):
            yield from self._repeat(node, indent)
        elif isinstance(node, Stage):
            yield f"{indent}stage {self._value(node.unit)} noted at {self._value(node.tag)} {{"
            yield from self._block(node.body, indent + _STEP)
            yield f"{indent}}}"
        else:
            yield from self._composite(node, indent)

    def _operation(self, node: Operation) -> str:
        start = "" if node.result is None else self._results((node.result,))
        line = f"{start}{node.opcode}({self._values(node.operands)})"
        if not node.detail:
            return line
        return f"{line} {DETAILS.get(node.opcode, 'with')} {_detail(node.detail)}"

    def _loop(self, node: For, indent: str) -> Iterator[str]:
        results = self._results(node.results)
        low, high = self._value(node.low), self._value(node.high)
        counter = self._defined(node.counter)
        line = f"{results}for {counter.removesuffix(': i64')} in {low} .. {high} step {node.step}"
        line += " rolled" if node.rolled else ""
        yield f"{indent}{line}{self._carried(node.inside, node.carried)} {{"
        yield from self._block(node.body, indent + _STEP)
        yield from self._last("next", node.after, indent + _STEP)
        yield f"{indent}}}"

    def _when(self, node: When, indent: str) -> Iterator[str]:
        rarely = " rarely" if node.rarely else ""
        yield f"{indent}{self._results(node.results)}if {self._value(node.condition)}{rarely} {{"
        yield from self._block(node.then, indent + _STEP)
        yield from self._last("give", node.then_values, indent + _STEP)
        if node.otherwise or node.otherwise_values:
            yield f"{indent}}} else {{"
            yield from self._block(node.otherwise, indent + _STEP)
            yield from self._last("give", node.otherwise_values, indent + _STEP)
        yield f"{indent}}}"

    def _repeat(self, node: Repeat, indent: str) -> Iterator[str]:
        yield f"{indent}repeat{self._carried(node.inside, node.carried)} {{"
        yield from self._block(node.first, indent + _STEP)
        yield f"{indent}{_STEP}while {self._value(node.condition)}"
        yield from self._block(node.body, indent + _STEP)
        yield from self._last("next", node.after, indent + _STEP)
        yield f"{indent}}}"

    def _composite(self, node: Composite, indent: str) -> Iterator[str]:
        if isinstance(node, Accumulate):
            yield from self._accumulate(node, indent)
            return
        if isinstance(node, AccumulateTiles):
            yield from self._accumulate_tiles(node, indent)
            return
        if isinstance(node, WithTiles):
            yield f"{indent}with tiles of {_word(node.instruction.name)} {{"
            yield from self._block(node.body, indent + _STEP)
            yield f"{indent}}}"
            return
        assert isinstance(node, StoreAccumulator)
        indices = ", ".join(f"{axis} = {self._value(index)}" for axis, index in node.indices)
        pointers = ", ".join(f"{_word(name)} = {self._value(pointer)}" for name, pointer in node.pointers.items())
        line = f"store results of #{node.task.digest} at ({indices}) lanes {node.count} along {_word(node.lane)}"
        yield f"{indent}{line} of {self._value(node.value)} with ({pointers})"

    def _accumulate(self, node: Accumulate, indent: str) -> Iterator[str]:
        tile, inside = node.tile, indent + _STEP
        line = f"{self._results(node.results)}accumulate {_word(tile.instruction.name)}"
        yield f"{indent}{line} {tile.rows} x {tile.vectors} x {tile.lanes} from {self._values(node.start)} {{"
        yield from (inside + line for line in self._reduction(node.reduction))
        if node.reduction.meanwhile is not None:
            meanwhile = node.reduction.meanwhile
            line = f"meanwhile {self._defined(meanwhile.index)} of {meanwhile.parts}"
            yield f"{inside}{line} where {self._value(meanwhile.reduces)} {{"
            yield from self._block(meanwhile.body, inside + _STEP)
            yield f"{inside}}}"
        yield f"{indent}}}"

    def _accumulate_tiles(self, node: AccumulateTiles, indent: str) -> Iterator[str]:
        tile = node.tile
        line = f"accumulate tiles {_word(tile.instruction.name)} {tile.rows} x {tile.vectors} x {tile.lanes}"
        yield f"{indent}{line} at {self._value(node.sums)}{' from zero' if node.from_zero else ''} {{"
        yield f"{indent}{_STEP}rows {self._value(node.left)} pitch {self._value(node.left_pitch)}"
        yield f"{indent}{_STEP}panel {self._value(node.right)} pitch {node.right_pitch}"
        yield from (indent + _STEP + line for line in self._levels(node.levels))
        yield f"{indent}}}"

    def _levels(self, levels: Iterable[ReductionLoop]) -> Iterator[str]:
        for level in levels:
            low = f" from {self._value(level.low)}" if level.low != 0 or not isinstance(level.low, int) else ""
            high = "" if level.high is None else f" to {self._value(level.high)}"
            phases = "" if level.phases == 1 else f" phases {level.phases} stride {level.phase_stride}"
            yield f"level {level.extent} stride {level.stride}{low}{high}{phases}"

    def _reduction(self, reduction: Reduction) -> Iterator[str]:
        yield f"rows {self._values(reduction.rows)} of {_word(reduction.dtype.name)}"
        yield self._panel(reduction.panel)
        yield from self._levels(reduction.levels)
        for one in reduction.ahead:
            yield f"ahead {self._value(one.start)} step {one.step} locality {one.locality}"
        if reduction.together != 1:
            yield f"together {reduction.together}"

    def _panel(self, panel: Panel) -> str:
        line = f"panel {self._values(panel.columns)} pitch {panel.pitch}"
        line += "" if panel.dtype is None else f" of {_word(panel.dtype.name)}"
        line += "" if panel.following is None else f" following {self._value(panel.following)}"
        if panel.minus is not None:
            line += f" minus {self._value(panel.minus.other)} into {self._value(panel.minus.made)}"
        return line
