"""Launches of programs for a GPU, and docs/fusion.md beside them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.dnnfusion_printed import LAYERS
from benchmarks.gpu_launches import HEADINGS, counted, estimates, row

from fusewise.codegen.gpu.device import DEVICES, device_named
from fusewise.codegen.gpu.program import ByteRange, GpuStep
from fusewise.making import GpuMaking, gpu_planned
from fusewise.ops.build import GraphBuilder

PAGE = (Path(__file__).parent.parent / "docs" / "fusion.md").read_text()

STEADY = ("operators", "groups", "unfused", "host", "graphs", "printed")
"""Columns that a better tile of a product does not change."""


def printed_rows() -> dict[str, dict[str, str]]:
    begin = PAGE.index(f"| {' | '.join(HEADINGS)} |")
    lines = PAGE[begin : PAGE.index("\n\n", begin)].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]
    return {line[0]: dict(zip(HEADINGS, line, strict=True)) for line in cells}


@pytest.mark.parametrize("name", ["tinybert", "squeezenet1_1"])
def test_the_page_has_what_is_planned_today(name: str) -> None:
    found = counted(name, device_named("sm_90"))
    today, page = dict(zip(HEADINGS, row(found), strict=True)), printed_rows()[name]
    assert {key: today[key] for key in STEADY} == {key: page[key] for key in STEADY}
    assert found["launches"] - found["second"] == found["groups"]
    assert found["launch_us"] < found["estimate_us"] < found["unfused_us"]


def test_the_page_keeps_to_what_it_says() -> None:
    rows = printed_rows()
    assert set(LAYERS) <= set(rows)
    for name, cells in rows.items():
        launches, second, unfused = (int(cells[key]) for key in ("launches", "second", "unfused"))
        assert launches - second < unfused, name
        assert int(cells["graphs"]) <= int(cells["host"]) + 1, name
        assert cells["printed"] == (str(LAYERS[name].dnnfusion) if name in LAYERS else "-"), name


def test_an_estimate_counts_launches_and_bytes() -> None:
    b = GraphBuilder()
    graph = b.finish(b.op("Exp", b.input("x", (1 << 22,))))
    for device in DEVICES:
        program = gpu_planned(graph, GpuMaking(device)).program
        (step,) = program.steps
        assert isinstance(step, GpuStep)
        moved = (2 << 24) / device.bytes_per_second * 1e6
        assert estimates(program, device, "float32") == pytest.approx([device.launch_us + moved], rel=1e-3)
        (read,) = step.reads
        half = replace(step, reads=(ByteRange(read.buffer, read.low, read.high, 2048, 1024),))
        first, second = estimates(replace(program, steps=(step, half)), device, "float32")
        assert second - device.launch_us == pytest.approx((first - device.launch_us) * 0.75, rel=1e-3)
