"""Several falling staircases in one picture: a self-contained SVG, for figures that compare searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["line_chart"]

_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#999999",
    "#000000",
    "#8c564b",
    "#7f7f00",
)
_DASHES = ("", "7 4", "2 3")
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 34, 46


def line_chart(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    across: str,
    up: str,
    width: int = 860,
    height: int = 420,
) -> str:
    """The SVG text. A curve is a list of points (x, y), x ascending; y holds until the next x."""
    xs = [x for points in curves.values() for x, _ in points]
    ys = [y for points in curves.values() for _, y in points]
    last, low, high = max(xs), min(ys), max(ys)
    room = (high - low or abs(high) or 1.0) * 0.05
    low, high = low - room, high + room

    def place(x: float, y: float) -> tuple[float, float]:
        across_part, up_part = x / last, (high - y) / (high - low)
        return _LEFT + across_part * (width - _LEFT - _RIGHT), _TOP + up_part * (height - _TOP - _BOTTOM)

    right, bottom = place(last, low)
    parts = [f'<text x="{_LEFT}" y="20" font-weight="bold">{escape(title)}</text>']
    for k in range(6):
        x, y = last * k / 5, low + (high - low) * k / 5
        at_x, at_y = place(x, low)[0], place(0, y)[1]
        parts.append(f'<path d="M{_LEFT} {at_y:.1f}H{right:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at_y + 4:.1f}" text-anchor="end">{y:.4g}</text>')
        parts.append(f'<text x="{at_x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{x:.0f}</text>')
    parts.append(f'<text x="{(_LEFT + right) / 2:.1f}" y="{height - 8}" text-anchor="middle">{escape(across)}</text>')
    parts.append(
        f'<text transform="translate(14 {height / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(up)}</text>'
    )
    for k, (name, points) in enumerate(curves.items()):
        colour, dash = _COLOURS[k % len(_COLOURS)], _DASHES[k // len(_COLOURS) % len(_DASHES)]
        style = f'stroke="{colour}" stroke-dasharray="{dash}" stroke-width="1.8" fill="none"'
        x, y = place(*points[0])
        path = f"M{x:.1f} {y:.1f}" + "".join("H{:.1f}V{:.1f}".format(*place(*point)) for point in points[1:])
        parts.append(f'<path d="{path}H{right:.1f}" {style}/>')
        at = _TOP + 8 + 18 * k
        parts.append(f'<path d="M{right + 12:.1f} {at}h24" {style}/>')
        parts.append(f'<text x="{right + 42:.1f}" y="{at + 4}">{escape(name)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )
