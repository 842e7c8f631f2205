"""Remove operators that move nothing, and merge pairs that move twice. Bits are kept: numeric class exact."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fusewise.ir.deciding import known_below, known_equal
from fusewise.ir.dtypes import STRING
from fusewise.ir.graph import Graph, Node, attributes_of, integer_array
from fusewise.ir.types import TensorType
from fusewise.passes.edit import Change, Edit, LocalRule, may_be_empty, rebuilt, sweep
from fusewise.passes.read_parts import READ_PARTS, axis_of
from fusewise.trace import Trace

__all__ = ["RULES", "simplify_movement"]

_RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_OF_ONE_ITSELF = (
    "GlobalAveragePool",
    "GlobalMaxPool",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
)


def simplify_movement(graph: Graph, trace: Trace) -> Graph:
    """Movement that is no movement goes, and two in a row become one.

    b = Transpose(Transpose(x, perm=[0,2,1]), perm=[0,2,1])   ->   b = x
    b = Reshape(Unsqueeze(x, [0]), [4,6])                     ->   b = Reshape(x, [4,6])
    """
    return sweep(graph, trace, RULES)


def _same(node: Node, reason: str, *inner: Node, source: str | None = None) -> Change:
    """The first output of `node` is its first operand, or `source`."""
    return Change((*inner, node), reason, same={node.outputs[0]: node.inputs[0] if source is None else source})


def _copy(edit: Edit, node: Node) -> Change | None:
    return _same(node, "a copy")


def _keeps_shape(edit: Edit, node: Node) -> Change | None:
    """Reshape, Expand, Tile and the like whose result has the shape of their operand."""
    if edit.same_type(node.inputs[0], node.outputs[0]):
        return _same(node, "the shape stays")
    return None


def _whole_slice(edit: Edit, node: Node) -> Change | None:
    if not edit.same_type(node.inputs[0], node.outputs[0]):
        return None
    steps = edit.operand(node, 4)
    if len(node.inputs) > 4 and node.inputs[4] and (steps is None or _reverses(edit, node, steps)):
        return None  # a negative step keeps the shape and reverses
    return _same(node, "takes everything")


def _reverses(edit: Edit, node: Node, steps: np.ndarray) -> bool:
    """May a step be one backwards along several elements?"""
    kind, axes = edit.static(node.inputs[0]), edit.operand(node, 3) if node.inputs[3] else np.arange(steps.size)
    if kind is None or axes is None:
        return True
    return any(step < 0 and not known_below(kind.dims[axis], 2) for axis, step in zip(axes, steps, strict=True))


def _no_padding(edit: Edit, node: Node) -> Change | None:
    pads = edit.operand(node, 1)
    return _same(node, "pads by nothing") if pads is not None and not np.any(pads) else None


def _single_part(edit: Edit, node: Node) -> Change | None:
    """Concat of one operand, or Split into one part."""
    parts = node.inputs if node.op == "Concat" else node.outputs
    return _same(node, "one part") if len(parts) == 1 else None


def _same_resize(edit: Edit, node: Node) -> Change | None:
    """Resize to the size there is; every coordinate then falls on a pixel."""
    kind = edit.static(node.inputs[0])
    if kind is None or not edit.same_type(node.inputs[0], node.outputs[0]):
        return None
    if node.attribute("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        return None
    if node.attribute("mode", "nearest") not in ("nearest", "linear"):
        return None
    if node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None  # the scale used is then not that of the sizes
    scales, sizes = edit.operand(node, 2), edit.operand(node, 3)
    by_scale = scales is not None and scales.size > 0 and bool(np.all(scales == 1))
    by_size = sizes is not None and sizes.size == kind.rank and "axes" not in dict(node.attributes)
    return _same(node, "the size stays") if by_scale or by_size else None


def _permutation(edit: Edit, node: Node) -> tuple[int, ...] | None:
    given = node.attribute("perm")
    if given is not None:
        return tuple(given)
    kind = edit.types.get(node.inputs[0])
    if not isinstance(kind, TensorType) or kind.shape is None:
        return None
    return tuple(reversed(range(kind.rank)))


def _moves_ones(edit: Edit, node: Node, perm: tuple[int, ...]) -> bool:
    """Do axes of one element alone change places, and the shape stays?"""
    kind = edit.static(node.inputs[0])
    if kind is None or not edit.same_type(node.inputs[0], node.outputs[0]):
        return False
    long = [axis for axis in perm if kind.dims[axis] != 1]
    return long == sorted(long)


def _transpose(edit: Edit, node: Node) -> Change | None:
    """No permutation at all, or one after another."""
    perm = _permutation(edit, node)
    if perm is None:
        return None
    if perm == tuple(range(len(perm))) or _moves_ones(edit, node, perm):
        return _same(node, "permutes nothing")
    before = edit.made_by(node.inputs[0], "Transpose")
    first = None if before is None else _permutation(edit, before)
    if before is None or first is None:
        return None
    both = tuple(first[axis] for axis in perm)
    if both == tuple(range(len(both))):
        return _same(node, "the second undoes the first", before, source=before.inputs[0])
    merged = rebuilt(node, "Transpose", before.inputs, perm=both)
    return Change((before, node), "two permutations are one", (merged,))


def _reshape_twice(edit: Edit, node: Node) -> Change | None:
    before = edit.made_by(node.inputs[0], *_RESHAPES)
    kind = edit.static(node.outputs[0])
    if before is None or kind is None:
        return None
    if edit.same_type(before.inputs[0], node.outputs[0]):
        return _same(node, "the second undoes the first", before, source=before.inputs[0])
    if edit.sole(node.inputs[0], *_RESHAPES) is None:
        return None
    shape = edit.constant(integer_array(kind.dims), f"{node.label}_shape")
    merged = rebuilt(node, "Reshape", (before.inputs[0], shape), **may_be_empty(kind.dims))
    return Change((before, node), "only the last shape counts", (merged,))


def _product_of_reshaped(edit: Edit, node: Node) -> Change | None:
    """A product of samples that are counted in one axis, and in several before and after it, as PyTorch's `bmm` wants them."""
    product = edit.sole(node.inputs[0], "MatMul")
    kind = edit.static(node.outputs[0])
    before = () if product is None else tuple(edit.static(value) for value in (*product.inputs, *product.outputs))
    if product is None or kind is None or None in before:
        return None
    left, right, made = (one.dims for one in before if one is not None)
    samples, sizes = kind.dims[:-2], (left[-2:], right[-2:])
    if not () != left[:-2] == right[:-2] == made[:-2] != samples or kind.dims[-2:] != made[-2:]:
        return None
    if not known_equal(math.prod(samples), math.prod(made[:-2])):  # of an empty matrix there may be any number
        return None
    operands, merged, nodes = [], [], []
    for value, size in zip(product.inputs, sizes, strict=True):
        inner, want = edit.sole(value, *_RESHAPES), (*samples, *size)
        given = None if inner is None else edit.static(inner.inputs[0])
        if inner is not None and given is not None and given.dims == want:
            operands.append(inner.inputs[0])
            merged.append(inner)
            continue
        operands.append(edit.value(f"{value}_apart", TensorType(kind.dtype, want)))
        shape = edit.constant(integer_array(want), f"{value}_shape")
        nodes.append(Node("Reshape", (value, shape), (operands[-1],), attributes_of(**may_be_empty(want))))
    if not merged:
        return None
    nodes.append(replace(product, inputs=tuple(operands), outputs=node.outputs))
    return Change((*merged, product, node), "samples are counted in several axes before and after", tuple(nodes))


