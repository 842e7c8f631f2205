"""Host steps: the nodes of one group by NumPy, by a native routine, or on ONNX's reference evaluator, between native stretches.

Static tensors are read from and written to the program's memory; sequences, optionals, strings and tensors of unknown shape
live as Python objects for the length of one run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from fusewise.errors import FusewiseError, InvalidData, ResourceLimit, UnsupportedModel
from fusewise.ir.graph import Constant, Graph, Node, Subgraph
from fusewise.lower.program import HostStep, Program
from fusewise.ops.allowed import check_work, is_limited, result_bytes
from fusewise.ops.plain.row import Evaluator
from fusewise.ops.plain.table import QUIET, plain_evaluator
from fusewise.ops.positions import check_positions, holds_positions, refuses_itself
from fusewise.runtime.arena import RunMemory
from fusewise.runtime.host import check_memory
from fusewise.runtime.host_native import Writer, native_evaluator, writer_of
from fusewise.runtime.nested import Build, Manner, Nested
from fusewise.runtime.operands import lies_in, reader, writing
from fusewise.runtime.routine import Routine
from fusewise.runtime.slots import Calls

__all__ = ["HostCall", "host_call", "manner_of"]

_WORTH_ASKING_BYTES = 1 << 26
"""Smaller results are there before the system has said how much memory there is."""


class _Member:
    """A node ready to run on its operands, absent ones left out. `opset` is the version of its domain."""

    __slots__ = ("_has_limits", "_refuses_itself", "evaluate", "is_routine", "node", "opset", "outputs", "reads")

    def __init__(self, node: Node, evaluate: Evaluator, opset: int, is_routine: bool = False) -> None:
        self.node, self.evaluate, self.opset, self.is_routine = node, evaluate, opset, is_routine
        self.reads, self.outputs = node.reads, node.outputs
        self._has_limits = holds_positions(node) or is_limited(node)
        self._refuses_itself = refuses_itself(node) and not is_limited(node)

    def results(self, operands: list[Any]) -> list[Any]:
        """The outputs, None for absent ones. Errors of any kind come as the project's own."""
        if not self._refuses_itself:
            self.check(operands)
        try:
            return self.evaluate(*operands)
        except FusewiseError:
            raise
        except Exception as error:
            self.check(operands)
            raise self._explained(error, operands) from error

    def _explained(self, error: Exception, operands: list[Any]) -> FusewiseError:
        if isinstance(error, IndexError):
            return InvalidData(f"{self} finds an index in its operands that is out of bounds: {error}")
        if _for_want_of_memory(error):
            return ResourceLimit(
                f"{self} needs more memory than there is: {' '.join(str(error).split()) or 'no more was given'}"
            )
        if found := _fault(self.node, operands, self.opset):
            return InvalidData(f"{self}: {found}")
        return UnsupportedModel(f"{self} failed in ONNX's reference evaluator: {_sentence(error)}")

    def check(self, present: Sequence[Any]) -> None:
        """Raise `InvalidData` for positions in the operands that are out of bounds, and `ResourceLimit` for what is too much."""
        if not self._has_limits:
            return
        operands: Sequence[Any] = present
        if len(self.reads) != len(self.node.inputs):
            values = dict(zip(self.reads, present, strict=True))
            operands = [values[name] if name else None for name in self.node.inputs]
        check_positions(self.node, operands)
        check_work(self.node, operands)
        nbytes = result_bytes(self.node, operands)
        if nbytes > _WORTH_ASKING_BYTES:
            check_memory(nbytes, f"the result of {self}")

    def __str__(self) -> str:
        return f"node {self.node.label!r} ({self.node.op})"


