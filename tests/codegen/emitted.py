"""What code generation writes, as digests: a change that means to leave code as it is can show that it does.

    python -m tests.codegen.emitted > tests/codegen/emitted.txt

A line for every subject and generic target: its name, the target's, a digest of the program (steps, places, pieces, and the text
of every kernel), and one of the text of its tasks' second and third ways, which only tuning takes. Subjects are the
architectures of the zoo that have layers of their own, some in bfloat16, and all operators that are measured by themselves.
Symbols, which are made of keys, have no part in it.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

from benchmarks.operators.row import model_of
from benchmarks.operators.table import ROWS
from tests.codegen.ways import program_of
from tests.zoo.once import ONCE

from fusewise import api
from fusewise.codegen.assemble import generate
from fusewise.codegen.choose import alternatives
from fusewise.codegen.legalize import legalized
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.target import TARGETS, Target
from fusewise.fusion.plan import partition
from fusewise.ir.graph import Graph
from fusewise.ir.partition import Partition
from fusewise.lower.program import NativeStep, Program
from fusewise.lower.work import TaskWork, lower_partition
from fusewise.trace import Trace
from fusewise.zoo.catalogue import build

__all__ = ["FILE", "OPERATORS", "SUBJECTS", "digests", "recorded"]

FILE = Path(__file__).with_suffix(".txt")

NARROW, OPERATORS = ":bfloat16", "operators"

SUBJECTS = (*ONCE, f"albert{NARROW}", f"resnet50{NARROW}", OPERATORS)
"""What is looked at, by name."""

_WORKERS = 2

_WAYS = 3
"""Of each task, how many ways are looked at."""

Line = tuple[str, str, str, str]


def digests(subject: str, targets: Sequence[Target] = TARGETS) -> list[Line]:
    """For each target: the subject's name, the target's, the digest of its programs, that of the other ways."""
    made = list(_graphs(subject))
    precision = "bfloat16" if subject.endswith(NARROW) else "float32"
    return [_line(subject, made, precision, target) for target in targets]


def _graphs(subject: str) -> Iterator[Graph]:
    if subject != OPERATORS:
        yield build(subject.removesuffix(NARROW))
        return
    for row in ROWS:
        yield api.load(model_of(row, 0)[0])


def _line(subject: str, graphs: list[Graph], precision: str, target: Target) -> Line:
    programs, others = hashlib.blake2b(digest_size=8), hashlib.blake2b(digest_size=8)
    for graph in graphs:
        trace = Trace()
        groups = partition(legalized(graph, target, trace, precision=precision), trace)
        for part in _described(generate(groups, target, trace, workers=_WORKERS)):
            programs.update(part.encode())
        for part in _others(groups, target):
            others.update(part.encode())
    return subject, target.name, programs.hexdigest(), others.hexdigest()


def _described(program: Program) -> Iterator[str]:
    texts = [re.sub(r"\bk[0-9a-f]{20}", "k", kernel.build()) for kernel in program.kernels]
    yield f"{program.arena_bytes} {program.workers}"
    for buffer in program.buffers:
        recipe = "" if buffer.packing is None else buffer.packing.recipe
        yield f"{buffer.kind} {buffer.nbytes} {buffer.offset} {buffer.value} {recipe}"
    for step in program.steps:
        if isinstance(step, NativeStep):
            yield f"{step.arguments} {step.barrier} {step.strips} {step.pieces} {program.kernels[step.kernel].level}"
            yield texts[step.kernel]
        else:
            yield f"{step.label} {step.reads} {step.writes}"


def _others(groups: Partition, target: Target) -> Iterator[str]:
    machine = replace(target, workers=_WORKERS)
    work = (one for one in lower_partition(groups, Trace()).work if isinstance(one, TaskWork))
    tasks = {one.bound.task.key: one.bound.task for one in work if 0 not in one.bound.task.extents}
    for _, task in sorted(tasks.items()):
        for number, way in enumerate(islice(alternatives(task, machine), _WAYS)):
            if number:
                yield llvm_text(program_of(way, machine.instructions, "k"), machine.instructions)


@cache
def recorded() -> dict[tuple[str, str], tuple[str, str]]:
    """The digests on file, by architecture and target."""
    rows = [line.split() for line in FILE.read_text(encoding="utf-8").splitlines()]
    return {(model, target): (program, others) for model, target, program, others in rows}


if __name__ == "__main__":
    with multiprocessing.Pool() as pool:
        for lines in pool.imap(digests, SUBJECTS):
            for line in lines:
                print(*line, flush=True)
