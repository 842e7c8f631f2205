"""Equal keys mean equal code, whatever else a machine is: what its figures decide is in schedules, and these are in the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
from benchmarks.operators.row import model_of
from benchmarks.operators.table import ROWS
from tests.codegen.ways import text_of

from fusewise import api
from fusewise.codegen.assemble import generate
from fusewise.codegen.choose import alternatives
from fusewise.codegen.legalize import legalized
from fusewise.codegen.machine.figures import MeasuredFigures, OverheadFigures
from fusewise.codegen.target import TARGETS, Target
from fusewise.fusion.plan import partition
from fusewise.ir.dtypes import BFLOAT16, FLOAT32, DType
from fusewise.ir.graph import Graph
from fusewise.ir.partition import Partition
from fusewise.lower.work import TaskWork, lower_partition
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace
from fusewise.zoo.catalogue import build

FIGURES: Mapping[str, Mapping[str, Any]] = {
    "smaller first level": {"l1_bytes": 4 << 10},
    "smaller second level": {"l2_bytes": 64 << 10},
    "larger second level": {"l2_bytes": 4 << 20},
    "smaller third level": {"l3_bytes": 1 << 20},
    "one worker": {"workers": 1},
    "many workers": {"workers": 12},
    "more multiply-adds": {"multiply_bits": 0},
    "additions where it multiplies": {"adds_apart": False},
    "dear loads": {"figures": MeasuredFigures(overhead=OverheadFigures(0.24, 0.2, 0.0, 0.2))},
}
"""What a machine of the same instructions may have otherwise."""

NETWORKS = ("resnet50", "gpt2")

FAMILIES = (
    "Attention",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "CumSum",
    "GRU",
    "Gemm",
    "GridSample",
    "InstanceNormalization",
    "LayerNormalization",
    "LinearAttention",
    "MatMul",
    "MaxPool",
    "MaxRoiPool",
    "Resize",
    "RoiAlign",
    "ScatterElements",
    "Softmax",
    "TopK",
    "Transpose",
)
"""Operators that have most kernels between them, each by itself."""

WAYS = 3
"""Of each task of an operator, how many ways are looked at."""

BASE = replace(next(target for target in TARGETS if target.name == "avx512"), multiply_bits=512)


def groups_of(graph: Graph) -> Partition:
    trace = Trace()
    return partition(legalized(graph, TARGETS[0], trace), trace)


@cache
def network(name: str) -> Partition:
    return groups_of(build(name))


@cache
def operators() -> Sequence[Partition]:
    return [groups_of(api.load(model_of(row, 0)[0])) for row in ROWS if row.op in FAMILIES] + [groups_of(chain())]


def chain() -> Graph:
    """What kernels take that ask for channels last, or for weights of bfloat16."""
    rng = np.random.default_rng(0)

    def weights(*shape: int, dtype: DType = FLOAT32) -> str:
        return b.constant(rng.standard_normal(shape, np.float32).astype(dtype.numpy))

    b = GraphBuilder("chain")
    y = b.op("Conv", b.input("x", (1, 64, 28, 28)), weights(64, 64, 3, 3), pads=[1] * 4)
    y = b.op("Relu", b.op("InstanceNormalization", y, weights(64), weights(64)))
    y = b.op("Mul", y, b.op("Sigmoid", b.op("GlobalAveragePool", y)))
    y = b.op("Relu", b.op("Conv", y, weights(32, 64, 1, 1)))
    y = b.op("Cast", b.op("Flatten", b.op("GlobalAveragePool", y)), to=BFLOAT16.onnx)
    return b.finish(b.op("Cast", b.op("MatMul", y, weights(32, 48, dtype=BFLOAT16)), to=FLOAT32.onnx))


def ways(groups: Partition, machine: Target) -> dict[str, str]:
    """The text of the first ways to run each task, by key."""
    work = (one for one in lower_partition(groups, Trace()).work if isinstance(one, TaskWork))
    tasks = {one.bound.task.key: one.bound.task for one in work if 0 not in one.bound.task.extents}
    found = (one for task in tasks.values() for one in islice(alternatives(task, machine), WAYS))
    return {one.key: text_of(one, machine.instructions, "k") for one in found}


@cache
def of_network(name: str, machine: Target) -> dict[str, str]:
    """The text of every kernel of a program, by symbol."""
    program = generate(network(name), machine, Trace(), workers=machine.workers)
    return {kernel.symbol: kernel.build() for kernel in program.kernels}


@cache
def of_operators(machine: Target) -> dict[str, str]:
    found: dict[str, str] = {}
    for groups in operators():
        found |= ways(groups, machine)
    return found


def unequal(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Keys that both have, of texts that differ."""
    assert one.keys() & other.keys(), "nothing to compare"
    return [key for key in one.keys() & other.keys() if one[key] != other[key]]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("figures", FIGURES)
def test_kernels_of_one_symbol_are_one_text(name: str, figures: str) -> None:
    assert not unequal(of_network(name, BASE), of_network(name, replace(BASE, **FIGURES[figures])))


@pytest.mark.parametrize("figures", FIGURES)
def test_ways_of_one_key_are_one_text(figures: str) -> None:
    assert not unequal(of_operators(BASE), of_operators(replace(BASE, **FIGURES[figures])))


@pytest.mark.parametrize("figures", FIGURES)
def test_every_figure_decides_something(figures: str) -> None:
    """So that there is something to be wrong about."""
    machine = replace(BASE, **FIGURES[figures])
    assert of_operators(BASE).keys() != of_operators(machine).keys() or any(
        of_network(name, BASE).keys() != of_network(name, machine).keys() for name in NETWORKS
    )
