"""Graphs that a program runs while it runs: bodies of control flow, and what follows a size that data decide.

Their shapes are known when they are run: node by node at first, by NumPy. What comes back until that has cost enough is compiled,
for its shapes and the contents of inputs that decide shapes (`frontend.deciding`), and run as any other model from then on.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from fusewise.errors import FusewiseError
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.lower.program import NativeStep, Program
from fusewise.ops.spec import NotDefined
from fusewise.records import record
from fusewise.runtime.feeds import PortInfo
from fusewise.runtime.slots import Calls, ReadyNode

__all__ = ["Build", "Manner", "Nested", "Runnable"]

_WORTH_SECONDS = 0.05
"""What runs of the same shapes must have cost before they are compiled for."""

_MOST_RUNS = 6_000
"""Runs that may have cost so much together: of what takes less a call of native code takes as long."""

_KEPT = 4
"""Shapes whose code is kept."""

_MOST_BUILT = 16
"""Times that one graph is compiled: one that is run for ever other shapes is left to NumPy."""

_MOST_CONTENTS = 64
"""Elements of an input whose contents are compiled for."""

_DIFFERENT = 8
"""Contents met for the same shapes, beyond which they are data that nothing is compiled for."""

_REMEMBERED = 256
"""Shapes whose cost is counted at a time."""

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
Key = tuple[Shapes, tuple[bytes, ...]]


class Runnable(Protocol):
    """A program that is ready to run."""

    def run_in_order(self, values: Sequence[Any]) -> list[Any]:
        """All outputs for a value of each input, in order."""

    def get_inputs(self) -> Sequence[PortInfo]:
        """The inputs that a run takes."""


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
    """Code for values of certain shapes: called with all of a graph's `inputs` in order, it gives the outputs."""

    executable: Runnable
    inputs: tuple[str, ...]

    def __post_init__(self) -> None:
        places = {name: k for k, name in enumerate(self.inputs)}
        self.places = [places[port.name] for port in self.executable.get_inputs()]

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        return self.executable.run_in_order([values[k] for k in self.places])


class _Case:
    """What is known of runs of certain shapes and contents: how many there were, what they have cost, and their code, if that was
    worth it."""

    __slots__ = ("is_tried", "native", "runs", "seconds")

    def __init__(self) -> None:
        self.seconds, self.runs, self.is_tried = 0.0, 0, False
        self.native: Native | None = None


