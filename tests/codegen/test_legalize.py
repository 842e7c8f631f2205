"""Passes are those asked for, but where the machine has a better one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fusewise.codegen.legalize import LEAST_CHANNELS, LEAST_EXTENT, legalized, passes_for, stand_ins
from fusewise.codegen.target import TARGETS, Target
from fusewise.ir.dtypes import UINT8
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.passes.compute_wider import halves_in_float32
from fusewise.passes.drop_dead import drop_dead
from fusewise.passes.pipeline import CLEAN
from fusewise.passes.quantized_to_integer import quantized_to_integer
from fusewise.trace import Trace

AVX2 = next(target for target in TARGETS if target.name == "avx2")
VNNI = replace(AVX2, features="+avx2,+avxvnni")


def quantised(channels: int = LEAST_CHANNELS, extent: int = LEAST_EXTENT, kernel: int = 3) -> Graph:
    b = GraphBuilder("quantised")
    scale, weights = b.constant(np.float32(0.5)), b.constant(np.ones((channels, channels, kernel, kernel), np.int8))
    x = b.op("DequantizeLinear", b.input("x", (1, channels, extent, extent), UINT8), scale)
    y = b.op("Conv", x, b.op("DequantizeLinear", weights, scale), pads=(kernel // 2,) * 4)
    return b.finish(y)


@pytest.mark.parametrize(
    ("graph", "target", "whole"),
    [
        (quantised(), VNNI, True),
        (quantised(), AVX2, False),
        (quantised(channels=LEAST_CHANNELS // 2), AVX2, True),
        (quantised(extent=LEAST_EXTENT - 1), AVX2, True),
        (quantised(kernel=1), AVX2, True),
    ],
)
def test_integers_are_convolved_where_no_convolution_of_floats_is_faster(
    graph: Graph, target: Target, whole: bool
) -> None:
    found = legalized(graph, target, Trace())
    assert any(node.op == "ConvInteger" for node in found.nodes) == whole
    named = Trace(disabled=frozenset({"quantized_to_integer"}))
    assert not any(node.op == "ConvInteger" for node in legalized(graph, target, named).nodes)


def test_passes_are_those_asked_for_each_as_the_machine_likes_it() -> None:
    usual = (halves_in_float32, *CLEAN)
    assert passes_for(VNNI) == usual
    assert passes_for(AVX2) == tuple(stand_ins(AVX2).get(step, step) for step in usual) != usual
    assert passes_for(AVX2)[1:] == passes_for(None)
    assert [step.__name__ for step in passes_for(AVX2)] == [step.__name__ for step in usual]
    assert passes_for(VNNI, False) == ()
    assert passes_for(AVX2, (drop_dead,)) == (drop_dead,)
    assert stand_ins(AVX2).keys() == {quantized_to_integer}
