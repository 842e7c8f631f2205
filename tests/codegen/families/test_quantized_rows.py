"""Products of bytes with a scale for each block and quantised weights, against NumPy."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.quantized_products import Product, check
from tests.codegen.ways import refusal, way

from fusewise.codegen.candidates import PRODUCTS
from fusewise.codegen.families.product.quantized_rows import QUANTIZED_ROWS
from fusewise.codegen.target import Target
from fusewise.passes.packed_weights import PACKED_TYPES

FEW = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@FEW
@given(
    rows=st.sampled_from((1, 2, 5, 9, 21)),
    depth=st.sampled_from((1, 16, 70, 99, 160)),
    columns=st.sampled_from((1, 7, 16, 33, 70, 100)),
    block=st.sampled_from((16, 32, 256)),
    dtype=st.sampled_from([kind.name for kind in PACKED_TYPES]),
    zeros=st.booleans(),
    turned=st.booleans(),
    workers=st.integers(1, 3),
)
def test_sums_are_what_numpy_makes_of_them(run_kernel: Any, target: Target, workers: int, **given: Any) -> None:
    check(run_kernel, QUANTIZED_ROWS, target, Product(bytes=True, **given), workers)


def test_every_way_reads_weights_packed_alike(run_kernel: Any, target: Target) -> None:
    of = Product(rows=9, depth=64, columns=130, bytes=True)
    task = of.task()
    understood = way(QUANTIZED_ROWS, task, target).understood
    every = list(QUANTIZED_ROWS.every(understood, task, target))
    packed = [
        tuple(a.packing.recipe for a in QUANTIZED_ROWS.arguments(understood, task, one) if a.packing is not None)
        for one in every
    ]
    assert len(every) > 1 and len(set(packed)) == 1
    check(run_kernel, QUANTIZED_ROWS, target, of, schedule=every[-1])


def test_only_this_kernel_takes_bytes(target: Target) -> None:
    task = Product(bytes=True).task()
    assert [kernel for kernel in PRODUCTS if refusal(kernel, task, target) is None] == [QUANTIZED_ROWS]
