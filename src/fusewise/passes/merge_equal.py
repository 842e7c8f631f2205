"""Compute and store once what is computed or stored twice. Numeric class exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from fusewise.ir.graph import Constant, Graph, LazyConstant, Node, Subgraph
from fusewise.ops.table import spec_of
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.passes.packed_weights import is_for_products
from fusewise.trace import Trace

__all__ = ["NOT_REPEATABLE", "merge_equal"]

NOT_REPEATABLE = frozenset(
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial Dropout".split()
)
"""Operators that may give another answer the second time."""

_SAMPLE = 64  # elements that tell most constants apart, so that few need to be hashed whole


def merge_equal(graph: Graph, trace: Trace) -> Graph:
    """One constant for equal constants, one node for equal nodes on equal operands, in any order if they commute.

    a = Add(x, y); b = Add(y, x); c = Mul(a, b)   ->   a = Add(x, y); c = Mul(a, a)

    What products do to their operands for themselves stays apart.
    """
    graph = _merge_constants(graph, trace)
    seen: dict[Hashable, Node] = {}

    def find(edit: Edit, node: Node) -> Change | None:
        if node.op in NOT_REPEATABLE or any(isinstance(value, Subgraph) for _, value in node.attributes):
            return None
        if is_for_products(node):
            return None
        first = seen.setdefault(_key(node), node)
        if first is node:
            return None
        same = {later: earlier for later, earlier in zip(node.outputs, first.outputs, strict=True) if later}
        return Change((first, node), "computed before", same=same)

    return sweep(graph, trace, (LocalRule("merge_equal", (), find),))


def _key(node: Node) -> Hashable:
    inputs: tuple[str, ...] = node.inputs
    spec = spec_of(node.op, node.domain)
    if spec is not None and "commutative" in spec.flags:
        inputs = tuple(sorted(inputs))
    present = tuple(bool(value) for value in node.outputs)
    return node.op, inputs, _exact(node.attributes), present


def _exact(attributes: object) -> Hashable:
    """Attributes as a key that keeps 1, 1.0 and True, and 0.0 and -0.0 apart."""
    if isinstance(attributes, tuple):
        return tuple(_exact(item) for item in attributes)
    if isinstance(attributes, Constant):
        return attributes
    return type(attributes).__name__, repr(attributes)


def _merge_constants(graph: Graph, trace: Trace) -> Graph:
    first: dict[Hashable, list[str]] = {}
    replaced: dict[str, str] = {}
    kinds = Counter(constant.type for constant in graph.constants.values())
    for name, constant in graph.constants.items():
        if name in graph.output_set or kinds[constant.type] == 1:
            continue
        alike = first.setdefault(_fingerprint(constant), [])
        twin = next((other for other in alike if graph.constants[other] == constant), None)
        if twin is None:
            alike.append(name)
        elif trace.allows("rewrite", "merge_equal", (twin, name), "equal constants"):
            replaced[name] = twin
    if not replaced:
        return graph
    nodes = tuple(_reading(node, replaced) for node in graph.nodes)
    return graph.replace(nodes=nodes).pruned()


def _fingerprint(constant: Constant) -> Hashable:
    """Equal for equal constants, and mostly different for others; looks at a few elements only, and computes none."""
    if isinstance(constant, LazyConstant) and constant.recipe is not None:
        return constant.type, constant.recipe
    array = constant.read_once()
    if array.dtype == object:
        return constant.type, constant.digest
    if array.ndim == 0:
        return constant.type, array.tobytes()
    step = max(1, array.shape[0] // 8)
    few = array[::step]
    for axis in range(1, array.ndim):  # spread over all axes without touching the whole array
        few = few[(slice(None),) * axis + (slice(None, None, max(1, array.shape[axis] // 3)),)]
    return constant.type, few.reshape(-1)[:_SAMPLE].tobytes()


def _reading(node: Node, names: dict[str, str]) -> Node:
    if not any(value in names for value in node.inputs + node.captured):
        return node
    inputs = tuple(names.get(v, v) for v in node.inputs)
    return replace(node, inputs=inputs, captured=tuple(names.get(v, v) for v in node.captured))
