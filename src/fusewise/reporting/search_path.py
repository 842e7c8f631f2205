"""A picture of the way a search went: the cost of the graph after each substitution, as a self-contained SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["search_path"]

_WIDTH, _HEIGHT = 860, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 40, 46
_UP, _DOWN, _LINE = "#d55e00", "#009e73", "#0072b2"


def search_path(costs: Sequence[float], names: Sequence[str], *, title: str, unit: str) -> str:
    """The SVG text. `costs` begins with the input's; `names[k]` is the rule that led to `costs[k + 1]`.

    Points where the cost rose are drawn in another colour, and hovering over a point names its rule.
    """
    low, high = min(costs), max(costs)
    room = (high - low or abs(high) or 1.0) * 0.08
    low, high = low - room, high + room
    last = max(len(costs) - 1, 1)

    def place(k: int, cost: float) -> tuple[float, float]:
        x = _LEFT + k / last * (_WIDTH - _LEFT - _RIGHT)
        return x, _TOP + (high - cost) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    bottom = _HEIGHT - _BOTTOM
    parts = [f'<text x="{_LEFT}" y="22" font-weight="bold">{escape(title)}</text>']
    for k in range(6):
        cost = low + (high - low) * k / 5
        y = place(0, cost)[1]
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{cost:.4g}</text>')
    for k in sorted({round(last * tenth / 10) for tenth in range(11)}):
        parts.append(f'<text x="{place(k, low)[0]:.1f}" y="{bottom + 18}" text-anchor="middle">{k}</text>')
    way = " ".join("{:.1f},{:.1f}".format(*place(k, cost)) for k, cost in enumerate(costs))
    parts.append(f'<polyline points="{way}" fill="none" stroke="{_LINE}" stroke-width="1.8"/>')
    for k, cost in enumerate(costs):
        x, y = place(k, cost)
        colour = _LINE if k == 0 else _UP if cost > costs[k - 1] else _DOWN
        name = names[k - 1] if k else "input"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{escape(name)}</title></circle>')
    parts.append(f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">substitution</text>')
    parts.append(
        f'<text transform="translate(16 {_HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">cost, {escape(unit)}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
        f' font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )
