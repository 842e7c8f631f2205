"""What a measured figure is worth here: the models and operators that it was tried on, compiled with other values of it.

    python -m benchmarks.figures                                         all figures: values and subjects
    python -m benchmarks.figures NAME [--values a,b,c] [--on SUBJECT,...] [--threads N] [--seconds S]

A figure is named by its group and its field in `codegen.machine.figures`, as `tile.load`; by default it is halved and doubled.
A subject is an architecture of the zoo, of one sample or as `resnet50*16` says, in 8 bits as `resnet50:int8`, in bfloat16 as
`resnet50:bfloat16`, or an operator, which stands for all its rows in `benchmarks/operators`. Values by which one program is made
are one line. Runs are interleaved; a line has the median run, the tenths of the runs that are faster and slower than all others,
and how many times as long as with the value in use it took.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.operators.row import model_of
from benchmarks.operators.table import ROWS
from benchmarks.quantized import quantized
from benchmarks.zoo import machine

from fusewise import api
from fusewise.benchmarking.inputs import index_bounds, random_values
from fusewise.benchmarking.timing import Timing, TimingBudget, race
from fusewise.codegen.assemble import generate
from fusewise.codegen.legalize import legalized
from fusewise.codegen.machine.figures import SUBJECTS, MeasuredFigures
from fusewise.codegen.target import Target
from fusewise.errors import UsageError
from fusewise.fusion.plan import partition
from fusewise.ir.partition import Partition
from fusewise.lower.program import NativeStep, Program
from fusewise.runtime.executable import build
from fusewise.runtime.host import host_target, worker_count
from fusewise.trace import Trace
from fusewise.zoo.catalogue import MODELS
from fusewise.zoo.catalogue import build as build_model

__all__ = ["FIGURES", "digest", "graphs", "scaled", "value_of", "with_value"]

QUANTIZED = ":int8"
"""Behind the name of a model that is quantised first."""

NARROW = ":bfloat16"
"""And of one that computes on bfloat16."""

FIGURES: Mapping[str, tuple[str, ...]] = {
    f"{group.name}.{one.name}": one.metadata[SUBJECTS]
    for group in fields(MeasuredFigures)
    for one in fields(getattr(MeasuredFigures(), group.name))
}
"""Subjects by the names of all figures."""


def value_of(target: Target, name: str) -> Any:
    """A figure as it is in use."""
    group, _, field = name.partition(".")
    return getattr(getattr(target.figures, group), field)


def with_value(target: Target, name: str, value: Any) -> Target:
    """The machine, if a figure had this value."""
    group, _, field = name.partition(".")
    return target.with_figures(**{group: replace(getattr(target.figures, group), **{field: value})})


def scaled(value: Any, factor: float) -> Any:
    """A figure times a factor, all its numbers if it has several; whole numbers stay whole."""
    if isinstance(value, tuple):
        return tuple(scaled(one, factor) for one in value)
    if is_dataclass(value):
        return replace(value, **{one.name: scaled(getattr(value, one.name), factor) for one in fields(value)})  # type: ignore[type-var]
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


def graphs(subject: str, target: Target) -> Iterator[tuple[str, Partition]]:
    """What a subject compiles to, by name. Raises `UsageError` where it is neither a model of the zoo nor an operator."""
    precision = "bfloat16" if subject.endswith(NARROW) else "float32"
    name, _, batch = subject.removesuffix(NARROW).partition("*")
    if name.endswith(QUANTIZED):
        with tempfile.TemporaryDirectory() as folder:
            found = [(subject, api.load(quantized(name.removesuffix(QUANTIZED), Path(folder))))]
    elif name in {row.name for row in MODELS}:
        found = [(subject, build_model(name, batch=int(batch or 1)))]
    else:
        found = [(row.label, api.load(model_of(row, 1)[0])) for row in ROWS if row.op == subject]
    if not found:
        raise UsageError(f"{subject!r} is neither a model of the zoo nor an operator that is measured")
    for label, graph in found:
        trace = Trace()
        yield label, partition(legalized(graph, target, trace, precision=precision), trace)


def digest(program: Program) -> str:
    """Equal for programs of the same kernels in the same steps."""
    found = hashlib.blake2b(digest_size=8)
    for step in program.steps:
        if isinstance(step, NativeStep):
            key = program.kernels[step.kernel].key
            found.update(f"{key} {step.arguments} {step.strips} {step.pieces}".encode())
    return found.hexdigest()


def _parsed(text: str, like: Any) -> list[Any]:
    """Values as they are written, of the kind of the one in use; those of a record are a tuple."""
    try:
        values = ast.literal_eval(f"[{text}]")
    except (SyntaxError, ValueError):
        raise UsageError(f"--values are numbers or tuples with commas between them, not {text!r}") from None
    return [type(like)(*value) if is_dataclass(like) else value for value in values]


def _call(program: Program, groups: Partition, threads: int) -> Callable[[], object]:
    model = build(program, threads=threads)
    feeds = random_values({port.name: port.type for port in program.inputs}, index_bounds(groups.graph))
    return lambda: model.run(None, feeds)


def _compared(groups: Partition, name: str, values: Sequence[Any], threads: int, seconds: float) -> Iterator[str]:
    """A line for each program that some of the values make; the first value is the one in use."""
    made: dict[str, tuple[Program, list[str]]] = {}
    for value in values:
        program = generate(groups, with_value(host_target(), name, value), Trace(), workers=threads)
        made.setdefault(digest(program), (program, []))[1].append(str(value))
    if len(made) == 1:
        yield f"  {', '.join(values_of(made))}: the same program"
        return
    calls = [_call(program, groups, threads) for program, _ in made.values()]
    times = race(calls, TimingBudget(runs=15, seconds=seconds, limit_seconds=20 * seconds, block_seconds=0.02))
    for (_, told), timing in zip(made.values(), times, strict=True):
        yield f"  {', '.join(told):32} {_spread(timing)}  {timing.p50_ms / times[0].p50_ms:6.3f}"


def values_of(made: Mapping[str, tuple[Program, list[str]]]) -> list[str]:
    return [value for _, told in made.values() for value in told]


def _spread(timing: Timing) -> str:
    return f"{timing.p50_ms:10.3f} ms ({timing.percentile(10):.3f} to {timing.percentile(90):.3f})"


def _listed() -> Iterator[str]:
    target = host_target()
    for name, subjects in FIGURES.items():
        yield f"{name:24} {value_of(target, name)!s:20} {', '.join(subjects)}"


def _lines(given: argparse.Namespace) -> Iterator[str]:
    if given.name is None:
        yield from _listed()
        return
    if given.name not in FIGURES:
        raise UsageError(f"no figure is called {given.name!r}; without a name all are listed")
    threads, target = worker_count(given.threads), host_target()
    used = value_of(target, given.name)
    others = _parsed(given.values, used) if given.values else [scaled(used, factor) for factor in (0.5, 2)]
    yield f"{given.name} = {used} on {machine(threads)['processor']} ({target.cpu}), threads: {threads}"
    for subject in given.on.split(",") if given.on else FIGURES[given.name]:
        for label, groups in graphs(subject, target):
            yield label
            yield from _compared(groups, given.name, [used, *others], threads, given.seconds)


def main() -> int:
    """Measure and print; 2 for a figure, values or subjects that there are none of."""
    parser = argparse.ArgumentParser(description="What a measured figure is worth on this processor.")
    parser.add_argument("name", nargs="?", help="group.field")
    parser.add_argument("--values", help="to try beside the one in use, commas between them")
    parser.add_argument("--on", help="subjects instead of those that it was tried on")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each program")
    try:
        for line in _lines(parser.parse_args()):
            print(line, flush=True)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
