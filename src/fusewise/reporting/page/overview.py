"""What the page says without scripts: figures, stages, what dominates, the slowest groups, what runs on the host.

Takes a report document and gives plain values for the template. Where nothing is known of something, its place is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusewise.words import size_text

__all__ = ["overview", "tabs_of", "visible"]

_TABS = (
    ("overview", "Overview", ("schema",)),
    ("graph", "Graph", ("graphs",)),
    ("kernels", "Kernels", ("groups", "kernels")),
    ("decisions", "Decisions", ("decisions", "verdicts")),
    ("time", "Time", ("times", "estimates", "compile")),
    ("memory", "Memory", ("memory",)),
    ("bench", "Runtimes", ("bench",)),
    ("search", "Search", ("search",)),
    ("passes", "Passes", ("passes",)),
    ("plan", "Plan", ("plan",)),
    ("verification", "Verification", ("verification",)),
    ("comparison", "Comparison", ("comparison",)),
)
"""Each tab, and the parts of a document of which it needs one."""

_OWN = {"optimize": "search", "passes": "passes", "plan": "plan", "verify": "verification", "bench": "bench"}
"""The tab that a verb's report is about."""

_SLOWEST, _LISTED = 10, 100


def visible(text: str) -> str:
    """Text whose characters can all be seen: those that control, hide or change direction stand as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def tabs_of(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and titles of the tabs that a document has something for; what the verb is about comes behind the overview."""
    found = [(name, title) for name, title, parts in _TABS if any(document.get(part) for part in parts)]
    own = _OWN.get(str(document.get("verb")))
    return sorted(found, key=lambda tab: (tab[0] != "overview", tab[0] != own))


def overview(document: Mapping[str, Any]) -> dict[str, Any]:
    """The values that the template asks for by name."""
    ranked = _ranked(document)
    return {
        "made": document.get("made") or {},
        "figures": _figures(document),
        "about": _about(document),
        "disturbed": _sentence((document.get("times") or {}).get("disturbed") or ""),
        "stages": _stages(document),
        "dominating": _dominating(document, ranked),
        "clock": _clock(document),
        "slowest": ranked[:_SLOWEST],
        "groups": ranked[:_LISTED],
        "unlisted": max(0, len(ranked) - _LISTED),
        "hosted": _hosted(document),
    }


def _clock(document: Mapping[str, Any]) -> str:
    """What is known of the time of groups; empty where nothing is."""
    return "Time" if document.get("times") else "Estimate" if document.get("estimates") else ""


