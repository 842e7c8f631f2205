"""Kernels to cubins without a GPU, beside the interpreter in one process."""

import importlib.util
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.runtime.gpu.kernels import needs_triton, pointwise, product, saxpy, total

from fusewise.codegen.gpu.device import device_named
from fusewise.errors import FusewiseError
from fusewise.runtime.cache import KernelCache
from fusewise.runtime.gpu import compile as compiling
from fusewise.runtime.gpu import triton_compile
from fusewise.runtime.gpu.compile import TritonCompiler, compiled
from fusewise.runtime.gpu.driver import Launch, NoTriton, Span, runs_on

SM_80, SM_90 = device_named("sm_80"), device_named("sm_90")


@pytest.fixture(scope="module")
def compiler():
    with TritonCompiler() as one:
        yield one


@needs_triton
def test_figures_of_kernels(compiler):
    for device, architecture in ((SM_80, "sm_80"), (SM_90, "sm_90a")):
        plain, summed, multiplied = compiler.compile([saxpy(100), total(100), product(50, 60, 40)], device)
        assert {one.architecture for one in (plain, summed, multiplied)} == {architecture}
        for one in (plain, summed, multiplied):
            assert one.image.startswith(b"\x7fELF")
            assert (one.threads, one.spills) == (128, False)
            assert 8 <= one.registers <= 255
        assert (plain.parameters, plain.shared_bytes, plain.tensor_instructions) == (3, 0, 0)
        assert multiplied.tensor_instructions > 0
        assert 0 < multiplied.shared_bytes <= device.shared_per_block


@needs_triton
def test_ieee_takes_no_tensor_cores_and_contraction_is_asked_for(compiler):
    exact = compiler.compile([product(50, 60, 40, "ieee")], SM_80)[0]
    assert exact.tensor_instructions == 0
    again = compiled(saxpy(100), SM_80)
    assert again.image == compiler.compile([saxpy(100)], SM_80)[0].image, "equal in another process"
    fused, apart = (compiler.compile([saxpy(100)], SM_80, contracted=on)[0] for on in (True, False))
    assert fused.image != apart.image


@needs_triton
def test_what_a_kernel_compiles_to_is_interpreted_in_the_same_process(compiler, device):
    kernel = product(50, 60, 40)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((50, 40), (40, 60)))
    out = np.empty((50, 60), np.float32)
    (cubin,) = compiler.compile([kernel], SM_90)
    at = [device.allocate(array.nbytes) for array in (a, b, out)]
    device.copy_in(at[0], a)
    device.copy_in(at[1], b)
    spans = [Span(address, array.nbytes) for address, array in zip(at, (a, b, out), strict=True)]
    function = device.load(kernel, cubin)
    device.launch(Launch(function, kernel.grid, tuple(at), tuple(spans[:2]), tuple(spans[2:])))
    device.copy_out(out, at[2])
    for address in at:
        device.free(address)
    np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)


@needs_triton
def test_what_the_compiler_refuses_and_the_interpreter_accepts_is_one_sentence(compiler):
    body = "for k in range(2):\n        last = tl.load(x + k)\n    tl.store(out, last)"
    late = replace(pointwise("late", "x", "vx", 4), source=f"@triton.jit\ndef late(x, out):\n    {body}\n")
    with pytest.raises(FusewiseError, match="does not compile kernel 'late' for sm_90") as told:
        compiler.compile([late], SM_90)
    assert "\n" not in str(told.value)
    assert compiler.compile([saxpy(100)], SM_90)[0].image, "the next kernel compiles all the same"


@needs_triton
def test_too_much_shared_memory_is_refused(compiler):
    with pytest.raises(FusewiseError, match="bytes of shared memory, and a block has 1,000"):
        compiler.compile([product(50, 60, 40)], replace(SM_90, shared_per_block=1000))


@needs_triton
def test_a_kernel_is_compiled_once(compiler, tmp_path, monkeypatch):
    store = KernelCache(tmp_path)
    first, again = saxpy(100), replace(saxpy(100), grid=(7,))  # another grid is the same code
    one, two = compiler.compile([first, again], SM_90, store=store)
    assert one == two
    monkeypatch.setattr(compiling, "_asked", None)
    assert compiler.compile([first], SM_90, store=KernelCache(tmp_path))[0] == one
    changed = (replace(first, warps=8), replace(first, stages=3), replace(first, alignments=(16, 4, 16)))
    for other in (*changed, saxpy(101)):
        with pytest.raises(TypeError):  # it would have been compiled
            compiler.compile([other], SM_90, store=KernelCache(tmp_path))
    with pytest.raises(TypeError):
        compiler.compile([first], SM_80, store=KernelCache(tmp_path))
    with pytest.raises(TypeError):
        compiler.compile([first], SM_90, contracted=False, store=KernelCache(tmp_path))


def test_without_triton_one_sentence(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoTriton, match=r"pip install 'fusewise\[gpu\]'") as told:
        compiled(saxpy(100), SM_90)
    assert told.value.exit_status == 2


@pytest.mark.parametrize(
    "code, device, runs",
    [
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_89", True),
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90", False),
        ("sm_90a", "sm_90", True),
        ("sm_90a", "sm_100", False),
        ("sm_100a", "sm_103", False),
        ("sm_100a", "sm_100", True),
        ("rubbish", "sm_90", False),
    ],
)
def test_which_code_runs_where(code, device, runs):
    assert runs_on(code, device) == runs


@needs_triton
def test_assembly_of_a_kernel(compiler):
    text = compiler.assembly(saxpy(100), SM_80)
    assert ".target sm_80" in text and ".entry saxpy" in text and "fma.rn.f32" in text
    assert "fma.rn.f32" not in compiler.assembly(saxpy(100), SM_80, contracted=False)


@needs_triton
@pytest.mark.parametrize(
    ("line", "stack"),
    [("STL.64 [R1+0x8], R4 ;", 48), ("@!P0 LDL R4, [R1] ;", 48), ("LDG.E R4, desc[UR4][R2.64] ;", 0), ("", 0)],
)
def test_memory_that_no_instruction_touches_is_no_spill(line, stack, monkeypatch, tmp_path):
    """LLVM leaves a stack of some bytes where it optimised away what lay there."""

    def told(command, **how):
        words = "Function f:\n REG:128 STACK:40 SHARED:0 LOCAL:8" if "-res-usage" in command else f"/*0010*/ {line}"
        return SimpleNamespace(stdout=words)

    monkeypatch.setattr(triton_compile.subprocess, "run", told)
    assert triton_compile._resources(b"", tmp_path) == (128, stack)
