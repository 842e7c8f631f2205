"""What operators that move elements ask: reshapes, slices, pads, gathers, scatters, selections, resizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusewise.ir.graph import Constant
from fusewise.ir.types import Dim
from fusewise.ops.validity.rules import (
    axes,
    axes_of_operand,
    axis,
    axis_of_operand,
    between,
    element_type,
    flag,
    one_of,
    permutation,
    values_within,
)
from fusewise.ops.validity.use import Rule, Use, ValidityRow, alike, shown

__all__ = ["MOVEMENT"]


def _numbers(dims: Sequence[Dim] | None) -> tuple[int, ...] | None:
    """A shape that is known as a whole."""
    if dims is None:
        return None
    found = tuple(dim for dim in dims if isinstance(dim, int))
    return found if len(found) == len(dims) else None


def _reshape(use: Use) -> str:
    """The target has as many elements as there are; 0 takes an extent over, one -1 is computed."""
    target, dims = use.values(1), use.shape(0)
    if target is None:
        return ""
    where = f"{use.operand(1)} is {shown(target)}"
    if any(size < -1 for size in target) or target.count(-1) > 1:
        return f"{where}; it may hold -1 once, and no other negative number"
    if use.attribute("allowzero") and 0 in target and -1 in target:
        return f"{where}; it may not hold both 0 and -1 when allowzero is set"
    if not use.attribute("allowzero"):
        if dims is not None and any(size == 0 and i >= len(dims) for i, size in enumerate(target)):
            return f"{where}; a 0 in it has no dimension of {use.operand(0)} to take over, which has {len(dims)}"
        if 0 in target and dims is None:
            return ""
        target = [dims[i] if size == 0 and dims is not None else size for i, size in enumerate(target)]
    have, want = use.count(0), _numbers([size for size in target if size != -1])
    if have is None or want is None:
        return ""
    total = math.prod(want)
    if (have == total) if -1 not in target else (total > 0 and have % total == 0) or have == total:
        return ""
    return f"{where}, which does not have the {have} elements of {use.operand(0)}"


def _split(use: Use) -> str:
    """Sizes for every output that add up, or a number of outputs that is theirs."""
    outputs, sizes, count = len(use.node.outputs), use.values(1), use.attribute("num_outputs")
    if use.has(1) and count is not None:
        return "it has both the sizes of its outputs and their number; only one may be given"
    along = use.extent(0, use.attribute("axis"))
    if count is not None:
        if count != outputs:
            return f"its attribute num_outputs is {count}, but it has {outputs} outputs"
        if along is not None and along - -(-along // count) * (count - 1) < 0:
            return f"its attribute num_outputs is {count}, but axis {use.attribute('axis')} has only {along} elements"
    if sizes is None:
        return ""
    if len(sizes) != outputs or min(sizes, default=0) < 0 or (along is not None and sum(sizes) != along):
        must = f"{outputs} sizes, none negative" + ("" if along is None else f", that add up to {along}")
        return f"{use.operand(1)} is {shown(sizes)}; it must hold {must}"
    return ""


def _squeeze(use: Use) -> str:
    dims, chosen = use.shape(0), use.values(1)
    if dims is None or chosen is None:
        return ""
    wrong = next((axis for axis in chosen if isinstance(dims[axis], int) and dims[axis] != 1), None)
    return "" if wrong is None else f"axis {wrong} of {use.operand(0)} has the extent {dims[wrong]}, not 1"


def _slice(use: Use) -> str:
    """As many ends, axes and steps as starts."""
    known = [(i, use.count(i)) for i in range(1, 5) if use.has(i) and use.count(i) is not None]
    for i, found in known[1:]:
        if found != known[0][1]:
            return f"{use.operand(i)} has {found} elements, but {use.operand(known[0][0])} has {known[0][1]}"
    if not use.has(3) and known and use.rank(0) is not None and (known[0][1] or 0) > (use.rank(0) or 0):
        return f"{use.operand(1)} has {known[0][1]} elements, but {use.operand(0)} only {use.rank(0)} dimensions"
    return f"{use.operand(4)} is {shown(use.values(4))}; no step may be 0" if 0 in (use.values(4) or ()) else ""


def _pad(use: Use) -> str:
    """Two numbers for each axis; what is cut off is there, and so is what is reflected or repeated."""
    dims, pads = use.shape(0), use.values(1)
    count = use.count(3) if use.has(3) else use.rank(0)
    asked = use.count(1)
    if count is not None and asked is not None and asked != 2 * count:
        return f"{use.operand(1)} has {asked} elements; it must have {2 * count}, two for each of {count} axes"
    chosen = use.values(3) if use.has(3) else None if dims is None else list(range(len(dims)))
    if dims is None or pads is None or chosen is None or len(pads) != 2 * len(chosen):
        return ""
    mode = use.attribute("mode")
    for k, axis_ in enumerate(chosen):
        extent, begin, end = dims[axis_], pads[k], pads[len(chosen) + k]
        if not isinstance(extent, int):
            continue
        left = extent + min(begin, 0) + min(end, 0)
        where = f"{use.operand(1)} is {shown(pads)}, but axis {axis_} of {use.operand(0)} has only {extent} elements"
        if left < 0:
            return f"{where} to cut off"
        if left == 0 and max(begin, end) > 0 and mode != "constant":
            return f"{where} for mode {mode!r}"
    return ""


def _tile(use: Use) -> str:
    count, known = use.count(1), use.rank(0)
    if count is None or known is None or count == known:
        return ""
    return f"{use.operand(1)} has {count} elements; it must have {known}, one for each axis of {use.operand(0)}"


def _expand(use: Use) -> str:
    target, dims = use.values(1), use.shape(0)
    if target is None or dims is None:
        return ""
    pairs = zip(reversed(dims), reversed(target), strict=False)
    if all(not isinstance(a, int) or a == b or 1 in (a, b) for a, b in pairs):
        return ""
    return f"{use.operand(0)} has the shape {shown(dims)}, which does not broadcast to {shown(target)}"


def _indices_inside(use: Use) -> str:
    """GatherElements, ScatterElements: as many dimensions as the data, off the axis no larger."""
    data, indices, along = use.shape(0), use.shape(1), use.attribute("axis")
    if data is None or indices is None:
        return ""
    if len(data) != len(indices):
        return f"{use.operand(1)} has {len(indices)} dimensions; it must have {len(data)}, as {use.operand(0)}"
    for k, (most, found) in enumerate(zip(data, indices, strict=True)):
        if k != along % max(len(data), 1) and isinstance(most, int) and isinstance(found, int) and found > most:
            return (
                f"{use.operand(1)} has the shape {shown(indices)}; off axis {along} it may be no larger than {use.operand(0)}, "
                f"{shown(data)}"
            )
    return ""


def _gather_nd(use: Use) -> str:
    """Batches are alike, and the last dimension of the indices indexes what follows them."""
    data, indices, batches = use.shape(0), use.shape(1), use.attribute("batch_dims")
    if data is None or indices is None:
        return ""
    if not data or not indices:
        return f"{use.operand(0 if not data else 1)} has no dimensions; it must have one or more"
    if batches >= min(len(data), len(indices)):
        return (
            f"its attribute batch_dims is {batches}; it must be smaller than both ranks, {len(data)} and {len(indices)}"
        )
    if not alike(data[:batches], indices[:batches]):
        return (
            f"{use.operand(1)} has the shape {shown(indices)}; its first {batches} extents must be those of {use.operand(0)}, "
            f"{shown(data)}"
        )
    return _index_depth(use, data[batches:], indices[-1])


def _index_depth(use: Use, dims: Sequence[Dim], depth: Dim) -> str:
    if not isinstance(depth, int) or 1 <= depth <= len(dims):
        return ""
    return f"the last extent of {use.operand(1)} is {depth}; it must lie between 1 and {len(dims)}, the axes it indexes"


def _scatter_nd(use: Use) -> str:
    """Updates are shaped as the indices without their last dimension and what these choose."""
    data, indices, updates = use.shape(0), use.shape(1), use.shape(2)
    if data is None or indices is None:
        return ""
    if not data or not indices:
        return f"{use.operand(0 if not data else 1)} has no dimensions; it must have one or more"
    depth = indices[-1]
    fault = _index_depth(use, data, depth)
    if fault or updates is None or not isinstance(depth, int):
        return fault
    wanted = (*indices[:-1], *data[depth:])
    if alike(wanted, updates):
        return ""
    return f"{use.operand(2)} has the shape {shown(updates)}; it must have the shape {shown(wanted)}"


def _alike_off_axis(use: Use) -> str:
    """Concat: equal ranks, and equal extents off the axis."""
    shapes = [(i, shape) for i in range(len(use.node.inputs)) if (shape := use.shape(i)) is not None]
    along = use.attribute("axis")
    for i, shape in shapes[1:]:
        first = shapes[0][1]
        if len(shape) == len(first) and all(
            k == along % max(len(first), 1) or not isinstance(a, int) or not isinstance(b, int) or a == b
            for k, (a, b) in enumerate(zip(first, shape, strict=True))
        ):
            continue
        return f"{use.operand(i)} has the shape {shown(shape)}, which does not join {shown(first)} along axis {along}"
    return ""


def _reverse(use: Use) -> str:
    """One axis of 0 and 1 counts time, the other the sequences, which each have a length within it."""
    time, batch = use.attribute("time_axis"), use.attribute("batch_axis")
    if {time, batch} != {0, 1}:
        return f"its attributes time_axis and batch_axis are {time} and {batch}; one must be 0 and the other 1"
    lengths, steps = use.values(1), use.extent(0, time)
    if lengths is None or steps is None or all(0 <= length <= steps for length in lengths):
        return ""
    return f"{use.operand(1)} is {shown(lengths)}; each must lie between 0 and {steps}"


def _reverse_shapes(use: Use) -> str:
    return "T N ..., N" if use.attribute("batch_axis") == 1 else "N T ..., N"


def _block(use: Use) -> str:
    """Depth or space is a whole number of blocks."""
    block = use.attribute("blocksize")
    if use.node.op == "DepthToSpace":
        depth = use.extent(0, 1)
        if depth is not None and depth % block**2:
            return f"its attribute blocksize is {block}, but {use.operand(0)} has {depth} channels, no multiple of {block**2}"
        return ""
    for k in (2, 3):
        extent = use.extent(0, k)
        if extent is not None and extent % block:
            return f"its attribute blocksize is {block}, but {use.operand(0)} has {extent} elements of axis {k}, no multiple of it"
    return ""


def _resize(use: Use) -> str:
    """Scales or sizes, one for each axis that is resized."""
    chosen = use.attribute("axes")
    count = use.rank(0) if chosen is None else len(chosen)
    if use.node.op == "Upsample":
        return _resized(use, 1, count)
    scaled, sized = use.has(2) and use.count(2) != 0, use.has(3) and use.count(3) != 0
    if scaled == sized and use.count(2 if use.has(2) else 3) is not None:
        return "it must be given either scales or sizes" + (", not both" if scaled else "")
    if use.attribute("coordinate_transformation_mode") == "tf_crop_and_resize" and count is not None:
        found = use.count(1)
        if use.has(1) and found is not None and found != 2 * count:
            return f"{use.operand(1)} has {found} elements; it must have {2 * count}, two for each axis that is resized"
    return _resized(use, 2, count) or _resized(use, 3, count) or _made_of_nothing(use)


def _made_of_nothing(use: Use) -> str:
    """No axis of no elements grows, and none with some shrinks to nothing."""
    dims, sizes = use.shape(0), use.values(3)
    chosen = use.attribute("axes")
    if dims is None or not sizes:
        return ""
    axes_ = range(len(dims)) if chosen is None else chosen
    for axis_, size in zip(axes_, sizes, strict=True):
        extent = dims[axis_]
        if isinstance(extent, int) and (extent == 0) != (size == 0):
            return f"{use.operand(3)} is {shown(sizes)}, but axis {axis_} of {use.operand(0)} has {extent} elements"
    return ""


def _resized(use: Use, i: int, count: int | None) -> str:
    found = use.count(i)
    if count is not None and found is not None and found not in (0, count):
        return f"{use.operand(i)} has {found} elements; it must have {count}, one for each axis that is resized"
    values = use.values(i)
    if values is None or all(0 < value < math.inf if i < 3 else value >= 0 for value in values):
        return ""
    return f"{use.operand(i)} is {shown(values)}; each must be {'positive and finite' if i < 3 else '0 or more'}"


def _crop(use: Use) -> str:
    chosen, found = use.attribute("axes"), use.count(1)
    count = use.rank(0) if chosen is None else len(chosen)
    if found is None or count is None or found == count:
        return ""
    return f"{use.operand(1)} has {found} elements; it must have {count}, one for each axis"


def _kept(use: Use) -> str:
    """TopK: no more elements than there are."""
    count, along = use.values(1), use.extent(0, use.attribute("axis"))
    if not count or along is None or 0 <= count[0] <= along:
        return ""
    return f"{use.operand(1)} is {count[0]}; axis {use.attribute('axis')} of {use.operand(0)} has {along} elements"


def _one_value(use: Use) -> str:
    value = use.attribute("value")
    size = value.type.size if isinstance(value, Constant) else 1
    return f"its attribute value has {size} elements; it must have one" if size != 1 else ""


def _step(use: Use) -> str:
    for place in range(3):
        if not math.isfinite((use.values(place) or [0])[0]):
            return f"{use.operand(place)} is not finite"
    return f"{use.operand(2)} is 0; a step must lead somewhere" if (use.values(2) or [1])[0] == 0 else ""


def _compressed(use: Use) -> str:
    along = use.attribute("axis")
    most = use.count(0) if along is None else use.extent(0, along)
    found = use.count(1)
    if most is None or found is None or found <= most:
        return ""
    return f"{use.operand(1)} has {found} elements, more than the {most} it chooses from"


_REDUCTION: Rule = one_of("reduction", "none", "add", "mul", "max", "min")

MOVEMENT: tuple[ValidityRow, ...] = (
    ValidityRow("Reshape", "_, R", (flag("allowzero"), _reshape)),
    ValidityRow("Flatten", rules=(axis(more=1),)),
    ValidityRow("Squeeze", "_, () | R", (axes_of_operand(1, distinct=False), _squeeze)),
    ValidityRow("Unsqueeze", "_, () | R", (axes_of_operand(1, more=1),)),
    ValidityRow("Transpose", rules=(permutation("perm"),)),
    ValidityRow("Concat", rules=(axis(), _alike_off_axis)),
    ValidityRow("Split", "_, R", (axis(), between("num_outputs", 1), _split)),
    ValidityRow("Slice", "_, R, R, R, R", (_slice, axes_of_operand(3))),
    ValidityRow(
        "Pad", "_, R, one, A", (one_of("mode", "constant", "reflect", "edge", "wrap"), axes_of_operand(3), _pad)
    ),
    ValidityRow("Tile", "_, R", (_tile, values_within(1, 0))),
    ValidityRow("Expand", "_, R", (values_within(1, 0), _expand)),
    ValidityRow("DepthToSpace", "N C H W", (between("blocksize", 1), one_of("mode", "DCR", "CRD"), _block)),
    ValidityRow("SpaceToDepth", "N C H W", (between("blocksize", 1), one_of("mode", "DCR", "CRD"), _block)),
    ValidityRow("ReverseSequence", _reverse_shapes, (_reverse,)),
    ValidityRow("Trilu", "... H W, one", (flag("upper"),)),
    ValidityRow("CenterCropPad", "_, R", (axes(), values_within(1, 0), _crop)),
    ValidityRow("Gather", rules=(axis(),)),
    ValidityRow("GatherElements", rules=(axis(), _indices_inside)),
    ValidityRow("Scatter", "_, *I, *I", (axis(), _indices_inside)),
    ValidityRow("ScatterElements", "_, *I, *I", (axis(), _REDUCTION, _indices_inside)),
    ValidityRow("GatherND", rules=(between("batch_dims", 0), _gather_nd)),
    ValidityRow("ScatterND", rules=(_REDUCTION, _scatter_nd)),
    ValidityRow("OneHot", "_, one, 2", (axis(more=1), values_within(1, 0))),
    ValidityRow("Compress", "_, L", (axis(), _compressed)),
    ValidityRow("TopK", "_, 1", (axis(), flag("largest", "sorted"), _kept)),
    ValidityRow("Unique", rules=(axis(), flag("sorted"))),
    ValidityRow(
        "Resize",
        "_, A, B | 0, C",
        (
            axes(),
            flag("antialias", "exclude_outside"),
            one_of("mode", "nearest", "linear", "cubic"),
            one_of("nearest_mode", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
            one_of("keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller"),
            one_of(
                "coordinate_transformation_mode",
                *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
                *("tf_crop_and_resize", "tf_half_pixel_for_nn"),
            ),
            _resize,
        ),
    ),
    ValidityRow("Upsample", "_, A", (one_of("mode", "nearest", "linear"), _resize)),
    ValidityRow("Range", "one, one, one", (_step,)),
    ValidityRow("ConstantOfShape", "R", (values_within(0, 0), _one_value)),
    ValidityRow("EyeLike", "R C", (element_type("dtype"),)),
    ValidityRow("TensorScatter", "N ..., N ..., N", (axis(), one_of("mode", "linear", "circular"))),
    ValidityRow("SequenceEmpty", rules=(element_type("dtype"),)),
    ValidityRow("NonMaxSuppression", "N B 4, N C B, one, one, one", (flag("center_point_box"),)),
    ValidityRow("ConcatFromSequence", rules=(flag("new_axis"),)),
    ValidityRow("SplitToSequence", "_, () | R", (axis(), flag("keepdims"), values_within(1, 0))),
    ValidityRow("SequenceAt", "_, one"),
    ValidityRow("SequenceErase", "_, one"),
    ValidityRow("SequenceInsert", "_, _, one"),
    ValidityRow("CumSum", "_, one", (flag("exclusive", "reverse"), axis_of_operand(1))),
    ValidityRow("CumProd", "_, one", (flag("exclusive", "reverse"), axis_of_operand(1))),
)
