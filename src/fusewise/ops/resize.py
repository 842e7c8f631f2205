"""Resize and Upsample with known scales: every source coordinate is an exact fraction, linear in the output index.

x(i) = (slope * i + offset) / period in integers, so neighbours come from integer division and weights from its remainder:
no rounding decides which element is read.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from fusewise.ir.deciding import known_below, known_equal, known_one
from fusewise.ir.size import greatest, least
from fusewise.ops.expr import Expr, Index, binary, cast, compare, const, index, reduce, select, unary
from fusewise.ops.indexing import clamped, dims, known_integers, output_dims, value
from fusewise.ops.scalar import clip
from fusewise.ops.spec import Call, Mapping, NotDefined, OpSpec, Sample
from fusewise.records import record

__all__ = ["RESIZE", "Coordinate", "coordinates_of"]

_HALF = Fraction(1, 2)
_WHOLE = (Fraction(0), Fraction(1))


@record(frozen=True)
class Coordinate:
    """Source coordinate along one axis of `extent` elements: (slope * i + offset) / period; `scale` as the model gives it, None
    where that depends on sizes.

    `extrapolates`: coordinates outside the axis read a fill value.
    """

    extent: int
    slope: int
    offset: int
    period: int
    scale: Fraction | None
    extrapolates: bool = False

    @property
    def is_identity(self) -> bool:
        return known_equal(self.slope, self.period) and known_equal(self.offset, 0)

    def numerator(self, i: Expr) -> Expr:
        return i * self.slope + self.offset


def _scales(call: Call) -> tuple[Fraction | None, ...]:
    """The scale of every axis, exactly as given: sizes as ratios, scales as the float32 numbers they are; None where one depends
    on sizes."""
    shape = dims(call)
    rank = len(shape)
    upsample = call.node.op == "Upsample"
    axes = call.attribute("axes") or tuple(range(rank))
    found: list[Fraction | None] = [Fraction(1)] * rank
    operand = 1 if upsample else 2
    if not upsample and call.has(3) and call.input(3).size:
        policy = call.attribute("keep_aspect_ratio_policy", "stretch")
        sizes = known_integers(call, 3, "sizes")
        ratios = [_ratio(size, shape[axis]) for size, axis in zip(sizes, axes, strict=True)]
        if policy != "stretch":
            numbers = [ratio for ratio in ratios if ratio is not None]
            if len(numbers) < len(ratios):
                raise NotDefined(f"{call.node.op} with one scale for sizes that are not known")
            ratios = [min(numbers) if policy == "not_larger" else max(numbers)] * len(ratios)
    elif call.has(operand):
        ratios = [Fraction(float(v)) for v in call.known(operand).tolist()]
    else:
        ratios = [Fraction(float(np.float32(v))) for v in call.attribute("scales", ())]
    if len(ratios) != len(axes):
        raise NotDefined(f"{call.node.op} with {len(ratios)} scales for {len(axes)} axes")
    for axis, ratio in zip(axes, ratios, strict=True):
        found[axis % rank] = ratio
    return tuple(found)


def _ratio(size: int, extent: int) -> Fraction | None:
    """How many times as large; None where that is not known."""
    if isinstance(size, int) and isinstance(extent, int):
        return Fraction(size, max(extent, 1))
    times = size // extent
    if isinstance(times, int) and known_equal(times * extent, size):
        return Fraction(times)
    parts = extent // size
    return Fraction(1, parts) if isinstance(parts, int) and known_equal(parts * size, extent) else None


def coordinates_of(call: Call) -> tuple[Coordinate, ...]:
    """The source coordinate along every axis; `NotDefined` when scales or sizes are not constant."""
    upsample = call.node.op == "Upsample"
    mode = "asymmetric" if upsample else str(call.attribute("coordinate_transformation_mode", "half_pixel"))
    shape, target = dims(call), output_dims(call)
    regions = _regions(call) if mode == "tf_crop_and_resize" else (_WHOLE,) * len(shape)
    found = []
    for extent, out, scale, region in zip(shape, target, _scales(call), regions, strict=True):
        if scale == 1 and known_equal(extent, out) and region == _WHOLE:
            found.append(Coordinate(extent, 1, 0, 1, scale))
            continue
        if not (isinstance(extent, int) and isinstance(out, int) and scale is not None):
            found.append(_line_of_sizes(mode, extent, out, scale))
            continue
        slope, offset = _line(mode, extent, out, scale, region)
        period = math.lcm(slope.denominator, offset.denominator)
        line = Coordinate(
            extent, int(slope * period), int(offset * period), period, scale, mode == "tf_crop_and_resize"
        )
        if abs(line.slope) * max(out, 1) + abs(line.offset) + 2 * period >= 2**61:
            raise NotDefined("Resize with coordinates that do not fit 64 bits")
        found.append(line)
    return tuple(found)


def _line(
    mode: str, extent: int, out: int, scale: Fraction, region: tuple[Fraction, Fraction]
) -> tuple[Fraction, Fraction]:
    """Slope and offset of the source coordinate, in elements (ONNX, Resize, coordinate_transformation_mode)."""
    width = scale * extent
    if mode == "align_corners":
        return (Fraction(0) if width == 1 else Fraction(extent - 1) / (width - 1)), Fraction(0)
    if mode == "asymmetric":
        return 1 / scale, Fraction(0)
    if mode == "half_pixel":
        return 1 / scale, _HALF / scale - _HALF
    if mode == "pytorch_half_pixel":
        return (1 / scale, _HALF / scale - _HALF) if out > 1 else (Fraction(0), Fraction(0))
    if mode == "half_pixel_symmetric":
        shift = Fraction(extent, 2) * (1 - out / width)
        return 1 / scale, shift + _HALF / scale - _HALF
    if mode == "tf_crop_and_resize":
        start, end = region
        span = (end - start) * (extent - 1)
        if out <= 1:
            return Fraction(0), (start + end) / 2 * (extent - 1)
        return span / (out - 1), start * (extent - 1)
    raise NotDefined(f"Resize with coordinates {mode!r}")


def _line_of_sizes(mode: str, extent: int, out: int, scale: Fraction | None) -> Coordinate:
    """The same where sizes are in terms of symbols: with the scale p / q, coordinates are numbers over 2p and the like."""
    p, q = (out, extent) if scale is None else (scale.numerator, scale.denominator)
    last = least(greatest(out - 1, 0), 1)  # 0 where there is one element
    if mode == "asymmetric":
        return Coordinate(extent, q, 0, p, scale)
    if mode == "half_pixel" or (mode == "half_pixel_symmetric" and scale is None):
        return Coordinate(extent, 2 * q, q - p, 2 * p, scale)
    if mode == "pytorch_half_pixel":
        return Coordinate(extent, 2 * q * last, (q - p) * last, 2 * p, scale)
    if mode == "align_corners":  # the width is p / q times the extent
        width, parts = (out, 1) if scale is None else (p * extent, q)
        return Coordinate(extent, parts * (extent - 1), 0, greatest(width - parts, 1), scale)
    if mode == "half_pixel_symmetric":
        return Coordinate(extent, 2 * q, p * extent - q * out + q - p, 2 * p, scale)
    raise NotDefined(f"Resize with coordinates {mode!r} of sizes that are not known")


def _regions(call: Call) -> tuple[tuple[Fraction, Fraction], ...]:
    rank = call.input(0).rank
    axes = call.attribute("axes") or tuple(range(rank))
    roi = [Fraction(float(v)) for v in call.known(1).tolist()]
    found = [_WHOLE] * rank
    for n, axis in enumerate(axes):
        found[axis % rank] = (roi[n], roi[n + len(axes)])
    return tuple(found)


# -- neighbours and weights along one axis ------------------------------------------------------------------------------------


def _nearest(line: Coordinate, i: Expr, mode: str) -> Expr:
    n, c = line.numerator(i), line.period
    if line.is_identity:
        return i
    if mode == "floor":
        place = n // c
    elif mode == "ceil":
        place = -((-n) // c)
    elif mode == "round_prefer_ceil":
        place = (n * 2 + c) // (2 * c)
    else:
        place = -((const(c) - n * 2) // (2 * c))
    return clamped(place, line.extent)


def _fraction(n: Expr, period: int, dtype: Any) -> Expr:
    """What is left of n / period, as a float."""
    rest = cast(n % period, dtype)
    return rest * (1.0 / period) if isinstance(period, int) else rest / const(period, dtype)


def _cubic(t: Expr, a: float) -> Expr:
    """The cubic convolution kernel at distance t >= 0 (Keys, 1981)."""
    near = ((t * (a + 2) - (a + 3)) * t) * t + 1
    far = ((t * a - 5 * a) * t + 8 * a) * t - 4 * a
    return select(compare("le", t, 1), near, select(compare("lt", t, 2), far, 0))


def _weight(call: Call, distance: Expr) -> Expr:
    if call.attribute("mode", "nearest") == "cubic":
        return _cubic(distance, call.single("cubic_coeff_a", -0.75))
    return clip(1 - distance, 0, 1)


def _taps(call: Call, line: Coordinate, i: Expr, dtype: Any) -> list[tuple[Expr, Expr | None]]:
    """Positions and weights along one axis; a None weight is one."""
    if line.is_identity:
        return [(i, None)]
    if known_one(line.extent) and not line.extrapolates and not call.attribute("exclude_outside", 0):
        return [(const(0), None)]  # all taps read the one element, and their weights add up to one
    n, c = line.numerator(i), line.period
    base, fraction = n // c, _fraction(n, c, dtype)
    reach = 2 if call.attribute("mode") == "cubic" else 1
    places = [base + d for d in range(1 - reach, 1 + reach)]
    weights = [_weight(call, unary("abs", fraction - float(d))) for d in range(1 - reach, 1 + reach)]
    if call.attribute("exclude_outside", 0):
        inside = [binary("and", compare("ge", p, 0), compare("lt", p, line.extent)) for p in places]
        weights = [select(test, w, 0) for test, w in zip(inside, weights, strict=True)]
        total = weights[0]
        for w in weights[1:]:
            total = total + w
        weights = [w / select(compare("eq", total, 0), 1, total) for w in weights]
    return [(clamped(p, line.extent), w) for p, w in zip(places, weights, strict=True)]


def _smoothed_taps(call: Call, line: Coordinate, i: Expr, axis: int, dtype: Any) -> tuple[Expr, Expr, int]:
    """Antialiasing widens the kernel by the scale: position and weight of tap `k<axis>`, and how many taps there are."""
    if line.scale is None or not isinstance(line.period, int):
        raise NotDefined("Resize with antialias by scales that are not known")
    scale = min(line.scale, Fraction(1))
    reach = 2 if call.attribute("mode") == "cubic" else 1
    start = math.floor(-reach / scale) + 1
    count = 2 - 2 * start
    k = index(f"k{axis}")
    n, c = line.numerator(i), line.period
    fraction = cast(n % c, dtype) * (1.0 / c)

    def weight(tap: Expr) -> Expr:
        place = n // c + tap + start
        w = _weight(call, unary("abs", (cast(tap, dtype) + float(start) - fraction) * float(scale)))
        if call.attribute("exclude_outside", 0):
            w = select(binary("and", compare("ge", place, 0), compare("lt", place, line.extent)), w, 0)
        return w

    total = reduce("sum", ((f"w{axis}", count),), weight(index(f"w{axis}")))
    return clamped(n // c + k + start, line.extent), weight(k) / total, count


# -- the rows -----------------------------------------------------------------------------------------------------------------


def _resize(call: Call, output: int, at: Index) -> Expr:
    lines = coordinates_of(call)
    mode = call.attribute("mode", "nearest")
    if mode == "nearest":
        rounding = "floor" if call.node.op == "Upsample" else call.attribute("nearest_mode", "round_prefer_floor")
        x = call.at(0, *(_nearest(line, i, rounding) for line, i in zip(lines, at, strict=True)))
    elif not call.input(0).dtype.is_float:
        raise NotDefined(f"Resize by interpolation of {call.input(0).dtype.name}")
    elif call.attribute("antialias", 0):
        x = _smoothed(call, lines, at)
    else:
        x = _interpolated(call, lines, at)
    return _extrapolated(call, lines, at, x)


def _interpolated(call: Call, lines: tuple[Coordinate, ...], at: Index) -> Expr:
    """Axis by axis, the last one innermost: what is interpolated along it is the same for every index of the axes before."""
    dtype = value(call, 0, *at).dtype
    taps = [_taps(call, line, i, dtype) for line, i in zip(lines, at, strict=True)]

    def interpolated(places: Index) -> Expr:
        if len(places) == len(taps):
            return value(call, 0, *places)
        total: Expr | None = None
        for place, weight in taps[len(places)]:
            term = interpolated((*places, place))
            term = term if weight is None else term * weight
            total = term if total is None else total + term
        assert total is not None
        return total

    return interpolated(())


def _smoothed(call: Call, lines: tuple[Coordinate, ...], at: Index) -> Expr:
    dtype = value(call, 0, *at).dtype
    position: list[Expr] = []
    loops: list[tuple[str, int]] = []
    weights: list[Expr] = []
    for axis, (line, i) in enumerate(zip(lines, at, strict=True)):
        if line.is_identity:
            position.append(i)
            continue
        place, weight, count = _smoothed_taps(call, line, i, axis, dtype)
        position.append(place)
        weights.append(weight)
        loops.append((f"k{axis}", count))
    term = value(call, 0, *position)
    for weight in weights:
        term = term * weight
    return reduce("sum", tuple(loops), term)


def _extrapolated(call: Call, lines: tuple[Coordinate, ...], at: Index, x: Expr) -> Expr:
    outside: Expr | None = None
    for line, i in zip(lines, at, strict=True):
        if line.extrapolates:
            n = line.numerator(i)
            test = binary("or", compare("lt", n, 0), compare("gt", n, (line.extent - 1) * line.period))
            outside = test if outside is None else binary("or", outside, test)
    fill = call.single("extrapolation_value", 0.0)
    return x if outside is None else select(outside, const(fill, x.dtype), x)


def _mapping(call: Call) -> tuple[Mapping, ...]:
    """One-to-Many as in the paper's table, though interpolation reads several elements; shrinking by nearest is a choice."""
    n = len(call.inputs)
    if any(call.has(i) and not call.is_known(i) for i in range(1, n)):
        return (Mapping.OPAQUE,) * n
    shape, target = dims(call), output_dims(call)
    grows = not all(known_below(out, size + 1) for out, size in zip(target, shape, strict=True))
    copies = call.attribute("mode", "nearest") == "nearest" and not grows
    return ((Mapping.ONE_TO_ONE if copies else Mapping.ONE_TO_MANY,) + (Mapping.ONE_TO_MANY,) * n)[:n]


