"""Verifying a compiled model as a user asks for it: the same inputs here and in another runtime, then the search for a fault."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusewise.benchmarking.accuracy import relative_error, tolerance_of
from fusewise.benchmarking.blame import Blame, first_bad
from fusewise.benchmarking.hostile_inputs import ORDINARY, free_shapes, free_sizes, hostile_feeds
from fusewise.benchmarking.inputs import random_feeds
from fusewise.benchmarking.node_by_node import Compiled, answers_by_nodes, first_fault
from fusewise.benchmarking.reference import answer
from fusewise.benchmarking.verification import Case, Fault, Verification
from fusewise.codegen.gpu.device import CPU
from fusewise.errors import FusewiseError, UnsupportedModel
from fusewise.frontend.bind import bind
from fusewise.frontend.onnx_export import as_file
from fusewise.ir.at_sizes import at_sizes
from fusewise.ir.graph import Graph
from fusewise.ir.size import Symbol
from fusewise.options import OptionsDict
from fusewise.trace import Trace
from fusewise.words import no_such

__all__ = ["INPUTS", "VerificationDict", "VerificationSettings", "verified"]

INPUTS = ("random", "hostile")

Build = Callable[[Graph, Trace], Compiled]


@dataclass(frozen=True)
class VerificationSettings:
    """What is compared: `inputs` is one of `INPUTS`, `seed` that of the random ones, `shapes` and `symbols` sizes of dimensions,
    `values` contents of inputs.

    With `free` what nobody gives a size stays free: one model is compiled, and compared at several sizes; on a `device` whose
    programs are for sizes one for each, so that a decision to blame is one about these.
    `tolerance` is the largest relative error of an output (None: by its type, and by the `precision` that products are computed
    in); `bisect` looks for the fault where answers differ.
    """

    seed: int = 0
    inputs: str = "random"
    tolerance: float | None = None
    bisect: bool = True
    shapes: Mapping[str, Sequence[int]] | None = None
    symbols: Mapping[str, int | Symbol] | None = None
    values: Mapping[str, Any] | None = None
    free: bool = False
    precision: str = "float32"
    device: str = CPU

    def __post_init__(self) -> None:
        if self.inputs not in INPUTS:
            raise no_such("kind of inputs", self.inputs, INPUTS)

    def limit(self, answer: Any) -> float:
        """The largest relative error that an answer may have."""
        return tolerance_of(answer, self.precision) if self.tolerance is None else self.tolerance

    @staticmethod
    def taken_from(settings: Mapping[str, Any]) -> tuple[VerificationSettings, dict[str, Any]]:
        """What is given of these settings alone, and what is given of `Options`; None is what nobody says."""
        own = VerificationDict.__annotations__.keys() - OptionsDict.__annotations__.keys()
        given = {name: value for name, value in settings.items() if name in own and value is not None}
        return VerificationSettings(**given), {name: value for name, value in settings.items() if name not in own}


class VerificationDict(OptionsDict, total=False):
    """`VerificationSettings` and `Options`, given one by one."""

    seed: int | None
    inputs: str | None
    tolerance: float | None
    bisect: bool | None


@dataclass(frozen=True)
class _Tried:
    """A set of inputs, the graph of their shapes, what is compiled for it (the same, or a graph of free dimensions), and what the
    reference says; `expected` is None where it refuses them."""

    name: str
    graph: Graph
    feeds: Mapping[str, Any]
    reference: str
    expected: list[Any] | None
    compiled: Graph


def verified(
    source: object, graph: Graph, build: Build, settings: VerificationSettings, trace: Trace | None = None
) -> Verification:
    """Compare what `build` makes of a graph with a reference, set of inputs by set. Decisions go into `trace`.

    `source` is the model as the user gave it, `graph` the same as read, its free dimensions symbols. A graph of ordinary shapes
    that cannot be bound, compiled or run raises what that raises; `UnsupportedModel` where no reference runs it.
    """
    with tempfile.TemporaryDirectory(prefix="fusewise-verify-") as folder:
        tried = _sets(source, graph, settings, Path(folder))
    trace = Trace() if trace is None else trace
    models = {id(tried[0].compiled): build(tried[0].compiled, trace)}
    cases = [_compared(one, build, models, settings) for one in tried]
    worst = _worst(cases)
    blame, fault = None, None
    if not cases[worst].agrees and settings.bisect and tried[worst].expected is not None:
        blame, fault = _searched(tried[worst], build, settings)
    named = blame is not None and blame.event is not None
    return Verification(
        agrees=cases[worst].agrees,
        reference=tried[worst].reference,
        errors=cases[worst].errors,
        tolerances=cases[worst].tolerances,
        decisions=trace.gates,
        blame=None if blame is None else str(blame),
        blamed=blame.event if blame is not None and named else None,
        builds=1 if blame is None else 1 + blame.builds,
        confirmed=blame is not None and blame.confirmed,
        inputs=tried[worst].name,
        cases=tuple(cases),
        fault=fault,
        ran_on=models[id(tried[0].compiled)].summary.get("ran_on", ""),
    )


def _sets(source: object, graph: Graph, settings: VerificationSettings, folder: Path) -> list[_Tried]:
    """The sets of inputs with the answers of the reference, the ordinary one first."""
    shapes, symbols = settings.shapes or {}, settings.symbols or {}
    if settings.free:
        free = bind(graph, shapes, symbols, settings.values, free=True)
        if free.symbols:
            return _free_sets(free if settings.values else source, free, settings, folder)
    bound = bind(graph, shapes, symbols, settings.values)
    source = bound if settings.values else source
    path = as_file(source, bound, folder)
    given = {name: size for name, size in symbols.items() if not isinstance(size, Symbol)}
    if settings.inputs == "random":
        return [_tried(ORDINARY, path, bound, random_feeds(bound, settings.seed))]
    found = [_tried(name, path, bound, feeds) for name, feeds in hostile_feeds(bound, settings.seed).items()]
    for name, sizes in free_shapes(graph, shapes, given).items():
        try:
            sized = bind(graph, sizes, symbols, settings.values)
            feeds = random_feeds(sized, settings.seed)
        except FusewiseError:  # a size that contradicts the model is nobody's fault
            continue
        file = as_file(sized if settings.values else source, sized, folder)
        found.append(_tried(name, file, sized, feeds))
    return found


def _free_sets(source: object, free: Graph, settings: VerificationSettings, folder: Path) -> list[_Tried]:
    """Sets of inputs of several sizes, for one graph of free dimensions; those of sizes that cannot be are left out."""
    found: list[_Tried] = []
    for name, sizes in free_sizes(free.symbols).items():
        if not all(check.condition.holds(sizes) for check in free.checks):
            continue
        sized = at_sizes(free, sizes)
        path = as_file(sized if isinstance(source, Graph) else source, sized, folder)
        if name != ORDINARY:
            sets: Mapping[str, Mapping[str, Any]] = {_named(name, sizes): random_feeds(sized, settings.seed)}
        elif settings.inputs == "random":
            sets = {name: random_feeds(sized, settings.seed)}
        else:
            sets = hostile_feeds(sized, settings.seed)
        compiled = free if settings.device == CPU else sized
        found += [_tried(each, path, sized, feeds, compiled) for each, feeds in sets.items()]
    return found


def _named(name: str, sizes: Mapping[str, int]) -> str:
    return f"{name} ({', '.join(f'{symbol}={size}' for symbol, size in sizes.items())})"


def _tried(name: str, path: Path, graph: Graph, feeds: Mapping[str, Any], compiled: Graph | None = None) -> _Tried:
    subject = graph if compiled is None else compiled
    try:
        reference, expected = answer(path, feeds)
    except UnsupportedModel as refusal:
        try:
            reference, expected = "the best witness of each node", answers_by_nodes(graph, feeds)
        except UnsupportedModel:
            if name == ORDINARY:
                raise refusal from None
            return _Tried(name, graph, feeds, "the reference", None, subject)
    return _Tried(name, graph, feeds, reference, expected, subject)


def _compared(one: _Tried, build: Build, models: dict[int, Compiled], settings: VerificationSettings) -> Case:
    """How the compiled model does on a set; `models` keeps what was compiled for a graph."""
    try:
        if id(one.compiled) not in models:
            models[id(one.compiled)] = build(one.compiled, Trace())
        found = models[id(one.compiled)].run(None, one.feeds)
    except FusewiseError as error:
        if one.name == ORDINARY:
            raise
        return Case(one.name, one.expected is None, {}, {}, f"refused here: {error}")
    if one.expected is None:
        return Case(one.name, True, {}, {}, "no reference runs it, so nothing is compared")
    limits = [settings.limit(value) for value in one.expected]
    errors = [relative_error(a, b) for a, b in zip(found, one.expected, strict=True)]
    agrees = all(error <= limit for error, limit in zip(errors, limits, strict=True))
    outputs = one.graph.outputs
    return Case(one.name, agrees, dict(zip(outputs, errors, strict=True)), dict(zip(outputs, limits, strict=True)))


def _worst(cases: Sequence[Case]) -> int:
    """The number of the first case that differs, else of that with the largest error."""
    differing = [k for k, case in enumerate(cases) if not case.agrees]
    return differing[0] if differing else max(range(len(cases)), key=lambda k: max(cases[k].errors.values(), default=0))


def _searched(one: _Tried, build: Build, settings: VerificationSettings) -> tuple[Blame, Fault | None]:
    """The decision to blame; where it alone does not explain the fault, the first node that differs, too."""
    expected = one.expected or []
    limits = [settings.limit(value) for value in expected]

    def agrees(trace: Trace) -> bool:
        try:
            found = build(one.compiled, trace).run(None, one.feeds)
        except FusewiseError:
            return False
        return all(relative_error(a, b) <= c for a, b, c in zip(found, expected, limits, strict=True))

    blame = first_bad(agrees)
    if blame.confirmed:
        return blame, None
    limit = 0 if blame.event is None else None
    try:
        return blame, first_fault(
            one.graph,
            one.feeds,
            lambda graph: build(graph, Trace(limit=limit)),
            expected,
            one.reference,
            settings.limit,
        )
    except FusewiseError:  # what is refused stays refused, and every value at once may be more than fits
        return blame, None
