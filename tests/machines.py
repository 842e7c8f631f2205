"""The machines that tests generate code for: this one, and the generic ones whose code it runs; and graphs compiled for them."""

from __future__ import annotations

import llvmlite.binding as llvm

from fusewise.codegen.assemble import generate
from fusewise.codegen.target import TARGETS, Target
from fusewise.fusion.plan import partition
from fusewise.ir.graph import Graph
from fusewise.lower.program import Program
from fusewise.runtime.executable import Executable, build
from fusewise.runtime.host import host_target
from fusewise.trace import Trace

__all__ = ["compiled", "runnable"]

NEEDS = {
    "avx512": "avx512f avx512bw avx512cd avx512dq avx512vl avx2 bmi bmi2 f16c fma lzcnt movbe",
    "avx2": "avx2 bmi bmi2 f16c fma lzcnt movbe",
    "sse2": "sse2",
    "neon": "neon",
}
"""Features of a CPU, by LLVM's names, without which it does not run code for a generic target."""


def runnable() -> tuple[Target, ...]:
    """What `runtime.host` describes, named `host`, and every generic target that this machine can stand for."""
    host = host_target()
    present = {name for name, is_present in llvm.get_host_cpu_features().items() if is_present}
    family = host.triple.split("-", 1)[0]
    others = (t for t in TARGETS if t.triple.split("-", 1)[0] == family and present.issuperset(NEEDS[t.name].split()))
    return host, *others


def compiled(graph: Graph, target: Target, threads: int = 1, trace: Trace | None = None) -> tuple[Program, Executable]:
    """A graph as it is, for a machine whose code runs here; the trace may refuse decisions, and gets them."""
    decisions = Trace() if trace is None else trace
    program = generate(partition(graph, decisions), target, decisions, workers=threads)
    return program, build(program, threads=threads, target=target)
