"""The tables and figures of Mills et al., "Applying Graph Explanation to Operator Fusion", one command each.

    python -m benchmarks.layer_fusion --table I|II|III|IV|V [--quick] [--json FILE] [--join FILE ...]
    python -m benchmarks.layer_fusion --figure 3|4|5a|5b|5c|efficientnet|anytime [-o FILE.svg|FILE.html]

Tables hold ours, mean and spread over seeds, and in brackets what is printed. Groups that do not fit are split at random (`none`,
the paper's baseline), into single operators (`singles`), or along the edges that an explainer names: controls (`random`,
`smallest`, `spread`, `largest-live`, `all`) or learned ones (`gnne`, `pg`, `rg`, `saliency`, `occlusion`). With `--json` a run goes
on where it was stopped, and `--join` reads others' results. Needs the extras `search` and `explain`, and `report` to draw.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.layer_fusion.blamed import blamed_page
from benchmarks.layer_fusion.curves import by_plans, by_seconds, curves_table, panel_cells
from benchmarks.layer_fusion.printed import PANELS, TABLES
from benchmarks.layer_fusion.sampling import samples_table, samplings, validity_table
from benchmarks.layer_fusion.store import Results
from benchmarks.layer_fusion.tables import shown, table_cells

from fusewise.accel.split.recursive import ASKING
from fusewise.files import write_text
from fusewise.reporting.charts import svg
from fusewise.reporting.charts.panels import staircases

EXPLAINERS = "none,random,smallest,gnne,pg,rg"
QUICK_PLANS, QUICK_SEEDS = 100, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is asked for, and print it."""
    parser = _parser()
    given = parser.parse_args(arguments)
    for path in given.join:
        if not path.is_file():
            parser.error(f"--join {path}: there is no such file")
    if given.quick:
        given.plans, given.seeds = {"": QUICK_PLANS}, QUICK_SEEDS
    results = Results(given.json, given.join)
    if given.table == "I" or given.figure == "3":
        print(_samples(given, results))
    elif given.table is not None:
        print(_table(given, results))
    elif given.figure == "4":
        learned = [name for name in given.explainers if name in ("gnne", "pg", "rg")]
        html, text = blamed_page(learned, given.share)
        print(text)
        if given.output is not None:
            write_text(given.output, html)
    else:
        print(_panel(given, results))
    return 0


def _samples(given: argparse.Namespace, results: Results) -> str:
    """Table I and figure 3."""
    schemes = ("lbdf",) if given.table else ("lbdf", "brr")
    found = [(one, results.sampling(one)) for one in samplings(schemes, 10 if given.quick else 100)]
    return samples_table(found) if given.table else validity_table(found)


def _table(given: argparse.Namespace, results: Results) -> str:
    """Tables II to V."""
    options = {"share": given.share, "asking": given.asking, "edits": given.edits}
    cells = table_cells(given.table, given.explainers, given.seeds, given.plans, **options)
    cells = [cell for cell in cells if not given.networks or cell.column.network in given.networks]
    optima = {cell.column[:3]: results.optimum(cell.column) for cell in cells}
    return shown(given.table, results.of(cells, given.workers), optima)


def _panel(given: argparse.Namespace, results: Results) -> str:
    """The panels of figure 5, and those beside it."""
    panel = PANELS[given.figure]
    rows = results.of(panel_cells(given.figure, given.explainers, given.seeds, given.plans), given.workers)
    if given.figure == "anytime":
        curves, across = by_seconds(rows, results.optimum(panel.column)), "seconds of one core"
        last = max(curve[-1][0] for curve in curves.values())
        places = [place for place in (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 100, 300) if place < last]
    else:
        curves, across = by_plans(rows), "plans evaluated"
        budget = max(row["cell"].column.plans for row in rows)
        places = [part * budget / 1000 for part in (10, 25, 50, 100, 250, 500, 1000)]
    if given.output is not None:
        write_text(given.output, svg(staircases(curves, title=panel.title, across=across, up="DRAM traffic, MB")))
    return f"{panel.title}\n\n{curves_table(curves, places, across)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--table", choices=("I", *TABLES))
    what.add_argument("--figure", choices=("3", "4", *PANELS))
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PLANS} plans, {QUICK_SEEDS} seeds")
    parser.add_argument("--explainers", type=_names, default=_names(EXPLAINERS), help=EXPLAINERS)
    parser.add_argument("--networks", type=_names, default=[], help="only these, by zoo name")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--plans",
        type=_plans,
        default={},
        help="other budgets than published: N for all, NAME=N for an explainer, NAME-search=N for a search",
    )
    parser.add_argument("--share", type=float, default=0.3, help="of a group's edges that an explainer may name")
    parser.add_argument("--asking", choices=ASKING, default="anew")
    parser.add_argument("--edits", type=int, default=0, help="of a local search at a time; published: 1")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="keep results here, and go on from them")
    parser.add_argument("--join", type=Path, nargs="+", default=[], help="results to read, too")
    parser.add_argument("-o", "--output", type=Path, help="draw figures here: SVG, and HTML for figure 4")
    return parser


def _names(text: str) -> list[str]:
    return text.split(",")


def _plans(text: str) -> dict[str, int]:
    """`1000` as {"": 1000}; `gnne=500,random-search=1000` by explainer or search."""
    pairs = (part.rpartition("=") for part in text.split(","))
    return {name: int(number) for name, _, number in pairs}


if __name__ == "__main__":
    sys.exit(main())
