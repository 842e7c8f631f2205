"""Host steps: one node on ONNX's reference evaluator, between native stretches.

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


@dataclass(frozen=True)
class HostCall:
    """A node ready to run. `keeps` says that a result outlives the memory it may share with an operand."""

    label: str
    op: str
    group: int
    evaluate: Evaluator
    reads: tuple[tuple[str, Place | None, ValueType | None], ...]
    writes: tuple[tuple[str, Place | None, ValueType | None], ...]
    keeps: bool

    def run(self, memory: Memory, objects: dict[str, Any]) -> None:
        """Evaluate the node on operands from `memory` and `objects`, and put its results there."""
        operands = [self._operand(read, memory, objects) for read in self.reads]
        try:
            results = self.evaluate(*operands)
        except FusewiseError:
            raise
        except Exception as error:
            raise UnsupportedModel(
                f"node {self.label!r} ({self.op}) failed in ONNX's reference evaluator: {type(error).__name__}: {error}"
            ) from error
        for (name, place, kind), result in zip(self.writes, results, strict=True):
            if not name:
                continue
            if place is None or not isinstance(kind, TensorType):
                objects[name] = result
            else:
                memory.view(place.buffer, place.offset, kind)[...] = self._checked(np.asarray(result), kind)

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

    def _checked(self, result: np.ndarray, kind: TensorType) -> np.ndarray:
        if result.shape != kind.dims:
            raise UnsupportedModel(
                f"node {self.label!r} ({self.op}) was expected to give shape {kind.dims}, but gave {result.shape}: "
                "the model's stated shapes do not hold for this input"
            )
        return result if result.dtype == kind.dtype.numpy else result.astype(kind.dtype.numpy)


def host_call(step: HostStep, program: Program) -> HostCall:
    """Prepare a host step; raises `UnsupportedModel` when ONNX has no evaluator for the operator."""
    reads = tuple(read for read in step.reads if read[0])
    keeps = any(name and place is None for name, place, _ in step.writes)
    node = step.node
    return HostCall(
        node.label, node.op, step.group, evaluator(node, step.opset, program.opsets), reads, step.writes, keeps
    )
