"""The equations of LBDF written down as they stand, with fractions and plain sets: what the fast code is compared with."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

from fusewise.accel.network import Network


def buffer_elements(network: Network, group: set[int], axis_pixel: bool = True, exact: bool = True) -> int:
    """F_beta in elements; pitches are relative to the finest map that the group reads or writes. `exact`: of a tensor that
    waits for no whole number of its rows, whole rows wait; else rows and columns are rounded up each by itself."""
    operators, tensors = network.operators, network.tensors
    touched = {r.tensor for v in group for r in operators[v].reads} | {t for v in group for t in operators[v].writes}
    finest = [max(tensors[t].height for t in touched), max(tensors[t].width for t in touched)]

    def extent(t: int, axis: int) -> int:
        return (tensors[t].height, tensors[t].width)[axis]

    def pitch(t: int, axis: int) -> Fraction:
        return Fraction(finest[axis], extent(t, axis))

    def whole(v: int) -> bool:
        return operators[v].form.kind in ("global_pool", "flatten")

    def delay(v: int, t: int, axis: int) -> Fraction:
        ahead = extent(t, axis) - 1 if whole(v) else window(v, axis)[1]
        return ahead * pitch(t, axis)

    def window(v: int, axis: int) -> tuple[Fraction, Fraction]:
        found = (operators[v].form.rows, operators[v].form.columns)[axis]
        if operators[v].form.kind == "resize" and network.bilinear_ahead is not None:
            return Fraction(0), Fraction(network.bilinear_ahead * found.reads_two)
        return Fraction(found.back), Fraction(found.ahead)

    def readers(t: int) -> list[int]:
        return [v for v in sorted(group) if any(r.tensor == t for r in operators[v].reads)]

    def inside(t: int) -> bool:
        return tensors[t].producer in group

    lag: list[dict[int, Fraction]] = [{}, {}]
    for axis in (0, 1):
        for v in sorted(group):
            arrivals = [
                (lag[axis][tensors[r.tensor].producer] if inside(r.tensor) else 0) + delay(v, r.tensor, axis)
                for r in operators[v].reads
            ]
            lag[axis][v] = max(arrivals)
        for v in sorted(group):
            slack = [lag[axis][c] - delay(c, t, axis) for t in operators[v].writes for c in readers(t)]
            if slack and not any(inside(r.tensor) for r in operators[v].reads):
                lag[axis][v] = min(slack)

    def start(t: int, axis: int) -> Fraction:
        if inside(t):
            return lag[axis][tensors[t].producer]
        return min(lag[axis][c] - delay(c, t, axis) for c in readers(t))

    def live(t: int, c: int) -> int:
        height, width = extent(t, 0), extent(t, 1)
        if whole(c):
            return 1 if axis_pixel else width
        down = (lag[0][c] - start(t, 0)) / pitch(t, 0) + window(c, 0)[0]
        right = (lag[1][c] - start(t, 1)) / pitch(t, 1) + window(c, 1)[0]
        if not axis_pixel:
            return min(height, ceil(down) + 1) * width
        if not exact:
            return min(height * width, ceil(down) * width + min(ceil(right), width - 1) + 1)
        if down.denominator > 1:
            return min(height * width, ceil(down) * width)
        return min(height * width, int(down) * width + min(floor(right), width - 1) + 1)

    held = sum(max(live(t, c) for c in readers(t)) * tensors[t].channels for t in touched if readers(t))
    pools = sum(tensors[operators[v].writes[0]].channels for v in group if operators[v].form.kind == "global_pool")
    return held + pools + sum(operators[v].form.weights for v in group)


def moved_elements(network: Network, group: set[int]) -> int:
    """F_D in elements, everything counted."""
    tensors = network.tensors
    read = {r.tensor for v in group for r in network.operators[v].reads if tensors[r.tensor].producer not in group}
    written = {
        t
        for v in group
        for t in network.operators[v].writes
        if tensors[t].is_output or any(tensors[t].consumers >> c & 1 for c in range(len(network)) if c not in group)
    }
    return sum(tensors[t].elements for t in read | written) + sum(network.operators[v].form.weights for v in group)
