"""A graph for ONNX Runtime alone: what operators of its own domain say in one is written with them. Numeric class reassociating.

`RECOGNISED` is a row for each: which node ends what it stands for, and the operator. What they mean stands in
`frontend.domains`, by which they are read again as what they were here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from fusewise.frontend.domains.row import MICROSOFT
from fusewise.frontend.lowest_opset import at_lowest_opset
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.passes.edit import rebuilt
from fusewise.records import record
from fusewise.trace import Trace
from fusewise.words import no_such

__all__ = ["RECOGNISED", "TARGETS", "check_target", "with_onnxruntime_operators", "written_for"]

TARGETS = ("onnx", "onnxruntime")
"""Who reads a file: any runtime, or ONNX Runtime alone."""


@record(frozen=True)
class Recognition:
    """A node in place of others: those at `covered`, and the one that was asked about, where that stood or at `place`."""

    node: Node
    covered: tuple[int, ...] = ()
    place: int | None = None


class Recogniser:
    """A graph whose nodes are replaced one by one. Nodes that were covered are gone."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node | None] = list(graph.nodes)

    def maker(self, value: str, op: str, domain: str = "") -> tuple[int, Node] | None:
        """The node of an operator that writes `value`, and where it stands."""
        place = self.graph.producer.get(value)
        node = None if place is None else self.nodes[place]
        fits = node is not None and (node.op, node.domain) == (op, domain) and value in node.outputs
        return (place, node) if fits and place is not None and node is not None else None

    def sole(self, value: str, op: str, domain: str = "") -> tuple[int, Node] | None:
        """The same where one operand of one node is all that reads the value."""
        return self.maker(value, op, domain) if self.graph.is_inner(value) else None

    def kind(self, value: str) -> TensorType | None:
        """The type of a float32 tensor of known rank; None for any other value."""
        found = self.graph.types.get(value)
        is_known = isinstance(found, TensorType) and found.shape is not None and found.dtype == FLOAT32
        return found if is_known and isinstance(found, TensorType) else None

    def is_row(self, value: str, like: str) -> bool:
        """Is a value as long as the last axis of another, and has no other axis?"""
        own, other = self.kind(value), self.kind(like)
        return own is not None and other is not None and own.rank == 1 and own.dims == other.dims[-1:]

    def number(self, value: str) -> float | None:
        """The number that a constant of one element holds, without dimensions that would show in a product."""
        found = self.graph.array(value)
        return float(found.reshape(-1)[0]) if found is not None and found.size == 1 and found.ndim <= 1 else None


Recognise = Callable[[Recogniser, Node], Recognition | None]


def _gelu(site: Recogniser, node: Node) -> Recognition | None:
    x, tanh = node.inputs[0], node.attribute("approximate", "none") == "tanh"
    if site.kind(x) is None:
        return None
    added = site.sole(x, "Add")
    if added is not None:
        place, add = added
        for data, bias in (add.inputs, reversed(add.inputs)):
            if site.is_row(bias, data):
                return Recognition(_own(node, "FastGelu" if tanh else "BiasGelu", data, bias), (place,))
    return Recognition(_own(node, "FastGelu" if tanh else "Gelu", x))


def _quick_gelu(site: Recogniser, node: Node) -> Recognition | None:
    """x * Sigmoid(x * alpha)"""
    for x, gate in (node.inputs, reversed(node.inputs)):
        sigmoid = site.sole(gate, "Sigmoid")
        scaled = None if sigmoid is None else site.sole(sigmoid[1].inputs[0], "Mul")
        if sigmoid is None or scaled is None or site.kind(x) is None or x not in scaled[1].inputs:
            continue
        alpha = site.number(scaled[1].inputs[1 if scaled[1].inputs[0] == x else 0])
        if alpha is not None:
            return Recognition(_own(node, "QuickGelu", x, alpha=alpha), (sigmoid[0], scaled[0]))
    return None


def _norm(site: Recogniser, node: Node) -> Recognition | None:
    """A normalisation of a sum along the last axis; others may read the sum."""
    x, *parameters = node.inputs
    kind, added = site.kind(x), site.maker(x, "Add")
    is_last = kind is not None and node.attribute("axis", -1) in (-1, kind.rank - 1)
    if kind is None or not is_last or len(node.writes) != 1 or not all(site.is_row(p, x) for p in parameters):
        return None
    if added is None or kind.rank not in (2, 3) or not _may_skip(site, added[1], parameters):
        return _root_mean_square(node)
    place, add = added
    op = "SkipLayerNormalization" if node.op == "LayerNormalization" else "SkipSimplifiedLayerNormalization"
    fused = _own(node, op, *add.inputs, *parameters, epsilon=_epsilon(node))
    if site.graph.is_inner(x):
        return Recognition(fused, (place,))
    return Recognition(replace(fused, outputs=(*node.outputs, "", "", x)), (place,), place)


