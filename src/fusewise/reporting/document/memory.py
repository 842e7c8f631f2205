"""Memory as a part of the document: what lies in the arena step by step, and how long each buffer is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fusewise.ir.deciding import hint
from fusewise.lower.program import SIZES, Buffer, HostStep, NativeStep, Program, StepVersions

__all__ = ["memory_part"]

Use = tuple[int, str, bool]
"""A buffer by number, the value that a step finds there, and whether it is written."""


def memory_part(program: Program, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes of the arena in use at each step, and every buffer: the `value` that it is called by (empty for working memory), all
    `values` that lie there, and the steps from the `first` to the `last` that use it, where two that are run strip by strip are
    one moment. Of a program with free dimensions for the sizes to plan for; `offset` is None where it is not planned."""
    uses = [list(_uses(step)) for step in program.steps]
    alive: dict[int, tuple[int, int]] = {}
    values: dict[int, dict[str, None]] = {}
    for number, step in enumerate(uses):
        begin, end = _together_with(program, number)
        for buffer, value, written in step:
            first, last = alive.get(buffer, (begin, end))
            alive[buffer] = min(first, begin), max(last, end)
            if value and (written or program.buffers[buffer].kind != "arena"):
                values.setdefault(buffer, {})[value] = None
    buffers = [
        _buffer(program.buffers[number], list(values.get(number, ())), first, last)
        for number, (first, last) in alive.items()
    ]
    return {
        "arena_bytes": program.arena_bytes,
        "constant_bytes": summary.get("constant_bytes"),
        "steps": _occupied(program, alive),
        "buffers": buffers,
    }


def _together_with(program: Program, number: int) -> tuple[int, int]:
    """The first and the last of the steps that run together with this one."""
    for first in (number - 1, number):
        step = program.steps[first] if first >= 0 else None
        if isinstance(step, NativeStep) and step.strips:
            return first, first + 1
    return number, number


def _uses(step: NativeStep | StepVersions | HostStep) -> Iterable[Use]:
    """What a step touches, in all its versions."""
    if isinstance(step, HostStep):
        for operands, written in ((step.reads, False), (step.writes, True)):
            yield from ((place.buffer, value, written) for value, place, _ in operands if place is not None)
        return
    for one in [step] if isinstance(step, NativeStep) else [version for _, version in step.versions]:
        for place, (value, written) in zip(one.arguments, one.touched, strict=True):
            if place.buffer != SIZES:
                yield place.buffer, value, written


def _buffer(buffer: Buffer, values: list[str], first: int, last: int) -> dict[str, Any]:
    is_planned = buffer.kind == "arena" and buffer.place < 0
    named = values[0] if values else buffer.value
    return {
        "value": named,
        "values": values,
        "kind": buffer.kind,
        "offset": buffer.offset if is_planned else None,
        "bytes": int(hint(buffer.nbytes)),
        "first": first,
        "last": last,
    }


def _occupied(program: Program, alive: Mapping[int, tuple[int, int]]) -> list[dict[str, int]]:
    """The bytes of the arena that hold something at each step; what shares a place counts once."""
    begin: dict[int, list[int]] = {}
    for number, (first, _) in alive.items():
        if program.buffers[number].kind == "arena":
            begin.setdefault(first, []).append(number)
    found: list[dict[str, int]] = []
    held: list[int] = []
    for step in range(len(program.steps)):
        held = [number for number in held if alive[number][1] >= step] + begin.get(step, [])
        found.append({"step": step, "live_bytes": _together([program.buffers[number] for number in held])})
    return found


def _together(buffers: Sequence[Buffer]) -> int:
    """Bytes of buffers, some of which may overlap."""
    total, end = 0, 0
    places: dict[int, int] = {}
    for one in sorted(buffers, key=lambda one: one.offset):
        nbytes = int(hint(one.nbytes))
        if one.place >= 0:
            places[one.place] = max(places.get(one.place, 0), nbytes)
            continue
        begin = max(end, one.offset)
        end = max(end, one.offset + nbytes)
        total += max(0, end - begin)
    return total + sum(places.values())
