"""Groups of bars side by side, a panel below the other: a self-contained SVG."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

__all__ = ["bar_chart"]

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#999999")
_LEFT, _RIGHT, _TOP, _PANEL, _BOTTOM = 60, 20, 56, 150, 62
_BAR, _GAP, _LEAST = 16, 34, 132
"""A bar, what lies between groups, and the least of a group, so that its name has room."""

Panel = Mapping[str, Mapping[str, float]]
"""Groups by name, and in each a height for every kind of bar that it has."""


def bar_chart(panels: Mapping[str, Panel], *, title: str, up: str, mark: float | None = None) -> str:
    """The SVG text. All panels have the same groups' width and a scale of their own; `mark` is a line across each."""
    kinds = list(dict.fromkeys(kind for panel in panels.values() for bars in panel.values() for kind in bars))
    groups = list(dict.fromkeys(group for panel in panels.values() for group in panel))
    width = max(520, _LEFT + _RIGHT + _wide(kinds) * len(groups))
    parts = [f'<text x="{_LEFT}" y="20" font-weight="bold">{escape(title)}</text>']
    for k, kind in enumerate(kinds):
        x = _LEFT + k * 120
        parts.append(f'<rect x="{x}" y="30" width="12" height="12" fill="{_COLOURS[k % len(_COLOURS)]}"/>')
        parts.append(f'<text x="{x + 17}" y="41">{escape(kind)}</text>')
    for number, (name, panel) in enumerate(panels.items()):
        parts.extend(_panel(name, panel, (kinds, groups), _TOP + number * (_PANEL + _BOTTOM), width, mark))
    parts.append(
        f'<text transform="translate(14 {_TOP + _PANEL / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(up)}</text>'
    )
    height = _TOP + len(panels) * (_PANEL + _BOTTOM)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _wide(kinds: list[str]) -> int:
    """A group's width."""
    return max(_LEAST, len(kinds) * _BAR + _GAP)


def _panel(
    name: str, panel: Panel, order: tuple[list[str], list[str]], top: int, width: int, mark: float | None
) -> list[str]:
    """One panel: its name, three levels, and a group of bars for each of the groups."""
    kinds, groups = order
    most = max([height for bars in panel.values() for height in bars.values()] + [mark or 0.0, 1e-9]) * 1.15
    base = top + _PANEL
    parts = [f'<text x="{_LEFT + 4}" y="{top + 12}" font-weight="bold">{escape(name)}</text>']
    for k in range(4):
        y = base - k * _PANEL / 3.4
        value = k * most / 3.4
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{width - _RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    for g, group in enumerate(groups):
        left = _LEFT + g * _wide(kinds) + (_wide(kinds) - len(kinds) * _BAR) / 2
        for k, kind in enumerate(kinds):
            height = panel.get(group, {}).get(kind)
            if height is None:
                continue
            x, y = left + k * _BAR, base - height / most * _PANEL
            title = f"<title>{escape(f'{name}, {group}, {kind}: {height:.3g}')}</title>"
            colour = _COLOURS[k % len(_COLOURS)]
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{_BAR - 2}" height="{base - y:.1f}" fill="{colour}">{title}</rect>'
            )
        middle = left + len(kinds) * _BAR / 2
        for line, text in enumerate(group.split("\n")[:3]):
            parts.append(
                f'<text x="{middle:.1f}" y="{base + 14 + 13 * line}" text-anchor="middle" font-size="10">{escape(text)}</text>'
            )
    if mark is not None:
        y = base - mark / most * _PANEL
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{width - _RIGHT}" stroke="black" stroke-dasharray="5 4"/>')
    return parts
