"""Two reports of one model beside each other: of two versions, two machines, two sets of options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fusewise.errors import UsageError
from fusewise.records import record
from fusewise.version import VERSION

__all__ = ["compared", "comparison_document", "figure_rows", "require_same_model"]

Document = Mapping[str, Any]

_MOST = 400
"""Decisions of each side that are listed."""


@record(frozen=True, slots=True)
class _Figure:
    """A figure by its name and unit, read from a document (None: it has none), and whether less or more of it is `better`."""

    name: str
    unit: str
    read: Callable[[Document], float | None]
    better: str = "less"


def _at(*path: str) -> Callable[[Document], float | None]:
    """A number at this place of a document."""

    def read(document: Document) -> float | None:
        found: Any = document
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, int | float) and not isinstance(found, bool) else None

    return read


def _count(
    key: str, where: Callable[[Mapping[str, Any]], bool] = lambda row: True
) -> Callable[[Document], float | None]:
    """How many rows of a list there are; None where there is no list, or an empty one."""

    def read(document: Document) -> float | None:
        rows = document.get(key)
        return sum(map(where, rows)) if rows else None

    return read


def _nodes(graph: str) -> Callable[[Document], float | None]:
    def read(document: Document) -> float | None:
        found = (document.get("graphs") or {}).get(graph)
        return None if found is None else len(found["nodes"])

    return read


def _code(document: Document) -> float | None:
    sizes = [kernel.get("code_bytes") for kernel in document.get("kernels") or ()]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def _raced(key: str) -> Callable[[Document], float | None]:
    """A figure of this program in the table of runtimes, where the model has one size."""

    def read(document: Document) -> float | None:
        rows = (document.get("bench") or {}).get("sizes") or []
        ours = [one for one in rows[0]["runtimes"] if one["runtime"] == "fusewise"] if len(rows) == 1 else []
        return _at(key)(ours[0]) if ours else None

    return read


def _peak(document: Document) -> float | None:
    """Bytes; runtimes are measured in MB of 10^6."""
    found = _raced("peak_rss_mb")(document)
    return None if found is None else round(found * 1e6)


_FIGURES: tuple[_Figure, ...] = (
    _Figure("time of a run", "ms", _at("times", "ms")),
    _Figure("estimate of all launches", "ms", _at("estimates", "ms")),
    _Figure("time of a run beside other runtimes (median)", "ms", _raced("p50_ms")),
    _Figure("load time", "ms", _raced("load_ms")),
    _Figure("peak memory", "bytes", _peak),
    _Figure("compile time", "ms", _at("compile", "ms")),
    _Figure("nodes as written", "", _nodes("written"), ""),
    _Figure("nodes compiled", "", _nodes("native")),
    _Figure("groups", "", _count("groups")),
    _Figure("kernels", "", _count("kernels")),
    _Figure("steps", "", _count("steps")),
    _Figure("host steps", "", _count("steps", lambda row: row["kind"] == "host")),
    _Figure("code of kernels", "bytes", _code),
    _Figure("arena", "bytes", _at("memory", "arena_bytes")),
    _Figure("constants", "bytes", _at("memory", "constant_bytes")),
    _Figure("decisions", "", _count("decisions"), ""),
    _Figure("cost after the search", "", _at("search", "cost_after")),
    _Figure("time of passes", "ms", _at("passes", "total_ms")),
    _Figure("DRAM traffic of the plan", "bytes", _at("plan", "summary", "dram_bytes")),
    _Figure("groups of the plan", "", _at("plan", "summary", "groups")),
    _Figure("largest buffer need", "bytes", _at("plan", "summary", "max_buffer_bytes")),
    _Figure("largest relative error", "", _at("verification", "max_rel_error")),
)


def require_same_model(first: Document, second: Document, names: tuple[str, str], *, force: bool = False) -> None:
    """`UsageError` for documents of two models, unless forced: other inputs, outputs, or operators as they were written."""
    if force or _identity(first) == _identity(second):
        return
    models = [one["model"].get("name") or one["title"] for one in (first, second)]
    raise UsageError(
        f"{names[0]} is a report of {models[0]!r} and {names[1]} of {models[1]!r}, which are not the same model; --force compares"
        " them all the same"
    )


def _identity(document: Document) -> Any:
    model, written = document["model"], (document.get("graphs") or {}).get("written")
    operators = None if written is None else sorted(Counter(node["op"] for node in written["nodes"]).items())
    return sorted(model.get("inputs") or ()), sorted(model.get("outputs") or ()), operators


def comparison_document(first: Document, second: Document) -> dict[str, Any]:
    """The document of a comparison: the second's, with the comparison as a part of it. Charts are for whoever draws it to make."""
    kept = {key: value for key, value in second.items() if key != "charts"}
    made = {"fusewise": VERSION, "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "command": None}
    return {**kept, "verb": "report", "made": made, "comparison": compared(first, second)}


def compared(first: Document, second: Document) -> dict[str, Any]:
    """The comparison: `sides`, `differences` in what they were made with, `figures` (ratio: the second's over the first's), compile
    `stages`, `groups` matched by the nodes of the model as it was written, and `decisions` that only one has."""
    return {
        "sides": [_side(first), _side(second)],
        "differences": _differences(first, second),
        "figures": [row for figure in _FIGURES if (row := _row(figure, first, second)) is not None],
        "stages": _stages(first, second),
        "groups": _groups(first, second),
        "decisions": _decisions(first, second),
    }


def _side(document: Document) -> dict[str, Any]:
    made, machine = document.get("made") or {}, document.get("machine") or {}
    return {
        "title": document["title"],
        "verb": document.get("verb"),
        "fusewise": made.get("fusewise"),
        "at": made.get("at"),
        "command": made.get("command"),
        "processor": machine.get("processor"),
        "threads": machine.get("threads"),
        "instruction_set": machine.get("instruction_set"),
    }


_MADE_WITH = (
    ("version of Fusewise", ("made", "fusewise")),
    ("GPU", ("device", "architecture")),
    ("processor", ("machine", "processor")),
    ("threads", ("machine", "threads")),
    ("instruction set", ("machine", "instruction_set")),
    ("verb", ("verb",)),
    ("model", ("model", "name")),
    ("opset", ("model", "opset")),
)


def _differences(first: Document, second: Document) -> list[dict[str, Any]]:
    """What the sides were made with, where it differs."""
    found = []
    for name, path in _MADE_WITH:
        values = [_text(_found(one, path)) for one in (first, second)]
        if values[0] != values[1]:
            found.append({"what": name, "first": values[0], "second": values[1]})
    for kind, path in (("option", ("options",)), ("size of", ("model", "symbols"))):
        tables = [_found(one, path) or {} for one in (first, second)]
        for key in dict.fromkeys((*tables[0], *tables[1])):
            values = [_text(table.get(key)) for table in tables]
            if values[0] != values[1]:
                found.append({"what": f"{kind} {key}", "first": values[0], "second": values[1]})
    return found


def _found(document: Any, path: Iterable[str]) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


def _text(value: object) -> str:
    return "-" if value is None else ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _row(figure: _Figure, first: Document, second: Document) -> dict[str, Any] | None:
    values = figure.read(first), figure.read(second)
    if values == (None, None):
        return None
    return {"name": figure.name, "unit": figure.unit, **_pair(*values), "better": figure.better}


def _pair(first: float | None, second: float | None) -> dict[str, Any]:
    ratio = second / first if first and second is not None else None
    return {"first": first, "second": second, "ratio": ratio}


def _stages(first: Document, second: Document) -> list[dict[str, Any]]:
    tables = [_summed(_found(one, ("compile", "stages")) or ()) for one in (first, second)]
    names = dict.fromkeys((*tables[0], *tables[1]))
    return [{"name": name, **_pair(tables[0].get(name), tables[1].get(name))} for name in names]


def _summed(stages: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for stage in stages:
        if stage.get("ms") is not None:
            found[stage["name"]] = found.get(stage["name"], 0.0) + stage["ms"]
    return found


@record(frozen=True, slots=True)
class _Side:
    """Groups of one document: the written nodes that each covers, its time, and the ways of its kernels."""

    written: tuple[frozenset[str], ...]
    titles: tuple[str, ...]
    ids: tuple[int, ...]
    ms: tuple[float | None, ...]
    ways: tuple[tuple[str, ...], ...]


def _side_of(document: Document) -> _Side:
    graph = (document.get("graphs") or {}).get("native") or {"nodes": ()}
    nodes = {node["id"]: node for node in graph["nodes"]}
    times = {row["group"]: row["ms"] for row in (document.get("times") or {}).get("groups") or ()}
    kernels = {kernel["id"]: kernel["way"] for kernel in document.get("kernels") or ()}
    steps = {step["index"]: step for step in document.get("steps") or ()}
    groups = document.get("groups") or ()
    return _Side(
        tuple(frozenset(_written(nodes[k] for k in group["nodes"] if k in nodes)) for group in groups),
        tuple(group["title"] for group in groups),
        tuple(group["id"] for group in groups),
        tuple(times.get(group["id"]) for group in groups),
        tuple(tuple(sorted(_ways(group, steps, kernels))) for group in groups),
    )


def _written(nodes: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for node in nodes:
        yield from node.get("origin") or (node["name"],)


def _ways(group: Mapping[str, Any], steps: Mapping[int, Any], kernels: Mapping[int, str]) -> Iterable[str]:
    for index in group.get("steps") or ():
        step = steps.get(index)
        if step is not None:
            yield "host" if step["kernel"] is None else str(kernels.get(step["kernel"], ""))


def _groups(first: Document, second: Document) -> list[dict[str, Any]]:
    """Rows of groups of both sides that cover the same written nodes; where nodes are in groups that differ, those together."""
    sides = _side_of(first), _side_of(second)
    rows = []
    for members in _together(sides[0].written, sides[1].written):
        here = [_whole(side, numbers) for side, numbers in zip(sides, members, strict=True)]
        written = sorted(set().union(*(sides[k].written[i] for k in (0, 1) for i in members[k])))
        rows.append(
            {
                "title": here[0]["title"] or here[1]["title"],
                "written": written,
                "first_groups": here[0]["ids"],
                "second_groups": here[1]["ids"],
                **_pair(here[0]["ms"], here[1]["ms"]),
                "first_ways": here[0]["ways"],
                "second_ways": here[1]["ways"],
                "regrouped": here[0]["cover"] != here[1]["cover"],
                "another_way": here[0]["ways"] != here[1]["ways"],
            }
        )
    return sorted(rows, key=lambda row: -abs((row["second"] or 0.0) - (row["first"] or 0.0)))


def _whole(side: _Side, numbers: Sequence[int]) -> dict[str, Any]:
    times = [side.ms[i] for i in numbers]
    known = [ms for ms in times if ms is not None]
    return {
        "title": " | ".join(dict.fromkeys(side.titles[i] for i in numbers)),
        "ids": [side.ids[i] for i in numbers],
        "ms": sum(known) if known else None,
        "ways": sorted(way for i in numbers for way in side.ways[i]),
        "cover": Counter(side.written[i] for i in numbers),
    }


def _together(first: Sequence[frozenset[str]], second: Sequence[frozenset[str]]) -> list[tuple[list[int], list[int]]]:
    """Numbers of the groups of both sides that share written nodes, directly or through others, in the order of the first side.

    Groups that cover the same nodes on both sides stay by themselves, as often as they are there.
    """
    found: list[tuple[list[int], list[int]]] = []
    waiting: dict[frozenset[str], list[int]] = {}
    for j, names in enumerate(second):
        waiting.setdefault(names, []).append(j)
    rest = list[int]()
    for i, names in enumerate(first):
        same = waiting.get(names)
        if same:
            found.append(([i], [same.pop(0)]))
        else:
            rest.append(i)
    others = sorted(j for numbers in waiting.values() for j in numbers)
    sets = [first[i] for i in rest] + [second[j] for j in others]
    for members in _components(sets):
        found.append(
            ([rest[k] for k in members if k < len(rest)], [others[k - len(rest)] for k in members if k >= len(rest)])
        )
    return found


def _components(sets: Sequence[frozenset[str]]) -> list[list[int]]:
    """Numbers of sets that share elements, directly or through others."""
    root = list(range(len(sets)))

    def top(k: int) -> int:
        while root[k] != k:
            root[k] = root[root[k]]
            k = root[k]
        return k

    owner: dict[str, int] = {}
    for k, names in enumerate(sets):
        for name in names:
            root[top(k)] = top(owner.setdefault(name, k))
    found: dict[int, list[int]] = {}
    for k in range(len(sets)):
        found.setdefault(top(k), []).append(k)
    return list(found.values())


def _decisions(first: Document, second: Document) -> dict[str, Any]:
    """Decisions that only one side has, by kind, name, place and whether they were carried out."""
    tables = [Counter(map(_decision, _told(one))) for one in (first, second)]
    reasons = {_decision(row): row["reason"] for one in (second, first) for row in _told(one)}
    sides = []
    for mine, other in ((tables[0], tables[1]), (tables[1], tables[0])):
        rows = [*(mine - other).elements()]
        sides.append(
            {
                "count": len(rows),
                "rows": [
                    {"kind": key[0], "what": key[1], "where": list(key[2]), "applied": key[3], "reason": reasons[key]}
                    for key in rows[:_MOST]
                ],
            }
        )
    return {"first": sides[0], "second": sides[1], "both": sum((tables[0] & tables[1]).values())}


def _told(document: Document) -> list[Mapping[str, Any]]:
    """Decisions but for passes that found nothing to do: those are not of the model."""
    return [row for row in document.get("decisions") or () if row["kind"] != "pass" or row["applied"]]


def _decision(row: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...], bool]:
    return row["kind"], row["what"], tuple(row["where"]), bool(row["applied"])


def figure_rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The figures as cells: name, first, second, ratio."""
    rows = []
    for row in found["figures"]:
        cells = [_number(row[side]) for side in ("first", "second")]
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.3f}"
        rows.append((f"{row['name']}, {row['unit']}" if row["unit"] else row["name"], *cells, ratio))
    return rows


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