def _figures(document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, value and note of each figure."""
    model, times, memory = (document.get(part) or {} for part in ("model", "times", "memory"))
    groups, steps, graphs = (document.get(part) or () for part in ("groups", "steps", "graphs"))
    found: list[tuple[str, str, str]] = []
    if times.get("ms") is not None:
        threads = (document.get("machine") or {}).get("threads")
        note = _counted(times.get("runs"), "run") + ("" if threads is None else f", {_counted(threads, 'thread')}")
        found.append(("time of a run", _ms(times["ms"]), f"median of {note}" if times.get("runs") else ""))
    elif document.get("estimates"):
        found.append(("all launches, estimated", _ms(document["estimates"]["ms"]), "not measured"))
    if graphs:
        found.append(_operators(graphs, (document.get("search") or {}).get("search", "none") != "none"))
    if groups:
        many = sum(len(group["nodes"]) > 1 for group in groups)
        found.append(("groups", f"{len(groups):,}", f"{many:,} of several operators"))
    if document.get("kernels"):
        native = sum(step["kind"] == "native" for step in steps)
        what = (
            _counted(native, "step")
            if not document.get("device")
            else f"{native:,} launch{'' if native == 1 else 'es'}"
        )
        found.append(("kernels", f"{len(document['kernels']):,}", f"in {what}"))
    hosted = _hosted(document)
    if hosted:
        found.append(("on the host", f"{len(hosted):,}", "step" if len(hosted) == 1 else "steps"))
    saved = sum(group.get("bytes_saved") or 0 for group in groups)
    if saved:
        found.append(("never written, by fusion", size_text(saved), "each run"))
    if memory:
        constants = size_text(memory.get("constant_bytes") or 0)
        found.append(("memory of a run", size_text(memory.get("arena_bytes") or 0), f"and {constants} of constants"))
    if model.get("parameters"):
        found.append(("parameters", _short(model["parameters"]), ""))
    if model.get("macs"):
        found.append(("multiply-adds", _short(model["macs"]), "each run"))
    if (document.get("compile") or {}).get("ms") is not None:
        found.append(("time to compile", _ms(document["compile"]["ms"]), ""))
    return found


def _operators(graphs: Mapping[str, Any], searched: bool) -> tuple[str, str, str]:
    """How many operators there are in the first graph of a document and in its last."""
    counts = [len(graphs[name]["nodes"]) for name in ("written", "clean", "native") if graphs.get(name)]
    what = "the search" if searched else "the passes"
    return "operators", f"{counts[0]:,}", f"{counts[-1]:,} after {what}" if len(counts) > 1 else ""


def _about(document: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """What was compiled, where and how: terms, and the lines of each."""
    model, machine, device = (document.get(part) or {} for part in ("model", "machine", "device"))
    rows: list[tuple[str, list[str]]] = [
        ("Model", [str(model["name"])] if model.get("name") else []),
        ("Inputs", [f"{name}: {kind}" for name, kind in (model.get("inputs") or {}).items()]),
        ("Outputs", [f"{name}: {kind}" for name, kind in (model.get("outputs") or {}).items()]),
        ("Sizes", [f"{name} = {value}" for name, value in (model.get("symbols") or {}).items()]),
        ("Opset", [str(model["opset"])] if model.get("opset") else []),
        ("GPU", [f"{device['architecture']}, as the {device['product']}"] if device else []),
        *_of_machine(machine, bool(device)),
        ("Options", [f"{name} = {_text(value)}" for name, value in (document.get("options") or {}).items()]),
    ]
    return [(term, lines) for term, lines in rows if lines]


def _of_machine(machine: Mapping[str, Any], is_for_gpu: bool) -> list[tuple[str, list[str]]]:
    """The machine that the report was made on. What runs on a GPU does not depend on its threads and caches."""
    told = [_text(value) for value in (machine.get("processor"), machine.get("instruction_set")) if value]
    if is_for_gpu:
        return [("Made on", told)]
    return [
        ("Machine", told),
        ("Threads", [str(machine["threads"])] if machine.get("threads") else []),
        ("Caches", [f"{each['name']}: {size_text(each['bytes'])}" for each in machine.get("caches") or ()]),
    ]


def _stages(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    graphs = document.get("graphs") or {}
    return [
        {
            "id": stage["id"],
            "title": stage["title"],
            "what": stage.get("what") or "",
            "nodes": f"{len(graphs[stage['graph']]['nodes']):,}" if stage.get("graph") in graphs else "",
            "ms": "" if stage.get("ms") is None else _ms(stage["ms"]),
        }
        for stage in document.get("stages") or ()
    ]


def _ranked(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The groups, the slowest first, by estimates where there are these alone; without both those with most arithmetic."""
    times = {
        row.get("group"): row for row in (document.get("times") or document.get("estimates") or {}).get("groups") or ()
    }
    nodes = ((document.get("graphs") or {}).get("native") or {}).get("nodes") or ()
    kernels = {kernel["id"]: kernel for kernel in document.get("kernels") or ()}
    steps = document.get("steps") or ()
    work = {group["id"]: _work(group, nodes) for group in document.get("groups") or ()}
    whole = sum(work.values()) or 1
    rows = []
    for group in document.get("groups") or ():
        row = times.get(group["id"]) or {}
        used = {steps[k].get("kernel") for k in group.get("steps") or () if k < len(steps)}
        ways = [kernels[k].get("family") or kernels[k]["symbol"] for k in sorted(used & kernels.keys())]
        share = row.get("share") if times else work[group["id"]] / whole
        rows.append(
            {
                "id": group["id"],
                "title": group["title"],
                "nodes": len(group["nodes"]),
                "ms": "" if row.get("ms") is None else _ms(row["ms"]),
                "share": "" if share is None else f"{share:.1%}",
                "part": share or 0.0,
                "bound": _bound(row),
                "around": _lead(group, nodes),
                "way": "; ".join(dict.fromkeys(ways)),
                "rank": (-(row.get("ms") or 0.0), -work[group["id"]], group["id"]),
            }
        )
    return sorted(rows, key=lambda row: row["rank"])


def _lead(group: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> str:
    """The name of the node that a group is about: its anchor, or its first."""
    found = group["nodes"][0] if group.get("anchor") is None and group["nodes"] else group.get("anchor")
    return str(nodes[found]["name"]) if found is not None and found < len(nodes) else ""


def _work(group: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> int:
    """Floating-point operations of a group."""
    return sum(nodes[k].get("flops") or 0 for k in group["nodes"] if k < len(nodes))


def _bound(row: Mapping[str, Any]) -> str:
    if row.get("limit"):
        return str(row["limit"])
    if row.get("peak") is None or not row.get("bound"):
        return ""
    by = "arithmetic" if row["bound"] == "compute" else f"memory ({row['level']})" if row.get("level") else "memory"
    return f"{row['peak']:.0%} of {by}"


def _dominating(document: Mapping[str, Any], ranked: Sequence[Mapping[str, Any]]) -> str:
    """One or two sentences on where the time goes."""
    if not ranked or not any(row["part"] for row in ranked):
        return ""
    what = {"Time": "the time of a run", "Estimate": "the estimate of all launches (nothing was measured)"}.get(
        _clock(document), "the arithmetic (no times were measured)"
    )
    first, few = ranked[0], ranked[:_SLOWEST]
    found = f"Group {first['id']} ({first['title']}) takes {first['share']} of {what}"
    if len(ranked) <= _SLOWEST:
        return f"{found}."
    return f"{found}, the first {len(few)} of {len(ranked):,} groups {sum(row['part'] for row in few):.1%}."


def _hosted(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Steps that are not native, with the reason of each."""
    return [
        {"index": step["index"], "label": step.get("label") or "", "reason": step.get("reason") or ""}
        for step in document.get("steps") or ()
        if step["kind"] == "host"
    ]


def _text(value: object) -> str:
    """A value of a document in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _sentence(text: str) -> str:
    """Words as a sentence of their own."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" if text else ""


def _counted(count: object, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}" if isinstance(count, int) else ""


def _ms(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:,.1f} s"
    return f"{value:,.3g} ms" if value < 1000 else f"{value:,.0f} ms"


def _short(value: float) -> str:
    """A large number with a unit: `25.6 M`."""
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value:,}"
