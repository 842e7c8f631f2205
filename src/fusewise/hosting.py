"""What of a program runs on the host, how, and what it is expected to take of a run.

The costs of a call, an element and an operation are coarse. Those of elements on ONNX's evaluator are from one measurement on a
Zen 4; those of calls, of NumPy and of native code are orders of magnitude, taken and not measured. They tell a cliff from a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fusewise.ir.deciding import at_hint
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.lower.program import HostStep, Program
from fusewise.making import CompilationChoice
from fusewise.ops.definition import call_of, flops_of
from fusewise.ops.plain.table import PLAIN
from fusewise.ops.table import spec_of
from fusewise.runtime.executable import BuildFigures
from fusewise.runtime.stages import may_be_native

if TYPE_CHECKING:
    from fusewise.codegen.gpu.program import GpuProgram

__all__ = ["BODIES", "EVALUATOR", "LATER", "NUMPY", "ROUTINE", "cliff", "described", "summary_of", "way_of"]

ROUTINE, BODIES, NUMPY, EVALUATOR = "native routine", "compiled bodies", "plain NumPy", "reference evaluator"
"""How a host step runs a node."""

LATER = ", native for sizes that come back"
"""What is said beside that of a node of a stage (`runtime.stages`)."""

_ROUTINES = frozenset({"NonMaxSuppression", "RoiAlign"})
_BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})

_CALL_US: Mapping[str, float] = MappingProxyType({ROUTINE: 20.0, BODIES: 20.0, NUMPY: 10.0, EVALUATOR: 60.0})
_ELEMENT_NS: Mapping[str, float] = MappingProxyType({ROUTINE: 1.0, BODIES: 1.0, NUMPY: 1.0, EVALUATOR: 100.0})
_ELEMENT_NS_OF: Mapping[str, float] = MappingProxyType(
    {
        "Col2Im": 2900.0,
        "DeformConv": 360.0,
        "GridSample": 1100.0,
        "LpPool": 360.0,
        "Resize": 850.0,
    }
)
"""Of operators that ONNX's evaluator computes element by element."""

_HOST_FLOPS_US = 5e3
_NATIVE_FLOPS_US = 2e4
_NATIVE_BYTES_US = 1e4
"""Operations, and bytes, in a microsecond: on the host, and of one worker."""

_WORTH_TELLING_MS = 1.0


def summary_of(
    graph: Graph,
    program: Program,
    choice: CompilationChoice | None,
    built: BuildFigures,
    stages: list[dict[str, Any]],
    compile_ms: float,
) -> dict[str, Any]:
    """The figures of a compiled model: what was built, what runs where, and of what it took the `stages` and the whole, which is
    read after them."""
    host = described(graph.replace(types={v: at_hint(kind) for v, kind in graph.types.items()}), program)
    return {
        **asdict(built),
        **program.figures,
        "compile_ms": compile_ms,
        "stages": stages,
        "tuning": None if choice is None else choice.described,
        "host": host,
        "slow_host": cliff(host, program),
        "symbols": [symbol.name for symbol in program.symbols],
    }


def described(graph: Graph, program: Program | GpuProgram) -> list[dict[str, Any]]:
    """A row for each node on the host: `node`, `op`, `reason`, the `way` that it runs, and `expected_ms`, None where sizes
    depend on data."""
    versions = {"": graph.opset} | dict(graph.opsets)
    steps = (step for step in program.steps if isinstance(step, HostStep))
    pairs = [(node, why) for step in steps for node, why in zip(step.nodes, step.reasons, strict=True)]
    has_stages = isinstance(program, Program)  # a GPU's host steps stay on the host, whatever sizes come back
    found = []
    for node, reason in pairs:
        way = way_of(node, versions.get(node.domain, 1))
        later = LATER if has_stages and may_be_native(reason) else ""
        row = {"node": node.label, "op": node.op, "reason": reason, "way": f"{way}{later}"}
        found.append(row | {"expected_ms": _expected_ms(graph, node, way)})
    return found


def cliff(host: list[dict[str, Any]], program: Program) -> str | None:
    """A sentence about the node on the host that is expected to take more than half of a run; None where there is none."""
    known = [row for row in host if row["expected_ms"] is not None]
    worst = max(known, key=lambda row: row["expected_ms"], default=None)
    if worst is None or worst["expected_ms"] < _WORTH_TELLING_MS:
        return None
    on_host = {step.group for step in program.steps if isinstance(step, HostStep)}
    native = [account for k, account in enumerate(program.accounts) if k not in on_host]
    flops, moved = (sum(getattr(account, name) for account in native) for name in ("flops", "nbytes"))
    speed = program.workers
    native_us = max(flops / (_NATIVE_FLOPS_US * speed), moved / _NATIVE_BYTES_US)
    native_us += sum(not isinstance(step, HostStep) for step in program.steps)
    whole = native_us / 1e3 + sum(row["expected_ms"] for row in known)
    if worst["expected_ms"] <= whole / 2:
        return None
    return (
        f"node {worst['node']!r} ({worst['op']}) runs on the host ({worst['way']}: {worst['reason']}) and is expected to take "
        f"{worst['expected_ms']:.1f} of the {whole:.1f} ms of a run"
    )


def way_of(node: Node, version: int) -> str:
    """How a host step runs a node, at this version of its domain."""
    if not node.domain and node.op in _ROUTINES:
        return ROUTINE
    if not node.domain and node.op in _BODIES:
        return BODIES
    row = PLAIN.get((node.domain, node.op))
    return NUMPY if row is not None and version >= row.since else EVALUATOR


def _expected_ms(graph: Graph, node: Node, way: str) -> float | None:
    """What the call, the elements of its operands and results, and its arithmetic take together."""
    sizes = []
    for value in (*node.reads, *node.writes):
        kind = graph.types.get(value)
        if not isinstance(kind, TensorType) or not kind.is_static:
            return None
        sizes.append(math.prod(kind.dims))
    spec = spec_of(node.op, node.domain)
    flops = 0 if spec is None else flops_of(spec, call_of(graph, node))
    each = _ELEMENT_NS_OF.get(node.op, _ELEMENT_NS[way]) if way == EVALUATOR else _ELEMENT_NS[way]
    return (_CALL_US[way] + max(sizes, default=0) * each / 1e3 + flops / _HOST_FLOPS_US) / 1e3
