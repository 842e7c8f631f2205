"""A graph of PyTorch as one of ours: its parameters stay inputs, its sizes symbols, and its results lie as PyTorch has them."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fusewise.errors import UnsupportedModel
from fusewise.frontend.free import with_names
from fusewise.frontend.onnx_import import load
from fusewise.frontend.torch_export import exported, line_of, quietly
from fusewise.ir.graph import Graph
from fusewise.ir.monomial import Symbol
from fusewise.ir.types import TensorType
from fusewise.records import record

__all__ = ["Capture", "Returned", "attribute_of", "captured", "fixed_arguments", "is_handed_over", "why_not"]

_OPSET = 18
"""The opset that the exporter's table is written in: no conversion is needed."""

_NAME = re.compile(r"[\w.]+")
"""A dimension by name, and not in terms of others."""


@record(frozen=True)
class Returned:
    """Where an output of the graph comes from: output `computed` of ours, value `given` as it is, or what is `known`.

    What is computed lies permuted by `order`, has the `strides` of eager PyTorch where these are known to be others, and is a
    number for `is_size`.
    """

    computed: int | None = None
    given: int | None = None
    known: Any = None
    order: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    is_size: bool = False


@record(frozen=True)
class Capture:
    """What is compiled: `graph`, each of whose inputs `reads` a value, by position: those that the graph is called with, and behind
    them its `own` tensors. Values among `fixed` are parameters and buffers that the graph does not write to. `symbols` have the
    sizes to plan for; `results` are as many as the graph gives."""

    graph: Graph
    reads: tuple[int, ...]
    own: tuple[Any, ...]
    fixed: frozenset[int]
    symbols: Mapping[str, Symbol]
    results: tuple[Returned, ...]


def captured(module: Any, fixed: Collection[int]) -> Capture:
    """The graph that AOTAutograd made of one of Dynamo's, written in our operators. `module` stays as it is; arguments that are
    `fixed` are parameters and buffers that it does not write to.

    Called while PyTorch compiles, so that what is decided of sizes is among its guards. Raises `UnsupportedModel` where something
    cannot be written, naming the operator and the user's line.
    """
    import torch

    _check(module.graph)
    graph, copies, own = _copied(module)
    values = {node: number for number, node in enumerate(_placeholders(graph))}
    results, outputs = _results(graph, copies, values, next(iter(module.graph.find_nodes(op="output"))).args[0])
    _sizes_from_shapes(graph)
    graph.output(tuple(outputs))
    read = [node for node in values if node.users]
    for node in [node for node in values if not node.users]:
        graph.erase_node(node)
    with torch._guards.tracing(None):
        program = exported(_program(module, graph, read, outputs), named="a graph", opset_version=_OPSET)
    found = load(program.model_proto)
    _compare(found, read, outputs)
    first_own = len(values) - len(own)
    return Capture(
        graph=found,
        reads=tuple(values[node] for node in read),
        own=tuple(own),
        fixed=frozenset(fixed) | frozenset(range(first_own, len(values))),
        symbols=_symbols(found, read),
        results=tuple(results),
    )


def _placeholders(graph: Any) -> list[Any]:
    return list(graph.find_nodes(op="placeholder"))


def fixed_arguments() -> frozenset[int]:
    """The arguments that are parameters or buffers of a module, of which nothing is written to by the graph."""
    import torch

    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None:
        return frozenset()
    written = {number for number, info in enumerate(metadata.input_info) if info.mutates_data}
    return frozenset(metadata.static_input_indices) - written


def _check(graph: Any) -> None:
    """`UnsupportedModel` for what no graph of ours is."""
    for node in graph.nodes:
        if reason := why_not(node):
            raise UnsupportedModel(reason)


def why_not(node: Any) -> str:
    """Why a node is none of ours, empty where it may be one: work elsewhere than on the processor, tensors that are no arrays,
    numbers drawn at random, of which each draw of PyTorch's generator is expected, and operators of users that write to operands,
    which AOTAutograd wraps in one that copies them before."""
    import torch

    if str(node.target).startswith("auto_functionalized"):
        return f"the operator {node.args[0]} writes to its operands{_at(node)}"
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and _draws(node):
        return f"the operator {node.target} draws random numbers{_at(node)}"
    value = node.meta.get("val")
    for one in value if isinstance(value, list | tuple) else (value,):
        if not isinstance(one, torch.Tensor):
            continue
        if one.device.type != "cpu":
            return f"{node.name} lies on the device {one.device}{_at(node)}; it has to lie on the processor"
        if one.layout is not torch.strided or (one.dtype.is_complex and node.op == "placeholder"):
            return f"{node.name} is a tensor of {one.dtype}, {one.layout}{_at(node)}"
    return ""


