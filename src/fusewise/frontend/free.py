"""Free dimensions: inputs' dimensions as symbols, all types in terms of them, and shape arithmetic replaced by what it comes to.

A dimension that nobody gave a size is a symbol, by the name it has in the model, or `INPUT_AXIS` where it has none. A name such as
`past + sequence` is the sum where its parts are dimensions by themselves. What is found on the way - symbols that must be equal,
ranges, checks - is in the types and the checks of the result.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.errors import InvalidModel
from fusewise.frontend.declared import without_shape
from fusewise.frontend.equations import Equations
from fusewise.frontend.infer_types import Inferred, infer_graph
from fusewise.frontend.shape_values import is_complete, is_of_sizes
from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Constant, Graph, Node, SizesConstant, attributes_of, integer_array
from fusewise.ir.size import LARGEST, Size, Symbol, size_of
from fusewise.ir.types import Dim, TensorType, ValueType

__all__ = ["RANGES", "in_symbols", "names_apart", "ranges_of", "with_names"]

MOST_RANK = 64
"""More than any input has dimensions."""

RANGES = "symbol_ranges"
"""The key, among a graph's metadata, of ranges that its maker states of symbols: `sequence=1..2048,batch=1..64`."""


def with_names(graph: Graph) -> Graph:
    """The graph with a name for every free dimension of its inputs; names that sizes could be mistaken for are others."""
    names = {d: None for n in graph.inputs for d in getattr(graph.types[n], "shape", None) or () if isinstance(d, str)}
    taken: dict[Any, str] = {}
    types = dict(graph.types)
    for name in graph.inputs:
        kind = graph.types[name]
        if not isinstance(kind, TensorType) or kind.shape is None:
            continue
        dims: list[Dim] = []
        for axis, dim in enumerate(kind.shape):
            if isinstance(dim, str) and dim not in taken:
                taken[dim] = _unlike(_plain(dim) if _parts(dim, names) is None else dim, taken)
            elif dim is None:
                taken[name, axis] = _unlike(_plain(f"{name}_{axis}"), taken)
            dims.append(dim if isinstance(dim, int) else taken[dim or (name, axis)])
        types[name] = TensorType(kind.dtype, tuple(dims))
    return graph.replace(types=types)


def names_apart(graph: Graph, kept: frozenset[str]) -> Graph:
    """The graph as it was read with a name of its own for each free dimension of its inputs, but for names that are `kept`, and
    without shapes of what it computes, which may be in terms of those."""
    inputs = {name: kind for name in graph.inputs if isinstance(kind := graph.types[name], TensorType) and kind.shape}
    types = {name: kind if name in graph.inputs else without_shape(kind) for name, kind in graph.types.items()}
    for name, kind in _apart(inputs)[0].items():
        pairs = zip(inputs[name].shape or (), kind.shape or (), strict=True)
        types[name] = TensorType(kind.dtype, tuple(old if old in kept else new for old, new in pairs))
    return graph.replace(types=types)


def _plain(name: str) -> str:
    """A name without what sizes are written with beside sums."""
    return re.sub(r"[^\w.]+", "_", name) if re.search(r"[(),%?*]|//|^[\d\s]*$", name) else name


def _unlike(name: str, taken: Mapping[Any, str]) -> str:
    while name in taken.values():
        name += "_"
    return name


def ranges_of(graph: Graph) -> dict[str, Symbol]:
    """The ranges that the graph's maker states of its symbols."""
    found = {}
    for part in dict(graph.metadata).get(RANGES, "").split(","):
        name, _, bounds = part.rpartition("=")
        low, dots, high = bounds.partition("..")
        if name and dots and low.isdigit() and (high.isdigit() or not high):
            found[name] = Symbol(name, int(low), max(int(low), min(int(high or LARGEST), LARGEST)))
    return found


