"""Code for graphs that a program runs while it runs: for all sizes, or for certain shapes and contents."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from fusewise.ir.graph import Constant, Graph
from fusewise.ir.monomial import LARGEST, Symbol
from fusewise.ir.size import Size, symbols_of
from fusewise.ir.types import Dim, TensorType, ValueType
from fusewise.lower.program import NativeStep, Program, StepVersions
from fusewise.records import record
from fusewise.runtime.feeds import PortInfo
from fusewise.runtime.rounds import RoundPorts, Rounds

__all__ = ["Build", "Manner", "Native", "Runnable", "compiled", "compiled_free", "is_free"]


class Runnable(Protocol):
    """A program that is ready to run."""

    def run_in_order(self, values: Sequence[Any]) -> list[Any]:
        """All outputs for a value of each input, in order."""

    def run_rounds(
        self, values: Sequence[Any], ports: RoundPorts, lines: Sequence[np.ndarray], count: int
    ) -> Rounds | None:
        """At most `count` rounds of a loop's body; None where they cannot be had in one call."""

    def get_inputs(self) -> Sequence[PortInfo]:
        """The inputs that a run takes."""

    @property
    def is_whole(self) -> bool:
        """Is all of it native?"""


class Build(Protocol):
    """Makes a program runnable; `runtime.executable.build` does."""

    def __call__(self, program: Program, *, threads: int | None) -> Runnable: ...


@record(frozen=True, slots=True)
class Manner:
    """How the program was compiled that a graph is part of, how many workers it has, and what makes others of it runnable."""

    build: Build
    workers: int = 1
    exact: bool = False
    disabled: tuple[str, ...] = ()
    is_checked: bool = False


@record(frozen=True)
class Native:
    """Code for a graph: called with all of its `inputs` in order, it gives the outputs."""

    executable: Runnable
    inputs: tuple[str, ...]

    def __post_init__(self) -> None:
        places = {name: k for k, name in enumerate(self.inputs)}
        self.places = [places[port.name] for port in self.executable.get_inputs()]

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        return self.executable.run_in_order([values[k] for k in self.places])

    def run_rounds(
        self, values: Sequence[Any], ports: RoundPorts, lines: Sequence[np.ndarray], count: int
    ) -> Rounds | None:
        """As `Runnable.run_rounds`, where inputs are numbered as the graph's; one that the code does not read is no matter."""
        own = {place: k for k, place in enumerate(self.places)}
        scanned = [(own[place], line) for place, line in zip(ports.elements, lines, strict=True) if place in own]
        moved = RoundPorts(
            own.get(ports.counter, -1),
            tuple((own.get(place, -1), result) for place, result in ports.states),
            tuple(place for place, _ in scanned),
            ports.gathered,
            None if ports.condition is None else (own.get(ports.condition[0], -1), ports.condition[1]),
        )
        return self.executable.run_rounds([values[k] for k in self.places], moved, [line for _, line in scanned], count)


def compiled(
    graph: Graph, given: Mapping[str, np.ndarray], contents: Mapping[str, np.ndarray], manner: Manner
) -> Runnable | None:
    """A graph compiled for inputs of these shapes, those of `contents` as constants; None where all of it would run on the host.

    Raises what compiling raises.
    """
    from fusewise.frontend.infer_types import infer_graph

    kinds = {name: Constant(array).type for name, array in given.items()}
    bound, declared = _with_contents(graph, contents), _declared(graph)
    return _made(
        bound.replace(types=infer_graph(bound.replace(types={**graph.types, **kinds}), kinds, declared).types), manner
    )


def compiled_free(
    graph: Graph,
    given: Mapping[str, np.ndarray],
    contents: Mapping[str, np.ndarray],
    elements: Sequence[str],
    manner: Manner,
) -> Runnable | None:
    """A graph compiled for inputs of any shapes of these ranks, those of `contents` as constants, and those called `elements` of
    any contents; None where all of it would run on the host, and where nothing is free.

    What the graph's types state stays as it is. What is 1 stays 1, since it may be broadcast, and so do elements that are less
    than 2: 0, 1 and what is negative have meanings of their own. Sizes that do not fit are a `UsageError` of the run. Raises what
    compiling raises.
    """
    from fusewise.frontend.free import in_symbols

    bound, fixed = _with_contents(graph, contents), set[str]()
    while True:
        inputs, read, symbols = _inputs_of(bound, given, elements, fixed)
        if not symbols:
            return None
        found = in_symbols(bound.replace(types={**graph.types, **inputs}), inputs, _declared(graph), symbols, read)
        numbers = {symbol.name for symbol in _depths(found)} & symbols.keys()
        if not numbers:
            return _made(found, manner)
        fixed |= numbers


