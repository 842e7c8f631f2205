"""The side of the interpreter's process: launches of kernels over memory that is shared with whoever asks (`runtime.gpu.fake`).

Every load and store is looked at: its bytes have to lie in those that the launch says it reads or writes. Triton's
interpreter has no libdevice, so NumPy's functions stand for it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.errors import FusewiseError
from fusewise.runtime.arena import address_of
from fusewise.runtime.gpu.triton_compile import function_in

__all__ = ["OutsideSpans", "interpreting"]

_NUMPY_NAMES = MappingProxyType(
    {
        **{f"a{name}{h}": f"arc{name}{h}" for name in ("sin", "cos", "tan") for h in ("", "h")},
        "atan2": "arctan2",
        "pow": "power",
        "nearbyint": "rint",
    }
)
"""What NumPy calls a function of libdevice otherwise."""


class OutsideSpans(FusewiseError):
    """A kernel touched what is none of its operands."""


def interpreting(folder: str, descriptor: int, nbytes: int) -> Callable[[dict[str, Any]], tuple[dict[str, Any], bytes]]:
    """The job: run a kernel's `source` over its `grid`, with pointers of these `types` at `arguments`, which are offsets in
    the shared memory of so many bytes. `reads` and `writes` are pairs of offset and bytes."""
    import triton  # noqa: F401  # before what is in it
    from triton.runtime import interpreter

    memory = np.frombuffer(mmap.mmap(descriptor, nbytes), np.uint8)
    watch = _Watch()
    watch.look_at(interpreter.interpreter_builder)
    _mend(interpreter.interpreter_builder)
    known: dict[tuple[str, str], Any] = {}

    def job(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        key = request["symbol"], request["source"]
        if key not in known:
            module = function_in(folder, *key)
            module.libdevice = _Libdevice()  # type: ignore[attr-defined]  # in place of the one that was imported
            known[key] = getattr(module, request["symbol"])
        base, writes = address_of(memory), _laid_out(request["writes"])
        watch.begin(base, _laid_out([*request["reads"], *request["writes"]]), writes)
        pointers = (_Pointer(base + at, kind) for at, kind in zip(request["arguments"], request["types"], strict=True))
        with np.errstate(all="ignore"):
            known[key][tuple(request["grid"])](*pointers)
        return {}, b""

    return job


def _mend(builder: Any) -> None:
    """Have the interpreter do as a GPU does where it does not: it cuts numbers off that a GPU rounds to bfloat16, multiplies tiles
    of it as integers, and gives the answer of a comparison the type of what was compared. It computes whether each sum and product
    of integers overflows, in half of its time, and tells only where it debugs: left out."""
    import ml_dtypes
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    builder.options = replace(builder.options, sanitize_overflow=False)
    plain, dot = builder.cast_impl, builder.create_dot

    def cast(source: Any, kind: Any) -> Any:
        if tl.bfloat16 not in (kind.scalar, source.dtype.scalar):
            return plain(source, kind)
        given = source.data.view(ml_dtypes.bfloat16) if source.dtype.scalar == tl.bfloat16 else source.data
        if kind.scalar == tl.bfloat16:
            return TensorHandle(given.astype(ml_dtypes.bfloat16).view(np.uint16), kind.scalar)
        return TensorHandle(given.astype(_get_np_dtype(kind.scalar)), kind.scalar)

    def answered(compare: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: TensorHandle(compare(*given).data, tl.int1)

    for name in ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc"):
        setattr(builder, f"create_{name}", cast)
    builder.cast_impl = cast

    def wide_dot(left: Any, right: Any, *rest: Any) -> Any:
        return dot(*(cast(x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (left, right)), *rest)

    builder.create_dot = wide_dot
    for name in [name for name in dir(builder) if name.startswith(("create_icmp", "create_fcmp"))]:
        setattr(builder, name, answered(getattr(builder, name)))


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
        """Nothing to do: it is the memory itself."""

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


class _Libdevice:
    """NumPy's functions on the interpreter's tensors, by libdevice's names."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        function = getattr(np, _NUMPY_NAMES.get(name, name))

        def applied(*values: Any) -> Any:
            first = values[0]
            if any(value.type != first.type for value in values) or first.dtype.name not in ("fp32", "fp64"):
                raise TypeError(f"libdevice has no {name} of {', '.join(str(value.type) for value in values)}")
            found = np.asarray(function(*(value.handle.data for value in values)))
            return tl.tensor(TensorHandle(found.astype(first.handle.data.dtype), first.handle.dtype), first.type)

        return applied


Spans = tuple[np.ndarray, np.ndarray]
"""Where ranges begin and end, int64, in order, none touching the next."""


def _laid_out(pairs: Sequence[tuple[int, int]]) -> Spans:
    """Ranges from pairs of offset and bytes."""
    starts, ends = list[int](), list[int]()
    for low, nbytes in sorted(map(tuple, pairs)):
        if starts and low <= ends[-1]:
            ends[-1] = max(ends[-1], low + nbytes)
        else:
            starts.append(low)
            ends.append(low + nbytes)
    return np.array(starts, np.int64), np.array(ends, np.int64)


class _Watch:
    """Looks at every access of the interpreter before it is made."""

    def __init__(self) -> None:
        self._base = 0
        nothing = _laid_out([])
        self._reads, self._writes = nothing, nothing

    def begin(self, base: int, reads: Spans, writes: Spans) -> None:
        self._base, self._reads, self._writes = base, reads, writes

    def look_at(self, builder: Any) -> None:
        """Have the builder's methods ask first."""
        load, store = builder.create_masked_load, builder.create_masked_store
        change, exchange = builder.create_atomic_rmw, builder.create_atomic_cas

        def masked_load(ptrs: Any, mask: Any, *rest: Any) -> Any:
            self._check(ptrs, mask.data, self._reads, "reads")
            return load(ptrs, mask, *rest)

        def masked_store(ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
            self._check(ptrs, mask.data, self._writes, "writes")
            return store(ptrs, value, mask, *rest)

        def atomic_rmw(op: Any, ptr: Any, value: Any, mask: Any, *rest: Any) -> Any:
            self._check(ptr, mask.data, self._writes, "changes")
            return change(op, ptr, value, mask, *rest)

        def atomic_cas(ptr: Any, *rest: Any) -> Any:
            self._check(ptr, np.ones_like(ptr.data, bool), self._writes, "changes")
            return exchange(ptr, *rest)

        builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
        builder.create_atomic_rmw, builder.create_atomic_cas = atomic_rmw, atomic_cas

    def _check(self, pointers: Any, mask: np.ndarray, spans: Spans, does: str) -> None:
        nbytes = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        addresses, wanted = np.broadcast_arrays(pointers.data, mask)
        low = addresses[wanted].astype(np.int64) - self._base
        starts, ends = spans
        at = np.searchsorted(starts, low, side="right") - 1
        inside = at >= 0
        if starts.size:
            inside &= low + nbytes <= ends[at]
            inside &= low % nbytes == 0
        if not inside.all():
            where = int(low[~inside][0])
            raise OutsideSpans(f"it {does} {nbytes} bytes at {where}, which are none of its operands' or lie crooked")