def _usual(inputs: Mapping[str, TensorType]) -> Mapping[str, int]:
    """What to plan for where nobody says: one sample, images of 224 by 224, sequences of 128."""
    found: dict[str, int] = {}
    for kind in inputs.values():
        for axis, dim in enumerate(kind.shape or ()):
            if isinstance(dim, str):
                is_pixel = axis >= 2 and len(kind.shape or ()) == 4 and kind.dtype.is_float
                found.setdefault(dim, 1 if axis == 0 else 224 if is_pixel else 128)
    return found


def in_symbols(
    graph: Graph,
    inputs: Mapping[str, TensorType],
    declared: Mapping[str, ValueType],
    given: Mapping[str, Symbol],
    contents: Mapping[str, Sequence[int | str]] = MappingProxyType({}),
) -> Graph:
    """The graph with sizes in terms of symbols in all types, `inputs` having names for dimensions that are free.

    `given` are ranges and hints by name. `contents` are the elements of inputs of integers that decide sizes, as numbers or names:
    they are symbols, too. Where sizes that have one name cannot be equal, or only for one number, each is one of its
    own, and a sentence is told. Raises `InvalidModel` where operands cannot fit, whatever the sizes are.
    """
    apart, origins = _apart(inputs)
    try:
        found, pinned = _solved(graph, inputs, declared, given, contents)
        if not pinned or not origins:
            return found
    except InvalidModel:
        if not origins:
            raise
        found, pinned = graph, len(inputs) * MOST_RANK
    others = {name: replace(given[old], name=name) for name, (old, _, _) in origins.items() if old in given}
    try:
        better, fewer = _solved(graph, apart, declared, {**given, **others}, contents)
    except InvalidModel:
        fewer = pinned
    if fewer >= pinned:
        return found if found is not graph else _solved(graph, inputs, declared, given, contents)[0]
    for old, name, axis in origins.values():
        size = better.tensor(name).dims[axis]
        if str(size) != old:
            told = f"dimension {axis} of input {name!r} has the name {old!r}, as others have, but cannot be as long: it is {size}"
            warnings.warn(told, RuntimeWarning, stacklevel=5)
    return better


def _apart(
    inputs: Mapping[str, TensorType],
) -> tuple[dict[str, TensorType], dict[str, tuple[str, str, int]]]:
    """The inputs with a name of its own for each dimension but the first that has it; the name, the input and the axis of each
    that was given another.
    """
    taken: dict[Any, str] = {dim: dim for kind in inputs.values() for dim in kind.shape or () if isinstance(dim, str)}
    seen: set[str] = set()
    found, origins = {}, {}
    for name, kind in inputs.items():
        dims: list[Dim] = []
        for axis, dim in enumerate(kind.shape or ()):
            if isinstance(dim, str) and dim in seen and dim.isidentifier():
                taken[name, axis] = _unlike(f"{dim}_of_{_plain(name)}", taken)
                origins[taken[name, axis]] = dim, name, axis
                dim = taken[name, axis]
            elif isinstance(dim, str):
                seen.add(dim)
            dims.append(dim)
        found[name] = TensorType(kind.dtype, tuple(dims))
    return found, origins


def _solved(
    graph: Graph,
    inputs: Mapping[str, TensorType],
    declared: Mapping[str, ValueType],
    given: Mapping[str, Symbol],
    contents: Mapping[str, Sequence[int | str]],
) -> tuple[Graph, int]:
    """The graph with sizes in all types, and how many symbols can only be one number."""
    rows = (*(kind.shape or () for kind in inputs.values()), *contents.values())
    names = dict.fromkeys(dim for row in rows for dim in row if isinstance(dim, str))
    usual = _usual(inputs)
    symbols = [
        replace(one, hint=min(max(one.hint or usual.get(name, 0), one.low), one.high))
        for name in names
        if _parts(name, names) is None
        for one in (given.get(name, Symbol(name)),)
    ]
    equations = Equations(symbols)
    of_name = {name: _size(name, names, equations.symbols) for name in names}
    typed = {name: TensorType(kind.dtype, _dims(kind, of_name)) for name, kind in inputs.items()}
    stated = {name: _stated(kind, of_name) for name, kind in declared.items()}
    for _ in range(8 + 2 * len(symbols)):
        equations.is_new = False
        known = {name: TensorType(kind.dtype, tuple(map(equations.known, kind.dims))) for name, kind in typed.items()}
        read = {
            name: tuple(equations.known(of_name[one] if isinstance(one, str) else one) for one in row)
            for name, row in contents.items()
        }
        arrays = {name: integer_array(row).reshape(inputs[name].dims) for name, row in read.items()}
        found = infer_graph(graph, known, stated, equations=equations, contents=arrays)
        if not equations.is_new:
            settled = graph.replace(types=found.types, checks=equations.settled_checks(), contents=tuple(read.items()))
            return _simplified(_with_contents(settled, arrays), found), equations.pinned
    raise InvalidModel("what the sizes of inputs have to be does not come to an end")


