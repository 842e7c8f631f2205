"""What DNNFusion's authors print, and docs/fusion.md beside it: numbers as printed, tables as the program has them today."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from benchmarks.dnnfusion_printed import BREAKDOWN, DEPTHS, LATENCIES, LAYERS
from benchmarks.fusion_ablation import TABLES, VARIANTS
from benchmarks.fusion_table import MORE, RATES, counted, more, rates

from fusewise import api
from fusewise.fusion.plan import PLANNERS
from fusewise.fusion.verdicts import COMBINATIONS, Verdict
from fusewise.ops.spec import Mapping
from fusewise.reporting.data_flow import tree_lines
from fusewise.zoo.catalogue import MODELS

PAGE = (Path(__file__).parent.parent / "docs" / "fusion.md").read_text()

NAMES = {
    "GPT-2": "gpt2",
    "MobileNetV1-SSD": "mobilenet_v1_ssd",
    "U-Net": "unet",
    "Faster R-CNN": "faster_rcnn_resnet50_fpn",
    "Mask R-CNN": "mask_rcnn_resnet50_fpn",
}


def rows(first: str) -> Iterator[list[str]]:
    """Cells of the rows of the page's table whose heading begins with `first`."""
    begin = PAGE.index(f"| {first}")
    for line in PAGE[begin : PAGE.index("\n\n", begin)].splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("| ").split("|")]


def model(name: str) -> str:
    return NAMES.get(name, name.lower().replace("-", "_"))


def test_the_printed_headlines_follow_from_the_printed_rows() -> None:
    zoo = {row.name for row in MODELS}
    assert len(LAYERS) == len(LATENCIES) == 15 and set(LAYERS) == set(LATENCIES) <= zoo and set(DEPTHS) <= set(LAYERS)
    rate = max(count / row.dnnfusion for row in LAYERS.values() for count in row[1:5] if count is not None)
    assert round(rate, 1) == 8.8
    speedup = max(
        pair[0] / row.dnnfusion[0]
        for row in LATENCIES.values()
        for pair in row[:4]
        if pair[0] is not None and row.dnnfusion[0] is not None
    )
    assert round(speedup, 1) == 9.3
    for name, row in DEPTHS.items():  # speed is work by the latency of OurB+ on the GPU
        milliseconds = LATENCIES[name].our_b_plus[1]
        assert milliseconds is not None
        assert row.gflop * 1000 / milliseconds == pytest.approx(row.gflops, rel=0.02)


def test_the_page_has_the_printed_counts_and_factors_that_multiply_to_the_rate() -> None:
    found = list(rows("model | exported | cleaned"))
    assert [model(row[0]) for row in found] == list(LAYERS)
    for name, exported, cleaned, groups, clean_up, fusion, rate, *printed in found:
        row = LAYERS[model(name)]
        assert printed == ["-" if n is None else str(n) for n in row[:6]] + [f"{row.total / row.dnnfusion:.1f}"]
        steps = (int(exported) / int(cleaned), int(cleaned) / int(groups), int(exported) / int(groups))
        assert (clean_up, fusion, rate) == tuple(f"{step:.1f}" for step in steps)


@pytest.mark.parametrize("name", ["TinyBERT", "MobileNetV1-SSD"])
def test_the_page_has_the_counts_of_today(name: str) -> None:
    found = counted(model(name), decomposed=True)
    ours = dict(zip(RATES, rates(found), strict=True))
    (row,) = (row for row in rows("model | exported | cleaned") if row[0] == name)
    assert row[1:7] == [ours[key] for key in ("exported", "cleaned", "groups", "clean-up", "fusion")] + [
        rates(found)[7]
    ]
    others = dict(zip(MORE, more(found), strict=True))
    (row,) = (row for row in rows("model | groups | in the published") if row[0] == name)
    keys = ("groups", "published order", "patterns", "cleaned", "on host", "heavy")
    assert row[1:] == [{**others, "cleaned": str(found["cleaned"])}[key] for key in keys]


def test_the_page_has_the_printed_latencies() -> None:
    found = list(rows("model | MNN | TVM"))
    assert [model(row[0]) for row in found] == list(LATENCIES)
    for name, *cells in found:
        printed = [" / ".join("-" if n is None else str(n) for n in pair) for pair in LATENCIES[model(name)]]
        assert cells[:7] == printed
        baseline, patterns, ours = (float(cell) for cell in cells[9:12])
        for shown, figure in zip(cells[12:], (baseline, patterns), strict=True):  # of figures before they were rounded
            assert float(shown.removesuffix("x")) == pytest.approx(figure / ours, rel=0.03)


def test_the_page_has_the_table_of_types() -> None:
    kinds = ["One-to-One", "One-to-Many", "Many-to-Many", "Reorganize", "Shuffle"]
    words = {kind.upper().replace("-", "_"): kind for kind in kinds}
    found = list(rows("producer"))
    assert [row[0] for row in found] == kinds
    for (first, cells), (column, second) in product([(row[0], row[1:]) for row in found], enumerate(kinds)):
        together, verdict = COMBINATIONS[
            Mapping[first.upper().replace("-", "_")], Mapping[second.upper().replace("-", "_")]
        ]
        expected = "X" if verdict is Verdict.BREAK else f"{words[together.name]}, {verdict.value}"
        assert cells[column] == expected, (first, second)


def test_the_page_has_the_tree_of_today() -> None:
    tree = api.inspect("zoo:tinybert", tree=5)["tree"]
    assert "\n".join(tree_lines(tree)) in PAGE
    for element in tree["code"][0]["elements"]:
        assert re.search(rf"^  {re.escape(element['element'])} += {re.escape(element['is'])}$", PAGE, re.MULTILINE)


def measured(**milliseconds: float) -> dict[str, Any]:
    """A made-up result of the benchmark: a millisecond for every variant that is not given."""
    variants = {name: {"ms": milliseconds.get(name, 1.0)} for name in VARIANTS}
    return {"model": "gpt2", "operators": 2237, "macs": 5e9, "variants": variants}


def test_the_breakdown_multiplies_to_the_whole() -> None:
    found = measured(OurB=12.0, **{"+rewriting": 8.0, "+fusion": 2.0}, dnnfusion=1.0)
    text = TABLES["breakdown"].draw([found])
    assert "| gpt2 | 12.0 | 1.50x | 4.00x | 2.00x | 12.00x | fusion |" in text
    assert all(f"{low}-{high}x" in text for low, high in BREAKDOWN.values())


def test_latency_and_depth_have_the_printed_values_beside_ours() -> None:
    found = measured(OurB=6.0, **{"OurB+": 3.0}, dnnfusion=2.0)
    assert (
        "| gpt2 | - / - | - / - | 1102 / - | - / - | 1350 / 1467 | 990 / 1106 | 394 / 292 | 3.43x | 2.51x "
        "| 6.0 | 3.0 | 2.0 | 3.00x | 1.50x |"
    ) in TABLES["latency"].draw([found])
    assert "| gpt2 | 2533 | 69.1 | 62 | 2237 | 10.0 | 1667 | 3333 | 5000 |" in TABLES["depth"].draw([found])
    assert "| gpt2 | 2.00 | 3.00x | 1.50x | 0.50x |" in TABLES["parts"].draw([found])


def test_variants_are_of_planners_there_are() -> None:
    assert {options.get("fusion", "dnnfusion") for options in VARIANTS.values()} <= set(PLANNERS)
    assert all(set(table.variants) <= set(VARIANTS) and set(table.models) <= set(LAYERS) for table in TABLES.values())
