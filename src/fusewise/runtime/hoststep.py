"""Host steps: the nodes of one group by NumPy, by a native routine, or on ONNX's reference evaluator, between native stretches.

Static tensors are read from and written to the program's memory; sequences, optionals, strings and tensors of unknown shape
live as Python objects for the length of one run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from fusewise.errors import FusewiseError, InvalidData, ResourceLimit, ShapeContradicted, UnsupportedModel
from fusewise.ir.graph import Constant, Graph, Node, Subgraph
from fusewise.ir.types import TensorType, ValueType
from fusewise.lower.program import HostStep, Place, Program
from fusewise.ops.allowed import check_work, result_bytes
from fusewise.ops.plain.row import Evaluator
from fusewise.ops.plain.table import plain_evaluator
from fusewise.ops.positions import check_positions
from fusewise.records import record
from fusewise.runtime.arena import Memory
from fusewise.runtime.host import check_memory
from fusewise.runtime.host_native import Writer, native_evaluator, writer_of
from fusewise.runtime.nested import Build, Manner, Nested
from fusewise.runtime.routine import Routine

__all__ = ["HostCall", "apart", "host_call", "manner_of", "operand"]

_WORTH_ASKING_BYTES = 1 << 26
"""Smaller results are there before the system has said how much memory there is."""


@record(frozen=True, slots=True)
class _Member:
    """A node ready to run on its operands, absent ones left out. `opset` is the version of its domain."""

    node: Node
    evaluate: Evaluator
    opset: int
    is_routine: bool = False

    def run(self, values: dict[str, Any]) -> None:
        self.check(values)
        try:
            with np.errstate(all="ignore"):
                results = self.evaluate(*[values[name] for name in self.node.reads])
        except FusewiseError:
            raise
        except IndexError as error:
            raise InvalidData(f"{self} finds an index in its operands that is out of bounds: {error}") from error
        except Exception as error:
            if _for_want_of_memory(error):
                raise ResourceLimit(
                    f"{self} needs more memory than there is: {' '.join(str(error).split()) or 'no more was given'}"
                ) from error
            if found := _fault(self.node, [values[name] for name in self.node.reads], self.opset):
                raise InvalidData(f"{self}: {found}") from error
            raise UnsupportedModel(f"{self} failed in ONNX's reference evaluator: {_sentence(error)}") from error
        values.update(zip(self.node.outputs, results, strict=True))

    def check(self, values: Mapping[str, Any]) -> None:
        """Raise `InvalidData` for positions in the operands that are out of bounds, and `ResourceLimit` for what is too much."""
        operands = [values[name] if name else None for name in self.node.inputs]
        check_positions(self.node, operands)
        check_work(self.node, operands)
        nbytes = result_bytes(self.node, operands)
        if nbytes > _WORTH_ASKING_BYTES:
            check_memory(nbytes, f"the result of {self}")

    def checked(self, result: np.ndarray, kind: TensorType) -> np.ndarray:
        """A result that has the shape which native code was written for; `ShapeContradicted` for another."""
        if result.shape != kind.dims:
            raise ShapeContradicted(
                f"{self} gives the shape {list(result.shape)}, where the model states {list(kind.dims)}"
            )
        return result if result.dtype == kind.dtype.numpy else result.astype(kind.dtype.numpy)

    def __str__(self) -> str:
        return f"node {self.node.label!r} ({self.node.op})"


def _sentence(error: Exception) -> str:
    """What an error of another program says, in a line that is not longer than people read."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


_LONGEST = 200
"""Characters."""


@record(frozen=True)
class HostCall:
    """A host step ready to run. `writer`, if there is one, puts the one result straight where it belongs."""

    label: str
    group: int
    members: tuple[_Member, ...]
    reads: tuple[tuple[str, Place | None, ValueType | None], ...]
    writes: tuple[tuple[_Member, str, Place | None, ValueType | None], ...]
    writer: Writer | None = None

    @property
    def stands_alone(self) -> bool:
        """Does it read or write memory as it lies there, which code for the shapes of a stage would have to copy?"""
        in_place = self.writer is not None and self.writes[0][2] is not None
        return in_place or any(member.is_routine for member in self.members)

    def checked(self, name: str, result: np.ndarray, kind: TensorType) -> np.ndarray:
        """As `_Member.checked`, of the node that makes the value `name`."""
        return next(member for member, value, _, _ in self.writes if value == name).checked(result, kind)

    def run(self, memory: Memory, objects: dict[str, Any]) -> None:
        """Evaluate the nodes on operands from `memory` and `objects`, and put there what is wanted of their results."""
        values = {read[0]: operand(read, memory, objects) for read in self.reads}
        if self.writer is not None and self._written(self.writer, values, memory):
            return
        views = [values[name] for name, place, _ in self.reads if place is not None]
        for member in self.members:
            member.run(values)
        for member, name, place, kind in self.writes:
            if place is None or not isinstance(kind, TensorType):
                objects[name] = apart(values[name], views)
            else:
                memory.view(place, kind)[...] = member.checked(np.asarray(values[name]), kind)

    def _written(self, writer: Writer, values: Mapping[str, Any], memory: Memory) -> bool:
        ((member, _, place, kind),) = self.writes
        if place is None or not isinstance(kind, TensorType):
            return False
        member.check(values)
        return writer([values[name] for name in member.node.reads], memory.view(place, kind))


def _for_want_of_memory(error: BaseException | None) -> bool:
    """Is memory the reason, at the end of the chain of reasons?"""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def operand(read: tuple[str, Place | None, ValueType | None], memory: Memory, objects: Mapping[str, Any]) -> Any:
    """What a host step reads, as an array that it may not write to, or an object."""
    name, place, kind = read
    if place is None or not isinstance(kind, TensorType):
        return objects[name]
    view = memory.view(place, kind)
    view.flags.writeable = False
    return view


def apart(value: Any, views: list[Any]) -> Any:
    """A result that outlives the step: copied where it may share memory with one of `views`, which does not."""
    if isinstance(value, list):
        return [apart(item, views) for item in value]
    shared = isinstance(value, np.ndarray) and any(np.may_share_memory(value, view) for view in views)
    return value.copy() if shared else value


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

    objects = {name: Constant(array) for name, array in program.objects}
    members = tuple(member(node, objects) for node in step.nodes)
    maker = {name: member for member in members for name in member.node.outputs}
    writes = tuple((maker[name], name, place, kind) for name, place, kind in step.writes)
    writer = writer_of(step.nodes[0]) if len(step.nodes) == len(writes) == 1 else None
    return HostCall(step.label, step.group, members, step.reads, writes, writer)


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
