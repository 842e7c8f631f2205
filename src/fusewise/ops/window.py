"""Sliding windows: the geometry convolutions and pooling share.

A window's position along one axis is `output * stride - begin + tap * dilation`; padding is where that leaves the input.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.ir.deciding import known_below
from fusewise.ir.size import greatest
from fusewise.ops.expr import Expr, binary, compare, index
from fusewise.ops.indexing import dims, output_dims
from fusewise.ops.spec import Call, NotDefined
from fusewise.records import record

__all__ = ["Window", "inside", "transposed_window_of", "window_of"]


@record(frozen=True)
class Window:
    """The geometry of a window, one entry per spatial axis: all in elements.

    `begins` and `ends` are the padding before and after each axis; `extents` the input's size there.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.kernel)

    def taps(self, prefix: str = "k") -> tuple[tuple[str, int], ...]:
        """Loop variables over the kernel, with their extents."""
        return tuple((f"{prefix}{d}", size) for d, size in enumerate(self.kernel))

    def positions(self, at: Sequence[Expr], prefix: str = "k") -> tuple[Expr, ...]:
        """Input coordinates of the tap under output coordinates `at`; they may lie outside."""
        return tuple(
            place * stride + index(f"{prefix}{d}") * dilation - begin
            for d, (place, stride, dilation, begin) in enumerate(
                zip(at, self.strides, self.dilations, self.begins, strict=True)
            )
        )

    def guard(self, positions: Sequence[Expr], outputs: Sequence[int]) -> Expr | None:
        """The condition that `positions` lie inside the input; None when no tap can leave it."""
        condition: Expr | None = None
        for d, position in enumerate(positions):
            reach = (outputs[d] - 1) * self.strides[d] + (self.kernel[d] - 1) * self.dilations[d] - self.begins[d]
            tests = []
            if not known_below(self.begins[d], 1):
                tests.append(compare("ge", position, 0))
            if not known_below(reach, self.extents[d]):
                tests.append(compare("lt", position, self.extents[d]))
            for test in tests:
                condition = test if condition is None else binary("and", condition, test)
        return condition


def inside(position: Expr, extent: int) -> Expr:
    """0 <= position < extent."""
    return binary("and", compare("ge", position, 0), compare("lt", position, extent))


def _per_axis(call: Call, name: str, rank: int, default: int) -> tuple[int, ...]:
    found = call.attribute(name)
    values = (default,) * rank if not found else tuple(int(v) for v in found)
    if len(values) != rank:
        raise NotDefined(f"{call.node.op} has {len(values)} {name} for {rank} spatial axes")
    return values


def window_of(call: Call, kernel: Sequence[int]) -> Window:
    """The window of a convolution or pooling call, whose operand 0 and output are laid out N, C, spatial axes."""
    extents, outputs = dims(call)[2:], output_dims(call)[2:]
    rank = len(extents)
    strides, dilations = _per_axis(call, "strides", rank, 1), _per_axis(call, "dilations", rank, 1)
    mode = call.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            greatest((out - 1) * stride + (k - 1) * dilation + 1 - size, 0)
            for out, stride, k, dilation, size in zip(outputs, strides, kernel, dilations, extents, strict=True)
        ]
        small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        begins, ends = (small, large) if mode == "SAME_UPPER" else (large, small)
    elif mode == "VALID":
        begins = ends = (0,) * rank
    else:
        pads = _per_axis(call, "pads", 2 * rank, 0)
        begins, ends = pads[:rank], pads[rank:]
    return Window(tuple(kernel), strides, dilations, begins, ends, extents)


def transposed_window_of(call: Call, kernel: Sequence[int]) -> Window:
    """The window of a ConvTranspose call: its padding is what is cut off the full result.

    Sizes asked for by `output_shape` or SAME_* padding decide the cut; the odd element goes to the end for SAME_UPPER and
    to the beginning otherwise.
    """
    extents, outputs = dims(call)[2:], output_dims(call)[2:]
    rank = len(extents)
    strides, dilations = _per_axis(call, "strides", rank, 1), _per_axis(call, "dilations", rank, 1)
    extra = _per_axis(call, "output_padding", rank, 0)
    mode = call.attribute("auto_pad", "NOTSET")
    if mode == "NOTSET" and not call.attribute("output_shape"):
        pads = _per_axis(call, "pads", 2 * rank, 0)
        begins, ends = pads[:rank], pads[rank:]
    elif mode == "VALID":
        begins = ends = (0,) * rank
    else:
        totals = [
            greatest(stride * (size - 1) + pad + (k - 1) * dilation + 1 - out, 0)
            for stride, size, pad, k, dilation, out in zip(
                strides, extents, extra, kernel, dilations, outputs, strict=True
            )
        ]
        small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        begins, ends = (small, large) if mode == "SAME_UPPER" else (large, small)
    return Window(tuple(kernel), strides, dilations, begins, ends, extents)