def _sentence(error: Exception) -> str:
    """What an error of another program says, in a line that is not longer than people read."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


_LONGEST = 200
"""Characters."""


class HostCall:
    """A host step ready to run. `writer`, if there is one, puts the one result straight where it belongs."""

    def __init__(self, step: HostStep, members: tuple[_Member, ...], writer: Writer | None = None) -> None:
        self.label, self.group, self.members = step.label, step.group, members
        self._writer = writer
        maker = {name: member for member in members for name in member.outputs}
        self.makers = {value[0]: str(maker[value[0]]) for value in step.writes}
        names = [value[0] for value in step.reads]
        self._reads = tuple(reader(value) for value in step.reads)
        self._places = tuple(k for k, value in enumerate(step.reads) if lies_in(value) is not None)
        self._writes = tuple(writing(value, self.makers[value[0]]) for value in step.writes)
        self._calls = Calls(members, names, [value[0] for value in step.writes], {})
        self._warns = any((node.domain, node.op) not in QUIET for node in step.nodes)
        self._into = lies_in(step.writes[0]) if writer is not None else None
        self._operands = [names.index(name) for name in members[0].reads] if writer is not None else []

    def moved(self, step: HostStep) -> HostCall:
        """The same nodes where their operands have other types and places, which `step` states."""
        return HostCall(step, self.members, self._writer)

    @property
    def stands_alone(self) -> bool:
        """Does it read or write memory as it lies there, which code for the shapes of a stage would have to copy?"""
        in_place = self._writer is not None and self._into is not None
        return in_place or any(member.is_routine for member in self.members)

    def run(self, memory: RunMemory, objects: dict[str, Any]) -> None:
        """Evaluate the nodes on operands from `memory` and `objects`, and put there what is wanted of their results."""
        values = [read(memory, objects) for read in self._reads]
        if self._warns:
            with np.errstate(all="ignore"):
                self._run(values, memory, objects)
        else:
            self._run(values, memory, objects)

    def _run(self, values: list[Any], memory: RunMemory, objects: dict[str, Any]) -> None:
        if self._writer is not None and self._into is not None:
            operands = [values[k] for k in self._operands]
            self.members[0].check(operands)
            if self._writer(operands, memory.view(*self._into)):
                return
        results = self._calls.run(values)
        views = [values[k] for k in self._places]
        for write, result in zip(self._writes, results, strict=True):
            write(memory, objects, result, views)


def _for_want_of_memory(error: BaseException | None) -> bool:
    """Is memory the reason, at the end of the chain of reasons?"""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def host_call(step: HostStep, program: Program, addresses: Mapping[str, int], workers: int, build: Build) -> HostCall:
    """Prepare a host step; raises `UnsupportedModel` when ONNX has no evaluator for an operator.

    `addresses` has the program's native code by symbol, which `workers` workers may run; `build` makes what is compiled on the way
    runnable.
    """

    routines = {name: Routine(address, workers, program.is_checked) for name, address in addresses.items()}

    def member(node: Node, constants: Mapping[str, Constant]) -> _Member:
        version = step.opset if not node.domain else dict(program.opsets).get(node.domain, 1)
        reference = partial(_reference, node, step.opset, program.opsets, version)
        later = _later(reference)
        native = native_evaluator(node, step.opset, routines, later)
        better = native or plain_evaluator(node, version, later)
        if any(isinstance(value, Subgraph) for _, value in node.attributes):
            from fusewise.runtime.control import control_evaluator  # and with it ONNX, which reads bodies

            better = control_evaluator(node, step.opset, program.opsets, constants, nested)
        return _Member(node, better or reference(), version, native is not None)

    def nested(graph: Graph) -> Nested:
        return Nested(graph, lambda node: member(node, graph.constants), manner_of(program, workers, build))

    objects = {name: Constant(found) for name, found in program.objects if isinstance(found, np.ndarray)}
    members = tuple(member(node, objects) for node in step.nodes)
    writer = writer_of(step.nodes[0]) if len(step.nodes) == len(step.writes) == 1 else None
    return HostCall(step, members, writer)


def manner_of(program: Program, workers: int, build: Build) -> Manner:
    """How a program was compiled, for what it compiles while it runs."""
    return Manner(build, workers, program.exact, program.disabled, program.is_checked)


def _reference(node: Node, opset: int, opsets: tuple[tuple[str, int], ...], version: int) -> Evaluator:
    """ONNX's evaluator of a node. Some operands that ONNX's text forbids it takes: these are `InvalidData`."""
    from fusewise.ops.evaluate import evaluator  # and with it ONNX, which many programs do without

    evaluate = evaluator(node, opset, opsets)

    def run(*operands: Any) -> list[Any]:
        if found := _fault(node, operands, version):
            raise InvalidData(f"node {node.label!r} ({node.op}): {found}")
        return evaluate(*operands)

    return run


def _fault(node: Node, present: Sequence[Any], version: int) -> str:
    """What ONNX's text forbids about the operands that there are; empty when nothing is found."""
    from fusewise.ops.validity.table import fault_of_operands  # and with it ONNX, which most programs do without

    values = dict(zip(node.reads, present, strict=True))
    return fault_of_operands(node, [values[name] if name else None for name in node.inputs], version)


def _later(make: Callable[[], Evaluator]) -> Evaluator:
    """The evaluator that `make` gives, made when it is first asked."""
    made = cache(make)

    def evaluate(*operands: Any) -> list[Any]:
        return made()(*operands)

    return evaluate
