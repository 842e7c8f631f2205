"""What a run gives back: arrays, lists and texts that are the caller's own, whatever the model does with its values.

A model may return its inputs, its constants, one value under two names, a list whose elements are one array, or what an evaluator
keeps for its next run. Each is copied on the way out, unless nobody else has it, so that nobody's later change is seen by anybody
else.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.ir.types import SequenceType, TensorType
from fusewise.lower.program import HostStep, Place, Port, Program
from fusewise.runtime.arena import RunMemory, counts_are_exact

__all__ = ["Results"]


class Results:
    """The outputs of a program, in the order of its ports."""

    def __init__(self, outputs: Sequence[Port], program: Program) -> None:
        self._exact = counts_are_exact()
        made = [port.buffer >= 0 and program.buffers[port.buffer].kind == "output" for port in outputs]
        self._ports = list(zip(outputs, made, strict=True))
        self._anew = (
            _made_anew(program) if any(isinstance(port.type, SequenceType) for port in outputs) else frozenset()
        )

    def taken(self, wanted: Sequence[int], memory: RunMemory, objects: Mapping[str, Any]) -> list[Any]:
        """The `wanted` outputs after a run: of `memory` made for the caller as they are, everything else copied."""
        found: list[Any] = []
        given: set[int] = set()
        for number in wanted:
            port, made = self._ports[number]
            made = made and memory.own[port.buffer] is None
            if made and port.buffer not in given:
                given.add(port.buffer)
                found.append(memory.caller[port.buffer])
            elif made:
                found.append(memory.caller[port.buffer].copy())
            elif port.buffer < 0:
                value = objects[port.name]
                # three references: the map, `value` and the call's argument; every view of it is one more, and whoever keeps it
                alone = type(value) is np.ndarray and value.base is None and sys.getrefcount(value) == 3
                if type(value) is list and self._exact and sys.getrefcount(value) == 3:
                    found.append(value if port.name in self._anew else _alone_or_copied(value))
                else:
                    found.append(value if alone and self._exact else _copied(value))
            else:
                assert isinstance(port.type, TensorType)
                found.append(memory.view(Place(port.buffer), port.type).copy())
        return found


def _made_anew(program: Program) -> frozenset[str]:
    """Lists of maps that are made in every run: nobody else has any of these, of which there is one for each row."""
    steps = (step for step in program.steps if isinstance(step, HostStep))
    makers = (node for step in steps for node in step.nodes if (node.domain, node.op) == ("ai.onnx.ml", "ZipMap"))
    return frozenset(name for node in makers for name in node.writes)


def _alone_or_copied(items: list[Any]) -> list[Any]:
    """A list that nobody else has: arrays and maps that nobody but the list has are the caller's as they are."""
    references = sys.getrefcount
    return [  # three references: the list, `item` and the call's argument
        item
        if (type(item) is dict or (type(item) is np.ndarray and item.base is None)) and references(item) == 3
        else _copied(item)
        for item in items
    ]


def _copied(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_copied(item) for item in value]
    if isinstance(value, dict):
        return dict(value)
    return value.copy() if isinstance(value, np.ndarray) else value
