"""The folded tree of a graph: scopes by names, repeats by structure, groups, and regions where there is too much to read.

Every box is an interval of one topological order, and so are the boxes inside it. That makes each convex and the graph of boxes
of every level acyclic, whatever the names say: a scope that is left and entered again is several boxes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fusewise.reporting.document.repeats import Folded, Repetition, Wiring, crossings, repeats
from fusewise.reporting.document.scopes import Path, node_scopes, scoped_order, unit_scope

__all__ = ["outline"]

MOST_BOXES = 120
"""More boxes than this in one level are cut into regions."""

REGION_BOXES = 40
"""About so many boxes are in a region."""

LONG = 24
"""Where equal subgraphs leave more boxes than this, those count as equal, too, whose tensors differ in their sizes alone."""


def outline(graph: Mapping[str, Any], groups: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """The items of a graph of the report document, which needs no outline yet; every node is in them exactly once.

    `groups` are those of the document if the graph is the one that they belong to: convex and in no circle, as those of a
    `Partition` are; `ValueError` for others. The result depends on nothing but the arguments.
    """
    nodes = graph["nodes"]
    units = _units(nodes, groups)
    wiring, loose = (_wiring(graph, units, told) for told in (_type, _rank))
    scopes = node_scopes(nodes)
    anchors = [None if group is None else group.get("anchor") for _, group in units]
    paths = [
        unit_scope([scopes[node] for node in members], None if anchor is None else list(members).index(anchor))
        for (members, _), anchor in zip(units, anchors, strict=True)
    ]
    owner = {node: unit for unit, (members, _) in enumerate(units) for node in members}
    before = [
        [owner[feed] for node in members for feed in wiring.feeds[node] if feed >= 0 and owner[feed] != unit]
        for unit, (members, _) in enumerate(units)
    ]
    order = scoped_order(before, paths)
    boxes = [Folded("", tuple(units[unit][0]), unit=unit) for unit in order]
    level = _scoped(boxes, [paths[unit] for unit in order], 0)
    return _Items(nodes, units, (wiring, loose)).level(level)


Unit = tuple[Sequence[int], Mapping[str, Any] | None]
"""Nodes that stay together, ascending, and the group that they are; None for a node without one."""


def _units(nodes: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]) -> list[Unit]:
    """Groups and the nodes in none, by their first node."""
    grouped = {node for group in groups for node in group["nodes"]}
    found: list[Unit] = [(sorted(group["nodes"]), group) for group in groups if group["nodes"]]
    found += [((node,), None) for node in range(len(nodes)) if node not in grouped]
    return sorted(found, key=lambda unit: unit[0][0])


def _type(text: str) -> str:
    return text


def _rank(text: str) -> str:
    """A type without its sizes: "float32[1,64,56,56]" is "float32[,,,"."""
    return text.translate(_NO_SIZES)


_NO_SIZES = {ord(letter): None for letter in "0123456789]"}


def _wiring(graph: Mapping[str, Any], units: Sequence[Unit], typed: Callable[[str], str]) -> Wiring:
    """What every node is and reads, as numbers; what `typed` makes of types is compared."""
    nodes, values = graph["nodes"], graph["values"]
    producer = {value: position for position, node in enumerate(nodes) for value in node["outputs"] if value}
    places = {
        node: (position, len(members))
        for members, group in units
        if group is not None
        for position, node in enumerate(members)
    }
    known: dict[tuple[object, ...], int] = {}

    def kind(value: str) -> tuple[object, ...]:
        told = values.get(value, {})
        return typed(told.get("type") or ""), bool(told.get("constant"))

    kinds = []
    for position, node in enumerate(nodes):
        what = (
            *(node["domain"], node["op"], node.get("runs"), places.get(position)),
            *sorted(node["attributes"].items()),
            *map(kind, node["inputs"]),
            len(node["inputs"]),
            *(typed(values.get(value, {}).get("type") or "") for value in node["outputs"]),
        )
        kinds.append(known.setdefault(what, len(known)))
    return Wiring(kinds, [[producer.get(value, -1) for value in node["inputs"]] for node in nodes])


def _scoped(boxes: Sequence[Folded], paths: Sequence[Path], depth: int) -> list[Folded]:
    """Boxes of a level, those of one scope in a row as one; a scope around a single box is left out."""
    found: list[Folded] = []
    position = 0
    while position < len(boxes):
        end = position + 1
        if len(paths[position]) > depth:
            title = paths[position][depth]
            while end < len(boxes) and paths[end][depth : depth + 1] == (title,):
                end += 1
            if depth and title.isdecimal() and not paths[position][depth - 1].isdecimal():  # "3" says little by itself
                title = f"{paths[position][depth - 1]}.{title}"
            found.append(_scope(title, _scoped(boxes[position:end], paths[position:end], depth + 1)))
        else:
            found.append(boxes[position])
        position = end
    return found


def _scope(title: str, inside: list[Folded]) -> Folded:
    if len(inside) > 1:
        return Folded(title, tuple(node for box in inside for node in box.nodes), tuple(inside))
    only = inside[0]
    return only if only.unit >= 0 else Folded(_joined(title, only.title), only.nodes, only.boxes)


def _joined(outer: str, inner: str) -> str:
    """The title of a scope that holds nothing but another: "net.layer" and "layer.0" are "net.layer.0"."""
    *around, last = outer.split(".")
    return ".".join([*around, inner]) if inner.startswith(f"{last}.") else f"{outer}.{inner}"


class _Items:
    """Makes items of boxes. `wirings` tell which are equal: the first ones strictly, the second but for sizes."""

    def __init__(
        self, nodes: Sequence[Mapping[str, Any]], units: Sequence[Unit], wirings: tuple[Wiring, Wiring]
    ) -> None:
        self.nodes, self.units, self.wirings = nodes, units, wirings

    def level(self, boxes: Sequence[Folded]) -> list[dict[str, Any]]:
        """The items of boxes next to each other: repeats folded, and regions where there are too many."""
        folded = repeats(boxes, self.wirings[0])
        if _left(boxes, folded) > LONG:
            folded = min(folded, repeats(boxes, self.wirings[1]), key=lambda found: _left(boxes, found))
        items: list[dict[str, Any]] = []
        spans: list[Folded] = []  # of each item, what it stands for
        position = 0
        for repeat in [*folded, None]:
            until = len(boxes) if repeat is None else repeat.first
            items += [self._item(box) for box in boxes[position:until]]
            spans += boxes[position:until]
            if repeat is not None:
                runs = [boxes[k : k + repeat.period] for k in range(repeat.first, repeat.end, repeat.period)]
                items.append(self._repeat(runs))
                spans.append(Folded("", tuple(node for run in runs for box in run for node in box.nodes)))
                position = repeat.end
        return self._regions(items, spans) if len(items) > MOST_BOXES else items

    def _item(self, box: Folded) -> dict[str, Any]:
        if box.unit < 0:
            inside = self.level(box.boxes)
            if len(inside) > 1:
                return {"kind": "scope", "title": self._titled(box.title, box.nodes), "children": inside}
            only = inside[0]  # a scope that is nothing but a repeat, which says more
            named = only["title"].startswith(f"{box.title.rpartition('.')[2]}.")
            return {**only, "title": _joined(box.title, only["title"]) if named else f"{box.title}: {only['title']}"}
        members, group = self.units[box.unit]
        children = [{"kind": "node", "title": self.nodes[node]["name"], "node": node} for node in members]
        if group is None:
            return children[0]
        return {"kind": "group", "title": group["title"], "group": group["id"], "children": children}

    def _repeat(self, runs: Sequence[Sequence[Folded]]) -> dict[str, Any]:
        """One item for equal runs of boxes; what is inside is that of the first."""
        first, last = runs[0], runs[-1]
        if len(first) == 1 and first[0].unit < 0:
            title = f"{first[0].title} to {last[0].title}"
            title = self._titled(title, first[0].nodes)
            inside = self.level(first[0].boxes)
        else:
            title = self._summary(node for box in first for node in box.nodes)
            inside = [self._item(first[0])] if len(first) == 1 else self.level(first)
        copies = [[node for box in run for node in box.nodes] for run in runs]
        if len({self.wirings[0].signature(copy) for copy in copies}) > 1:
            title += ", sizes differ"
        return {"kind": "repeat", "title": title, "times": len(runs), "copies": copies, "children": inside}

    def _regions(self, items: list[dict[str, Any]], spans: Sequence[Folded]) -> list[dict[str, Any]]:
        """Intervals of about equal length, cut where least is handed over; again, where there are too many of these."""
        count = -(-len(items) // REGION_BOXES)
        width = crossings(spans, self.wirings[0])
        reach = REGION_BOXES // 4
        cuts = [0]
        for k in range(1, count):
            middle = k * len(items) // count
            near = range(middle - reach, middle + reach + 1)
            cuts.append(min(near, key=lambda place: (int(width[place]), abs(place - middle), place)))
        regions, boxes = [], []
        for k, (begin, end) in enumerate(zip(cuts, [*cuts[1:], len(items)], strict=True)):
            box = Folded("", tuple(node for span in spans[begin:end] for node in span.nodes))
            title = f"part {k + 1} of {count}: {self._summary(box.nodes)}"
            regions.append({"kind": "scope", "title": title, "children": items[begin:end]})
            boxes.append(box)
        return self._regions(regions, boxes) if count > MOST_BOXES else regions

    def _titled(self, title: str, nodes: Iterable[int]) -> str:
        """A title that says what is there: a number by itself does not."""
        return f"{title}: {self._summary(nodes)}" if title[:1].isdecimal() else title

    def _summary(self, nodes: Iterable[int]) -> str:
        """The operators that there are most of."""
        counts = Counter(self.nodes[node]["op"] for node in nodes)
        listed = ", ".join(op for op, _ in counts.most_common(3))
        return f"{listed} and others" if len(counts) > 3 else listed


def _left(boxes: Sequence[Folded], folded: Sequence[Repetition]) -> int:
    """Boxes that are in sight when repeats are folded."""
    return len(boxes) - sum(repeat.period * repeat.times - 1 for repeat in folded)
