"""A sample of the zoo's kernels, of every family, compiled: none spills, wants too much or multiplies without tensor cores.

`python -m benchmarks.gpu.kernels` does the same with all of them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.gpu.beside import BESIDE
from benchmarks.gpu.checked import checked, family_of, faults_of, multiplies_tiles
from benchmarks.gpu.sampled import DEVICES, PRECISIONS, graphs_with, sample, zoo_sample
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu.choose import FAMILIES
from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.runtime.gpu.driver import Cubin

COUNT = 40


@needs_triton
@pytest.mark.slow
def test_a_sample_of_the_zoo() -> None:
    asked = zoo_sample(COUNT)
    assert len({(one.device.name, one.kernel.symbol, one.kernel.source) for one in asked}) == COUNT
    assert {one.kernel.family for one in asked} == {family.name for family in FAMILIES}
    multiplied = {(one.device.name, one.precision) for one in asked if multiplies_tiles(one.kernel)}
    assert multiplied == {(device, precision) for device in DEVICES for precision in PRECISIONS}
    found = checked(asked)
    wrong = [(one.device.name, one.kernel.symbol, one.kernel.way, one.faults) for one in found if one.faults]
    assert not wrong


def test_a_family_without_a_kernel_in_the_sample_is_told() -> None:
    graphs = [one.graph() for one in BESIDE[:2]]
    assert graphs_with(["scan"], graphs, device_named("sm_90")) == graphs[:1]
    with pytest.raises(LookupError, match="no model has a kernel of: forest, invented"):
        graphs_with(["forest", "scan", "invented"], graphs, device_named("sm_90"))


def named(symbol: str, way: str = "", source: str = "") -> GpuKernel:
    return GpuKernel(symbol, source, (), (), (), (1,), way=way)


def test_a_sample_has_every_family_tile_and_precision() -> None:
    kernels = [named(f"a_{k:020}", f"tile {k // 3}", "tl.dot(") for k in range(9)]
    kernels += [named(f"a_{30:020}", "split"), named(f"b_{1:020}"), named(f"c_{1:020}_d"), named(f"c_{2:020}_d")]
    ways = {("sm_80", "float32"): kernels, ("sm_90", "float32"): kernels[::-1]}
    found = [(way[0], family_of(kernel), kernel.symbol[:22][-2:]) for way, kernel in sample(ways, 10)]
    products = [("sm_80", "a", "00"), ("sm_90", "a", "03"), ("sm_80", "a", "06"), ("sm_90", "a", "00")]
    others = [("sm_80", "b", "01"), ("sm_90", "c_d", "01"), ("sm_80", "c_d", "01"), ("sm_90", "b", "01")]
    assert found == [*products, *others, ("sm_80", "c_d", "02"), ("sm_90", "c_d", "02")]
    assert len(sample(ways, 99)) == 2 * len(kernels)


CUBIN = Cubin("a_1", "sm_90a", b"", 100, 1000, 0, 0, 128, 2, 2)


@pytest.mark.parametrize(
    ("source", "figures", "fault"),
    [
        ("tl.sum(x)", {}, ""),
        ("libdevice.sin(x)", {"stack_bytes": 40}, ""),
        ("libdevice.sin(x)", {"stack_bytes": 48}, "a thread spills 8 bytes"),
        ("libdevice.sinh(x)", {"stack_bytes": 40}, "a thread spills 40 bytes"),
        ("", {"shared_bytes": 1 << 20}, "1,048,576 bytes of shared memory"),
        ("", {"registers": 255, "threads": 512}, "255 registers for each of 512 threads"),
        ("tl.dot(a, b)", {}, "a product without tensor-core instructions"),
        ("tl.dot(a, b)", {"tensor_instructions": 4}, ""),
        ('tl.dot(a, b, input_precision="ieee")', {}, ""),
    ],
)
def test_what_is_wrong_with_a_kernel(source: str, figures: dict[str, int], fault: str) -> None:
    found = list(faults_of(named("a_1", source=source), replace(CUBIN, **figures), device_named("sm_90")))
    assert [text[: len(fault)] for text in found] == ([fault] if fault else [])
