"""What convolutions, poolings and other operators with windows ask of their operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fusewise.ir.types import Dim
from fusewise.ops.validity.rules import (
    at_least,
    between,
    counted,
    dim,
    divides,
    elements,
    flag,
    given,
    one_of,
    rank,
    values_within,
)
from fusewise.ops.validity.use import Rule, Size, Use, ValidityRow, alike, shown

__all__ = ["WINDOWS"]

Kernel = Callable[[Use], Sequence[Dim] | None]
"""The extents of the window, None when their number is not known."""

_AUTO_PAD = one_of("auto_pad", "", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")  # some tools write it empty


def _filter(i: int) -> Kernel:
    """The spatial extents of the filter, which is operand `i`."""

    def kernel(use: Use) -> Sequence[Dim] | None:
        shape = use.shape(i)
        return None if shape is None else shape[2:]

    return kernel


def _stated(use: Use) -> Sequence[Dim] | None:
    """The attribute that says how large the window is."""
    found: Sequence[Dim] | None = use.attribute("kernel_shape")
    return found


def _per_axis(of: int) -> tuple[Rule, ...]:
    """The lists that say how a window moves over the spatial axes of operand `of`."""
    axes = rank(of, less=2)
    what = f"one for each spatial axis of input {of}"
    return (
        _AUTO_PAD,
        at_least(1, "strides", "dilations", "kernel_shape"),
        at_least(0, "pads", "output_padding"),
        at_least(1, "output_shape"),
        *(counted(name, axes, what) for name in ("strides", "dilations", "kernel_shape", "output_padding")),
        counted("pads", rank(of, times=2, less=2), f"two for each spatial axis of input {of}"),
    )


def _kernel_is(i: int) -> Rule:
    """`kernel_shape`, where it is given, is that of the filter, and the filter has as many axes as the data."""

    def rule(use: Use) -> str:
        asked, found = use.attribute("kernel_shape"), _filter(i)(use)
        if asked is None or found is None:
            return ""
        if alike(asked, found):
            return ""
        return f"its attribute kernel_shape is {shown(asked)}, but {use.operand(i)} has the shape {shown(use.shape(i))}"

    return rule


def _fits(kernel: Kernel, of: int = 0) -> Rule:
    """The window is no larger than operand `of` with its padding, so that there is at least one place for it."""

    def rule(use: Use) -> str:
        shape, window = use.shape(of), kernel(use)
        if shape is None or window is None or len(window) != len(shape) - 2:
            return ""
        if use.attribute("auto_pad") in ("SAME_UPPER", "SAME_LOWER"):
            return ""
        axes = len(window)
        pads = use.attribute("pads") if use.attribute("auto_pad") != "VALID" else None
        pads, dilations = pads or (0,) * 2 * axes, use.attribute("dilations") or (1,) * axes
        strides = use.attribute("strides") or (1,) * axes
        for k, (size, extent) in enumerate(zip(window, shape[2:], strict=True)):
            if not isinstance(size, int) or not isinstance(extent, int):
                continue
            reach, room = (size - 1) * dilations[k] + 1, extent + pads[k] + pads[axes + k]
            spare = strides[k] - 1 if use.attribute("ceil_mode") else 0
            if reach > room + spare and (room or reach > 1):
                return (
                    f"its window reaches over {reach} elements of spatial axis {k}, but {use.operand(of)} has only {room} there, "
                    "padding included"
                )
        return ""

    return rule


def _pads_below_kernel(use: Use) -> str:
    """Padding that a window could lie in as a whole."""
    pads, kernel = use.attribute("pads"), use.attribute("kernel_shape")
    if not pads or not kernel or use.attribute("auto_pad") not in (None, "", "NOTSET") or len(pads) != 2 * len(kernel):
        return ""
    dilations = use.attribute("dilations") or (1,) * len(kernel)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    if all(pad < size for pad, size in zip(pads, reach * 2, strict=True)):
        return ""
    return f"its attribute pads is {shown(pads)}; each must be smaller than the window, which is {shown(reach)}"


def _groups(channels: Size, outputs: Size) -> tuple[Rule, ...]:
    """The groups divide the channels that come in and those that go out."""
    what = "its attribute group must divide the number of channels that come {} evenly"
    return (
        between("group", 1),
        divides(given("group"), channels, what.format("in")),
        divides(given("group"), outputs, what.format("out")),
    )


def _convolution(op: str, shapes: str, weight: int = 1) -> ValidityRow:
    """A convolution whose filter is operand `weight`."""
    rules = (
        *_per_axis(0),
        *_groups(dim(0, 1), dim(weight, 0)),
        _kernel_is(weight),
        _fits(_filter(weight)),
    )
    return ValidityRow(op, shapes, rules)


def _pool(op: str, *rules: Rule) -> ValidityRow:
    return ValidityRow(op, "N C ...", (*_per_axis(0), flag("ceil_mode"), *rules, _pads_below_kernel, _fits(_stated)))


def _transposed_sizes(use: Use) -> str:
    """`output_shape` may be given without batch and channels, as the text says, or with them, as older text did."""
    asked, known = use.attribute("output_shape"), use.rank(0)
    if not asked or known is None or len(asked) in (known - 2, known):
        return ""
    return f"its attribute output_shape has {len(asked)} items; it must have {known - 2}, one for each spatial axis"


def _output_padding(use: Use) -> str:
    """Less than the stride or the dilation of its axis."""
    extra = use.attribute("output_padding")
    if not extra:
        return ""
    strides = use.attribute("strides") or (1,) * len(extra)
    dilations = use.attribute("dilations") or (1,) * len(extra)
    if all(a < max(b, c) for a, b, c in zip(extra, strides, dilations, strict=False)):
        return ""
    return (
        f"its attribute output_padding is {shown(extra)}; each must be smaller than its stride or its dilation, which are "
        f"{shown(strides)} and {shown(dilations)}"
    )


def _cut(use: Use) -> str:
    """What a transposed convolution cuts off is no more than it has."""
    shape, window = use.shape(0), _filter(1)(use)
    pads = use.attribute("pads")
    if shape is None or window is None or not pads or use.attribute("output_shape"):
        return ""
    if use.attribute("auto_pad") not in ("", "NOTSET") or len(window) != len(shape) - 2:
        return ""
    axes = len(window)
    strides, dilations = use.attribute("strides") or (1,) * axes, use.attribute("dilations") or (1,) * axes
    extra = use.attribute("output_padding") or (0,) * axes
    for k, (size, extent) in enumerate(zip(window, shape[2:], strict=True)):
        if isinstance(size, int) and isinstance(extent, int):
            full = strides[k] * (extent - 1) + extra[k] + (size - 1) * dilations[k] + 1
            if pads[k] + pads[axes + k] > max(full, 0):
                return f"its attribute pads is {shown(pads)}, but there are only {full} elements of spatial axis {k} to cut from"
    return ""


def _blocks(use: Use) -> str:
    """Columns of Col2Im: as many as there are places for the block in the image, each with a whole number of channels."""
    image, block = use.values(1), use.values(2)
    if image is None or block is None or len(image) != len(block):
        return ""
    axes = len(image)
    pads = use.attribute("pads") or (0,) * 2 * axes
    strides, dilations = use.attribute("strides") or (1,) * axes, use.attribute("dilations") or (1,) * axes
    places = 1
    for k in range(axes):
        spare = image[k] + pads[k] + pads[axes + k] - (dilations[k] * (block[k] - 1) + 1)
        if spare < 0:
            return f"{use.operand(2)} is {shown(block)}, which does not fit into the image {shown(image)}"
        places *= spare // strides[k] + 1
    found, rows = use.extent(0, 2), use.extent(0, 1)
    if rows is not None and rows % math.prod(block):
        return f"{use.operand(0)} has {rows} rows, which is no multiple of the {math.prod(block)} elements of a block"
    if found is not None and found != places:
        return f"{use.operand(0)} has {found} columns, but the block has {places} places in the image"
    return ""


def _deformed(use: Use) -> str:
    axes = max((use.rank(0) or 0) - 2, 0)
    if not axes:
        return ""
    kernel, output = (" ".join(f"{letter}{k}" for k in range(axes)) for letter in "KO")
    product = "*".join(f"K{k}" for k in range(axes))
    return (
        f"N C ..., M C/group {kernel}, N {axes}*offset_group*{product} {output}, M, N offset_group*{product} {output}"
    )


def _deformed_extents(use: Use) -> str:
    """The offsets are given for every element of the output."""
    shape, window, offset = use.shape(0), _filter(1)(use), use.shape(2)
    if shape is None or window is None or offset is None or not len(shape) == len(offset) == len(window) + 2:
        return ""
    axes = len(window)
    pads = use.attribute("pads") or (0,) * 2 * axes
    strides, dilations = use.attribute("strides") or (1,) * axes, use.attribute("dilations") or (1,) * axes
    for k in range(axes):
        size, extent, found = window[k], shape[2 + k], offset[2 + k]
        if isinstance(size, int) and isinstance(extent, int) and isinstance(found, int):
            room = extent + pads[k] + pads[axes + k] - (dilations[k] * (size - 1) + 1)
            if found != room // strides[k] + 1:
                return (
                    f"{use.operand(2)} has the shape {shown(offset)}, but the output has {room // strides[k] + 1} elements of "
                    f"spatial axis {k}"
                )
    return ""


def _unpooled(use: Use) -> str:
    """The size asked for has the batch and channels of the data, and something of every other axis."""
    asked, dims = use.values(2), use.shape(0)
    if asked is None or dims is None:
        return ""
    if alike(asked[:2], dims[:2]) and len(asked) == len(dims) and min(asked[2:]) > 0:
        return ""
    return f"{use.operand(2)} is {shown(asked)}; it must begin as the shape of {use.operand(0)} does, {shown(dims)}"


def _sampled(use: Use) -> str:
    """There is something to sample from."""
    empty = 0 in (use.shape(0) or ())[2:]
    return f"{use.operand(0)} has the shape {shown(use.shape(0))}; there is nothing to sample from" if empty else ""


def _sampling_shapes(use: Use) -> str:
    axes = max((use.rank(0) or 0) - 2, 1)
    return f"N . {'. ' * axes}, N {'. ' * axes}{axes}"


def _grid_batch(use: Use) -> str:
    batch, size = use.extent(0, 0), use.values(1)
    if batch is None or not size or size[0] == batch:
        return ""
    return f"{use.operand(1)} is {shown(size)}; it must begin with the {batch} matrices of {use.operand(0)}"


_ONE_PER_AXIS = "one for each axis of the image"


def _image_rank(times: int) -> Size:
    def size(use: Use) -> int | None:
        found = use.count(1)
        return None if found is None else times * found

    return size


WINDOWS: tuple[ValidityRow, ...] = (
    _convolution("Conv", "N C *S, M C/group *K, M"),
    _convolution("ConvInteger", "N C *S, M C/group *K, one, one | M"),
    _convolution("QLinearConv", "N C *S, one, one, M C/group *K, one | M, one | M, one, one, M", weight=3),
    ValidityRow(
        "ConvTranspose",
        "N C *S, C Q *K, group*Q",
        (
            *(rule for rule in _per_axis(0)),
            between("group", 1),
            divides(
                given("group"), dim(0, 1), "its attribute group must divide the number of channels that come in evenly"
            ),
            _kernel_is(1),
            _transposed_sizes,
            _output_padding,
            _cut,
        ),
    ),
    ValidityRow(
        "DeformConv",
        _deformed,
        (
            *_per_axis(0),
            *_groups(dim(0, 1), dim(1, 0)),
            between("offset_group", 1),
            divides(
                given("offset_group"), dim(0, 1), "its attribute offset_group must divide the number of channels evenly"
            ),
            _kernel_is(1),
            _fits(_filter(1)),
            _deformed_extents,
        ),
    ),
    _pool("MaxPool", flag("storage_order")),
    _pool("AveragePool", flag("count_include_pad")),
    _pool("LpPool", between("p", 1)),
    ValidityRow("GlobalMaxPool", "N C ..."),
    ValidityRow("GlobalAveragePool", "N C ..."),
    ValidityRow("GlobalLpPool", "N C ...", (between("p", 1),)),
    ValidityRow("MaxUnpool", "N C *S, N C *S, .", (*_per_axis(0), _unpooled)),
    ValidityRow(
        "Col2Im",
        "N . ., R, R",
        (
            values_within(1, 1),
            values_within(2, 1),
            elements(1, lambda use: use.count(2), "as many as the block has axes"),
            at_least(1, "strides", "dilations"),
            at_least(0, "pads"),
            counted("strides", _image_rank(1), _ONE_PER_AXIS),
            counted("dilations", _image_rank(1), _ONE_PER_AXIS),
            counted("pads", _image_rank(2), "two for each axis of the image"),
            _blocks,
        ),
    ),
    ValidityRow(
        "MaxRoiPool",
        "N C . ., . 5",
        (between("pooled_shape", 1), counted("pooled_shape", lambda use: 2, "height and width")),
    ),
    ValidityRow(
        "RoiAlign",
        "N C . ., R 4, R",
        (
            one_of("mode", "avg", "max"),
            one_of("coordinate_transformation_mode", "half_pixel", "output_half_pixel"),
            at_least(1, "output_height", "output_width"),
            at_least(0, "sampling_ratio"),
        ),
    ),
    ValidityRow(
        "GridSample",
        _sampling_shapes,
        (
            flag("align_corners"),
            one_of("padding_mode", "zeros", "border", "reflection"),
            one_of("mode", "linear", "nearest", "cubic", "bilinear", "bicubic"),
            _sampled,
        ),
    ),
    ValidityRow(
        "AffineGrid",
        lambda use: "N 2 3, 4" if use.extent(0, 1) == 2 or use.count(1) == 4 else "N 3 4, 5",
        (flag("align_corners"), values_within(1, 0), _grid_batch),
    ),
)
