"""Host steps: the nodes of one group on ONNX's reference evaluator, between native stretches.

Static tensors are read from and written to the program's memory; sequences, optionals, strings and tensors of unknown shape
live as Python objects for the length of one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusewise.errors import FusewiseError, UnsupportedModel
from fusewise.ir.types import TensorType, ValueType
from fusewise.lower.program import HostStep, Place, Program
from fusewise.ops.evaluate import Evaluator, evaluator

__all__ = ["HostCall", "Memory", "host_call"]


@dataclass(frozen=True, slots=True)
class Memory:
    """The program's memory during one run: `own` blocks by buffer, and for the rest the `caller`'s arrays."""

    own: tuple[np.ndarray | None, ...]
    caller: Mapping[int, np.ndarray]

    def view(self, buffer: int, offset: int, kind: TensorType) -> np.ndarray:
        """The tensor of type `kind` that lies `offset` bytes into a buffer."""
        block = self.own[buffer]
        flat = self.caller[buffer].reshape(-1).view(np.uint8) if block is None else block
        return flat[offset : offset + kind.nbytes].view(kind.dtype.numpy).reshape(kind.dims)


@dataclass(frozen=True, slots=True)
class _Member:
    """A node ready to run: the names of its operands, absent ones left out, and of its results."""

    label: str
    op: str
    evaluate: Evaluator
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def run(self, values: dict[str, Any]) -> None:
        try:
            results = self.evaluate(*[values[name] for name in self.reads])
        except FusewiseError:
            raise
        except Exception as error:
            raise UnsupportedModel(
                f"node {self.label!r} ({self.op}) failed in ONNX's reference evaluator: {type(error).__name__}: {error}"
            ) from error
        values.update(zip(self.writes, results, strict=True))

    def checked(self, result: np.ndarray, kind: TensorType) -> np.ndarray:
        if result.shape != kind.dims:
            raise UnsupportedModel(
                f"node {self.label!r} ({self.op}) was expected to give shape {kind.dims}, but gave {result.shape}: "
                "the model's stated shapes do not hold for this input"
            )
        return result if result.dtype == kind.dtype.numpy else result.astype(kind.dtype.numpy)


@dataclass(frozen=True)
class HostCall:
    """A host step ready to run. `keeps` says that a result outlives the memory it may share with an operand."""

    label: str
    group: int
    members: tuple[_Member, ...]
    reads: tuple[tuple[str, Place | None, ValueType | None], ...]
    writes: tuple[tuple[_Member, str, Place | None, ValueType | None], ...]
    keeps: bool

    def run(self, memory: Memory, objects: dict[str, Any]) -> None:
        """Evaluate the nodes on operands from `memory` and `objects`, and put there what is wanted of their results."""
        values = {read[0]: self._operand(read, memory, objects) for read in self.reads}
        for member in self.members:
            member.run(values)
        for member, name, place, kind in self.writes:
            if place is None or not isinstance(kind, TensorType):
                objects[name] = values[name]
            else:
                memory.view(place.buffer, place.offset, kind)[...] = member.checked(np.asarray(values[name]), kind)

    def _operand(
        self, read: tuple[str, Place | None, ValueType | None], memory: Memory, objects: Mapping[str, Any]
    ) -> Any:
        name, place, kind = read
        if place is None or not isinstance(kind, TensorType):
            return objects[name]
        view = memory.view(place.buffer, place.offset, kind)
        if self.keeps:
            return view.copy()
        view.flags.writeable = False
        return view


def host_call(step: HostStep, program: Program) -> HostCall:
    """Prepare a host step; raises `UnsupportedModel` when ONNX has no evaluator for an operator."""
    members = tuple(
        _Member(node.label, node.op, evaluator(node, step.opset, program.opsets), node.reads, node.outputs)
        for node in step.nodes
    )
    maker = {name: member for member in members for name in member.writes}
    writes = tuple((maker[name], name, place, kind) for name, place, kind in step.writes)
    keeps = any(place is None for _, place, _ in step.writes)
    return HostCall(step.label, step.group, members, step.reads, writes, keeps)
