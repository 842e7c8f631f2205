"""Forests on a GPU: any trees, rows and targets, wherever operands lie, against NumPy; tables that are damaged are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codegen.gpu.interpreting import check
from tests.codegen.gpu.lying import contents_of, lying, task_of
from tests.forests import MODES, forest, forests, grid
from tests.runtime.gpu.kernels import needs_triton
from tests.whole import Case

from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.forests import forest as kernel_of
from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.ir.graph import Constant
from fusewise.lower.task import Task

SM_90 = device_named("sm_90")


def grown(rows: int, trees: int, depth: int, targets: int = 1, holes: bool = False, seed: int = 0) -> Case:
    """A forest of trees that are grown at random, every leaf of which adds to one target."""
    rng = np.random.default_rng(seed)
    found, leaves = forest(rng, trees, depth, 6, MODES[:1], holes)
    found |= {"target_treeids": [tree for tree, _ in leaves], "target_nodeids": [node for _, node in leaves]}
    found |= {"target_ids": rng.integers(0, targets, len(leaves)).tolist(), "n_targets": targets}
    found |= {"target_weights": rng.standard_normal(len(leaves)).astype(np.float32).tolist()}
    data = grid(rng, rows, 6, holes)
    return Case("TreeEnsembleRegressor", (data,), (np.zeros((rows, targets), np.float32),), found, domain="ai.onnx.ml")


@needs_triton
@settings(max_examples=10, deadline=None)
@given(one=forests(), seed=st.integers(0, 99))
def test_any_forest(one: Case, seed: int) -> None:
    task = lying(task_of(one.model()), np.random.default_rng(seed))
    check(kernel_of(task, SM_90, "float32"), task, contents_of(task, one.operands))


@needs_triton
@pytest.mark.parametrize("rows, trees, targets", [(1, 100, 1), (1, 1300, 1), (300, 40, 1), (2, 300, 40)])
def test_many_trees_and_rows(rows: int, trees: int, targets: int) -> None:
    one = grown(rows, trees, 4, targets, holes=True)
    task = task_of(one.model())
    check(kernel_of(task, SM_90, "float32"), task, contents_of(task, one.operands), times=4)


def damaged(task: Task, name: str, place: tuple[int, int], number: int) -> Task:
    """The task with another number in a table."""
    anchor = task.anchored
    table = dict(anchor.attributes)[name].array.copy()
    table[place] = number
    changed = tuple((key, Constant(table) if key == name else value) for key, value in anchor.attributes)
    return replace(task, anchor=replace(anchor, attributes=changed))


def test_damaged_tables_are_refused() -> None:
    """Children and roots elsewhere, features and weights that there are not, modes nobody knows, walks that never end."""
    task = task_of(grown(3, 5, 4).model())
    nodes = dict(task.anchored.attributes)["nodes"].array
    leaf = next(k for k, row in enumerate(nodes) if row[2] == row[3])
    inner = next(k for k, row in enumerate(nodes) if row[2] != row[3])
    kernel_of(task, SM_90, "float32")
    for name, place, number in (
        *(("nodes", (inner, 2), number) for number in (-4, 2, nodes.size, 4 * inner)),
        *(("nodes", (inner, 0), number) for number in (6, 1 << 24, -(1 << 31))),
        *(("nodes", (leaf, 1), number) for number in (-1, 1 << 20)),
        *(("roots", (0, 0), number) for number in (-4, 1, nodes.size)),
        ("roots", (4, 1), 1),
    ):
        with pytest.raises(NoKernel, match="do not fit together"):
            kernel_of(damaged(task, name, place, number), SM_90, "float32")
    with pytest.raises(
        NoKernel, match="TreeEnsembleRegressor of 2147483647 rows"
    ):  # whose last block's numbers overflow
        kernel_of(replace(task, extents=(2**31 - 1, 1)), SM_90, "float32")
    with pytest.raises(NoKernel, match="no forest"):
        kernel_of(replace(task, anchor=None), SM_90, "float32")