def _inputs_of(
    graph: Graph, given: Mapping[str, np.ndarray], elements: Sequence[str], fixed: Collection[str]
) -> tuple[dict[str, TensorType], dict[str, tuple[int | str, ...]], dict[str, Symbol]]:
    """The inputs' types with names for what is free, their elements likewise, and what is known of each name."""
    symbols: dict[str, Symbol] = {}

    def free(name: str, number: int, is_fixed: bool, low: int = 0) -> int | str:
        if is_fixed or name in fixed:
            return number
        symbols[name] = Symbol(name, low, hint=number)
        return name

    numbers, targets = set(_read_as_numbers(graph)), _targets(graph)
    inputs: dict[str, TensorType] = {}
    read: dict[str, tuple[int | str, ...]] = {}
    for k, name in enumerate(graph.inputs):
        kind = Constant(given[name]).type
        stated = _stated(graph.types.get(name), kind.rank)
        dims: tuple[Dim, ...] = tuple(
            free(f"d{k}_{axis}", dim, dim == 1 or name in elements or isinstance(stated[axis], int))
            for axis, dim in enumerate(kind.dims)
        )
        inputs[name] = TensorType(kind.dtype, dims)
        if name in elements:
            flat = given[name].reshape(-1).tolist()
            read[name] = tuple(
                free(f"e{k}_{n}", one, name in numbers or not 2 <= one <= LARGEST, int(name in targets))
                for n, one in enumerate(flat)
            )
    return inputs, read, symbols


def _read_as_numbers(graph: Graph) -> Iterator[str]:
    """The values that operators read axes and steps from, of which no shape is known without the numbers."""
    for node in graph.nodes:
        places = () if node.domain else _AXES_AND_STEPS.get(node.op, (1,) if node.op.startswith("Reduce") else ())
        yield from (node.inputs[place] for place in places if place < len(node.inputs))


_AXES_AND_STEPS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"CumSum": (1,), "Pad": (3,), "Range": (2,), "Slice": (3, 4), "Squeeze": (1,), "Unsqueeze": (1,)}
)


def _targets(graph: Graph) -> set[str]:
    """What the targets of Reshape are made from, where 0 is no size."""
    found = {node.inputs[1] for node in graph.nodes if node.op == "Reshape" and not node.domain}
    for node in reversed(graph.nodes):
        if found.intersection(node.outputs):
            found.update(node.inputs)
    return found


def _depths(graph: Graph) -> Iterator[Symbol]:
    """The symbols that say how many axes indices are for: no operator has a shape without these."""
    for node in graph.nodes:
        kind = graph.types.get(node.inputs[1]) if node.op in ("GatherND", "ScatterND") and not node.domain else None
        if isinstance(kind, TensorType) and kind.shape:
            yield from symbols_of(kind.shape[-1]) if isinstance(kind.shape[-1], Size) else ()


def is_free(kind: ValueType | None, shape: tuple[int, ...]) -> bool:
    """Is there a dimension that the type of a value does not state, and that is not 1?"""
    return any(dim != 1 and not isinstance(one, int) for one, dim in zip(_stated(kind, len(shape)), shape, strict=True))


def _stated(kind: ValueType | None, rank: int) -> tuple[Dim, ...]:
    """The dimensions that a type states of a tensor of this rank."""
    shape = kind.shape if isinstance(kind, TensorType) else None
    return shape if shape is not None and len(shape) == rank else (None,) * rank


def _with_contents(graph: Graph, contents: Mapping[str, np.ndarray]) -> Graph:
    known = {name: Constant(array.copy()) for name, array in contents.items()}
    inputs = tuple(name for name in graph.inputs if name not in contents)
    return graph.replace(inputs=inputs, constants={**graph.constants, **known})


def _declared(graph: Graph) -> dict[str, Any]:
    """No shapes are believed but those of inputs."""
    from fusewise.frontend.declared import without_shape

    return {name: without_shape(kind) for name, kind in graph.types.items()}


def _made(typed: Graph, manner: Manner) -> Runnable | None:
    from fusewise.codegen.assemble import generate
    from fusewise.codegen.legalize import legalized
    from fusewise.fusion.plan import plan
    from fusewise.runtime.host import host_target
    from fusewise.trace import Trace

    trace = Trace(disabled=frozenset(manner.disabled))
    target = replace(host_target(), sanitize=manner.is_checked or host_target().sanitize)
    groups = plan(legalized(typed, target, trace, exact=manner.exact), trace, "dnnfusion").partition
    program = generate(groups, target, trace, workers=manner.workers, exact=manner.exact)
    if program.steps and not any(isinstance(step, NativeStep | StepVersions) for step in program.steps):
        return None
    return manner.build(program, threads=manner.workers)
