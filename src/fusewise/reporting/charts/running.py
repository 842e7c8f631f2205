"""Where a run's time goes: by group, beside what the machine can do, and by worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, log10
from typing import Any

from fusewise.records import record
from fusewise.reporting.charts.entry import Chart, Row, altair, entry, figure, inline, short, worded

__all__ = ["DEVICE_ROOF", "ESTIMATED_ROOF", "MACHINE_ROOF", "Roof", "roofline", "slowest_groups", "timeline"]

_TOP, _MOST_POINTS = 10, 400
_APART = 1.6
"""How many times the next a ceiling must be for a name of its own."""

_LEAST_RATE = 1e-5
"""Of what the machine can do: a group that reaches less is not about arithmetic."""

_MOST_BARS, _MOST_BARRIERS, _KINDS = 1200, 250, 6
_HEAVY = ("Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "Attention", "LSTM", "GRU", "RNN")


@record(frozen=True)
class Roof:
    """How a roofline is called, what is counted as what groups reach, and as what their points are large."""

    title: str
    reached: str
    spent: str


MACHINE_ROOF = Roof(
    "Groups under the machine's roof",
    "in groups that reach half of their own roof, which counts what kernels save of the arithmetic",
    "is spent",
)
DEVICE_ROOF = Roof(
    "Groups under the roof of the GPU's data sheet", "in groups that reach half of their own roof", "is spent"
)
ESTIMATED_ROOF = Roof(
    "Estimates under the roof of the GPU's data sheet",
    "in groups that would reach half of their own roof; the others wait for their launch, or leave multiprocessors without work. "
    "Nothing was measured",
    "would be spent",
)


def slowest_groups(times: Mapping[str, Any], *, estimated: bool = False) -> Chart | None:
    """The ten groups that take longest, or by an estimate may; None where nothing was timed."""
    groups = sorted(times["groups"], key=lambda row: -row["ms"])
    if not groups:
        return None
    alt = altair()
    rows = [{**_point(row), "label": f"{row['group']}  {short(row['operators'], 44)}"} for row in groups]
    base = alt.Chart(inline(rows[:_TOP])).encode(
        y=alt.Y("label:N", sort=None, title=None),
        x=alt.X("ms:Q", title="estimate, ms" if estimated else "time, ms", axis=alt.Axis(tickCount=6)),
        tooltip=_told(alt),
    )
    label = base.mark_text(style="value-text", align="left", dx=4).encode(text=alt.Text("share:Q", format=".1%"))
    drawn = alt.layer(base.mark_bar(cursor="pointer"), label).properties(
        width="container", height=22 * len(rows[:_TOP])
    )
    covered = sum(row["share"] for row in groups[:_TOP])
    return entry(
        "times-groups",
        "Groups that may take longest, by estimates" if estimated else "Groups that take longest",
        "times",
        f"The {min(_TOP, len(rows))} slowest of {len(rows):,} groups take {covered:.0%} of "
        + ("the estimate of all launches. Nothing was measured." if estimated else "the time of all steps."),
        drawn,
        [
            ("group", "operators", "ms", "share", "GFLOP/s", "GB/s", "of its roof", "bound"),
            *(
                (row["group"], row["operators"], *(row[k] for k in ("ms", "share", "gflops", "gbs", "peak", "bound")))
                for row in rows
            ),
        ],
    )


def roofline(times: Mapping[str, Any], roof: Roof = MACHINE_ROOF) -> Chart | None:
    """Arithmetic for each byte against arithmetic a second, both in powers of ten, under what the machine can do.

    None where no group has arithmetic.
    """
    groups = sorted(times["groups"], key=lambda row: -row["ms"])
    limits, least = times["limits"], _LEAST_RATE * times["limits"]["gflops"]
    counted = [row for row in groups if row["flops"] and row["bytes"] and row["gflops"] > least][:_MOST_POINTS]
    if not counted:
        return None
    alt = altair()
    points = [_point(row) | {"intensity": figure(row["flops"] / row["bytes"])} for row in counted]
    low = min(0.1, *(0.7 * point["intensity"] for point in points))
    high = max(100.0, *(1.5 * point["intensity"] for point in points))
    lines, names = _ceilings(limits, low, high)
    least = min([0.5 * point["gflops"] for point in points] + [0.5 * line["gflops"] for line in lines])
    most = 2 * max(limits["gflops"], *(point["gflops"] for point in points))
    x = alt.X(
        "intensity:Q",
        title="arithmetic intensity, FLOP for each byte",
        scale=alt.Scale(type="log", domain=[figure(low), figure(high)], nice=False),
        axis=_powers(alt, low, high),
    )
    y = alt.Y(
        "gflops:Q",
        title="reached, GFLOP/s",
        scale=alt.Scale(type="log", domain=[figure(least), figure(most)], nice=False, clamp=True),
        axis=_powers(alt, least, most),
    )
    marks = (
        alt.Chart(inline(points))
        .mark_circle(opacity=0.65, cursor="pointer")
        .encode(
            x=x,
            y=y,
            size=alt.Size("share:Q", legend=None, scale=alt.Scale(type="sqrt", range=[25, 700], domain=[0, 1])),
            color=alt.Color("bound:N", title="nearer to", scale=alt.Scale(domain=["compute", "memory"])),
            tooltip=_told(alt, alt.Tooltip("intensity:Q", title="FLOP for each byte", format=",.3~g")),
        )
    )
    drawn = alt.layer(*_roof(alt, lines, names, x, y), marks).properties(width="container", height=340)
    left = sum(row["share"] for row in groups) - sum(row["share"] for row in counted)
    rest = (
        f" Groups that are not drawn, with next to no arithmetic, take {left:.0%} of the time." if left >= 0.005 else ""
    )
    speeds = ", ".join(f"{row['name']} {worded(row['gbs'], 3)}" for row in limits["levels"])
    dashed = f" Dashed: {worded(limits['gflops'])} GFLOP/s of multiply-adds, and GB/s of {speeds}." if speeds else ""
    near = sum(row["share"] for row in counted if row["peak"] >= 0.5)
    return entry(
        "times-roofline",
        roof.title,
        "times",
        f"A point for each of {len(counted):,} groups, as large as its share of the time; {near:.0%} of the time {roof.spent}"
        f" {roof.reached}.{dashed}{rest}",
        drawn,
        [
            ("group", "operators", "FLOP for each byte", "GFLOP/s", "share", "of its roof", "bound"),
            *(
                tuple(one[k] for k in ("group", "operators", "intensity", "gflops", "share", "peak", "bound"))
                for one in points
            ),
        ],
    )


def _roof(alt: Any, lines: Sequence[Row], names: Sequence[Row], x: Any, y: Any) -> tuple[Any, Any, Any]:
    """What the machine can do, as lines, and the names of those that rise and of those that do not."""
    roof = alt.Chart(inline(lines)).mark_line(style="limit").encode(x=x, y=y, detail="name:N")
    name = alt.Chart(inline(names)).encode(x=x, y=y, text="name:N")
    slopes = name.transform_filter("datum.slope").mark_text(
        style="limit-text", align="left", baseline="top", dx=6, dy=3, clip=True
    )
    flat = name.transform_filter("!datum.slope").mark_text(style="limit-text", align="right", baseline="bottom", dy=-4)
    return roof, slopes, flat


def timeline(times: Mapping[str, Any], steps: Sequence[Row]) -> Chart | None:
    """One run: a row for each worker, a bar for each step, and what is between them; short bars beside each other are one.

    `steps` are the document's. None without bars.
    """
    bars = times.get("timeline")
    if not bars:
        return None
    alt = altair()
    about = {step["index"]: step for step in steps}
    titles = {row["group"]: row["operators"] for row in times["groups"]}
    begin = min(bar["start_us"] for bar in bars)
    end = max(bar["start_us"] + bar["us"] for bar in bars)
    rows = _merged(_described(bars, about, titles, begin), (end - begin) / 1e3)
    waits = _waits(rows, (end - begin) / 1e3)
    kinds = _kinds(rows)
    for row in rows:
        row["kind"] = row["kind"] if row["kind"] in kinds else "other"
    worker = alt.Y("worker:N", title=None, sort=None)
    across = alt.X("start:Q", title="time, ms", axis=alt.Axis(grid=False, tickCount=8), scale=alt.Scale(nice=False))
    zoom = alt.selection_interval(name="zoom", bind="scales", encodings=["x"], zoom="wheel![event.shiftKey]")
    base = alt.Chart(inline([*waits, *rows])).encode(x=across, x2="end:Q", y=worker)
    told = [
        alt.Tooltip("what:N", title="step"),
        alt.Tooltip("operators:N"),
        alt.Tooltip("start:Q", title="from, ms", format=",.4~f"),
        alt.Tooltip("ms:Q", title="takes, ms", format=",.4~f"),
    ]
    idle = base.transform_filter("datum.kind === 'waits'").mark_bar(style="wait", height=8, clip=True)
    work = (
        base.transform_filter("datum.kind !== 'waits'")
        .mark_bar(height=26, cursor="pointer", clip=True)
        .encode(color=alt.Color("kind:N", title="operator", scale=alt.Scale(domain=kinds)), tooltip=told)
    )
    meetings = _barriers(bars, about, begin)
    rules = alt.Chart(inline(meetings)).mark_rule(style="barrier", clip=True).encode(x="start:Q")
    parts = [*([idle.encode(tooltip=told)] if waits else []), work.add_params(zoom), *([rules] if meetings else [])]
    workers = len({row["worker"] for row in rows})
    drawn = alt.layer(*parts).properties(width="container", height=40 * workers)
    return entry(
        "times-timeline",
        "One run, worker by worker",
        "times",
        _timeline_about(times, (len(bars), len(rows), workers), meetings, (end - begin) / 1e3),
        drawn,
        [
            ("worker", "step", "operators", "from, ms", "takes, ms"),
            *(tuple(row[k] for k in ("worker", "what", "operators", "start", "ms")) for row in rows),
        ],
    )


def _timeline_about(
    times: Mapping[str, Any], counts: tuple[int, int, int], meetings: Sequence[Row], whole: float
) -> str:
    bars, drawn, workers = counts
    waits = [row["wait_us"] / 1e3 for row in times.get("workers") or ()]
    waited = f"; they waited {' and '.join(worded(ms, 3) for ms in waits)} ms (thin bars)" if waits else ""
    merged = f" {bars:,} shares of steps are drawn as {drawn:,} bars, short ones together." if drawn < bars else ""
    lines = " Lines are where workers meet." if meetings else ""
    return (
        f"The fastest run took {worded(whole, 3)} ms on {workers} {'worker' if workers == 1 else 'workers'}{waited}.{lines}{merged}"
        " Drag to move, shift and wheel to zoom."
    )


def _point(row: Row) -> dict[str, Any]:
    """A group as charts of groups show it."""
    rounded = {name: figure(row[name]) for name in ("ms", "share", "gflops", "gbs", "peak")}
    words = {"operators": row["operators"], "bound": row["bound"], "level": row["level"]}
    return {"group": row["group"], "select": f"group:{row['group']}", **words, **rounded}


def _told(alt: Any, *more: Any) -> list[Any]:
    return [
        alt.Tooltip("group:N"),
        alt.Tooltip("operators:N"),
        alt.Tooltip("ms:Q", title="ms", format=",.4~g"),
        alt.Tooltip("share:Q", title="share of time", format=".1%"),
        *more,
        alt.Tooltip("gflops:Q", title="GFLOP/s", format=",.4~g"),
        alt.Tooltip("gbs:Q", title="GB/s", format=",.4~g"),
        alt.Tooltip("peak:Q", title="of its roof", format=".0%"),
        alt.Tooltip("bound:N", title="nearer to"),
    ]


def _powers(alt: Any, low: float, high: float) -> Any:
    """Marks at powers of ten."""
    return alt.Axis(format=",~g", values=[10.0**k for k in range(ceil(log10(low)), floor(log10(high)) + 1)])


def _ceilings(limits: Mapping[str, Any], low: float, high: float) -> tuple[list[Row], list[Row]]:
    """Of each level of the caches the line up to where arithmetic is what limits, and the place of its name: lines that are close
    share theirs."""
    most = limits["gflops"]
    levels = [(row["name"], row["gbs"]) for row in limits["levels"]] or [("copying memory", limits["copy_gbs"])]
    lines: list[Row] = []
    names: list[Row] = []
    for level, gbs in levels:
        knee = most / gbs
        if knee > low:
            lines.append({"name": level, "intensity": figure(low), "gflops": figure(low * gbs)})
            near = [row for row in names if row["gflops"] < _APART * low * gbs]
            before = f"{near[-1]['name']}, " if near else ""
            names = [row for row in names if row not in near[-1:]]
            place = {"intensity": figure(low), "gflops": figure(low * gbs), "slope": True}
            names.append({"name": f"{before}{level}", **place})
        lines.append({"name": level, "intensity": figure(max(knee, low)), "gflops": figure(most)})
        lines.append({"name": level, "intensity": figure(high), "gflops": figure(most)})
    names.append(
        {
            "name": f"multiply-adds, {worded(most)} GFLOP/s",
            "intensity": figure(high),
            "gflops": figure(most),
            "slope": False,
        }
    )
    return lines, names


def _described(
    bars: Iterable[Row], about: Mapping[int, Row], titles: Mapping[int, str], begin: float
) -> list[dict[str, Any]]:
    """The bars in milliseconds from the start, each with its step's name, operators and kind."""
    rows = []
    for bar in bars:
        step = about.get(bar["step"], {})
        operators = titles.get(step.get("group", -1)) or str(step.get("label", ""))
        host = step.get("kind") == "host"
        start = (bar["start_us"] - begin) / 1e3
        rows.append(
            {
                "worker": f"worker {bar['worker']}",
                "start": figure(start, 7),
                "end": figure(start + bar["us"] / 1e3, 7),
                "ms": figure(bar["us"] / 1e3),
                "what": str(bar["step"]),
                "operators": operators,
                "kind": "on the host" if host else _kind(operators),
                "select": f"step:{bar['step']}",
            }
        )
    return sorted(rows, key=lambda row: (row["worker"], row["start"]))


