"""A graph as the planner sees it: operators and tensors as small numbers, edges as bits, everything else left behind.

Takes a model, gives a `Network`: no weights, only their sizes, so it is small and travels to worker processes. Operator v of the
network is node v of the prepared graph, which is what turns a plan into a `Partition` later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fusewise.accel.bits import bits_of, mask_of, union_over
from fusewise.accel.lone_norms import fold_lone_norms
from fusewise.accel.operators import OperatorForm, form_of, image_of
from fusewise.errors import UnsupportedModel
from fusewise.ir.graph import Graph
from fusewise.ir.types import TensorType, ValueType
from fusewise.passes.pipeline import CLEAN
from fusewise.passes.pipeline import run as run_passes
from fusewise.trace import Trace

__all__ = ["Network", "Operator", "Read", "Tensor", "network_of", "prepare"]


class Read(NamedTuple):
    """How one operator reads one tensor.

    `lag_rows`, `lag_columns`: by how much the operator trails the tensor, in the network's common units of height and width
    (`Network.row_pitch`). `back_rows`, `back_columns`: how far behind its centre it still looks, in the same units. `whole`: it
    takes pixels as they come and answers after the last, so it needs no window. `edge_rows`, `edge_columns`: see
    `AxisWindow.edges`.
    """

    tensor: int
    lag_rows: int
    lag_columns: int
    back_rows: int
    back_columns: int
    whole: bool
    edge_rows: tuple[tuple[int, int], ...] = ()
    edge_columns: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Tensor:
    """An activation. `producer` is -1 for an input of the network; `consumers` is a set of operators as bits."""

    name: str
    channels: int
    height: int
    width: int
    producer: int
    consumers: int
    is_output: bool

    @property
    def pixels(self) -> int:
        return self.height * self.width

    @property
    def elements(self) -> int:
        return self.channels * self.height * self.width


@dataclass(frozen=True, slots=True)
class Operator:
    """A node: what it is (`form`), the tensors it reads (each once, and how) and those it writes, as indexes.

    `origin` names the nodes of the user's model it comes from.
    """

    name: str
    op: str
    form: OperatorForm
    reads: tuple[Read, ...]
    writes: tuple[int, ...]
    origin: tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """Operators in topological order, and tensors.

    Heights of all maps divide `unit_rows`, widths `unit_columns` (least common multiples), so positions in maps of different
    resolution compare as integers. `bilinear_ahead` is as `network_of` took it.
    """

    name: str
    operators: tuple[Operator, ...]
    tensors: tuple[Tensor, ...]
    unit_rows: int
    unit_columns: int
    bilinear_ahead: int | None = None

    def __len__(self) -> int:
        return len(self.operators)

    @property
    def everything(self) -> int:
        """All operators, as bits."""
        return (1 << len(self.operators)) - 1

    @cached_property
    def row_pitch(self) -> tuple[int, ...]:
        """Units between two rows of each tensor."""
        return tuple(self.unit_rows // tensor.height for tensor in self.tensors)

    @cached_property
    def column_pitch(self) -> tuple[int, ...]:
        """Units between two columns of each tensor."""
        return tuple(self.unit_columns // tensor.width for tensor in self.tensors)

    @cached_property
    def predecessors(self) -> tuple[int, ...]:
        """Per operator, those whose results it reads, as bits."""
        return tuple(
            mask_of(self.tensors[read.tensor].producer for read in op.reads if self.tensors[read.tensor].producer >= 0)
            for op in self.operators
        )

    @cached_property
    def successors(self) -> tuple[int, ...]:
        """Per operator, those that read its results, as bits."""
        return tuple(_union(self.tensors[t].consumers for t in op.writes) for op in self.operators)

    @cached_property
    def neighbours(self) -> tuple[int, ...]:
        """Per operator, both its predecessors and its successors, as bits."""
        return tuple(a | b for a, b in zip(self.predecessors, self.successors, strict=True))

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Per operator, all from which it can be reached, itself left out, as bits."""
        found: list[int] = []
        for before in self.predecessors:
            found.append(before | union_over(found, before))
        return tuple(found)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """Per operator, all that can be reached from it, itself left out, as bits."""
        found = [0] * len(self.operators)
        for node in reversed(range(len(found))):
            after = self.successors[node]
            found[node] = after | union_over(found, after)
        return tuple(found)

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs (producer, consumer), ascending, each once."""
        return tuple((node, after) for node, later in enumerate(self.successors) for after in bits_of(later))

    def is_convex(self, group: int) -> bool:
        """Does no path leave the group and come back?"""
        return union_over(self.descendants, group) & union_over(self.ancestors, group) & ~group == 0


def prepare(graph: Graph) -> Graph:
    """The graph with batch normalisation folded, lone ones too where that is legal, and constants computed; activations stay
    nodes.

    Filters keep taps that only meet padding, as in published figures. `UnsupportedModel` when a dimension is still unknown
    after that.
    """
    prepared = run_passes(graph, (*CLEAN, fold_lone_norms), Trace(disabled=frozenset({"drop-padded-taps"}))).pruned()
    for value, kind in prepared.types.items():
        if isinstance(kind, TensorType) and not kind.is_static:
            raise UnsupportedModel(
                f"planning needs fixed sizes, but {value!r} of {graph.name!r} is {kind}: give the inputs' shapes"
                f" with --shape {prepared.inputs[0] if prepared.inputs else value}=1x3x224x224 or the like."
            )
    return prepared


def network_of(graph: Graph, *, bilinear_ahead: int | None = None) -> Network:
    """The planner's view of a prepared graph (see `prepare`).

    `bilinear_ahead`: input pixels that a linear Resize looks ahead along an axis, as published figures have it: 1, or 0 for
    those that leave it out, and none behind. By default what its arithmetic reads, which is more: an input row is read again
    for the next rows of the result.
    """
    values = [v for v in graph.types if v not in graph.constants and (v in graph.producer or v in graph.inputs)]
    number = {value: i for i, value in enumerate(values)}
    tensors = tuple(_tensor(graph, value) for value in values)
    unit_rows, unit_columns = math.lcm(*(t.height for t in tensors)), math.lcm(*(t.width for t in tensors))
    operators = []
    for node in graph.nodes:
        form = form_of(graph, node)
        reads, result = dict.fromkeys(number[v] for v in node.reads if v in number), tensors[number[node.writes[0]]]
        operators.append(
            Operator(
                node.label,
                node.op,
                form,
                tuple(_read(t, tensors[t], form, result, (unit_rows, unit_columns), bilinear_ahead) for t in reads),
                tuple(number[v] for v in node.writes),
                node.origin or ((node.name,) if node.name else ()),
            )
        )
    return Network(graph.name, tuple(operators), tensors, unit_rows, unit_columns, bilinear_ahead)


def _tensor(graph: Graph, value: str) -> Tensor:
    kind = graph.types[value]
    channels, height, width = image_of(kind) or (_size(kind), 1, 1)
    consumers = mask_of(graph.users[value])
    return Tensor(value, channels, height, width, graph.producer.get(value, -1), consumers, value in graph.output_set)


def _size(kind: ValueType) -> int:
    """Elements of what is not an image; sequences have no size of their own."""
    return kind.size if isinstance(kind, TensorType) and kind.is_static else 0


def _read(
    number: int, tensor: Tensor, form: OperatorForm, result: Tensor, units: tuple[int, int], bilinear_ahead: int | None
) -> Read:
    rows, columns = units[0] // tensor.height, units[1] // tensor.width
    if form.kind in ("global_pool", "flatten"):
        return Read(number, (tensor.height - 1) * rows, (tensor.width - 1) * columns, 0, 0, True)
    down, right = form.rows, form.columns
    ahead, back = (down.ahead, right.ahead), (down.back, right.back)
    if form.kind == "resize" and bilinear_ahead is not None:
        ahead, back = (down.reads_two * bilinear_ahead, right.reads_two * bilinear_ahead), (0, 0)
    # a fraction of a pixel is a whole number of units
    lag = int(ahead[0] * rows), int(ahead[1] * columns)
    edges = down.edges(tensor.height, result.height), right.edges(tensor.width, result.width)
    return Read(number, *lag, int(back[0] * rows), int(back[1] * columns), False, *edges)


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found
