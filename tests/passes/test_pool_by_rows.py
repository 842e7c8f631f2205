"""The average of a map, rows first."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.codegen.legalize import for_native, pool_by_rows
from fusewise.codegen.machine.figures import MeasuredFigures
from fusewise.ir.parse import parse_graph
from fusewise.trace import Trace

MAP = "input x: float32[2,96,16,12]\n"
SPLIT = (
    "constant y_axes = [3]\nconstant y_axes_1 = [2, 3]\n"
    "y_rows = ReduceMean(x, y_axes) {keepdims=1}\ny = ReduceMean(y_rows, y_axes_1) {keepdims=KEPT}\nreturn y"
)


@pytest.mark.parametrize(
    ("head", "pool", "kept"),
    [
        ("", "GlobalAveragePool(x)", 1),
        ("constant a: int64[2] = [-1, 2]\n", "ReduceMean(x, a) {keepdims=0}", 0),
        ("constant a: int64[2] = [2, 3]\n", "ReduceMean(x, a)", 1),
    ],
)
def test_a_whole_map(rewrites: Any, head: str, pool: str, kept: int) -> None:
    rewrites(pool_by_rows, f"{MAP}{head}y = {pool}\nreturn y", SPLIT.replace("KEPT", str(kept)), exact=False)


@pytest.mark.parametrize(
    ("shape", "pool"),
    [
        ("[1,8,16,12]", "GlobalAveragePool(x)"),  # small
        ("[1,9000,1,32]", "GlobalAveragePool(x)"),  # one row
        (f"[1,{MeasuredFigures().sharing.shared_by_rows * 49 + 1},7,7]", "GlobalAveragePool(x)"),  # many channels
        ("[2,96,16,12,3]", "GlobalAveragePool(x)"),
        ("[2,96,16,12]", "GlobalMaxPool(x)"),
        ("[2,96,16,12]", "ReduceMean(x, a)"),
    ],
)
def test_what_stays(refuses: Any, shape: str, pool: str) -> None:
    refuses(pool_by_rows, f"input x: float32{shape}\nconstant a: int64[2] = [1, 2]\ny = {pool}\nreturn y")


def test_not_where_roundings_must_stay() -> None:
    graph = parse_graph(f'graph "pool" opset 23\n{MAP}y: float32[2,96,1,1] = GlobalAveragePool(x)\nreturn y')
    assert for_native(graph, "float32", Trace(), exact=True) is graph
    assert len(for_native(graph, "float32", Trace()).nodes) == 2