def _over_one(edit: Edit, node: Node) -> Change | None:
    """A reduction over axes of one element each."""
    given, kind = edit.static(node.inputs[0]), edit.static(node.outputs[0])
    if given is None or kind is None or given.size != kind.size or not kind.size:
        return None
    if given.dims == kind.dims:
        return _same(node, "one element each")
    shape = edit.constant(integer_array(kind.dims), f"{node.label}_shape")
    reshape = rebuilt(node, "Reshape", (node.inputs[0], shape), **may_be_empty(kind.dims))
    return Change((node,), "one element each", (reshape,))


def _window_of_one(edit: Edit, node: Node) -> Change | None:
    """Pooling over windows of one element each."""
    alone = all(extent == 1 for extent in node.attribute("kernel_shape", ()))
    if not alone or len(node.outputs) > 1 or not edit.same_type(node.inputs[0], node.outputs[0]):
        return None
    padded = any(node.attribute("pads", ())) or node.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    strided = any(step != 1 for step in node.attribute("strides", ()))
    return None if padded or strided else _same(node, "windows of one element")


def _concat_of_split(edit: Edit, node: Node) -> Change | None:
    """All parts of one Split, in order, along its axis."""
    split = edit.made_by(node.inputs[0], "Split")
    if split is None or split.outputs != node.inputs or axis_of(edit, split) != axis_of(edit, node):
        return None
    return _same(node, "joins what was split", split, source=split.inputs[0])


