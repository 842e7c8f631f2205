"""A model with free dimensions for a GPU as a compiled file: a program for each sizes, of which cubins and constants are in it
once.

As `runtime.gpu.artefact` has a model of one size: it opens without Triton, and without a GPU, and what it states is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.ir.graph import Constant
from fusewise.lower.program import Program
from fusewise.runtime.gpu.driver import Cubin, Driver
from fusewise.runtime.gpu.program_json import (
    cubin_from_json,
    cubin_to_json,
    gpu_program_from_json,
    gpu_program_to_json,
)
from fusewise.runtime.gpu.runner import GpuContents
from fusewise.runtime.gpu.sized import SizedPrograms, Sizes
from fusewise.runtime.gpu.sound import check_file
from fusewise.runtime.program_json import program_from_json, program_to_json
from fusewise.runtime.sound import is_count, symbol_problems

__all__ = ["PROGRAMS", "sized_from", "sized_stated"]

PROGRAMS = "programs"
"""What is stated of such a model, and of none of one size."""


def sized_stated(programs: SizedPrograms) -> tuple[dict[str, Any], list[dict[str, Any]], list[memoryview]]:
    """What a file states of the programs, of their cubins, and its sections, cubins first."""
    held = programs.contents
    cubins: dict[tuple[str, bytes], Cubin] = {}
    constants: dict[int, Constant] = {}
    for contents in held.values():
        for cubin in contents.cubins or ():
            cubins.setdefault((cubin.symbol, cubin.image), cubin)
        for one in contents.program.buffers:
            if one.kind == "constant" and one.data is not None:
                constants.setdefault(id(one.data), one.data)
    place_of_cubin = {key: number for number, key in enumerate(cubins)}
    place_of_constant = {key: number for number, key in enumerate(constants, len(cubins))}
    stated = {
        "free": program_to_json(programs.program),
        "most": programs.most,
        PROGRAMS: [
            {
                "sizes": list(sizes),
                "program": gpu_program_to_json(contents.program),
                "cubins": [place_of_cubin[one.symbol, one.image] for one in contents.cubins or ()],
                "constants": [
                    [number, place_of_constant[id(one.data)]]
                    for number, one in enumerate(contents.program.buffers)
                    if one.kind == "constant"
                ],
            }
            for sizes, contents in held.items()
        ],
    }
    blocks = [memoryview(one.image) for one in cubins.values()]
    blocks += [np.ascontiguousarray(one.array).data for one in constants.values()]
    return stated, [cubin_to_json(one) for one in cubins.values()], blocks


def sized_from(
    stated: Mapping[str, Any],
    figures: Sequence[Mapping[str, Any]],
    sections: Sequence[memoryview],
    opener: Callable[[str], Callable[[], Driver]],
) -> SizedPrograms:
    """The programs of a file; `opener` gives what opens the device, by the architecture that they are for.

    `LookupError`, `TypeError` or `ValueError` for what is none, or does not fit together.
    """
    cubins = [cubin_from_json(dict(one), bytes(image)) for one, image in zip(figures, sections, strict=False)]
    constants = [Constant(np.frombuffer(one, np.uint8)) for one in sections[len(figures) :]]
    if len(cubins) < len(figures) or not is_count(stated["most"]) or not stated["most"]:
        raise ValueError("it has no place for its programs")
    free = program_from_json(stated["free"])
    for problem in _problems(free):
        raise ValueError(problem)
    found: dict[Sizes, GpuContents] = {}
    for one in stated[PROGRAMS]:
        sizes = tuple(one["sizes"])
        if not all(map(is_count, sizes)) or sizes in found:
            raise ValueError(f"it has a program for {sizes!r}")
        found[sizes] = _contents(one, cubins, constants, len(figures))
    if not found:
        raise ValueError("it has no program")
    device = next(iter(found.values())).program.device
    return SizedPrograms(free, found, opener(device), stated["most"])


def _contents(
    stated: Mapping[str, Any], cubins: Sequence[Cubin], constants: Sequence[Constant], first: int
) -> GpuContents:
    """One program; `first` is the number of the section that is the first constant."""
    numbers, places = list(stated["cubins"]), [(number, place) for number, place in stated["constants"]]
    if not all(is_count(one) and one < len(cubins) for one in numbers):
        raise ValueError("a program has a cubin that the file has not")
    if not all(is_count(place) and first <= place < first + len(constants) for _, place in places):
        raise ValueError("a program has a constant that the file has not")
    own = {number: constants[place - first] for number, place in places}
    if len(own) != len(places):
        raise ValueError("a program has a constant twice")
    program = gpu_program_from_json(stated["program"], own)
    chosen = tuple(cubins[number] for number in numbers)
    check_file(program, chosen, {number: one.array.nbytes for number, one in own.items()})
    return GpuContents(program, chosen)


def _problems(free: Program) -> Iterator[str]:
    """What is wrong with the ports of a model, its symbols, and what must hold of them."""
    yield from symbol_problems(free)
    if not free.symbols:
        yield "it has several sizes, and no free dimensions"
    if free.steps or free.buffers or free.growth is not None or any(port.contents for port in free.inputs):
        yield "it has a program for all sizes, which no GPU runs"
    if not all(isinstance(port.name, str) for port in (*free.inputs, *free.outputs)):
        yield "its inputs and outputs have no names"
