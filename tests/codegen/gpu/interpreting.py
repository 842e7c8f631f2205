"""Kernels for GPUs in Triton's interpreter, over NumPy arrays, with a look at every address; and what they compute by other means.

The interpreter lacks libdevice, for which NumPy's functions stand. Three of its faults are mended: it cuts numbers off where the
machine rounds to bfloat16, multiplies tiles of it as the integers that their bits are, and takes the answer of a comparison for a
number of the type that was compared, which shows where it is a scalar.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fusewise.codegen.gpu.kernel import FAULT, IMPORTS, SCRATCH, GpuKernel
from fusewise.lower.interpret import interpret_task
from fusewise.lower.task import Operand, Task

HAS_TRITON = importlib.util.find_spec("triton") is not None

needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed (the extra gpu)")

GUARD = 64
"""Elements before and behind an operand, which nobody may touch."""


class OutsideOperands(AssertionError):
    """A lane touched what is no element of an operand that it may touch."""


@contextmanager
def _interpreting() -> Iterator[None]:
    """Triton's functions are interpreted where they are defined in here."""
    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before


_NUMPY_NAMES = {f"a{name}{h}": f"arc{name}{h}" for name in ("sin", "cos", "tan") for h in ("", "h")} | {"pow": "power"}


class _Libdevice:
    """NumPy's functions by libdevice's names, on tensors of one shape."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def applied(*values: Any) -> Any:
            import triton.language as tl
            from triton.runtime.interpreter import TensorHandle

            assert all(value.type == values[0].type for value in values), "libdevice takes operands of one type"
            assert values[0].dtype.name in ("fp32", "fp64")
            found = getattr(np, _NUMPY_NAMES.get(name, name))(*(value.handle.data for value in values))
            return tl.tensor(TensorHandle(np.asarray(found), values[0].handle.dtype), values[0].type)

        return applied


class _Watch:
    """The addresses that a launch may read and write, one by one."""

    def __init__(self) -> None:
        self.readable = self.writable = np.zeros(0, np.uint64)

    def check(self, addresses: np.ndarray, mask: np.ndarray, allowed: np.ndarray) -> None:
        touched, wanted = np.broadcast_arrays(addresses, mask)
        if not np.isin(touched[wanted], allowed).all():
            raise OutsideOperands(f"{np.setdiff1d(touched[wanted], allowed)[:4]}")


@cache
def _watch() -> _Watch:
    """The one watch, with the interpreter under its eyes."""
    with _interpreting():
        import triton
        import triton.language as tl
    from triton.runtime import interpreter

    assert isinstance(triton.language.sum, interpreter.InterpretedFunction), "Triton was imported before, to compile"
    watch, builder = _Watch(), interpreter.InterpreterBuilder
    load, store, cast = builder.create_masked_load, builder.create_masked_store, builder.cast_impl
    dot = builder.create_dot

    def masked_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        watch.check(pointers.data, mask.data, watch.readable)
        return load(self, pointers, mask, *rest)

    def masked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        watch.check(pointers.data, mask.data, watch.writable)
        return store(self, pointers, value, mask, *rest)

    def cast_impl(self: Any, source: Any, kind: Any) -> Any:
        if kind.scalar != tl.bfloat16 and source.dtype.scalar != tl.bfloat16:
            return cast(self, source, kind)
        given = source.data.view(ml_dtypes.bfloat16) if source.dtype.scalar == tl.bfloat16 else source.data
        wanted = ml_dtypes.bfloat16 if kind.scalar == tl.bfloat16 else interpreter._get_np_dtype(kind)
        found = given.astype(wanted)
        return interpreter.TensorHandle(found.view(np.uint16) if wanted is ml_dtypes.bfloat16 else found, kind.scalar)

    def wide_dot(self: Any, left: Any, right: Any, *rest: Any) -> Any:
        sides = (cast_impl(self, x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (left, right))
        return dot(self, *sides, *rest)

    builder.create_masked_load, builder.create_masked_store, builder.cast_impl = masked_load, masked_store, cast_impl
    builder.create_dot = wide_dot
    for name in ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc"):
        setattr(builder, f"create_{name}", cast_impl)
    for name in [name for name in vars(builder) if name.startswith(("create_icmp", "create_fcmp"))]:
        setattr(builder, name, _answered(getattr(builder, name)))
    return watch


def _answered(compare: Callable[..., Any]) -> Callable[..., Any]:
    def compared(*given: Any) -> Any:
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        return TensorHandle(compare(*given).data, tl.int1)

    return compared


class _Pointer:
    """An address under the few names that the interpreter asks of a tensor."""

    def __init__(self, address: int, kind: str) -> None:
        self.address, self.dtype = address, kind

    def data_ptr(self) -> int:
        return self.address

    def untyped_storage(self) -> _Pointer:
        return self

    def cpu(self) -> _Pointer:
        return self

    def copy_(self, other: object) -> None:
        """It is the memory itself."""

    def new_empty(self, count: int, device: str) -> _Pointer:
        return self

    def set_(self, *where: object) -> None:
        """It is there already."""

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return ()

    def stride(self) -> tuple[int, ...]:
        return ()


def function_of(kernel: GpuKernel, folder: Path) -> Any:
    """A kernel's function; Triton reads its text in a file."""
    path = folder / f"{kernel.symbol}.py"
    path.write_text(IMPORTS + kernel.source)
    spec = importlib.util.spec_from_file_location(kernel.symbol, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _watch()
    with _interpreting():
        spec.loader.exec_module(module)
    module.libdevice = _Libdevice()  # type: ignore[attr-defined]
    return getattr(module, kernel.symbol)


def elements_of(operand: Operand) -> np.ndarray:
    """How far every element lies from where the argument points, in elements."""
    found = np.full(operand.shape, operand.offset, np.int64)
    for axis, (extent, stride) in enumerate(zip(operand.shape, operand.strides, strict=True)):
        found += (np.arange(extent) * stride).reshape([-1 if k == axis else 1 for k in range(len(operand.shape))])
    return found.reshape(-1)


def span_of(operand: Operand) -> tuple[int, int]:
    """The lowest element and the number of elements from there to the highest."""
    low, high = (0, -1) if 0 in operand.shape else operand.span
    return low, high - low + 1


def guarded(operand: Operand, contents: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Memory of an operand between guards that are filled with what is noticed, and the part from where its argument points.

    `contents` are its elements in the order of its indices; what lies between them is noticed, too.
    """
    low, count = span_of(operand)
    low = min(low, 0)
    room = max(span_of(operand)[0] + count, 1) - low
    memory = np.full((room + 2 * GUARD) * operand.dtype.itemsize, 0xA5, np.uint8).view(operand.dtype.numpy)
    if operand.dtype.is_float and operand.dtype.bits > 8:
        memory[:] = np.nan
    start = memory[GUARD - low :]
    if contents is not None:
        memory[GUARD - low + elements_of(operand)] = contents.reshape(-1)
    return memory, start


def launch(
    kernel: GpuKernel, task: Task, contents: Mapping[str, np.ndarray], folder: Path
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What a kernel, and those behind it, write, in the order of indices by operand, and what they report; all else is seen to be
    as it was."""
    watch = _watch()
    memory = {o.name: guarded(o, contents.get(o.name)) for o in task.operands}
    outputs = {store.operand for store in task.stores}
    fault = np.zeros(2 * max(1, task.sites), np.int64)
    readable, writable = [], [fault.ctypes.data + 8 * np.arange(2 * task.sites)]
    places = {name: _address(start) for name, (_, start) in memory.items()}
    for operand in task.operands:
        touched = places[operand.name] + operand.dtype.itemsize * elements_of(operand)
        (writable if operand.name in outputs else readable).append(touched)
    places[FAULT] = fault.ctypes.data
    packed = {name: packing.pack(memory[name][1]) for name, packing in kernel.packed}
    places |= {name: _address(array) for name, array in packed.items()}
    readable += [_elements(array) for array in packed.values()]
    scratch = np.full(max(1, kernel.scratch_bytes // 4), np.nan, np.float32)
    places[SCRATCH] = _address(scratch)
    for number, one in enumerate(
        (kernel, *kernel.then)
    ):  # the first writes the working memory, those behind it read it
        watch.readable = _sorted([*readable, *([_elements(scratch)] if number else [])])
        watch.writable = _sorted([*writable, *([] if number else [_elements(scratch)])])
        pointers = [_Pointer(places[name], kind) for name, kind in zip(one.arguments, one.types, strict=True)]
        with _interpreting(), np.errstate(all="ignore"):
            function_of(one, folder)[one.grid](*pointers)
    found = {}
    for operand in task.operands:
        start = memory[operand.name][1]
        elements = elements_of(operand)
        if operand.name in outputs:
            found[operand.name] = (
                start[elements].reshape(operand.shape) if elements.size else np.zeros(operand.shape, start.dtype)
            )
    return found, fault


def _elements(array: np.ndarray) -> np.ndarray:
    """The addresses of all elements."""
    return _address(array) + array.itemsize * np.arange(array.size)


def _sorted(addresses: list[np.ndarray]) -> np.ndarray:
    return np.unique(np.concatenate(addresses or [np.zeros(0)])).astype(np.uint64)


def _address(start: np.ndarray) -> int:
    address: int = start.ctypes.data
    return address


def expected(task: Task, contents: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What `ops.interpret` makes of a task without anchor; elements that no store writes are as in `guarded`."""
    memory = {o.name: guarded(o, contents.get(o.name)) for o in task.operands}
    with np.errstate(all="ignore"):
        interpret_task(task, {o.name: memory[o.name][1][o.offset :] for o in task.operands})
    outputs = {store.operand for store in task.stores}
    return {o.name: memory[o.name][1][elements_of(o)].reshape(o.shape) for o in task.operands if o.name in outputs}


TOLERANCES = {2: 1e-2, 4: 4e-6, 8: 1e-13}


def compare(found: np.ndarray, wanted: np.ndarray, times: float = 1.0) -> None:
    """Integers and places of NaN and infinity are equal; floats are near."""
    if wanted.dtype.kind in "biu" or wanted.dtype.itemsize == 1:
        np.testing.assert_array_equal(found, wanted)
        return
    tolerance = times * TOLERANCES[wanted.dtype.itemsize]
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


def check(kernel: GpuKernel, task: Task, contents: Mapping[str, np.ndarray], folder: Path, times: float = 1.0) -> None:
    """A kernel computes what the task says, and touches nothing else."""
    found, _ = launch(kernel, task, contents, folder)
    for name, wanted in expected(task, contents).items():
        compare(found[name], wanted, times)


def size_of(operand: Operand) -> int:
    """Elements of an operand."""
    return math.prod(operand.shape)
