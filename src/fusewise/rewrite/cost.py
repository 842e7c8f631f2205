"""What a graph costs: the sum over its kernels of figures such as time, arithmetic and memory traffic, weighted as asked.

Costs see fusion. An elementwise operator that the kernel of its operand can take in is no kernel of its own: it costs only the
other operands it reads, so taking it away gains next to nothing. Everything here looks at a node and the values around it,
so that a search prices only what a substitution changed.

The analytic time is a roofline (Williams et al., CACM 2009): the slower of arithmetic and memory traffic, and a start. Small
results do not fill a wide machine, so that twice the work at once may take no longer: what makes enlarging and merging
convolutions pay on a GPU (Jia et al., SysML 2019).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Protocol

import numpy as np

from fusewise.errors import UsageError
from fusewise.ir.deciding import at_hint, hinted_bytes
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.spec import ANCHOR_FAMILIES
from fusewise.ops.table import spec_of
from fusewise.records import record
from fusewise.rewrite.work import work_of
from fusewise.words import no_such

__all__ = [
    "MACHINES",
    "Cost",
    "CostMetric",
    "GraphContext",
    "Machine",
    "PricedNode",
    "WholeGraph",
    "analytic_metrics",
    "looks_around",
    "machine_named",
    "parsed_cost",
]

_SMALL = 64

VIEWS = frozenset("Identity Dropout Reshape Flatten Squeeze Unsqueeze".split())
"""Operators that only call the same bytes by another shape."""


class GraphContext(Protocol):
    """A graph, or one that is about to be, as prices see it."""

    @property
    def types(self) -> Mapping[str, ValueType]:
        """The type of each value."""

    def maker(self, value: str) -> Node | None:
        """The node that writes the value."""

    def readers(self, value: str) -> int:
        """How many nodes read the value; an output of the graph counts as one more."""

    def constant(self, value: str) -> Constant | None:
        """The constant of that name; its contents may be a promise."""


@record(frozen=True)
class WholeGraph:
    """The surroundings in a graph as it is."""

    graph: Graph

    @property
    def types(self) -> Mapping[str, ValueType]:
        return self.graph.types

    def maker(self, value: str) -> Node | None:
        return self.graph.producer_of(value)

    def readers(self, value: str) -> int:
        return len(self.graph.users[value]) + (value in self.graph.output_set)

    def constant(self, value: str) -> Constant | None:
        return self.graph.constants.get(value)


@record(frozen=True, slots=True)
class PricedNode:
    """A node as prices see it: operands and results by type, without names; `again` are operands that were read before.

    `weights` says which operands are constant, `known` those of them that shapes may depend on, `into` which operand's kernel
    takes the node in (-1: none, it is a kernel of its own), and `taker` what that operand's node is; `in_place` which operands'
    kernels may write where the result lies (Concat).
    """

    node: Node
    inputs: tuple[ValueType | None, ...]
    outputs: tuple[ValueType | None, ...]
    weights: tuple[bool, ...]
    known: tuple[Constant | None, ...]
    into: int = -1
    taker: str = ""
    again: tuple[int, ...] = ()
    in_place: tuple[int, ...] = ()

    @property
    def is_alone(self) -> bool:
        """Is it a kernel of its own?"""
        return self.into < 0

    @property
    def flops(self) -> int:
        """Arithmetic operations, a multiply-add counting as two; none are known where a shape is not."""
        kinds = [kind for kind in (*self.inputs, *self.outputs) if kind is not None]
        if not all(isinstance(kind, TensorType) and kind.is_static for kind in kinds):
            return 0
        types = {f"i{k}": kind for k, kind in enumerate(self.inputs) if kind is not None}
        types |= {f"o{k}": kind for k, kind in enumerate(self.outputs) if kind is not None}
        named = tuple(f"i{k}" if kind is not None else "" for k, kind in enumerate(self.inputs))
        node = replace(self.node, inputs=named, outputs=tuple(f"o{k}" for k in range(len(self.outputs))))
        known = {f"i{k}": found.array for k, found in enumerate(self.known) if found is not None}
        return work_of(node, types, known).flops

    def moved_bytes(self, in_place: bool = False) -> int:
        """Bytes read and written; only the further operands of a node that another kernel takes in."""
        if self.node.op in VIEWS:
            return 0
        joins = in_place and self.node.op == "Concat"
        skipped = set(self.in_place) if joins else {self.into, *self.again}  # what is read twice is loaded once
        read = sum(hinted_bytes(kind) for k, kind in enumerate(self.inputs) if k not in skipped)
        if not self.is_alone:
            return read
        if joins:
            return 2 * read
        return read + sum(map(hinted_bytes, self.outputs))


def kernel_of(node: Node, around: GraphContext) -> PricedNode:
    """The node with what its price depends on."""
    inputs = tuple(around.types[x] if x else None for x in node.inputs)
    again = tuple(k for k, x in enumerate(node.inputs) if x in node.inputs[:k])
    constants = tuple(around.constant(x) if x else None for x in node.inputs)
    known = tuple(None if c is None or c.dtype.is_float or c.type.size > _SMALL else c for c in constants)
    outputs = tuple(around.types[x] if x else None for x in node.outputs)
    bare = Node(node.op, ("",) * len(inputs), ("",) * len(outputs), node.attributes, node.domain)
    in_place: tuple[int, ...] = ()
    if node.op == "Concat":
        in_place = tuple(k for k, x in enumerate(node.inputs) if _is_own(around, x))
    weights = tuple(constant is not None for constant in constants)
    into = _taken_by(node, around, outputs)
    maker = None if into < 0 else around.maker(node.inputs[into])
    return PricedNode(
        bare, inputs, outputs, weights, known, into, maker.op if maker is not None else "", again, in_place
    )


def looks_around(node: Node) -> bool:
    """Does the price of the node depend on who makes and who else reads its operands?"""
    spec = spec_of(node.op, node.domain)
    return node.op == "Concat" or (spec is not None and spec.scalar is not None)


def _taken_by(node: Node, around: GraphContext, outputs: tuple[ValueType | None, ...]) -> int:
    spec = spec_of(node.op, node.domain)
    if spec is None or spec.scalar is None or len(outputs) != 1:
        return -1
    for k, x in enumerate(node.inputs):
        same = bool(x) and _dims(around.types[x]) == _dims(outputs[0])
        if same and _is_own(around, x) and node.inputs.count(x) == 1:
            return k
    return -1


def _dims(kind: ValueType | None) -> object:
    return kind.shape if isinstance(kind, TensorType) else None


def _is_own(around: GraphContext, value: str) -> bool:
    """Is the value made by a kernel that can do more to it, and read nowhere else?"""
    maker = around.maker(value) if value else None
    if maker is None or around.readers(value) != 1 or len(maker.outputs) != 1:
        return False
    if all(around.constant(x) is not None for x in maker.reads):
        return False
    spec = spec_of(maker.op, maker.domain)
    return spec is not None and (spec.scalar is not None or spec.family in ANCHOR_FAMILIES or spec.family == "reduce")


@record(frozen=True)
class Machine:
    """A machine as the roofline sees it.

    `gflops`: peak float32 arithmetic, `gbytes`: memory bandwidth, both per second and reached by large kernels;
    `start_us`: a kernel's start in microseconds; `width`: output elements that are needed to reach the peak.
    `group_us`: what each group of a grouped convolution starts for, unless every channel is one (then it is another kernel).
    `free` names operators that cost nothing, and `in_place` says whether kernels write where a Concat wants their result.
    `takes_in` are the elementwise operators that the kernel of a convolution or product takes in, where no other kernel takes
    in any; None where every kernel takes in whatever is elementwise.
    """

    name: str
    gflops: float
    gbytes: float
    start_us: float
    width: int = 1
    group_us: float = 0.0
    free: frozenset[str] = frozenset()
    in_place: bool = False
    takes_in: frozenset[str] | None = None

    def as_run(self, kernel: PricedNode) -> PricedNode:
        """The kernel by itself where no kernel of this machine takes it in."""
        if kernel.is_alone or self.takes_in is None:
            return kernel
        spec = spec_of(kernel.taker)
        anchored = spec is not None and spec.family in ANCHOR_FAMILIES
        return kernel if anchored and kernel.node.op in self.takes_in else replace(kernel, into=-1, taker="")

    def time_ms(self, kernel: PricedNode) -> float:
        """The estimate for one kernel, in milliseconds."""
        kernel = self.as_run(kernel)
        if kernel.node.op in VIEWS or kernel.node.op in self.free:
            return 0.0
        sizes = [kind.size for kind in kernel.outputs if isinstance(kind, TensorType) and kind.is_static]
        wide = max(sizes, default=0)
        filled = min(1.0, max(wide, 1) / self.width)
        arithmetic = kernel.flops / (self.gflops * 1e6 * filled)
        moved = kernel.moved_bytes(self.in_place) / (self.gbytes * 1e6)
        if not kernel.is_alone:
            return moved
        if self.in_place and kernel.node.op == "Concat" and not moved:
            return 0.0
        return max(arithmetic, moved) + (self.start_us + (_groups(kernel) - 1) * self.group_us) / 1e3


def _groups(kernel: PricedNode) -> int:
    """Small products that a grouped convolution is made of; 1 for a depthwise one, which is no product."""
    weights = kernel.inputs[1] if kernel.node.op == "Conv" else None
    if not isinstance(weights, TensorType) or not weights.is_static or weights.dims[1] == 1:
        return 1
    return int(kernel.node.attribute("group", 1))


_GPU = Machine(
    "gpu",
    gflops=14_000.0,
    gbytes=900.0,
    start_us=6.0,
    width=163_840,
    group_us=0.5,
    free=frozenset({"Split"}),
    in_place=True,
)
_CUDNN = replace(_GPU, name="cudnn", takes_in=frozenset({"Relu", "Sigmoid", "Tanh"}))

MACHINES: tuple[Machine, ...] = (
    Machine("cpu", gflops=100.0, gbytes=20.0, start_us=4.0, width=1024),
    _GPU,
    replace(_GPU, name="gpu-copies", in_place=False),
    _CUDNN,
    replace(_CUDNN, name="cudnn-h100", gflops=495_000.0, gbytes=3350.0, width=270_336),
)
"""Two cores of a desktop processor with wide vectors; a V100 (80 processors of 2,048 threads) where Split and Concat are done by
who writes and reads, as MetaFlow has it after its substitution for that, and small products of a grouped convolution overlap in
part; the same as TASO and Tensat count on it: a Split is free there too, but a Concat is a kernel that copies; the same with
the kernels of a library, as MetaFlow runs it: a convolution or product takes in an activation, and an Add is a kernel; and so an
H100 (132 processors) whose tensor cores multiply TF32."""


def machine_named(name: str) -> Machine:
    """The row of `MACHINES` of that name; `UsageError` when there is none."""
    for machine in MACHINES:
        if machine.name == name:
            return machine
    raise no_such("machine", name, (machine.name for machine in MACHINES))


@record(frozen=True)
class CostMetric:
    """One figure of a kernel, and its unit."""

    name: str
    unit: str
    of: Callable[[PricedNode], float]


def analytic_metrics(machine: Machine) -> tuple[CostMetric, ...]:
    """The metrics that need no measurement: time by roofline, arithmetic, memory traffic, number of kernels."""
    return (
        CostMetric("time", "ms", machine.time_ms),
        CostMetric("flops", "GFLOP", lambda kernel: kernel.flops / 1e9),
        CostMetric("memory", "MB", lambda kernel: machine.as_run(kernel).moved_bytes() / 1e6),
        CostMetric(
            "kernels", "kernels", lambda kernel: float(machine.as_run(kernel).is_alone and kernel.node.op not in VIEWS)
        ),
    )


@record(frozen=True)
class Cost:
    """A weighted sum of metrics over a graph's kernels: `cost(graph)`, in `unit`.

    Equal kernels are priced once, those of sizes that are not known at the hint. Nodes on constants alone cost nothing: they are
    computed before the model runs.
    """

    terms: tuple[tuple[float, CostMetric], ...]
    _known: dict[PricedNode, float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def unit(self) -> str:
        """The unit of a single metric; a sum of several has none of its own."""
        (weight, metric), *others = self.terms
        return metric.unit if not others and weight == 1 else "cost units"

    def __str__(self) -> str:
        return " + ".join(metric.name if weight == 1 else f"{weight:g}*{metric.name}" for weight, metric in self.terms)

    def __call__(self, graph: Graph) -> float:
        around = WholeGraph(graph)
        return sum((self.of(node, around) for node in graph.nodes), 0.0)

    def of(self, node: Node, around: GraphContext) -> float:
        """The share of one node."""
        if not node.reads or all(around.constant(x) is not None for x in node.reads):
            return 0.0
        kernel = kernel_of(node, around)
        found = self._known.get(kernel)
        if found is None:
            kinds = (kind for kind in (*kernel.inputs, *kernel.outputs) if isinstance(kind, TensorType))
            priced = kernel if all(kind.is_fixed for kind in kinds) else at_hint(kernel)
            found = self._known[kernel] = sum(weight * metric.of(priced) for weight, metric in self.terms)
        return found


_TERM = re.compile(r"\s*(?:(?P<before>[0-9.eE-]+)\s*\*\s*)?(?P<name>[a-z_]\w*)(?:\s*\*\s*(?P<after>[0-9.eE-]+))?\s*$")


def parsed_cost(text: str, metrics: Mapping[str, CostMetric]) -> Cost:
    """`time + 0.1*memory` as a cost over the given metrics. `UsageError` names what cannot be read."""
    return Cost(tuple(_terms(text, metrics)))


def _terms(text: str, metrics: Mapping[str, CostMetric]) -> Iterator[tuple[float, CostMetric]]:
    known = ", ".join(metrics)
    for part in text.split("+"):
        found = _TERM.match(part)
        if found is None or (found["before"] and found["after"]):
            raise UsageError(
                f"the cost {text!r} does not parse at {part.strip()!r}: it is a sum such as 'time + 0.1*memory' of {known}"
            )
        if found["name"] not in metrics:
            raise UsageError(f"the cost {text!r} names {found['name']!r}; there are {known}")
        try:
            weight = float(found["before"] or found["after"] or 1.0)
        except ValueError:
            weight = np.nan
        if not np.isfinite(weight) or weight <= 0:
            raise UsageError(f"the cost {text!r} does not parse at {part.strip()!r}: a weight is a number above zero")
        yield weight, metrics[found["name"]]
