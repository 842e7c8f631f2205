"""A compiled graph as PyTorch calls it: tensors in, tensors out, and parameters constants while they stay what they are."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np

from fusewise import api
from fusewise.dynamo.captured import Capture, Returned
from fusewise.errors import UnsupportedModel
from fusewise.ir.graph import Constant
from fusewise.options import Options
from fusewise.records import record
from fusewise.tensors import array_of, tensor_of

__all__ = ["CompiledCapture"]

_MOST_CHANGES = 3
"""A parameter or buffer that changed so often between calls is an input from then on."""

_MOST_PROGRAMS = 64
"""So many sets of parameters are compiled for, as layers have that share a graph; then all are inputs."""


_State = tuple[int, int]
"""How often a tensor has been written to, and where its elements lie."""


@record(frozen=True)
class _Program:
    """A compiled model, the names of its inputs with the values that they read, and the tensors that are constants in it: the
    `states` that they were in, and a reference to each that does not keep it alive."""

    model: api.Model
    feeds: tuple[tuple[str, int], ...]
    states: tuple[_State, ...]
    tensors: tuple[weakref.ref[Any], ...]


class CompiledCapture:
    """Called with one list of arguments, which it empties, as AOTAutograd has it.

    What is compiled is compiled when it is first called. Where that fails `left` is told why, once, and `eager` does the work from
    then on.
    """

    _boxed_call = True

    def __init__(
        self, source: Capture, options: Options, eager: Callable[..., Any], left: Callable[[Exception], None]
    ) -> None:
        self._source = source
        self._options = options
        self._eager = eager
        self._left = left
        self._is_left = False
        self._fixed = [place for place in source.reads if place in source.fixed]
        self._programs: dict[tuple[int, ...], _Program] = {}
        self._changes: Counter[int] = Counter()
        self._made = 0
        self._lock = Lock()

    def __call__(self, arguments: list[Any]) -> Any:
        if self._is_left:
            return self._eager(*arguments)
        values = [*arguments, *self._source.own]
        fixed = [values[place] for place in self._fixed]
        program = self._programs.get(tuple(map(id, fixed)))
        if program is None or program.states != tuple(map(_state, fixed)):
            program = self._compiled(values)
            if program is None:
                return self._eager(*arguments)
        arguments.clear()
        feeds = {name: _fed(values[place]) for name, place in program.feeds}
        arrays = program.model.run(None, feeds)
        return [_given(result, arrays, values) for result in self._source.results]

    def _compiled(self, values: Sequence[Any]) -> _Program | None:
        """A program for these values; None where there is none, now and later."""
        with self._lock:
            fixed = [values[place] for place in self._fixed]
            key, states = tuple(map(id, fixed)), tuple(map(_state, fixed))
            known = self._programs.pop(key, None)
            if known is not None and known.states == states:  # by another thread
                self._programs[key] = known
                return known
            if known is not None:
                pairs = zip(self._fixed, known.states, states, strict=True)
                self._changes.update(place for place, before, now in pairs if before != now)
            self._release(values)
            try:
                program = self._made_of(values)
            except Exception as error:  # whatever it is, PyTorch can do this graph
                self._is_left = True
                self._left(error)
                return None
            self._made += 1
            self._programs[tuple(id(values[place]) for place in self._fixed)] = program
            return program

    def _release(self, values: Sequence[Any]) -> None:
        """Take for inputs what does not stay as it is, or does not tell; programs that have them as constants go."""
        many = self._made >= _MOST_PROGRAMS
        lasting = [
            place
            for place in self._fixed
            if not many and self._changes[place] < _MOST_CHANGES and not values[place].is_inference()
        ]
        if len(lasting) < len(self._fixed):
            self._fixed = lasting
            self._programs.clear()

    def _made_of(self, values: Sequence[Any]) -> _Program:
        graph, fixed = self._source.graph, [values[place] for place in self._fixed]
        states = tuple(
            map(_state, fixed)
        )  # before anything is read: what is written to meanwhile is compiled for again
        ports = list(zip(graph.inputs, self._source.reads, strict=True))
        held = set(self._fixed)
        constants = {
            name: Constant(np.asarray(array_of(values[place]), order="C")) for name, place in ports if place in held
        }
        rest = tuple((name, place) for name, place in ports if place not in held)
        bound = graph.replace(inputs=tuple(name for name, _ in rest), constants={**graph.constants, **constants})
        symbols = self._source.symbols
        if symbols and self._options.on_gpu:
            free = ", ".join(symbols)
            raise UnsupportedModel(
                f"its sizes {free} are free, and graphs are compiled for a GPU at known sizes alone: "
                "say dynamic=False to torch.compile"
            )
        options = replace(self._options, symbols=symbols, tune=0.0 if symbols else self._options.tune)
        key, programs = tuple(map(id, fixed)), weakref.ref(self)

        def gone(_: Any) -> None:
            owner = programs()
            if owner is not None:
                owner._programs.pop(key, None)

        return _Program(
            model=api.compile(bound, options),
            feeds=rest,
            states=states,
            tensors=tuple(weakref.ref(tensor, gone) for tensor in fixed),
        )


def _state(tensor: Any) -> _State:
    """What changes with a tensor's contents: -1 for how often one was written to that was made under inference mode, which does not
    tell; where elements lie is another place when `tensor.data` is set."""
    return -1 if tensor.is_inference() else int(tensor._version), tensor.data_ptr()


def _fed(value: Any) -> np.ndarray:
    """What PyTorch hands over as an array: a tensor in place, a size as a number."""
    return np.array(value, np.int64) if isinstance(value, int) else array_of(value)


def _given(result: Returned, arrays: Sequence[np.ndarray], values: Sequence[Any]) -> Any:
    if result.computed is None:
        return result.known if result.given is None else values[result.given]
    array = arrays[result.computed]
    if result.is_size:
        return int(array)
    tensor = tensor_of(array)
    if result.order is not None:
        tensor = tensor.permute(sorted(range(len(result.order)), key=result.order.__getitem__))
    return tensor if result.strides is None else _strided(tensor, result.strides)


def _strided(tensor: Any, strides: tuple[int, ...]) -> Any:
    """A tensor with other strides: in place where these say the same of memory, and else a copy."""
    import torch

    same = zip(tensor.shape, tensor.stride(), strides, strict=True)
    if all(size == 1 or have == want for size, have, want in same):
        return tensor.as_strided(tensor.shape, strides)
    made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype)
    once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)
    made[once] = tensor[once]
    return made
