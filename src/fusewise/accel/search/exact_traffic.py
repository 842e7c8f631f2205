"""How the DRAM traffic of a group grows, operator by operator: each step is a few additions instead of a walk over the group."""

from __future__ import annotations

from fusewise.accel.problem import Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.schemes.scheme import bytes_for, traffic, weights_of

__all__ = ["TrafficGrowth", "moved_once"]


def moved_once(problem: Problem, operators: int) -> int:
    """Bytes that operators move at least, however they are split into groups: as one group, its weights once."""
    network, scheme = problem.network, problem.scheme
    assert isinstance(scheme, LBDF | BRR)
    read, written = traffic(
        network, operators, problem.excluded, network_io=scheme.network_io, excluded_traffic=scheme.excluded_traffic
    )
    return bytes_for(read + written + weights_of(network, operators), scheme.bits)


class TrafficGrowth:
    """`moved` is what the group reads and writes and its weights, each once, in elements: `schemes.scheme.traffic` plus
    weights, for a group that grows by consumers."""

    __slots__ = ("_counted", "_outputs", "_reads", "_undo", "_weights", "moved")

    def __init__(self, problem: Problem, *, network_io: bool, excluded_traffic: bool) -> None:
        network, excluded = problem.network, problem.excluded
        others = network.everything if excluded_traffic else ~excluded
        self._counted = tuple(t.consumers & others for t in network.tensors)
        kept = tuple(t.is_output and network_io for t in network.tensors)
        self._weights = tuple(op.form.weights for op in network.operators)
        self._outputs = tuple(
            sum(network.tensors[t].elements for t in op.writes if self._counted[t] or kept[t])
            for op in network.operators
        )
        reads = []
        for op in network.operators:
            row = []
            for read in op.reads:
                tensor = network.tensors[read.tensor]
                if tensor.producer < 0:
                    load = tensor.elements if network_io else 0
                else:
                    load = tensor.elements if excluded_traffic or not excluded >> tensor.producer & 1 else 0
                producer = 1 << tensor.producer if tensor.producer >= 0 else 0
                store = 0 if kept[read.tensor] else tensor.elements
                row.append((read.tensor, producer, tensor.consumers, load, store))
            reads.append(tuple(row))
        self._reads = tuple(reads)
        self._undo: list[int] = []
        self.moved = 0

    def push(self, node: int, group: int) -> None:
        """Add an operator to `group`, in which none of its consumers are."""
        self._undo.append(self.moved)
        moved, larger = self.moved + self._weights[node] + self._outputs[node], group | 1 << node
        for tensor, producer, consumers, load, store in self._reads[node]:
            if not producer & group:
                if not consumers & group:
                    moved += load
            elif not self._counted[tensor] & ~larger:
                moved -= store
        self.moved = moved

    def pop(self) -> None:
        """Take the operator pushed last away again."""
        self.moved = self._undo.pop()
