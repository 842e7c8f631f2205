"""The page of operators in the documentation, from the tables: `python -m benchmarks.operators.page > docs/operators.md`.

Nothing is compiled for it: a model of one node is read, cleaned up, and each node that is left is asked how it would run.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import onnx
from benchmarks.operators.domains import domains_section
from benchmarks.operators.row import Operand, Operands, Row, model_alone
from benchmarks.operators.table import NOT_MEASURED, ROWS
from benchmarks.operators.ways import NATIVE, WAYS, planned_way
from tests.ops.options.case import Case
from tests.ops.options.elementwise import ELEMENTWISE
from tests.ops.options.movement import MOVEMENT
from tests.ops.options.numbers import NUMBERS
from tests.ops.options.sequences import SEQUENCES
from tests.ops.options.ways import model_of as model_of_cases
from tests.ops.options.windows import WINDOWS

from fusewise.ir.dtypes import dtype_of_onnx

__all__ = ["CASES", "line_of", "option_lines", "page"]

CASES: tuple[Case, ...] = (*ELEMENTWISE, *MOVEMENT, *WINDOWS, *NUMBERS, *SEQUENCES)
"""Every option of every operator, as the sweep over options tries them."""

_HEAD = """# Operators

How every operator of ONNX {version} (opset {opset}, and the newest of the other domains) runs here, by the type of its first
operand, or of the sequence's elements (types that do not go with the other operands measured are left out):

- `native`: generated code, fused with its neighbours where they fit.
- `stage`: generated code that is made while the model runs, once data have decided the shapes, and kept for those that come back.
- `native routine`: a host step that calls a kernel of the program, for shapes that come from data.
- `compiled bodies`: the nodes inside are compiled, what calls them is Python.
- `plain NumPy`: a host step of a few calls of NumPy.
- `reference evaluator`: a host step in ONNX's reference evaluator, which is slow.
- `refused`: not at all; the message says so when the model is read or compiled.

The shapes are those of `python -m benchmarks.operators`, which measures every one against ONNX Runtime. `since` is the first
opset with the operator, `as of` the newest that changed it; models from opset 7 on are read. This page is written from the
tables by `python -m benchmarks.operators.page > docs/operators.md`; do not edit it.

## By element type

| operator | since | as of | element types |
| --- | ---: | ---: | --- |
"""

_OPTIONS = """
## Options that are not native

The sweep over options ({count} uses of operators: every attribute with its values, every optional operand given and not,
contents known and not) as one line for each operator and reason.

| operator | runs | uses | why |
| --- | --- | ---: | --- |
"""


def page() -> str:
    """The whole page."""
    newest = {(schema.domain, schema.name): schema for schema in onnx.defs.get_all_schemas()}
    first: dict[tuple[str, str], Row] = {}
    for row in ROWS:
        first.setdefault((row.domain, row.op), row)
    lines = [line_of(newest[key], first.get(key)) for key in sorted(newest) if not newest[key].deprecated]
    head = _HEAD.format(version=onnx.__version__, opset=onnx.defs.onnx_opset_version())
    options = _OPTIONS.format(count=len(CASES))
    return head + "\n".join(lines) + "\n" + options + "\n".join(option_lines(CASES)) + "\n" + domains_section()


def line_of(schema: onnx.defs.OpSchema, row: Row | None) -> str:
    """The line of an operator: for each way, the element types that run so."""
    key = (schema.domain, schema.name)
    history = [
        older.since_version for older in onnx.defs.get_all_schemas_with_history() if (older.domain, older.name) == key
    ]
    name = f"{schema.domain}.{schema.name}".lstrip(".")
    start = f"| {name} | {min(history)} | {schema.since_version} |"
    if row is None:
        return f"{start} {NOT_MEASURED[key]} |"
    found: dict[str, list[str]] = {way: [] for way in (*WAYS, "invalid")}
    for dtype, variant in _by_type(schema, replace(row, opset=onnx.defs.onnx_opset_version())):
        found["refused" if variant is None else planned_way(model_alone(variant, 0))[0]].append(dtype)
    by_way = "; ".join(f"{way}: {' '.join(found[way])}" for way in WAYS if found[way])
    return f"{start} {by_way} |"


def _by_type(schema: onnx.defs.OpSchema, row: Row) -> Iterator[tuple[str, Row | None]]:
    """The row with each element type that the text allows for its first operand, and for those of the same type; None for a
    type that has no arrays here."""
    given = row.sizes[0]
    variable = schema.inputs[0].type_str if schema.inputs and given else ""
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}.get(variable)
    if allowed is None:
        yield given[0].dtype if given and isinstance(given[0], Operand) else "any", row
        return
    form = "seq(tensor(" if isinstance(given[0], list) else "tensor("
    names = [text.strip(")").rpartition("(")[2] for text in allowed if text.startswith(form)]
    for name in sorted(names, key=_NUMBERS.__getitem__):
        try:
            dtype = dtype_of_onnx(_NUMBERS[name]).name
        except KeyError:
            yield name, None
            continue
        sizes = _retyped(schema, given, variable, dtype)
        yield dtype, replace(row, sizes=(sizes, sizes))


_NUMBERS = {name.lower(): number for name, number in onnx.TensorProto.DataType.items()}
"""ONNX's numbers of its element types, by the names that its schemas use."""


def _retyped(schema: onnx.defs.OpSchema, given: Operands, variable: str, dtype: str) -> Operands:
    def one(operand: Operand) -> Operand:
        holds = "words" if dtype == "string" and operand.holds == "uniform" else operand.holds
        return replace(operand, dtype=dtype, holds=holds)

    found: list[Operand | list[Operand] | None] = []
    for place, operand in enumerate(given):
        port = schema.inputs[min(place, len(schema.inputs) - 1)]
        if operand is None or port.type_str != variable:
            found.append(operand)
        else:
            found.append([one(part) for part in operand] if isinstance(operand, list) else one(operand))
    return tuple(found)


def option_lines(cases: Sequence[Case]) -> list[str]:
    """A line for each operator and reason among the cases that are not native, operators in order."""
    uses: dict[tuple[str, str, str], int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for case in cases:
        way, reason = planned_way(model_of_cases([case])[0])
        total[case.op] += 1
        if way not in (NATIVE, "invalid"):
            uses[case.op, way, reason] += 1
    return [
        f"| {op} | {way} | {count} of {total[op]} | {reason.replace('|', '/')} |"
        for (op, way, reason), count in sorted(uses.items())
    ]


if __name__ == "__main__":
    sys.stdout.write(page())
