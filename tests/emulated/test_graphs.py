"""The small graphs leave no kernel out."""

from __future__ import annotations

import pytest
from tests.codegen.subjects import UNIT_KERNELS
from tests.emulated.graphs import CASES, feeds_of

from fusewise.codegen.candidates import KERNELS, PLAIN_KERNELS


def test_every_kernel_has_a_graph() -> None:
    """But those for instructions of another family of machines."""
    every = {kernel.name for family in (*KERNELS.values(), PLAIN_KERNELS) for kernel in family}
    others = {"byte-convolution", "byte-product", *(kernel.name for kernel in UNIT_KERNELS)}
    assert {name for case in CASES.values() for name in case.kernels} == every - others


@pytest.mark.parametrize("name", CASES)
def test_inputs_fit(name: str) -> None:
    graph = CASES[name].graph()
    assert {key: array.shape for key, array in feeds_of(graph).items()} == {
        key: graph.tensor(key).dims for key in graph.inputs
    }
