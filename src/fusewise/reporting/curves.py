"""Bars and curves as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fusewise.reporting.plain import Markup

__all__ = ["bar", "curve"]


def bar(value: float, most: float, *, limit: float | None = None, title: str = "", width: int = 180) -> Markup:
    """A horizontal bar for `value` on a scale that ends at `most`, with a mark at `limit`; red when it passes the limit."""
    scale = width / most if most > 0 else 0.0
    colour = "var(--over)" if limit is not None and value >= limit else "var(--bar)"
    mark = ""
    if limit is not None and limit <= most:
        at = limit * scale
        mark = f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="14" stroke="var(--mark)" stroke-width="2"/>'
    return Markup(
        f'<svg width="{width + 2}" height="14" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f'<rect y="2" width="{max(1.0, value * scale):.1f}" height="10" rx="2" fill="{colour}"/>{mark}</svg>'
    )


def curve(
    points: Sequence[tuple[float, float]],
    *,
    across: str,
    up: str,
    levels: Sequence[tuple[str, float]] = (),
    width: int = 720,
    height: int = 260,
) -> Markup:
    """A falling staircase: at x a new best y. `levels` are horizontal lines with a name, such as a bound."""
    if not points:
        return Markup("<p>Nothing to draw.</p>")
    left, bottom, top, right = 84, 34, 12, 16
    xs, ys = [x for x, _ in points], [y for _, y in points] + [y for _, y in levels]
    low, high = min(ys), max(ys)
    room = (high - low) * 0.08 or max(abs(high), 1.0) * 0.05
    low, high, last = low - room, high + room, max([*xs, 1.0])

    def place(x: float, y: float) -> tuple[float, float]:
        return left + x / last * (width - left - right), top + (high - y) / (high - low) * (height - top - bottom)

    path = ""
    for k, (x, y) in enumerate(points):
        here, there = place(x, y)
        path += f"M{here:.1f} {there:.1f}" if k == 0 else f"H{here:.1f}V{there:.1f}"
    path += f"H{place(last, ys[0])[0]:.1f}"
    parts = [f'<path d="{path}" fill="none" stroke="var(--bar)" stroke-width="2"/>']
    for k in range(5):
        value = low + (high - low) * k / 4
        _, at = place(0, value)
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--line)"/>')
        parts.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end" class="soft">{value:,.4g}</text>')
        x, _ = place(last * k / 4, low)
        parts.append(
            f'<text x="{x:.1f}" y="{height - 16}" text-anchor="middle" class="soft">{last * k / 4:,.0f}</text>'
        )
    for name, value in levels:
        _, at = place(0, value)
        parts.append(
            f'<line x1="{left}" x2="{width - right}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--mark)" stroke-dasharray="5 4"/>'
            f'<text x="{width - right}" y="{at - 4:.1f}" text-anchor="end">{escape(name)}</text>'
        )
    parts.append(f'<text x="{(width + left) / 2:.0f}" y="{height - 2}" text-anchor="middle">{escape(across)}</text>')
    parts.append(
        f'<text transform="translate(12 {height / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(up)}</text>'
    )
    return Markup(
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" style="max-width:100%">{"".join(parts)}</svg>'
    )
