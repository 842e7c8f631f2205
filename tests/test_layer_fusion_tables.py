"""The tables and figures of layer fusion with graph explanation: what is printed, what is counted, what is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.layer_fusion.__main__ import main
from benchmarks.layer_fusion.blamed import blamed_page
from benchmarks.layer_fusion.cells import Cell
from benchmarks.layer_fusion.drawing import DrawnEdge, columns
from benchmarks.layer_fusion.gains import gain, interval
from benchmarks.layer_fusion.plain import Markup, page, paragraph, section
from benchmarks.layer_fusion.plain import table as table_of
from benchmarks.layer_fusion.printed import PANELS, RATES, SAMPLES, TABLES, Column

SMALL = ["--explainers", "none,smallest", "--plans", "30", "--seeds", "2"]


def row(explainer: str, seed: int, *history: tuple[int, float], plans: int = 100) -> dict[str, Any]:
    column = Column("vgg16", "lbdf", 128, plans)
    return {"cell": Cell(column, "local", explainer, seed), "history": history, "dram_mb": history[-1][1]}


def test_every_printed_row_has_a_value_for_each_column() -> None:
    for name, table in TABLES.items():
        for way, values in (*table.traffic.items(), *table.buffers.items()):
            assert len(values) == len(table.columns) and way[0] in table.searches, (name, way)
    assert sum(SAMPLES.values()) == 10866 and len(RATES) == 6
    cut = TABLES["II"].traffic
    # the text's own sums: more than 15 MB, and over 20 % less, on EfficientNet-B3
    assert cut["local", "none"][0] - cut["local", "pg"][0] > 15
    assert 1 - cut["nsga2", "gnne"][0] / cut["nsga2", "none"][0] > 0.2


def test_intervals_are_those_of_student() -> None:
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.mean == 3 and found.half == pytest.approx(1.9632, abs=1e-4) and found.verdict == "better"
    assert interval([-1.0, 1.0]).verdict == "level" and interval([0.5]).half is None
    assert str(interval([0.0, 0.0])) == "0"


def test_a_gain_is_over_the_best_control_after_as_many_plans() -> None:
    """The control that ends lower is ahead only later than the explainer's budget."""
    early = [row("random", seed, (1, 10.0), (90, 10.0)) for seed in (0, 1)]
    late = [row("none", seed, (1, 20.0), (60, 5.0)) for seed in (0, 1)]
    runs = [row("pg", seed, (1, 9.0), plans=50) for seed in (0, 1)]
    assert gain(runs, [early, late]).mean == pytest.approx(0.1)
    assert gain([row("pg", seed, (1, 9.0)) for seed in (0, 1)], [early, late]).mean == pytest.approx(-0.8)


def test_table_five_counts_both_rates_and_goes_on_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.json"
    assert main(["--table", "V", *SMALL, "--json", str(kept)]) == 0
    first = capsys.readouterr()
    assert "| Local search + smallest |" in first.out and "100.0%" in first.out
    assert first.err.count("MB") == 8
    assert main(["--table", "V", *SMALL, "--join", str(kept)]) == 0
    again = capsys.readouterr()
    assert again.out == first.out and "MB" not in again.err
    assert len(json.loads(kept.read_text())["cells"]) == 8


def test_a_table_stands_beside_the_printed_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--table", "IV", "--networks", "squeezenet1_1", *SMALL]) == 0
    told = capsys.readouterr().out
    assert "| Random search, 30 plans |" in told and "(10.249)" in told and "(10.080)" in told
    assert "Gain" not in told


@pytest.mark.parametrize("figure", [name for name in PANELS if name != "efficientnet"])
def test_curves_fall(figure: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = tmp_path / "figure.svg"
    assert main(["--figure", figure, "--explainers", "none", "--plans", "40", "--seeds", "2", "-o", str(drawn)]) == 0
    told = capsys.readouterr().out
    assert drawn.read_text().startswith("<svg")
    assert ("exact search" in told) == (figure == "anytime")
    for line in [line for line in told.splitlines() if ", none" in line]:
        values = [float(cell) for cell in line.split("|")[2:-1] if cell.strip()]
        assert values == sorted(values, reverse=True)


def test_explanations_stand_side_by_side() -> None:
    html, text = blamed_page(("random", "smallest"), 0.3)
    assert html.count("<svg") == 2 and html.count('stroke-width="4"') >= 10
    assert "\nrandom  " in text and "\nsmallest  " in text


def test_names_cannot_break_the_page() -> None:
    text = page(
        "<title>", section("a & b", paragraph("<script>"), table_of(["<h>"], [["<td>"], [Markup("<b>ok</b>")]]))
    )
    assert "<script>" not in text and "<b>ok</b>" in text and "&lt;td&gt;" in text


def test_a_chain_is_straight_and_a_branch_stands_beside_it() -> None:
    chain = [DrawnEdge(0, 1), DrawnEdge(1, 2)]
    assert columns(3, chain) == [0, 0, 0]
    fork = [DrawnEdge(0, 1), DrawnEdge(0, 2), DrawnEdge(1, 3), DrawnEdge(2, 3), DrawnEdge(3, 4)]
    found = columns(5, fork)
    assert found[0] == found[1] == found[3] == found[4] and found[2] != found[0]