def _dims(kind: TensorType, sizes: Mapping[str, int]) -> tuple[Dim, ...]:
    return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in kind.shape or ())


def _stated(kind: ValueType, sizes: Mapping[str, int]) -> ValueType:
    """A type that the model states, with sizes for the names of its inputs' dimensions and nothing for others."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    return TensorType(kind.dtype, tuple(sizes.get(dim) if isinstance(dim, str) else dim for dim in kind.shape))


# --- names that are sums ------------------------------------------------------------------------------------------------

_OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = MappingProxyType(
    {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}
)


def _parts(name: str, names: Mapping[str, None]) -> ast.expr | None:
    """A name that is arithmetic on others, parsed; None for one that is only a name."""
    try:
        tree = ast.parse(name.strip(), mode="eval").body if len(name) < 256 else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if isinstance(tree, ast.BinOp) and _is_arithmetic(tree, names) else None


def _is_arithmetic(tree: ast.expr, names: Mapping[str, None]) -> bool:
    if isinstance(tree, ast.BinOp):
        whole = isinstance(tree.op, ast.FloorDiv)
        number = isinstance(tree.right, ast.Constant) and tree.right.value != 0
        return (
            type(tree.op) in _OPERATIONS
            and _is_arithmetic(tree.left, names)
            and _is_arithmetic(tree.right, names)
            and (number or not whole)
        )
    return (isinstance(tree, ast.Name) and tree.id in names) or (
        isinstance(tree, ast.Constant) and type(tree.value) is int
    )


def _size(name: str, names: Mapping[str, None], symbols: Mapping[str, Symbol]) -> int:
    def of(tree: ast.expr) -> int:
        if isinstance(tree, ast.BinOp):
            found: int = _OPERATIONS[type(tree.op)](of(tree.left), of(tree.right))
            return found
        if isinstance(tree, ast.Constant):
            assert isinstance(tree.value, int)
            return tree.value
        assert isinstance(tree, ast.Name)
        return size_of(symbols[tree.id])

    tree = _parts(name, names)
    return size_of(symbols[name]) if tree is None else of(tree)


# --- shape arithmetic ---------------------------------------------------------------------------------------------------


def _simplified(graph: Graph, found: Inferred) -> Graph:
    """The graph with constants for what is known of its values, and without the nodes that computed only them."""
    constants: dict[str, Constant] = {}
    types = dict(graph.types)
    kept: list[Node] = []
    for node in graph.nodes:
        known = {name: _constant(found.values.get(name), graph.types.get(name)) for name in node.writes}
        if node.writes and all(constant is not None for constant in known.values()) and not _is_shown(graph, known):
            constants.update({name: constant for name, constant in known.items() if constant is not None})
        else:
            kept += _counted(node, found, types, constants)
    needed = set(graph.outputs)
    nodes = []
    for node in reversed(kept):
        if needed.intersection(node.writes):
            needed.update(node.reads)
            nodes.append(node)
    return _with_targets(
        graph.replace(nodes=tuple(reversed(nodes)), types=types, constants={**graph.constants, **constants})
    ).pruned()


def _with_contents(graph: Graph, arrays: Mapping[str, np.ndarray]) -> Graph:
    """With constants for what nodes read of the inputs whose elements are known."""
    names, constants, types = {}, dict(graph.constants), dict(graph.types)
    for value, array in arrays.items():
        name = f"{value}_elements"
        while name in types:
            name += "_"
        kind = graph.tensor(value)
        constants[name] = (
            SizesConstant(array, kind.dtype) if array.dtype == object else Constant(array.astype(kind.dtype.numpy))
        )
        types[name], names[value] = kind, name
    nodes = tuple(
        replace(
            node,
            inputs=tuple(names.get(one, one) for one in node.inputs),
            captured=tuple(names.get(one, one) for one in node.captured),
        )
        for node in graph.nodes
    )
    return graph.replace(nodes=nodes, constants=constants, types=types) if names else graph


def _counted(node: Node, found: Inferred, types: dict[str, ValueType], constants: dict[str, Constant]) -> list[Node]:
    """The node; a Range of floats up to a size as one of integers, which can be constants in terms of sizes, made floats.

    Floats have integers below 2**24 exactly, and a Range is no longer.
    """
    kind = types.get(node.outputs[0]) if node.op == "Range" and not node.domain else None
    if not isinstance(kind, TensorType) or not kind.dtype.is_float or kind.dtype.bits < 32:
        return [node]
    whole: list[tuple[str, Constant]] = []
    for name in node.inputs:
        item = found.values[name].reshape(-1).tolist()[0] if name in found.values and found.values[name].size else None
        if not isinstance(item, Size) and not (isinstance(item, int | float) and item == int(item)):
            return [node]
        exact = item if isinstance(item, Size) else int(item)
        sized = (
            SizesConstant(np.array(exact, object)) if isinstance(exact, Size) else Constant(np.array(exact, np.int64))
        )
        whole.append((f"{name}_whole", sized))
    if not any(isinstance(constant, SizesConstant) for _, constant in whole):
        return [node]
    name = f"{node.outputs[0]}_whole"
    if types.keys() & {name, *(one for one, _ in whole)} - constants.keys():
        return [node]
    constants.update(whole)
    types.update({one: constant.type for one, constant in whole} | {name: TensorType(INT64, kind.shape)})
    counted = Node("Range", tuple(one for one, _ in whole), (name,), (), "", f"{node.label}_whole", node.origin)
    cast = Node("Cast", (name,), node.outputs, attributes_of(to=kind.dtype.onnx), "", node.name, node.origin)
    return [counted, cast]


def _with_targets(graph: Graph) -> Graph:
    """With the shape of its result as what every Reshape is asked for: neither -1 nor 0 stands for a size, so that there may be
    no elements.
    """
    nodes, constants, types = [], dict(graph.constants), dict(graph.types)
    for node in graph.nodes:
        kind = graph.types.get(node.outputs[0]) if node.op == "Reshape" and not node.domain else None
        if isinstance(kind, TensorType) and kind.is_static and not kind.is_fixed:
            name = f"{node.outputs[0]}_target"
            while name in types:
                name += "_"
            target = np.empty(kind.rank, dtype=object)
            target[:] = kind.dims
            constants[name] = SizesConstant(target)
            types[name] = constants[name].type
            node = node.with_inputs((node.inputs[0], name)).with_attributes(allowzero=1)
        nodes.append(node)
    return graph.replace(nodes=tuple(nodes), constants=constants, types=types)


def _is_shown(graph: Graph, known: Mapping[str, Constant | None]) -> bool:
    """Is one in terms of sizes an output of the graph? Those are computed."""
    return any(name in graph.output_set and isinstance(constant, SizesConstant) for name, constant in known.items())


def _constant(value: np.ndarray | None, kind: object) -> Constant | None:
    """Contents that are known as a constant; None where they are not, or not in terms of integers."""
    if value is None or not isinstance(kind, TensorType):
        return None
    if is_complete(value):
        return Constant(value) if value.dtype == kind.dtype.numpy else None
    if not is_of_sizes(value) or kind.dtype.name not in ("int64", "int32"):
        return None
    return SizesConstant(value, kind.dtype) if any(isinstance(item, Size) for item in value.reshape(-1)) else None