def is_handed_over(node: Any) -> bool:
    """May the value of a node be an argument of a graph that is compiled: a size, or a tensor that is an array of real numbers?"""
    import torch

    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return isinstance(value, int | torch.SymInt) and not isinstance(value, bool)
    return value.device.type == "cpu" and value.layout is torch.strided and not value.dtype.is_complex


def _draws(node: Any) -> bool:
    """Does an operator that may draw random numbers do so as it is called? One that drops nothing does not."""
    stated = node.target._schema.arguments
    given = {one.name: one.default_value for one in stated}
    given |= {one.name: value for one, value in zip(stated, node.args, strict=False)} | dict(node.kwargs)
    return given.get("dropout_p") != 0 and given.get("train") is not False


def _at(node: Any) -> str:
    found = line_of(node.meta.get("stack_trace") or "")
    return f" (at {found})" if found else ""


def _copied(module: Any) -> tuple[Any, dict[Any, Any], list[Any]]:
    """A copy of a graph without its output, what became of each node, and tensors that the graph holds, which are inputs of the
    copy, behind the others."""
    import torch

    graph, copies, own = torch.fx.Graph(), {}, []
    inputs = _placeholders(module.graph)
    for node in inputs:
        copies[node] = graph.node_copy(node)
    for node in module.graph.find_nodes(op="get_attr"):
        tensor = attribute_of(module, node.target)
        if isinstance(tensor, torch.Tensor):
            copies[node] = graph.placeholder(node.name)
            copies[node].meta = {**node.meta, "val": _fake(tensor, node, inputs)}
            own.append(tensor)
    for node in module.graph.nodes:
        if node not in copies and node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return graph, copies, own


def attribute_of(module: Any, path: str) -> Any:
    """What a module has under a path of names with dots between."""
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _fake(tensor: Any, node: Any, inputs: Sequence[Any]) -> Any:
    import torch

    known = node.meta.get("val")
    if known is not None:
        return known
    mode = torch._guards.detect_fake_mode([one.meta.get("val") for one in inputs])
    return tensor if mode is None else mode.from_tensor(tensor, static_shapes=True)


def _results(
    graph: Any, copies: Mapping[Any, Any], values: Mapping[Any, int], wanted: Sequence[Any]
) -> tuple[list[Returned], list[Any]]:
    """Where each output of the graph comes from, and the nodes of the copy that are computed for it."""
    import torch

    results: list[Returned] = []
    outputs: dict[Any, tuple[Any, int]] = {}
    for one in wanted:
        if not isinstance(one, torch.fx.Node):
            results.append(Returned(known=one))
            continue
        node = copies[one]
        if node in values:
            results.append(Returned(given=values[node]))
            continue
        value = one.meta["val"]
        order, strides = _lying(value) if isinstance(value, torch.Tensor) else (None, None)
        if node not in outputs:
            made = node
            if one.target is operator.getitem and isinstance(value, torch.Tensor):  # whose name the exporter may lose
                made = graph.call_function(torch.ops.aten.clone.default, (node,))
                made.meta["val"] = value
            if order is not None:
                made = graph.call_function(torch.ops.aten.permute.default, (made, list(order)))
                made.meta["val"] = value.permute(order)
            outputs[node] = made, len(outputs)
        if not isinstance(value, torch.Tensor | torch.SymInt | int):
            raise UnsupportedModel(
                f"the graph gives {one.name}, which is no tensor but a {type(value).__name__}{_at(one)}"
            )
        is_size = not isinstance(value, torch.Tensor)
        results.append(Returned(computed=outputs[node][1], order=order, strides=strides, is_size=is_size))
    return results, [made for made, _ in outputs.values()]


def _lying(value: Any) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """The order of a tensor's dimensions in memory, where it is another than theirs, and its strides, where they are known and do
    not follow from that."""
    shape, strides = [_hint(size) for size in value.shape], [_hint(step) for step in value.stride()]
    if 0 in shape or strides == _dense(shape):
        return None, None
    order = sorted(range(len(shape)), key=lambda dim: (-strides[dim], dim))
    steps = _dense([shape[dim] for dim in order])
    follows = all(strides[dim] == step for dim, step in zip(order, steps, strict=True))
    is_known = all(type(size) is int for size in (*value.shape, *value.stride()))
    ordered = None if order == sorted(order) else tuple(order)
    return ordered, tuple(strides) if is_known and not follows else None


