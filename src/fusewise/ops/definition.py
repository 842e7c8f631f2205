"""What callers ask of an operator row: the output element, the mapping types, the cost.

`definition` unifies rows that give a scalar body (broadcast is added here) with rows that give the whole element
expression. Loads are named `#i` by operand position.
"""

from __future__ import annotations

from fusewise.ir.deciding import known_equal, known_one
from fusewise.ir.dtypes import FLOAT32, DType
from fusewise.ir.graph import Graph, Node
from fusewise.ir.size import SizeNeeded, Undecided
from fusewise.ops.expr import Expr, cast, const
from fusewise.ops.indexing import aligned, is_static, value
from fusewise.ops.spec import Call, Mapping, NotDefined, OpSpec

__all__ = ["call_of", "definition", "flops_of", "is_opaque", "mapping_of", "mappings_of", "narrowed"]


def call_of(graph: Graph, node: Node) -> Call:
    """A node of a graph as rows see it."""
    return Call(
        node,
        tuple(graph.types[name] if name else None for name in node.inputs),
        tuple(graph.types[name] if name else None for name in node.outputs),
        tuple(graph.constants.get(name) for name in node.inputs),
    )


def definition(spec: OpSpec, call: Call, output: int, index: tuple[Expr, ...]) -> Expr:
    """The element of output number `output` at `index`, one expression per dimension.

    Arithmetic on float16, bfloat16 and narrower floats is done in float32 and rounded once at the end. Raises
    `NotDefined`, with the reason, when the row does not cover the case, or has to know more of sizes than is known: the operator
    then runs as a host step.
    """
    try:
        return _definition(spec, call, output, index)
    except (SizeNeeded, Undecided) as size:
        raise NotDefined(f"{call.node.op} of sizes that are not known: {size}") from size


def _definition(spec: OpSpec, call: Call, output: int, index: tuple[Expr, ...]) -> Expr:
    if not is_static(call):
        raise NotDefined(f"{call.node.op} has an operand or output without a static shape")
    if call.without_arithmetic:
        raise NotDefined(f"{call.node.op} on {call.without_arithmetic}")
    if call.narrow and spec.flags.isdisjoint(("copy", "narrow")):
        raise NotDefined(f"{call.node.op} on {call.narrow}")
    for i in filter(call.has, spec.shaped_by):
        call.known(i)
    if spec.scalar is not None and output == 0:
        operands = tuple(
            value(call, i, *aligned(call, i, index)) if call.has(i) and call.input(i).rank <= len(index) else None
            for i in range(len(call.inputs))
        )  # only the second operand of CastLike, which states a type, may have more dimensions than the output
        body = spec.scalar(call, *operands)
    elif spec.define is not None and known_equal(call.output(output).size, 0):
        return const(0, call.output(output).dtype)  # of nothing
    elif spec.define is not None:
        body = spec.define(call, output, index)
    else:
        raise NotDefined(f"{spec.name} has no element definition")
    return narrowed(body, call.output(output).dtype)


def narrowed(body: Expr, dtype: DType) -> Expr:
    """`body` rounded to `dtype`; widening a narrow float and rounding it back is no change at all."""
    if body.op == "cast" and body.dtype == FLOAT32 and dtype.bits < 32 and body.args[0].dtype == dtype:
        return body.args[0]
    return cast(body, dtype)


def is_opaque(spec: OpSpec) -> bool:
    """Is the operator a border for every group, whatever its operands?"""
    return "opaque" in spec.flags


def mappings_of(spec: OpSpec, call: Call) -> tuple[Mapping, ...]:
    """The mapping type along each operand; all Opaque when a shape is not static or the row is opaque."""
    if is_opaque(spec) or not is_static(call):
        return (Mapping.OPAQUE,) * len(call.inputs)
    return spec.mapping(call)


def mapping_of(spec: OpSpec, call: Call) -> Mapping:
    """The operator's overall type: the most complex over its data operands.

    Constants and single elements do not make an operator more complex. An operator without data operands computes each
    element from its index alone and counts as One-to-One.
    """
    if is_opaque(spec) or not is_static(call):
        return Mapping.OPAQUE
    kinds = spec.mapping(call)
    if Mapping.OPAQUE in kinds:
        return Mapping.OPAQUE
    data = [i for i, kind in enumerate(call.inputs) if kind is not None and not call.is_known(i)]
    wide = [i for i in data if not known_one(call.input(i).size)]
    return max((kinds[i] for i in (wide or data)), default=Mapping.ONE_TO_ONE)


def flops_of(spec: OpSpec, call: Call) -> int:
    """Arithmetic operations of the call; 0 when its shapes are not static."""
    return spec.flops(call) if is_static(call) else 0
