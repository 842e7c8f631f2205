"""Pooling: windows that keep the largest, the mean or a norm; and their global forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce as fold

import numpy as np

from fusewise.ir.deciding import known_below, known_equal
from fusewise.ops.edges import per_operand
from fusewise.ops.expr import Expr, Index, binary, cast, compare, const, index, reduce, select, unary
from fusewise.ops.indexing import dims, known_integers, linear, output_dims, value
from fusewise.ops.scalar import identity
from fusewise.ops.spec import Call, Mapping, OpSpec, Sample
from fusewise.ops.window import Window, window_of

__all__ = ["POOL", "pool_window"]


def pool_window(call: Call) -> Window:
    """The window of a pooling call; global pooling has one as large as the input."""
    if call.node.op.startswith("Global"):
        extents = dims(call)[2:]
        n = len(extents)
        return Window(extents, (1,) * n, (1,) * n, (0,) * n, (0,) * n, extents)
    return window_of(call, tuple(int(k) for k in call.attribute("kernel_shape")))


def _pooled(call: Call, at: Index, kind: str, element: Callable[[Expr], Expr], prefix: str = "k") -> Expr:
    """`element(x)` combined over the taps that fall inside the input."""
    window = pool_window(call)
    positions = window.positions(at[2:], prefix)
    body = element(value(call, 0, at[0], at[1], *positions))
    guard = window.guard(positions, output_dims(call)[2:])
    if guard is not None:
        body = select(guard, body, identity(kind, body.dtype))
    return reduce(kind, window.taps(prefix), body)


def _max_pool(call: Call, output: int, at: Index) -> Expr:
    largest = _pooled(call, at, "max", lambda x: x)
    if output == 0:
        return largest
    # the first position, in the order asked for, that holds the largest element
    window, shape = pool_window(call), dims(call)
    positions = window.positions(at[2:], "p")
    x = value(call, 0, at[0], at[1], *positions)
    guard = window.guard(positions, output_dims(call, 1)[2:])
    if guard is None:
        hit = compare("eq", x, largest)
    else:  # outside nothing is read; the largest is asked for under no condition, so that it is found once
        hit = binary("and", guard, compare("eq", select(guard, x, identity("max", x.dtype)), largest))
    plane = linear(at[:2], shape[:2]) * math.prod(shape[2:])
    row_major = linear(positions, shape[2:])
    first = reduce("min", window.taps("p"), select(hit, row_major, const(math.prod(shape))))
    if not call.attribute("storage_order", 0):
        return first + plane
    column_major = const(0)
    stride = 1
    rest = first
    coordinates: list[Expr] = []
    for size in reversed(shape[2:]):
        coordinates.append(rest % size)
        rest = rest // size
    for coordinate, size in zip(reversed(coordinates), shape[2:], strict=True):
        column_major = column_major + coordinate * stride
        stride *= size
    return column_major + plane


def _counted(window: Window, at: Index, padded: bool) -> Expr:
    """How many taps fall inside the input, or inside input and declared padding."""
    counts: list[Expr] = []
    for d, place in enumerate(at):
        kernel, dilation = window.kernel[d], window.dilations[d]
        start = place * window.strides[d] - window.begins[d]
        low = -window.begins[d] if padded else 0
        high = window.extents[d] + (window.ends[d] if padded else 0)
        last = binary("min", -((start - high) // dilation), kernel)  # ceil((high - start) / dilation)
        first = binary("max", -((start - low) // dilation), 0)
        counts.append(last - first)
    return fold(lambda a, b: a * b, counts)


def _average_pool(call: Call, output: int, at: Index) -> Expr:
    window, outputs = pool_window(call), output_dims(call)[2:]
    total = _pooled(call, at, "sum", lambda x: x)
    padded = bool(call.attribute("count_include_pad", 0))
    reach = [
        (outputs[d] - 1) * window.strides[d] + (window.kernel[d] - 1) * window.dilations[d] - window.begins[d]
        for d in range(window.rank)
    ]
    overhang = not all(known_below(r, e + p) for r, e, p in zip(reach, window.extents, window.ends, strict=True))
    leaves = not all(known_below(r, e) for r, e in zip(reach, window.extents, strict=True))
    leaves = leaves or not all(known_equal(begin, 0) for begin in window.begins)
    if overhang or (leaves and not padded):
        return total / cast(_counted(window, at[2:], padded), total.dtype)
    return total / const(math.prod(window.kernel), total.dtype)


def _lp_pool(call: Call, output: int, at: Index) -> Expr:
    p = float(call.attribute("p", 2))
    if p == 2.0:
        return unary("sqrt", _pooled(call, at, "sum", lambda x: x * x))
    if p == 1.0:
        return _pooled(call, at, "sum", lambda x: unary("abs", x))
    total = _pooled(call, at, "sum", lambda x: binary("pow", unary("abs", x), p))
    return binary("pow", total, 1.0 / p)


def _flops(per_tap: int, after: int = 0) -> Callable[[Call], int]:
    return lambda call: call.output().size * (per_tap * math.prod(pool_window(call).kernel) + after)


def row(
    name: str,
    define: Callable[[Call, int, Index], Expr],
    family: str,
    cost: Callable[[Call], int],
    samples: tuple[Sample, ...],
    *flags: str,
) -> OpSpec:
    return OpSpec(
        name,
        mapping=per_operand(Mapping.MANY_TO_MANY),
        flops=cost,
        define=define,
        family=family,
        flags=frozenset(flags),
        samples=samples,
    )


# -- Col2Im, the adjoint of taking windows ----------------------------------------------------------------------------------


def _col2im(call: Call, output: int, at: Index) -> Expr:
    """Each image element is the sum of the block elements that were taken from it."""
    image, block = known_integers(call, 1, "image shape"), known_integers(call, 2, "block shape")
    n = len(image)
    strides = call.attribute("strides") or (1,) * n
    dilations = call.attribute("dilations") or (1,) * n
    pads = call.attribute("pads") or (0,) * (2 * n)
    counts = [
        (image[d] + pads[d] + pads[n + d] - dilations[d] * (block[d] - 1) - 1) // strides[d] + 1 for d in range(n)
    ]
    taps: list[tuple[str, int]] = []
    found = []
    for d in range(n):
        along = _col2im_axis(at[2 + d] + pads[d], index(f"k{d}"), block[d], strides[d], dilations[d], counts[d])
        taps.append((f"k{d}", -(-block[d] // strides[d]) if dilations[d] == 1 else block[d]))
        found.append(along)
    channel = at[1] * math.prod(block) + linear([tap for tap, _, _ in found], block)
    x = value(call, 0, at[0], channel, linear([place for _, place, _ in found], counts))
    condition = fold(lambda a, b: binary("and", a, b), (test for _, _, test in found))
    return reduce("sum", tuple(taps), select(condition, x, const(0, x.dtype)))


def _col2im_axis(
    position: Expr, k: Expr, block: int, stride: int, dilation: int, count: int
) -> tuple[Expr, Expr, Expr]:
    """Of the `k`th window that may have taken the element at `position` of a padded axis: the place in it, its number, and whether
    there is such a one."""
    if dilation == 1:
        tap, place = k * stride + position % stride, position // stride - k
        fits = compare("lt", tap, block)
    else:
        tap, place = k, (position - k * dilation) // stride
        fits = compare("eq", (position - k * dilation) % stride, 0)
    return tap, place, binary("and", fits, binary("and", compare("ge", place, 0), compare("lt", place, count)))


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


_IMAGE = (("float32", (1, 2, 6, 7)),)

_WINDOW_SAMPLES = (
    Sample(_IMAGE, {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    Sample(_IMAGE, {"kernel_shape": (2, 3), "auto_pad": "SAME_UPPER"}),
    Sample(_IMAGE, {"kernel_shape": (3, 2), "strides": (2, 2), "ceil_mode": 1}),
    Sample((("float32", (2, 1, 7)),), {"kernel_shape": (3,), "dilations": (2,), "pads": (1, 1)}),
    Sample((("float16", (1, 1, 4, 4, 4)),), {"kernel_shape": (2, 2, 2), "strides": (2, 2, 2)}),
)
_INCLUDING = (
    Sample(_IMAGE, {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "count_include_pad": 1}),
    Sample(
        _IMAGE,
        {"kernel_shape": (3, 3), "pads": (1, 0, 0, 1), "strides": (2, 2), "ceil_mode": 1, "count_include_pad": 1},
    ),
)
_POSITIONS = (
    Sample(_IMAGE, {"kernel_shape": (2, 2), "strides": (2, 2)}, outputs=2),
    Sample(_IMAGE, {"kernel_shape": (2, 2), "strides": (1, 2), "storage_order": 1}, outputs=2),
    Sample((("uint8", (1, 1, 4, 4)),), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, low=0, high=200),
)
_GLOBAL = (
    Sample((("float32", (2, 3, 4, 5)),)),
    Sample((("float16", (1, 2, 3, 3)),)),
)

POOL: tuple[OpSpec, ...] = (
    row("MaxPool", _max_pool, "max_pool", _flops(1), _WINDOW_SAMPLES + _POSITIONS),
    row("AveragePool", _average_pool, "average_pool", _flops(1, 1), _WINDOW_SAMPLES + _INCLUDING, "linear"),
    row(
        "LpPool",
        _lp_pool,
        "lp_pool",
        _flops(2, 1),
        (
            Sample(_IMAGE, {"kernel_shape": (3, 3), "strides": (2, 2)}),
            Sample(_IMAGE, {"kernel_shape": (2, 2), "p": 3}),
            Sample(_IMAGE, {"kernel_shape": (2, 2), "p": 1, "pads": (1, 0, 0, 1)}),
        ),
    ),
    row("GlobalMaxPool", _max_pool, "max_pool", _flops(1), _GLOBAL),
    row("GlobalAveragePool", _average_pool, "average_pool", _flops(1, 1), _GLOBAL, "linear"),
    row("GlobalLpPool", _lp_pool, "lp_pool", _flops(2, 1), (_GLOBAL[0], Sample((("float32", (1, 2, 6)),), {"p": 1}))),
    row(
        "Col2Im",
        _col2im,
        "col2im",
        lambda call: call.input(0).size,
        (
            Sample((("float32", (1, 8, 12)), _ints(4, 5), _ints(2, 2))),
            Sample((("float32", (1, 8, 9)), _ints(4, 5), _ints(2, 2)), {"pads": (1, 0, 1, 1), "strides": (2, 2)}),
        ),
        "linear",
    ),
)
