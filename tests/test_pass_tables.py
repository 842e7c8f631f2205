"""Tables of lists of passes and of tries, and docs/passes.md beside the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.pass_tries import Searched, kept
from benchmarks.pass_tries import markdown as tries_table
from benchmarks.passes import markdown

from fusewise.benchmarking.power import NOT_HERE
from fusewise.measuring import METRICS
from fusewise.select.pipeline import pipeline_named

PAGE = (Path(__file__).parent.parent / "docs" / "passes.md").read_text()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def row(passes: str, **told: Any) -> dict[str, Any]:
    figures = {
        "pass_ms": 5.0,
        "compile_ms": 995.0,
        "p50_ms": 4.0,
        "least_ms": 2.0,
        "arena_bytes": 1,
        "memory_bytes": 3_000_000,
    }
    return {"model": "resnet50", "style": "mxnet", "passes": passes, **figures, **told}


def test_every_row_has_as_many_cells_as_the_head() -> None:
    names = ("none", "BL", "relevance", "default")
    for rows in ([row(name) for name in names], [row(name) for name in (*names, "family (RN)")]):
        for table in markdown(rows).split("\n\n"):
            head, _, *lines = table.splitlines()
            assert [len(cells(line)) for line in lines] == [len(cells(head))] * len(lines)


def test_what_is_not_told_is_said() -> None:
    told = {"power_w": 65.0, "gpu_power_w": 30.0, "temperature_c": 51.0}
    cost = markdown([row("none"), row("BL"), row("relevance"), row("default", **told)]).split("\n\n")[1]
    found = dict(zip(cells(cost.splitlines()[0])[5:], cells(cost.splitlines()[2])[5:], strict=True))
    assert found["Power, W: BL"] == NOT_HERE
    assert found["Memory used, MB: BL"] == "3.0"
    assert {"65.0, GPU 30.0", "51"} <= set(cells(cost.splitlines()[2]))
    for metric in METRICS:
        assert metric.name in markdown([row(name) for name in ("none", "BL", "relevance", "default")])


def test_tries_count_until_the_best() -> None:
    run = Searched((5.0, 5.0, 3.0, 2.0), (True, False, True, True))
    assert run.until(3.0) == (3, 2)
    assert run.until(1.0) is None
    rows = kept(kept([], {"model": "a", "n": 1}), {"model": "b", "n": 1})
    assert kept(rows, {"model": "a", "n": 2}) == [{"model": "a", "n": 2}, {"model": "b", "n": 1}]
    given = {
        "model": "a",
        "start": "default",
        "known": 7,
        "first": 2.0,
        "best": 1.0,
        "orders": [[9, 5], None],
        "graphs": [[4, 4]],
    }
    tried = {"orders tried": [30, 30], "graphs tried": [8], "taught tried": [8], "taught": [[2, 2]]}
    line = tries_table([{**given, **tried}]).splitlines()[-1]
    assert cells(line) == ["a", "default", "7", "2.000", "9 (1 of 2 never in 30)", "5 (1 of 2 never in 30)", "4", "2"]


def test_the_page_has_the_lists_and_the_metrics() -> None:
    names = ("BL", "AS-0", "AS-1", *(f"PO-{k}" for k in range(4)))
    lines = [cells(line) for line in PAGE.splitlines() if line.startswith("|")]
    printed = {line[0]: line[1] for line in lines if len(line) == 2 and line[0] in names}
    assert printed == {name: ", ".join(pipeline_named(name).passes) for name in names}
    assert [line[0] for line in lines if len(line) == 2 and line[0] in {metric.name for metric in METRICS}] == [
        metric.name for metric in METRICS
    ]