def _may_skip(site: Recogniser, add: Node, parameters: list[str]) -> bool:
    first, second = (site.graph.types[value] for value in add.inputs)
    return first == second and all(value in site.graph.constants for value in parameters)


def _root_mean_square(node: Node) -> Recognition | None:
    """By the name that ONNX Runtime had for it before ONNX did."""
    if node.op != "RMSNormalization":
        return None
    return Recognition(rebuilt(node, "SimplifiedLayerNormalization", node.inputs, axis=-1, epsilon=_epsilon(node)))


def _epsilon(node: Node) -> float:
    return float(node.attribute("epsilon", 1e-5))


def _matmul(site: Recogniser, node: Node) -> Recognition | None:
    """Operands whose last two axes were swapped."""
    inputs, covered, given = list(node.inputs), [], {}
    for k, name in enumerate(("transA", "transB")):
        kind, turned = site.kind(inputs[k]), site.sole(inputs[k], "Transpose")
        if kind is None or kind.rank < 2:
            return None
        swapped = (*range(kind.rank - 2), kind.rank - 1, kind.rank - 2)
        if turned is not None and tuple(turned[1].attribute("perm", range(kind.rank)[::-1])) == swapped:
            inputs[k], given[name] = turned[1].inputs[0], 1
            covered.append(turned[0])
    return Recognition(_own(node, "FusedMatMul", *inputs, **given), tuple(covered)) if covered else None


def _scaled_matmul(site: Recogniser, node: Node) -> Recognition | None:
    """A product under a factor."""
    for product, factor in (node.inputs, reversed(node.inputs)):
        alpha = site.number(factor)
        made = site.sole(product, "MatMul") or site.sole(product, "FusedMatMul", MICROSOFT)
        if (
            alpha is not None
            and made is not None
            and _is_product(site, made[1])
            and "alpha" not in dict(made[1].attributes)
        ):
            given = dict(made[1].attributes)
            return Recognition(_own(node, "FusedMatMul", *made[1].inputs, alpha=alpha, **given), (made[0],))
    return None


def _is_product(site: Recogniser, node: Node) -> bool:
    kinds = [site.kind(value) for value in node.inputs]
    return all(kind is not None and kind.rank > 1 for kind in kinds)


def _own(node: Node, op: str, *inputs: str, **attributes: Any) -> Node:
    return replace(rebuilt(node, op, inputs), domain=MICROSOFT, attributes=attributes_of(**attributes))


RECOGNISED: Mapping[str, tuple[Recognise, ...]] = MappingProxyType(
    {
        "Gelu": (_gelu,),
        "LayerNormalization": (_norm,),
        "MatMul": (_matmul,),
        "Mul": (_quick_gelu, _scaled_matmul),
        "RMSNormalization": (_norm,),
    }
)
"""By the operator that ends what is recognised."""


def with_onnxruntime_operators(graph: Graph, trace: Trace | None = None) -> Graph:
    """The graph with operators of ONNX Runtime's domain where they stand for several nodes. Only for what is written to a file:
    nothing here computes them."""
    site, trace = Recogniser(graph), Trace() if trace is None else trace
    for place, node in enumerate(graph.nodes):
        for recognise in () if node.domain else RECOGNISED.get(node.op, ()):
            found = recognise(site, node)
            if found is None or not trace.allows(
                "rewrite", found.node.op, (node.label,), "an operator of ONNX Runtime"
            ):
                continue
            parts = [one for k in found.covered if (one := site.nodes[k]) is not None]
            origin = tuple(dict.fromkeys(name for part in (*parts, node) for name in part.origin))
            for k in (*found.covered, place):
                site.nodes[k] = None
            site.nodes[place if found.place is None else found.place] = replace(found.node, origin=origin)
            break
    nodes = tuple(node for node in site.nodes if node is not None)
    if nodes == graph.nodes:
        return graph
    return graph.replace(nodes=nodes, opsets=(*graph.opsets, (MICROSOFT, 1))).pruned()


def check_target(target: str) -> None:
    """Raise `UsageError` for a target that there is not."""
    if target not in TARGETS:
        raise no_such("target", target, TARGETS)


def written_for(graph: Graph, target: str) -> Graph:
    """The graph in operators of one of `TARGETS`, at the lowest opset that holds them. Raises what `check_target` raises."""
    check_target(target)
    return at_lowest_opset(with_onnxruntime_operators(graph) if target == "onnxruntime" else graph)