class Nested:
    """A graph of unknown shapes. `run` takes its inputs in order and gives its outputs; types may differ from run to run.

    `make` gives the evaluator of a node. What is run is within the turn of the program
    that it is part of, so by one thread at a time.
    """

    def __init__(self, graph: Graph, make: Callable[[Node], ReadyNode], manner: Manner) -> None:
        self._graph = graph
        self._make = make
        self._manner = manner
        self._calls: Calls | None = None
        self._deciding: tuple[int, ...] | None = None
        self._cases: dict[Key, _Case] = {}
        self._built: OrderedDict[Key, _Case] = OrderedDict()
        self._contents: Counter[Shapes] = Counter()
        self._builds = 0

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for the values of the inputs. Raises what the nodes raise."""
        case = self._case(values)
        if case is None:
            return self._by_nodes(values)
        if case.native is not None:
            return case.native(values)
        begin = time.perf_counter()
        found = self._by_nodes(values)
        case.seconds += time.perf_counter() - begin
        case.runs += 1
        return found

    def _by_nodes(self, values: Sequence[Any]) -> list[Any]:
        if self._calls is None:
            graph = self._graph
            known = {name: constant.array for name, constant in graph.constants.items()}
            self._calls = Calls(map(self._make, graph.nodes), graph.inputs, graph.outputs, known)
        return self._calls.run(values)

    def _case(self, values: Sequence[Any]) -> _Case | None:
        """That of these values, compiled where it is worth it; None where some value has no form in native memory."""
        key = self._key(values)
        if key is None:
            return None
        case = self._cases.get(key)
        if case is None:
            return self._new_case(key)
        if case.is_tried:
            if len(self._built) > 1:
                self._built.move_to_end(key)
        elif case.seconds >= _WORTH_SECONDS and case.runs <= _MOST_RUNS and self._builds < _MOST_BUILT:
            self._compile(key, case, values)
        return case

    def _new_case(self, key: Key) -> _Case:
        if len(self._cases) >= _REMEMBERED:
            self._cases = dict(self._built)
        if key[1]:
            self._contents[key[0]] += 1
        return self._cases.setdefault(key, _Case())

    def _key(self, values: Sequence[Any]) -> Key | None:
        """What code is compiled for; None where some value has no form in native memory."""
        shapes = []
        for value in values:
            if type(value) is not np.ndarray or value.dtype == object or value.dtype.kind == "c":
                return None
            shapes.append((value.dtype.char, value.shape))
        if self._deciding is None:
            from fusewise.frontend.deciding import deciding_inputs

            kinds = {name: Constant(value).type for name, value in zip(self._graph.inputs, values, strict=True)}
            known = self._graph.replace(types={**self._graph.types, **kinds})
            places = {name: k for k, name in enumerate(self._graph.inputs)}
            self._deciding = tuple(places[name] for name in deciding_inputs(known))
        stated = tuple(shapes)
        if not self._deciding or self._contents[stated] > _DIFFERENT:
            return stated, ()
        return stated, tuple(values[k].tobytes() for k in self._deciding if values[k].size <= _MOST_CONTENTS)

    def _compile(self, key: Key, case: _Case, values: Sequence[Any]) -> None:
        """Code for these shapes and contents; none, and so from then on, where nothing of it would be native."""
        self._builds += 1
        given = dict(zip(self._graph.inputs, values, strict=True))
        names = [self._graph.inputs[k] for k in self._deciding or ()] if key[1] else []
        contents = {name: given[name] for name in names if given[name].size <= _MOST_CONTENTS}
        case.is_tried = True
        try:
            executable = compiled(self._graph, given, contents, self._manner)
        except (FusewiseError, NotDefined):  # what is wrong with it, the nodes say
            executable = None
        case.native = None if executable is None else Native(executable, self._graph.inputs)
        self._built[key] = case
        while len(self._built) > _KEPT:
            _, last = self._built.popitem(last=False)
            last.native, last.is_tried = None, False


def compiled(
    graph: Graph, given: Mapping[str, np.ndarray], contents: Mapping[str, np.ndarray], manner: Manner
) -> Runnable | None:
    """A graph compiled for inputs of these shapes, those of `contents` as constants; None where all of it would run on the host.

    Raises what compiling raises.
    """
    from fusewise.codegen.assemble import generate
    from fusewise.codegen.legalize import legalized
    from fusewise.frontend.declared import without_shape
    from fusewise.frontend.infer_types import infer_graph
    from fusewise.fusion.plan import plan
    from fusewise.runtime.host import host_target
    from fusewise.trace import Trace

    trace = Trace(disabled=frozenset(manner.disabled))
    target = replace(host_target(), sanitize=manner.is_checked or host_target().sanitize)
    known = {name: Constant(array.copy()) for name, array in contents.items()}
    kinds = {name: Constant(array).type for name, array in given.items()}
    bound = graph.replace(
        inputs=tuple(name for name in graph.inputs if name not in contents),
        constants={**graph.constants, **known},
    )
    declared = {name: without_shape(kind) for name, kind in graph.types.items()}
    typed = bound.replace(types=infer_graph(bound.replace(types={**graph.types, **kinds}), kinds, declared).types)
    groups = plan(legalized(typed, target, trace, exact=manner.exact), trace, "dnnfusion").partition
    program = generate(groups, target, trace, workers=manner.workers, exact=manner.exact)
    if not any(isinstance(step, NativeStep) for step in program.steps) and program.steps:
        return None
    return manner.build(program, threads=manner.workers)
