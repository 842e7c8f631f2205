"""A network drawn as SVG, top to bottom: a box per operator, in the colour of its group, and the edges between them.

Operators stand in the order they run; each stays in the column of the operator it reads from unless somebody else does, so a chain
is a straight line and a branch stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.layer_fusion.plain import Markup

__all__ = ["Box", "DrawnEdge", "columns", "network"]

_ROW, _COLUMN, _WIDTH, _HEIGHT, _MARGIN = 26, 172, 158, 19, 8
_HUES = (211, 28, 135, 275, 4, 178, 48, 320, 90, 245)


@dataclass(frozen=True, slots=True)
class Box:
    """An operator: its text, its group (None: it belongs to none), and a longer text for whoever points at it."""

    text: str
    group: int | None
    title: str


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """From one box to a later one; drawn thick when `marked`."""

    before: int
    after: int
    title: str = ""
    marked: bool = False


def columns(count: int, edges: Sequence[DrawnEdge]) -> list[int]:
    """The column of each box: that of the first box it reads from when nobody has continued there, else the first free one."""
    before: dict[int, list[int]] = {}
    last: dict[int, int] = {}
    for edge in edges:
        before.setdefault(edge.after, []).append(edge.before)
        last[edge.before] = max(last.get(edge.before, 0), edge.after)
    found: list[int] = []
    holder: dict[int, int] = {}  # column to the box whose line runs in it
    for box in range(count):
        sources = sorted(before.get(box, ()))
        free = [found[b] for b in sources if holder.get(found[b]) == b]
        column = min(free, default=-1)
        if column < 0:
            column = 0
            while column in holder and last.get(holder[column], -1) > box:
                column += 1
        for source in sources:  # lines that end here leave their columns
            if last[source] <= box and holder.get(found[source]) == source:
                del holder[found[source]]
        found.append(column)
        holder[column] = box
    return found


def network(boxes: Sequence[Box], edges: Sequence[DrawnEdge]) -> Markup:
    """The drawing."""
    column = columns(len(boxes), edges)
    parts = [_edge(edge, boxes, column) for edge in edges]
    for k, box in enumerate(boxes):
        x, y = _MARGIN + column[k] * _COLUMN, _MARGIN + k * _ROW
        fill = "var(--box)" if box.group is None else _tint(box.group)
        dashed = ' stroke-dasharray="3 3"' if box.group is None else ""
        parts.append(
            f'<g><title>{escape(box.title)}</title><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4"'
            f' fill="{fill}" stroke="var(--soft)"{dashed}/>'
            f'<text x="{x + 6}" y="{y + 14}">{escape(_short(box.text))}</text></g>'
        )
    width = 2 * _MARGIN + (max(column, default=0) + 1) * _COLUMN
    height = 2 * _MARGIN + len(boxes) * _ROW
    return Markup(f'<div class="scroll"><svg width="{width}" height="{height}">{"".join(parts)}</svg></div>')


def _edge(edge: DrawnEdge, boxes: Sequence[Box], column: Sequence[int]) -> str:
    x0 = _MARGIN + column[edge.before] * _COLUMN + _WIDTH / 2
    x1 = _MARGIN + column[edge.after] * _COLUMN + _WIDTH / 2
    y0 = _MARGIN + edge.before * _ROW + _HEIGHT
    y1 = _MARGIN + edge.after * _ROW
    inside = boxes[edge.before].group is not None and boxes[edge.before].group == boxes[edge.after].group
    colour = "var(--ink)" if inside else "var(--mark)"
    style = f'stroke="{colour}" stroke-width="{4 if edge.marked else 1 if inside else 2}"'
    if not inside:
        style += ' stroke-dasharray="5 3"'
    blocked = any(column[k] == column[edge.before] for k in range(edge.before + 1, edge.after))
    if x0 == x1 and not blocked:
        path = f"M{x0} {y0}V{y1}"
    elif x1 > x0:  # a fork: over to the later box's column at once, then down
        path = f"M{x0} {y0}C{x0} {y0 + 7} {x1} {y0} {x1} {y0 + 14}V{y1}"
    else:  # down, beside the boxes that stand in the way, and over at the end
        x = x0 + (_COLUMN / 2 - 4 if blocked else 0)
        path = f"M{x0} {y0}C{x0} {y0 + 7} {x} {y0} {x} {y0 + 14}V{max(y0 + 14, y1 - 14)}C{x} {y1 - 7} {x1} {y1 - 7} {x1} {y1}"
    return f'<path d="{path}" fill="none" {style}><title>{escape(edge.title)}</title></path>'


def _tint(group: int) -> str:
    """A colour for a group; neighbours in number differ."""
    return f"hsl({_HUES[group % len(_HUES)]} 60% {62 if group // len(_HUES) % 2 else 50}% / .32)"


def _short(text: str, most: int = 22) -> str:
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most // 2) :]}"