def _hint(size: Any) -> int:
    """A size, or the one that it has in the example."""
    if isinstance(size, int):
        return size
    found = size.node.hint
    if found is None:
        return 2  # of data: what depends on it is taken to lie row by row
    return int(found)


def _dense(shape: Sequence[int]) -> list[int]:
    """Strides of a tensor that lies row by row, as PyTorch counts them."""
    steps = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        steps[dim] = steps[dim + 1] * max(1, shape[dim + 1])
    return steps


def _sizes_from_shapes(graph: Any) -> None:
    """Sizes that are arguments of their own are read from the shape of a tensor instead, where one has them: there they are sizes
    to us, and not data."""
    import torch

    inputs = _placeholders(graph)
    found: dict[Any, tuple[Any, int]] = {}
    for node in inputs:
        value = node.meta.get("val")
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt):
                found.setdefault(size.node.expr, (node, dim))
    for node in inputs:
        value = node.meta.get("val")
        if not isinstance(value, torch.SymInt) or not node.users or value.node.expr not in found:
            continue
        with graph.inserting_after(inputs[-1]):
            read = graph.call_function(torch.ops.aten.sym_size.int, found[value.node.expr])
        read.meta["val"] = value
        node.replace_all_uses_with(read)


def _program(module: Any, graph: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """The graph as an `ExportedProgram` all of whose inputs are the user's."""
    import torch
    from torch.export import ExportedProgram
    from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
    from torch.export.graph_signature import (
        ExportGraphSignature,
        InputKind,
        InputSpec,
        OutputKind,
        OutputSpec,
        SymIntArgument,
        TensorArgument,
    )
    from torch.utils import _pytree

    def argument(node: Any) -> Any:
        is_tensor = isinstance(node.meta["val"], torch.Tensor)
        return (TensorArgument if is_tensor else SymIntArgument)(name=node.name)

    given, made = [argument(node) for node in inputs], [argument(node) for node in outputs]
    signature = ExportGraphSignature(
        [InputSpec(InputKind.USER_INPUT, one, None) for one in given],
        [OutputSpec(OutputKind.USER_OUTPUT, one, None) for one in made],
    )
    taken: tuple[Any, ...] = (tuple(range(len(given))), {})
    returned = tuple(range(len(made)))
    trees = _pytree.tree_structure(taken), _pytree.tree_structure(returned)
    call = ModuleCallEntry("", ModuleCallSignature(given, made, *trees))
    with quietly():
        return ExportedProgram(module, graph, signature, {}, {}, [call], None, {})


def _compare(graph: Graph, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """`UnsupportedModel` where what was written does not take and give what it was written from."""
    import torch

    for found, nodes in ((graph.inputs, inputs), (graph.outputs, outputs)):
        if len(found) != len(nodes):
            raise UnsupportedModel(f"PyTorch's exporter wrote {len(found)} of {len(nodes)} inputs or outputs")
        for name, node in zip(found, nodes, strict=True):
            value, kind = node.meta["val"], graph.types[name]
            wanted = str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else "int64"
            if not isinstance(kind, TensorType) or kind.dtype.name != wanted:
                raise UnsupportedModel(f"PyTorch's exporter wrote {kind} for {node.name}, which is {wanted}{_at(node)}")


def _symbols(graph: Graph, inputs: Sequence[Any]) -> dict[str, Symbol]:
    """The free dimensions of the graph's inputs by the names that they are compiled under, with the sizes of the example. One that
    is in terms of others follows from these."""
    import torch

    found: dict[str, Symbol] = {}
    named = with_names(graph)
    for name, node in zip(graph.inputs, inputs, strict=True):
        value, dims = node.meta["val"], named.tensor(name).shape or ()
        for dim, size in zip(dims, value.shape if isinstance(value, torch.Tensor) else (), strict=False):
            if isinstance(dim, str) and _NAME.fullmatch(dim) and isinstance(size, torch.SymInt) and size.node.hint:
                found.setdefault(dim, Symbol(dim, hint=int(size.node.hint)))
    return found