def _split_of_concat(edit: Edit, node: Node) -> Change | None:
    """A Split into just the parts that were concatenated."""
    concat = edit.made_by(node.inputs[0], "Concat")
    if concat is None or len(concat.inputs) != len(node.outputs) or axis_of(edit, concat) != axis_of(edit, node):
        return None
    pairs = dict(zip(node.outputs, concat.inputs, strict=True))
    if not all(made and edit.same_type(made, part) for made, part in pairs.items()):
        return None
    return Change((concat, node), "splits what was joined", same=pairs)


def _concat_of_concat(edit: Edit, node: Node) -> Change | None:
    """A Concat among the operands of another along the same axis."""
    axis = axis_of(edit, node)
    for i, value in enumerate(node.inputs):
        inner = edit.sole(value, "Concat")
        if inner is not None and axis is not None and axis_of(edit, inner) == axis:
            merged = node.with_inputs((*node.inputs[:i], *inner.inputs, *node.inputs[i + 1 :]))
            return Change((inner, node), "two joins are one", (merged,))
    return None


def _chosen(edit: Edit, node: Node) -> Change | None:
    """Where with a condition that is the same everywhere."""
    condition = edit.operand(node, 0)
    if condition is None or condition.size == 0:
        return None
    pick = 1 if condition.all() else 2 if not condition.any() else 0
    if pick and edit.same_type(node.inputs[pick], node.outputs[0]):
        return _same(node, "the condition is constant", source=node.inputs[pick])
    return None


def _dropout(edit: Edit, node: Node) -> Change | None:
    """Dropout when not training: the data pass through. Its mask must be unused."""
    training = edit.operand(node, 2)
    if len(node.inputs) > 2 and node.inputs[2] and (training is None or bool(training.reshape(-1)[0])):
        return None
    return _same(node, "not training")


def _cast(edit: Edit, node: Node) -> Change | None:
    """To the type there is, or after a cast that loses nothing."""
    made, given = edit.types.get(node.outputs[0]), edit.types.get(node.inputs[0])
    if not isinstance(made, TensorType) or not isinstance(given, TensorType):
        return None
    if made.dtype == given.dtype:
        return _same(node, "the type stays")
    before = edit.made_by(node.inputs[0], "Cast") if node.op == "Cast" and made.dtype != STRING else None
    first = None if before is None else edit.types.get(before.inputs[0])
    if before is None or not isinstance(first, TensorType) or not _holds(given, first):
        return None
    if first.dtype == made.dtype:
        return _same(node, "there and back", before, source=before.inputs[0])
    return Change((before, node), "the first cast loses nothing", (node.with_inputs(before.inputs),))


def _holds(wide: TensorType, narrow: TensorType) -> bool:
    """Can the one type hold every value of the other?"""
    a, b = wide.dtype, narrow.dtype
    if b.kind == "bool":
        return a.is_integer or a.is_float
    if a.is_float and b.is_float:
        return a.bits in (32, 64) and b.name in ("float16", "bfloat16", "float32") and a.bits >= b.bits
    return a.is_integer and a.bits > b.bits and b.is_integer and (a.kind == "int" or b.kind == "uint")


RULES: tuple[LocalRule, ...] = (
    LocalRule("drop-identity", ("Identity",), _copy),
    LocalRule("drop-dropout", ("Dropout",), _dropout),
    LocalRule("drop-cast", ("Cast", "CastLike"), _cast),
    LocalRule("drop-same-shape", (*_RESHAPES, "Expand", "Tile"), _keeps_shape),
    LocalRule("drop-whole-slice", ("Slice",), _whole_slice),
    LocalRule("drop-empty-pad", ("Pad",), _no_padding),
    LocalRule("drop-single-part", ("Concat", "Split"), _single_part),
    LocalRule("drop-same-resize", ("Resize",), _same_resize),
    LocalRule("drop-reduction-of-one", _OF_ONE_ITSELF, _over_one),
    LocalRule("drop-window-of-one", ("AveragePool", "MaxPool"), _window_of_one),
    LocalRule("drop-constant-where", ("Where",), _chosen),
    LocalRule("merge-transposes", ("Transpose",), _transpose),
    LocalRule("merge-reshapes", _RESHAPES, _reshape_twice),
    LocalRule("product-of-reshaped", ("Reshape",), _product_of_reshaped),
    LocalRule("concat-of-split", ("Concat",), _concat_of_split),
    LocalRule("concat-of-concat", ("Concat",), _concat_of_concat),
    LocalRule("split-of-concat", ("Split",), _split_of_concat),
    *READ_PARTS,
)
