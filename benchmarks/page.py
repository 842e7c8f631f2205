"""The page of benchmarks: results of any machines as tables, a machine a section, and as a drawing.

    python -m benchmarks.page [RESULTS.json ...] [--svg FILE]

A file is what `python -m benchmarks.zoo --json FILE`, `python -m benchmarks.portability --json FILE` or
`fusewise bench MODEL --json` wrote; several of one machine are runs of it. Without any, those that are kept in
`benchmarks/results` are taken, of which the documentation makes its page. Printed is Markdown; the drawing is the geometric mean
of each machine and runtime.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["RESULTS", "Row", "data_of", "drawing", "machines_in", "page", "read"]

RESULTS = Path(__file__).parent / "results"
OURS = "fusewise"

HEAD = """# Benchmarks

One inference in milliseconds, each runtime on the same inputs with as many threads, runs taken in turn ([how](lab/README.md)).
A ratio is another runtime's time over ours: more than 1 means that Fusewise is faster. The ratio is that of the medians; behind it
stands what it lies between, by the fastest runs and by the slowest tenth, or over all runs of a machine of which there are several
files. `fusewise bench MODEL` measures yours.

This page is written by `python -m benchmarks.page` from the files in `benchmarks/results`. Runs of all models, of other versions,
with more threads and samples, and what disturbed them: [whole models](lab/models.md).
"""


@dataclass(frozen=True)
class Row:
    """A model on a machine: our median in ms, by runtime the ratios (median first, then others), errors, the largest difference."""

    model: str
    ms: float | None
    ratios: Mapping[str, tuple[float, ...]]
    errors: Mapping[str, str]
    difference: float | None


def data_of(path: Path) -> Any:
    """What a JSON file holds. `ValueError` says why it cannot be read."""
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error


def read(path: Path) -> dict[str, Any]:
    """A file of results. `ValueError` says what is wrong with another."""
    found = data_of(path)
    if isinstance(found, dict) and isinstance(found.get("machine"), dict) and {"model", "made"} <= found.keys():
        return _of_bench(found)
    if (
        not isinstance(found, dict)
        or not isinstance(found.get("machine"), dict)
        or not isinstance(found.get("results"), list)
    ):
        raise ValueError(
            f"{path} has no machine and results: give what benchmarks.zoo, benchmarks.portability or fusewise bench --json wrote"
        )
    return found


def _of_bench(found: Mapping[str, Any]) -> dict[str, Any]:
    """What `fusewise bench --json` prints as a file of results: a result for each tuple of sizes, or for the model."""
    made, machine = found["made"], found["machine"]
    facts = {"cpu": machine["instruction_set"].partition(":")[0], "date": made["at"][:10]}
    rows = [
        {**row, "model": f"{found['model']}, {', '.join(f'{name}={size}' for name, size in row['symbols'].items())}"}
        for row in found.get("sizes", ())
    ]
    return {
        "machine": {**machine, **facts, "versions": {"fusewise": made["fusewise"]}},
        "results": rows or [dict(found)],
    }


def row_of(result: Mapping[str, Any]) -> Row:
    """A result of either kind of file."""
    model = str(result["model"]).removeprefix("zoo:")
    if "error" in result:
        return Row(model, None, {}, {OURS: str(result["error"])}, None)
    if "runtimes" in result:
        runtimes = result["runtimes"]
        errors = {name: str(row["error"]) for name, row in runtimes.items() if "error" in row}
        figures = [
            {name: row[key] for name, row in runtimes.items() if key in row} for key in ("p50_ms", "min_ms", "p90_ms")
        ]
    else:
        errors = dict(result.get("errors", {}))
        figures = [result[key]["ms"] for key in ("p50", "min") if key in result]
    ratios = {
        name: tuple(one[name] / one[OURS] for one in figures if name in one) for name in figures[0] if name != OURS
    }
    return Row(model, figures[0][OURS], ratios, errors, result.get("max_rel_error"))


def machines_in(files: Iterable[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], list[Row]]]:
    """Each machine with its rows; of a model that several files of it have, all ratios are in one row."""
    found: dict[str, tuple[Mapping[str, Any], dict[str, list[Row]]]] = {}
    for file in files:
        machine = file["machine"]
        _, rows = found.setdefault(heading(machine), (machine, {}))
        for row in map(row_of, file["results"]):
            rows.setdefault(row.model, []).append(row)
    return [(machine, [_joined(same) for same in rows.values()]) for machine, rows in found.values()]


def _joined(rows: Sequence[Row]) -> Row:
    """Several runs of one model: the median of their medians, and behind it each of these."""
    rows = [row for row in rows if row.ms is not None] or rows
    if len(rows) == 1:
        return rows[0]
    names = dict.fromkeys(name for row in rows for name in row.ratios)
    middle = {name: [row.ratios[name][0] for row in rows if name in row.ratios] for name in names}
    times = [row.ms for row in rows if row.ms is not None]
    return Row(
        rows[0].model,
        median(times) if times else None,
        {name: (median(each), *each) for name, each in middle.items()},
        {name: text for row in rows for name, text in row.errors.items()},
        max((row.difference for row in rows if row.difference is not None), default=None),
    )


def heading(machine: Mapping[str, Any]) -> str:
    """A machine in a few words."""
    held = f", held to {machine['held']}" if machine.get("held") else ""
    threads = machine["threads"]
    cpu = f" ({machine['cpu']})" if machine.get("cpu") else ""
    return f"{machine['processor']}{cpu}{held}, {threads} thread{'' if threads == 1 else 's'}"


def geometric_mean(ratios: Sequence[float]) -> float:
    """Of at least one number above zero."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def means(rows: Iterable[Row]) -> dict[str, tuple[float, int]]:
    """By runtime the geometric mean of the ratios of medians, and of how many models; `best` is the fastest other of each model."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        for name, each in row.ratios.items():
            ratios.setdefault(name, []).append(each[0])
        if row.ratios:
            ratios.setdefault("best", []).append(min(each[0] for each in row.ratios.values()))
    best = ratios.pop("best", [])
    return {
        name: (geometric_mean(each), len(each)) for name, each in {**ratios, **({"best": best} if best else {})}.items()
    }


def page(files: Sequence[Mapping[str, Any]], picture: str = "") -> str:
    """Markdown of all machines; `picture` is where the drawing lies, if there is one."""
    parts = [HEAD]
    if not files:
        parts.append("No results are kept yet: put the files of `python -m benchmarks.zoo --json FILE` there.\n")
    elif picture:
        parts.append(f"![Geometric means of the ratios, by machine and runtime]({picture}){{.drawn}}\n")
    return "\n".join([*parts, *(_section(machine, rows) for machine, rows in machines_in(files))])


def _section(machine: Mapping[str, Any], rows: Sequence[Row]) -> str:
    peers = list(dict.fromkeys(name for row in rows for name in (*row.ratios, *row.errors) if name != OURS))
    lines = [_line("model", "Fusewise ms", *peers, "largest difference"), _line("---", *["---:"] * (len(peers) + 2))]
    for row in rows:
        ms = row.errors.get(OURS, "") if row.ms is None else f"{row.ms:.2f}"
        difference = "" if row.difference is None else f"{row.difference:.1e}"
        lines.append(_line(row.model, ms, *(_cell(row, peer) for peer in peers), difference))
    found = means(rows)
    if found:
        cells = [f"**{found[peer][0]:.2f}**" if peer in found else "" for peer in peers]
        lines.append(_line("**geometric mean**", "", *cells, ""))
    best = f" Against the fastest other runtime of each model: **{found['best'][0]:.2f}**." if "best" in found else ""
    return f"\n## {heading(machine)}\n\n{_about(machine)}{best}\n\n" + "\n".join(lines) + "\n"


def _line(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def _cell(row: Row, peer: str) -> str:
    """A ratio with what it spread over."""
    if peer not in row.ratios:
        return "fails" if peer in row.errors else ""
    middle, *others = row.ratios[peer]
    low, high = min([middle, *others]), max([middle, *others])
    return f"{middle:.2f}" if not others else f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _about(machine: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine.get("versions", {}).items() if version)
    facts = [
        f"Measured {machine['date']}" if machine.get("date") else "Measured on a day that the file does not state",
        f"vectors of {machine['vector_bits']} bits" if machine.get("vector_bits") else "",
        f"{machine['cores']} cores" if machine.get("cores") else "",
        str(machine.get("note", "")),
        f"Python {machine['python']}" if machine.get("python") else "",
        versions,
    ]
    return f"{'; '.join(fact for fact in facts if fact)}."


def drawing(files: Sequence[Mapping[str, Any]]) -> str:
    """The geometric means as a bar chart, as the text of an SVG."""
    import altair as alt
    import vl_convert

    rows = [
        {
            "machine": heading(machine),
            "runtime": "the fastest other" if name == "best" else name,
            "ratio": mean,
            "told": f"{mean:.2f}",
            "even": 1,
        }
        for machine, found in machines_in(files)
        for name, (mean, _) in means(found).items()
    ]
    base = alt.Chart().encode(y=alt.Y("runtime:N", title=None, sort=None))
    scale = alt.Scale(domainMin=0, nice=True)
    bars = base.mark_bar(color="#3b6ea8").encode(
        x=alt.X("ratio:Q", title="its time over Fusewise's (geometric mean)", scale=scale)
    )
    words = base.mark_text(align="left", dx=4).encode(x="ratio:Q", text="told:N")
    even = alt.Chart().mark_rule(strokeDash=[4, 3], color="#333333").encode(x="even:Q")
    header = alt.Header(
        labelAngle=0, labelAlign="left", labelAnchor="start", labelOrient="top", labelLimit=480, title=None
    )
    layers = (bars + words + even).properties(width=440, height=alt.Step(26))
    chart = layers.facet(row=alt.Row("machine:N", sort=None, header=header), data=alt.Data(values=rows))
    return str(vl_convert.vegalite_to_svg(chart.to_dict()))


def kept() -> list[dict[str, Any]]:
    """The files of `benchmarks/results`, by name."""
    return [read(path) for path in sorted(RESULTS.glob("*.json"))]


def main() -> int:
    """Print the page, and draw it where that is asked for."""
    parser = argparse.ArgumentParser(description="The page of benchmarks, from results of any machines.")
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="RESULTS.json", help="default: benchmarks/results/*.json"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the geometric means, too")
    given = parser.parse_args()
    try:
        files = [read(path) for path in given.files] if given.files else kept()
    except ValueError as error:
        print(f"benchmarks.page: {error}", file=sys.stderr)
        return 2
    print(page(files, given.svg.name if given.svg else ""), end="")
    if given.svg and files:
        given.svg.write_text(drawing(files))
    return 0


if __name__ == "__main__":
    sys.exit(main())