def _flops(call: Call) -> int:
    """Interpolation: a multiply-accumulate per element read and axis."""
    mode = call.attribute("mode", "nearest")
    if mode == "nearest":
        return 0
    moved = sum(not known_equal(a, b) for a, b in zip(dims(call), output_dims(call), strict=True))
    taps: int = (4 if mode == "cubic" else 2) ** moved
    return call.output().size * 2 * taps


def _scaled(*scales: float) -> np.ndarray:
    return np.array(scales, np.float32)


def _by_scale(shape: tuple[int, ...], scales: tuple[float, ...], **attributes: Any) -> Sample:
    return Sample((("float32", shape), None, _scaled(*scales)), attributes)


def _by_size(shape: tuple[int, ...], sizes: tuple[int, ...], **attributes: Any) -> Sample:
    return Sample((("float32", shape), None, None, np.array(sizes, np.int64)), attributes)


_MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
_ROUNDING = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
_CROP = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0}

_NEAREST_SAMPLES = tuple(
    _by_scale((1, 1, 3, 4), (1, 1, 2, 1.5), coordinate_transformation_mode=m, nearest_mode=r)
    for m in _MODES
    for r in _ROUNDING
)
_SMOOTH_SAMPLES = tuple(
    _by_scale((1, 1, 3, 4), (1, 1, 1.5, 2), coordinate_transformation_mode=m, mode=k)
    for m in _MODES
    for k in ("linear", "cubic")
)
_OTHER_SAMPLES = (
    _by_scale((1, 1, 6, 7), (1, 1, 0.6, 0.5), mode="linear"),
    _by_scale((1, 1, 6, 6), (1, 1, 0.5, 0.5)),
    _by_scale((1, 1, 6, 7), (1, 1, 0.6, 0.5), mode="linear", antialias=1),
    _by_scale((5, 6), (0.6, 1.5), mode="cubic", antialias=1, exclude_outside=1),
    _by_scale((4, 4), (2, 0.8), mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5),
    _by_size((1, 1, 2, 3), (1, 1, 5, 7), mode="linear"),
    _by_size((1, 1, 4, 5), (1, 1, 1, 3), coordinate_transformation_mode="pytorch_half_pixel"),
    _by_size((2, 3, 4), (6, 2), axes=(1, 2), keep_aspect_ratio_policy="not_larger"),
    Sample(
        (("float32", (1, 1, 4, 4)), _scaled(0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7), None, np.array([1, 1, 3, 3])),
        {**_CROP, "mode": "linear"},
    ),
    Sample((("float16", (1, 2, 3)), None, _scaled(1, 1, 2)), {"mode": "linear"}),
    Sample((("uint8", (1, 2, 3)), None, _scaled(1, 2, 2)), {}, low=0, high=255),
)

RESIZE: tuple[OpSpec, ...] = (
    OpSpec(
        "Resize",
        mapping=_mapping,
        flops=_flops,
        define=_resize,
        family="resize",
        flags=frozenset({"linear", "several_reads"}),
        samples=_NEAREST_SAMPLES + _SMOOTH_SAMPLES + _OTHER_SAMPLES,
    ),
    OpSpec(
        "Upsample",
        mapping=_mapping,
        flops=_flops,
        define=_resize,
        family="resize",
        flags=frozenset({"linear", "several_reads"}),
        samples=(Sample((("float32", (1, 1, 2, 3)), _scaled(1, 1, 2, 3)), {"mode": "nearest"}),),
    ),
)
