"""A decoder's keys and values between its steps: memory with room for so many tokens, to which each run adds in place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np

from fusewise.cards import Card, carded, listed
from fusewise.errors import UsageError
from fusewise.ir.graph import Growing
from fusewise.ir.size import Size, evaluate, symbols_of
from fusewise.ir.types import TensorType
from fusewise.lower.program import Port
from fusewise.runtime.arena import aligned_block
from fusewise.runtime.executable import Executable
from fusewise.runtime.host import check_memory
from fusewise.runtime.sizes import symbol_of
from fusewise.words import size_text

__all__ = ["Cache"]


def _card(cache: Cache) -> Card:
    size = sum(one.nbytes for one in cache._buffers.values())
    return Card(
        f"Cache: {cache.length:,} of {cache.capacity:,} tokens, {size_text(size)}",
        (("holds", listed(f"{name}: {one.dtype}{list(one.shape)}" for name, one in cache._buffers.items())),),
    )


@carded(_card)
class Cache:
    """What is past for one conversation, or a batch of them; of one model there may be any number, independent of each other.

    `capacity` is how many tokens it has room for. Runs of one cache take turns.
    """

    def __init__(self, executable: Executable, capacity: int, batch: int = 1) -> None:
        """Empty. `UsageError` for a capacity or batch that cannot be, `ResourceLimit` where there is no room for it."""
        program = executable.contents.program
        assert program.growth is not None, "a program that was compiled to grow"
        for what, number in (("capacity", capacity), ("batch", batch)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise UsageError(f"the {what} of a cache must be a whole number from 1 on, not {number!r}")
        self.capacity = capacity
        self._executable, self._growth, self._lock, self._length = executable, program.growth, Lock(), 0
        ports = {port.name: port for port in program.inputs}
        past, room = ports[self._growth.counts].contents
        grown = {name for name, _, _ in self._growth.pairs}
        sizes = {str(past): 0, str(room): capacity}
        self._buffers = _buffers([port for port in program.inputs if port.name in grown], sizes, batch)
        self._past = str(past)
        self._where = _where(program.inputs, self._growth, grown)

    @property
    def length(self) -> int:
        """How many tokens are past."""
        return self._length

    def reset(self) -> None:
        """Forget all."""
        self._length = 0

    def truncate(self, length: int) -> None:
        """Forget what comes behind the first `length` tokens. `UsageError` for more than there are."""
        if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length <= self._length:
            raise UsageError(f"a cache that holds {self._length} tokens cannot be cut to {length!r}")
        self._length = length

    def run(self, feeds: Mapping[str, Any], output_names: Sequence[str] | None = None) -> list[Any]:
        """The named outputs (all but what stays here for None), given every input but the past; what is new is past afterwards.

        Raises what `Model.run` raises, and `UsageError` where the cache has no room. Nothing is past then that was not before.
        """
        if not isinstance(feeds, Mapping):
            raise UsageError(
                f"a cache runs with arrays by the names of inputs, which come first, not a {type(feeds).__name__}"
            )
        own = self._buffers.keys() | {self._growth.counts}
        given = sorted(own.intersection(feeds))
        if given:
            raise UsageError(f"the cache holds what is past: leave out input {given[0]!r}")
        with self._lock:
            after = self._after(feeds)
            if after > self.capacity:
                raise UsageError(
                    f"the cache holds {self._length} of {self.capacity} tokens, and {after - self._length} more do not fit: "
                    "use a larger capacity, or cut it"
                )
            counts = np.array([self._length, self.capacity - self._length], np.int64)
            found = self._executable.run(output_names, {**feeds, **self._buffers, self._growth.counts: counts})
            self._length = after
            return found

    def _after(self, feeds: Mapping[str, Any]) -> int:
        """How many tokens are past after a run; as many as now where the inputs do not say, for the run to refuse."""
        values = {self._past: self._length}
        for symbol, (name, axis) in self._where.items():
            shape = getattr(feeds.get(name), "shape", None)
            if shape is None:
                shape = np.shape(feeds[name]) if name in feeds else ()
            if axis >= len(shape):
                return self._length
            values[symbol] = int(shape[axis])
        return int(evaluate(self._growth.after, values))


def _buffers(ports: Sequence[Port], sizes: Mapping[str, int], batch: int) -> dict[str, np.ndarray]:
    """Zeros for every input that grows, by name."""
    shapes: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
    for port in ports:
        kind = port.type
        assert isinstance(kind, TensorType)
        first = symbol_of(kind.dims[0])
        values = {**sizes, **({} if first is None else {first.name: batch})}
        unknown = sorted(
            s.name for dim in kind.dims if isinstance(dim, Size) for s in symbols_of(dim) if s.name not in values
        )
        if unknown:
            raise UsageError(
                f"input {port.name!r} has an unknown dimension {unknown[0]!r}: compile the model for its size"
            )
        if first is None and kind.dims[0] != batch and batch != 1:
            raise UsageError(f"input {port.name!r} is for {kind.dims[0]} samples, not for a batch of {batch}")
        shapes[port.name] = tuple(evaluate(dim, values) for dim in kind.dims), kind.dtype.numpy
    check_memory(sum(math.prod(shape) * dtype.itemsize for shape, dtype in shapes.values()), "the cache")
    return {name: _zeros(shape, dtype) for name, (shape, dtype) in shapes.items()}


def _zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    nbytes = math.prod(shape) * dtype.itemsize
    block = aligned_block(nbytes)
    block.fill(0)
    return block[:nbytes].view(dtype).reshape(shape)


def _where(ports: Sequence[Port], growth: Growing, grown: set[str]) -> dict[str, tuple[str, int]]:
    """Of each symbol that says how many tokens there are after a run, the input of the caller's and the axis that it is."""
    wanted = {s.name for s in symbols_of(growth.after)} if isinstance(growth.after, Size) else set()
    found: dict[str, tuple[str, int]] = {}
    for port in ports:
        if port.name in grown or not isinstance(port.type, TensorType):
            continue
        for axis, dim in enumerate(port.type.shape or ()):
            symbol = symbol_of(dim)
            if symbol is not None and symbol.name in wanted:
                found.setdefault(symbol.name, (port.name, axis))
    return found