def _kind(operators: str) -> str:
    names = operators.split("+")
    return next((name for name in names if name in _HEAVY), names[0] or "other")


def _kinds(rows: Sequence[Row]) -> list[str]:
    """The kinds that take most, and `other` where that is not all."""
    taken: Counter[str] = Counter()
    for row in rows:
        taken[row["kind"]] += row["ms"]
    order = sorted(taken, key=lambda kind: (-taken[kind], kind))
    if len(order) <= _KINDS + 1:
        return order
    order.remove("other") if "other" in order else None
    return [*order[:_KINDS], "other"]


def _merged(rows: list[dict[str, Any]], whole: float) -> list[dict[str, Any]]:
    """At most so many bars as can be told apart: neighbours are one while together they are short."""
    least = whole / _MOST_BARS * len({row["worker"] for row in rows}) * 2
    if len(rows) <= _MOST_BARS:
        return rows
    found: list[dict[str, Any]] = []
    for row in rows:
        last = found[-1] if found else None
        if last is None or last["worker"] != row["worker"] or row["end"] - last["start"] > least:
            found.append(row | {"_first": row["what"], "_busy": row["ms"]})
            continue
        last["_busy"] += row["ms"]
        last |= {"end": row["end"], "ms": figure(last["_busy"]), "what": f"{last['_first']} to {row['what']}"}
        last |= {"operators": "several short steps"}
        if last["kind"] != row["kind"]:
            last["kind"] = "other"
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in found]


def _waits(rows: Sequence[Row], whole: float) -> list[Row]:
    """The gaps of each worker, from the start of the run to its end, that can be seen."""
    found: list[Row] = []
    for worker in dict.fromkeys(row["worker"] for row in rows):
        at = 0.0
        own = [row for row in rows if row["worker"] == worker]
        for start, end in [*((row["start"], row["end"]) for row in own), (whole, whole)]:
            if start - at > whole / _MOST_BARS:
                gap = {"worker": worker, "start": figure(at, 7), "end": figure(start, 7), "ms": figure(start - at)}
                found.append({**gap, "what": "waits", "operators": "", "kind": "waits"})
            at = max(at, end)
    return found


def _barriers(bars: Iterable[Row], about: Mapping[int, Row], begin: float) -> list[Row]:
    """When the last worker was done with a step that all wait for; none where there are more than can be told apart."""
    ends: dict[int, float] = {}
    for bar in bars:
        if about.get(bar["step"], {}).get("barrier"):
            ends[bar["step"]] = max(ends.get(bar["step"], 0.0), (bar["start_us"] + bar["us"] - begin) / 1e3)
    return [{"start": figure(end, 7)} for end in sorted(ends.values())] if len(ends) <= _MOST_BARRIERS else []
