"""A sample of the zoo's kernels, of every family, compiled: none spills, wants too much or multiplies without tensor cores.

`python -m benchmarks.gpu.kernels` does the same with all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from benchmarks.gpu.cases import planned
from benchmarks.gpu.checked import checked, family_of, faults_of, sample
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.runtime.gpu.driver import Cubin
from fusewise.zoo.catalogue import build

MODELS = (
    ("mobilenet_v3_small", "float32"),
    ("squeezenet1_1", "float32"),
    ("tinybert", "float32"),
    ("tinybert", "float16"),
)
COUNTS = {"sm_80": 8, "sm_90": 16}


@needs_triton
@pytest.mark.slow
def test_a_sample_of_the_zoo() -> None:
    devices = {name: device_named(name) for name in COUNTS}
    graphs = {name: build(name) for name, _ in MODELS}
    kernels: dict[str, Sequence[GpuKernel]] = {}
    for name, count in COUNTS.items():
        programs = [planned(graphs[model], devices[name], precision).program for model, precision in MODELS]
        kernels[name] = sample([kernel for program in programs for kernel in program.kernels], count)
    found = checked(kernels, devices)
    assert len(found) == sum(COUNTS.values())
    wrong = [(one.device.name, one.kernel.symbol, one.kernel.way, one.faults) for one in found if one.faults]
    assert not wrong


def named(symbol: str, way: str = "", source: str = "") -> GpuKernel:
    return GpuKernel(symbol, source, (), (), (), (1,), way=way)


def test_a_sample_has_every_family_and_every_way() -> None:
    kernels = [named(f"a_{k:020}", f"tile {k}") for k in range(20)]
    kernels += [named(f"a_{30:020}", "split"), named(f"b_{1:020}"), named(f"c_{1:020}_d"), named(f"c_{2:020}_d")]
    found = [(family_of(kernel), kernel.symbol[:22][-2:]) for kernel in sample(kernels[::-1], 6)]
    assert found == [("a", "30"), ("b", "01"), ("c_d", "01"), ("a", "00"), ("c_d", "02"), ("a", "01")]
    found = sample(kernels, 6)
    assert sample(kernels, 6) == found
    assert len(sample(kernels * 2, 99)) == len(kernels)


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
