"""A graph for ONNX Runtime alone: what operators of its own domain say in one is written with them. Numeric class reassociating.

`RECOGNISED` is a row for each: which node ends what it stands for, and the operator. What they mean stands in
`frontend.domains`, by which they are read again as what they were here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from fusewise.frontend.domains.row import MICROSOFT
from fusewise.frontend.lowest_opset import at_lowest_opset
from fusewise.ir.graph import Graph, Node
from fusewise.passes.drop_dead import drop_dead
from fusewise.passes.edit import rebuilt
from fusewise.passes.onnxruntime_weights import product_of_packed
from fusewise.passes.recogniser import Recognise, Recogniser, Recognition, own
from fusewise.trace import Trace
from fusewise.words import no_such

__all__ = ["RECOGNISED", "TARGETS", "check_target", "with_onnxruntime_operators", "written_for"]

TARGETS = ("onnx", "onnxruntime")
"""Who reads a file: any runtime, or ONNX Runtime alone."""


def _gelu(site: Recogniser, node: Node) -> Recognition | None:
    x, tanh = node.inputs[0], node.attribute("approximate", "none") == "tanh"
    if site.kind(x) is None:
        return None
    added = site.sole(x, "Add")
    if added is not None:
        place, add = added
        for data, bias in (add.inputs, reversed(add.inputs)):
            if site.is_row(bias, data):
                return Recognition(own(node, "FastGelu" if tanh else "BiasGelu", data, bias), (place,))
    return Recognition(own(node, "FastGelu" if tanh else "Gelu", x))


def _quick_gelu(site: Recogniser, node: Node) -> Recognition | None:
    """x * Sigmoid(x * alpha)"""
    for x, gate in (node.inputs, reversed(node.inputs)):
        sigmoid = site.sole(gate, "Sigmoid")
        scaled = None if sigmoid is None else site.sole(sigmoid[1].inputs[0], "Mul")
        if sigmoid is None or scaled is None or site.kind(x) is None or x not in scaled[1].inputs:
            continue
        alpha = site.number(scaled[1].inputs[1 if scaled[1].inputs[0] == x else 0])
        if alpha is not None:
            return Recognition(own(node, "QuickGelu", x, alpha=alpha), (sigmoid[0], scaled[0]))
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
    fused = own(node, op, *add.inputs, *parameters, epsilon=_epsilon(node))
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
    return Recognition(own(node, "FusedMatMul", *inputs, **given), tuple(covered)) if covered else None


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
            return Recognition(own(node, "FusedMatMul", *made[1].inputs, alpha=alpha, **given), (made[0],))
    return None


def _is_product(site: Recogniser, node: Node) -> bool:
    kinds = [site.kind(value) for value in node.inputs]
    return all(kind is not None and kind.rank > 1 for kind in kinds)


RECOGNISED: Mapping[str, tuple[Recognise, ...]] = MappingProxyType(
    {
        "Gelu": (_gelu,),
        "LayerNormalization": (_norm,),
        "MatMul": (product_of_packed, _matmul),
        "Mul": (_quick_gelu, _scaled_matmul),
        "RMSNormalization": (_norm,),
    }
)
"""By the operator that ends what is recognised."""


def with_onnxruntime_operators(graph: Graph, trace: Trace | None = None) -> Graph:
    """The graph with operators of ONNX Runtime's domain where they stand for several nodes. Only for what is written to a file:
    nothing here computes them."""
    site, trace = Recogniser(graph), Trace() if trace is None else trace
    constants = dict(graph.constants)
    for place, node in enumerate(graph.nodes):
        for recognise in () if node.domain else RECOGNISED.get(node.op, ()):
            found = recognise(site, node)
            if found is None or not trace.allows(
                "rewrite", found.node.op, (node.label,), "an operator of ONNX Runtime"
            ):
                continue
            constants.update(found.constants)
            parts = [one for k in found.covered if (one := site.nodes[k]) is not None]
            origin = tuple(dict.fromkeys(name for part in (*parts, node) for name in part.origin))
            for k in (*found.covered, place):
                site.nodes[k] = None
            site.nodes[place if found.place is None else found.place] = replace(found.node, origin=origin)
            break
    nodes = tuple(node for node in site.nodes if node is not None)
    if nodes == graph.nodes:
        return graph
    types = {**graph.types, **{name: constant.type for name, constant in constants.items()}}
    changed = graph.replace(nodes=nodes, constants=constants, types=types, opsets=(*graph.opsets, (MICROSOFT, 1)))
    return drop_dead(changed, Trace())  # weights whose readers all read them packed


def check_target(target: str) -> None:
    """Raise `UsageError` for a target that there is not."""
    if target not in TARGETS:
        raise no_such("target", target, TARGETS)


def written_for(graph: Graph, target: str) -> Graph:
    """The graph in operators of one of `TARGETS`, at the lowest opset that holds them. Raises what `check_target` raises."""
    check_target(target)
    return at_lowest_opset(with_onnxruntime_operators(graph) if target == "onnxruntime" else graph)
