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

__all__ = ["Build", "Manner", "Member", "Nested", "Runnable"]

_WORTH_SECONDS = 0.05
"""What runs of the same shapes must have cost before they are compiled for."""

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


class Member(Protocol):
    """A node ready to run."""

    def run(self, values: dict[str, Any]) -> None:
        """Add the node's results to the values that it reads from."""


class Runnable(Protocol):
    """A program that is ready to run."""

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """The named outputs, all of them for None."""

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


class Nested:
    """A graph of unknown shapes. `run` takes its inputs in order and gives its outputs; types may differ from run to run.

    `make` gives the evaluator of a node. What is run is within the turn of the program
    that it is part of, so by one thread at a time.
    """

    def __init__(self, graph: Graph, make: Callable[[Node], Member], manner: Manner) -> None:
        self._graph = graph
        self._make = make
        self._manner = manner
        self._members: tuple[Member, ...] | None = None
        self._constants = {name: constant.array for name, constant in graph.constants.items()}
        self._deciding: tuple[int, ...] | None = None
        self._built: OrderedDict[Key, Runnable | None] = OrderedDict()
        self._spent: dict[Key, float] = {}
        self._contents: Counter[Shapes] = Counter()
        self._builds = 0

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for the values of the inputs. Raises what the nodes raise."""
        key = self._key(values)
        if key is not None:
            found = self._built.get(key)
            if found is not None:
                return self._natively(found, key, values)
            if key not in self._built and self._is_worth(key):
                found = self._compiled(key, values)
                if found is not None:
                    return self._natively(found, key, values)
        begin = time.perf_counter()
        env = dict(self._constants)
        env.update(zip(self._graph.inputs, values, strict=True))
        if self._members is None:
            self._members = tuple(self._make(node) for node in self._graph.nodes)
        for member in self._members:
            member.run(env)
        if key is not None:
            self._count(key, time.perf_counter() - begin)
        return [env[name] for name in self._graph.outputs]

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
        if not self._deciding:
            return stated, ()
        if self._contents[stated] > _DIFFERENT:
            return stated, ()
        return stated, tuple(values[k].tobytes() for k in self._deciding if values[k].size <= _MOST_CONTENTS)

    def _is_worth(self, key: Key) -> bool:
        """Has it come back often enough?"""
        return key in self._spent and self._spent[key] >= _WORTH_SECONDS and self._builds < _MOST_BUILT

    def _count(self, key: Key, seconds: float) -> None:
        if key not in self._spent:
            if len(self._spent) >= _REMEMBERED:
                self._spent.clear()
            if key[1]:
                self._contents[key[0]] += 1
        self._spent[key] = self._spent.get(key, 0.0) + seconds

    def _natively(self, executable: Runnable, key: Key, values: Sequence[Any]) -> list[Any]:
        self._built.move_to_end(key)
        wanted = {port.name for port in executable.get_inputs()}
        feeds = {name: value for name, value in zip(self._graph.inputs, values, strict=True) if name in wanted}
        return executable.run(None, feeds)

    def _compiled(self, key: Key, values: Sequence[Any]) -> Runnable | None:
        """Code for these shapes and contents; None, and so from then on, where nothing of it would be native."""
        self._builds += 1
        given = dict(zip(self._graph.inputs, values, strict=True))
        names = [self._graph.inputs[k] for k in self._deciding or ()] if key[1] else []
        contents = {name: given[name] for name in names if given[name].size <= _MOST_CONTENTS}
        try:
            found = compiled(self._graph, given, contents, self._manner)
        except (FusewiseError, NotDefined):  # what is wrong with it, the nodes say
            found = None
        self._built[key] = found
        while len(self._built) > _KEPT:
            self._built.popitem(last=False)
        return found


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
