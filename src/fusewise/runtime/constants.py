"""Constants of a program in memory, as its kernels want them.

Most of a model's load time is here, so panels of float32 and of 16 bits are made by native code on all workers, in one block of
memory; other arrangements are NumPy's work. What lies in a file is read for one constant after the other, and needs memory for one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import reduce
from itertools import accumulate

import numpy as np

from fusewise.codegen.llvm.checked import checked_code
from fusewise.codegen.llvm.pack import ARGUMENTS, CHUNK, PACK_PANELS, PACK_SHORT_PANELS
from fusewise.lower.program import Buffer, KernelCode, Panels
from fusewise.runtime.arena import ALIGNMENT_BYTES, aligned_block, settled
from fusewise.runtime.resident import Resident
from fusewise.runtime.routine import Routine

__all__ = ["alike", "arranged", "filled", "packers_for"]

_FLOAT_BYTES = 4
"""Of an element that `PACK_PANELS` copies; of others, `PACK_SHORT_PANELS`, two."""

_HEAD_BYTES, _COMPARED_BYTES = 256, 1 << 20


def packers_for(buffers: tuple[Buffer, ...], is_checked: bool = False) -> tuple[KernelCode, ...]:
    """The native code that `filled` needs for these buffers."""
    panels = [found for buffer in buffers if (found := _native(buffer)) is not None]
    needed = {code.symbol: code for code in map(_packer, panels)}.values()
    return tuple(checked_code(code) if is_checked else code for code in needed)


def arranged(buffers: tuple[Buffer, ...]) -> dict[int, np.ndarray]:
    """Flat bytes of the constants that need no native code, by buffer number, each on a 64-byte boundary.

    A constant that is used as it is and lies on such a boundary is not copied.
    """
    found: dict[int, np.ndarray] = {}
    for number, buffer in enumerate(buffers):
        if buffer.kind != "constant" or _native(buffer) is not None:
            continue
        if buffer.data is None:
            raise ValueError(f"constant {buffer.value!r} has no data")
        parts = None if buffer.packing is None else buffer.packing.parts
        if parts is not None:
            found[number] = aligned_block(parts.nbytes)
            parts.fill(buffer.data.rows, found[number])
            buffer.data.forget()
            continue
        array = buffer.data.read_once()
        found[number] = settled(array if buffer.packing is None else buffer.packing.pack(array))
    return found


def filled(
    buffers: tuple[Buffer, ...],
    addresses: Mapping[str, int],
    workers: int,
    resident: Resident | None = None,
    is_checked: bool = False,
) -> dict[int, np.ndarray]:
    """The same of those that native code makes; `addresses` has the code by symbol.

    They lie in what is `resident` one behind the other, and from the first that does not fit in one block of memory.
    """
    native = {number: panels for number, buffer in enumerate(buffers) if (panels := _native(buffer)) is not None}
    places = _laid_out([_nbytes(panels) for panels in native.values()], Resident() if resident is None else resident)
    for (number, panels), place in zip(native.items(), places, strict=True):
        data = buffers[number].data
        assert data is not None
        routine = Routine(addresses[_packer(panels).symbol], workers, is_checked)
        source, panels = _straight(data.read_once(), panels)
        _pack(place, source, panels, routine)
    return dict(zip(native, places, strict=True))


def alike(
    buffers: tuple[Buffer, ...],
    addresses: Mapping[str, int],
    known: Collection[np.ndarray],
    go_on: Callable[[], None],
    is_checked: bool = False,
) -> dict[int, np.ndarray]:
    """All constants as `arranged` and `filled` make them, but those that are byte for byte one of `known` are that one.

    They are made one after the other by the calling thread, which calls `go_on` before each.
    """
    named: dict[tuple[int, bytes], list[np.ndarray]] = {}
    for block in known:
        named.setdefault(_head(block), []).append(block)
    found: dict[int, np.ndarray] = {}
    for number, buffer in enumerate(buffers):
        if buffer.kind == "constant":
            go_on()
            made = (arranged((buffer,)) | filled((buffer,), addresses, 1, None, is_checked))[0]
            others = named.setdefault(_head(made), [])
            found[number] = next((block for block in others if _are_equal(block, made)), made)
            if found[number] is made:
                others.append(made)
    return found


def _head(block: np.ndarray) -> tuple[int, bytes]:
    """What tells most blocks apart: size and first bytes."""
    return block.nbytes, block[:_HEAD_BYTES].tobytes()


def _are_equal(block: np.ndarray, other: np.ndarray) -> bool:
    """Are these flat bytes of one size equal? Compared piece by piece, so that it takes no memory."""
    starts = range(0, block.nbytes, _COMPARED_BYTES)
    return all(np.array_equal(block[at : at + _COMPARED_BYTES], other[at : at + _COMPARED_BYTES]) for at in starts)


def _laid_out(sizes: list[int], resident: Resident) -> list[np.ndarray]:
    """Memory of these sizes: as many as fit in what is resident, and the others in one block."""
    ends = [0, *accumulate(-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in sizes)]
    used = max(end for end in ends if end <= resident.left)
    there, rest = resident.take(used), aligned_block(ends[-1] - used)
    return [
        there[start : start + size] if start < used else rest[start - used : start - used + size]
        for start, size in zip(ends[:-1], sizes, strict=True)
    ]


def _native(buffer: Buffer) -> Panels | None:
    panels = None if buffer.packing is None else buffer.packing.panels
    return None if panels is None or panels.run % CHUNK else panels


def _straight(array: np.ndarray, panels: Panels) -> tuple[np.ndarray, Panels]:
    """The elements of a constant as they lie side by side in memory, and the panels of it there: of a matrix that was turned,
    which is taken whole, these are other strides."""
    turned = array.T
    is_turned = array.ndim == 2 and turned.flags.c_contiguous and not array.flags.c_contiguous
    whole = (0, (), ((array.shape[0], array.shape[-1]),), 1) if array.ndim == 2 else ()
    if not is_turned or (panels.offset, panels.outer, panels.depth, panels.column_stride) != whole:
        return np.ascontiguousarray(array), panels
    rows = array.shape[0]
    return turned, replace(panels, depth=((rows, 1),), column_stride=rows)


def _packer(panels: Panels) -> KernelCode:
    return PACK_PANELS if panels.itemsize == _FLOAT_BYTES else PACK_SHORT_PANELS


def _nbytes(panels: Panels) -> int:
    extents = [extent for extent, _ in (*panels.outer, *panels.depth)]
    return int(np.prod(extents, dtype=np.int64)) * len(panels.starts) * panels.run * panels.itemsize


def _pack(target: np.ndarray, source: np.ndarray, panels: Panels, routine: Routine) -> None:
    """One launch of a packer; see `codegen.llvm.pack` for what it reads."""
    outer, depth = _offsets(panels.outer), _offsets(panels.depth)
    columns = np.add.outer(np.array(panels.starts, np.int64), np.arange(panels.run)) * panels.column_stride
    count = len(panels.starts) // panels.runs
    chunks = panels.runs * panels.run // CHUNK
    factors = np.resize(np.array(panels.factors, np.float32), depth.size)
    header = np.array([outer.size, count, depth.size, chunks, panels.column_stride == 1], np.int64)
    arrays = {
        "target": target,
        "source": source,
        "header": header,
        "outer": outer,
        "depth": depth,
        "columns": columns,
        "factors": factors,
    }
    routine.run(ARGUMENTS, arrays, ("target",), {"source": panels.offset * source.itemsize})


def _offsets(axes: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Offsets of all points of these axes, the last one fastest; int64."""
    tables = [np.arange(extent, dtype=np.int64) * stride for extent, stride in axes]
    return reduce(lambda a, b: np.add.outer(a, b).reshape(-1), tables, np.zeros(1, np.int64))
