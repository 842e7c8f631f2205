"""Native code that rearranges constant weights into panels: a function for all shapes of float32, one for all of 16 bits.

A kernel is compiled for one shape, but weights are packed once per load, so these functions take everything as data: tables of
source offsets along the axes of `lower.program.Panels`. They follow the kernels' convention, so they run on the same workers
and their code lies in the same cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from fusewise.codegen.llvm.entry import routine
from fusewise.codegen.llvm.share import Share
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.lower.program import KernelCode

__all__ = ["ARGUMENTS", "CHUNK", "HEADER", "PACK_PANELS", "PACK_SHORT_PANELS"]

ARGUMENTS = ("target", "source", "header", "outer", "depth", "columns", "factors")
"""Pointers the functions take: memory to fill, the constant, `HEADER`, i64 offsets into the constant, and float32 factors of the
depth, which what has 16 bits is not multiplied by."""

HEADER = ("outer", "panels", "depth", "chunks", "adjacent")
"""i64 words: extents of the tables (columns are counted by panel and chunk), and whether the columns of a chunk are neighbours."""

CHUNK = 4
"""Columns that are handled together."""

_BLOCK = 256
"""Steps of the depth gathered for one chunk before the next one: what is read and written stays in the first cache."""

Pointers = Mapping[str, Value]


def _function(name: str, write: Callable[[Function, Pointers, Pointers, Value], None]) -> KernelCode:
    """Deals (outer, panel) pairs to the workers; `write` emits the code of one."""

    def dealt(f: Function, at: Pointers, words: Pointers, share: Share) -> None:
        run = share.run(f, f.mul(words["outer"], words["panels"]))
        f.loop(*run, 1, lambda unit, _: write(f, at, words, unit), rolled=True)

    return routine(name, ARGUMENTS, HEADER, f"{name} by {CHUNK}, 2", dealt)


def _entry(f: Function, table: Value, k: Int) -> Value:
    return f.load("i64", f.at(table, k, "i64"))


def _sources(f: Function, at: Pointers, source: Value, chunk: Int, element: str) -> list[Value]:
    """Where the columns of a chunk begin."""
    columns = [_entry(f, at["columns"], f.add(f.mul(chunk, CHUNK), lane)) for lane in range(CHUNK)]
    return [f.at(source, column, element) for column in columns]


def _gathered(f: Function, sources: list[Value], offset: Value, element: str) -> Value:
    """The elements `offset` after each of `sources`; a mapped file promises no alignment."""
    found = f.unset(vector(element, CHUNK))
    for lane, source in enumerate(sources):
        found = f.insert(found, f.load(element, f.at(source, offset, element), align=1), lane)
    return found


def _copy(element: str, f: Function, at: Pointers, words: Pointers, unit: Value) -> None:
    """target[outer, panel, d, column] = factors[d] * source[outer + depth[d] + columns[panel, column]]."""
    panel = f.urem(unit, words["panels"])
    source = f.at(at["source"], _entry(f, at["outer"], f.udiv(unit, words["panels"])), element)
    width = f.mul(words["chunks"], CHUNK)
    target = f.at(at["target"], f.mul(f.mul(unit, words["depth"]), width), element)
    first = f.mul(panel, words["chunks"])

    def scaled(d: Value, value: Value) -> Value:
        if element != "float":
            return value
        return f.fmul(value, f.splat(f.load("float", f.at(at["factors"], d)), CHUNK))

    def along(low: Int, high: Int, chunk: Value, read: Callable[[Value], Value]) -> None:
        start = f.at(target, f.mul(chunk, CHUNK), element)

        def step(d: Value, _: object) -> None:
            f.store(scaled(d, read(_entry(f, at["depth"], d))), f.at(start, f.mul(d, width), element))

        f.loop(low, high, 1, step, rolled=True)

    def gathered() -> None:
        def block(low: Value, _: object) -> None:
            high = f.minimum(f.add(low, _BLOCK), words["depth"])

            def chunked(chunk: Value, _: object) -> None:
                sources = _sources(f, at, source, f.add(first, chunk), element)
                along(low, high, chunk, lambda offset: _gathered(f, sources, offset, element))

            f.loop(0, words["chunks"], 1, chunked, rolled=True)

        f.loop(0, words["depth"], _BLOCK, block, rolled=True)

    def copied() -> None:
        def step(d: Value, _: object) -> None:
            here = f.at(source, _entry(f, at["depth"], d), element)
            there = f.at(target, f.mul(d, width), element)

            def chunked(chunk: Value, _: object) -> None:
                column = _entry(f, at["columns"], f.mul(f.add(first, chunk), CHUNK))
                value = f.load(vector(element, CHUNK), f.at(here, column, element), align=1)
                f.store(scaled(d, value), f.at(there, f.mul(chunk, CHUNK), element))

            f.loop(0, words["chunks"], 1, chunked, rolled=True)

        f.loop(0, words["depth"], 1, step, rolled=True)

    f.when(f.compare("icmp ne", words["adjacent"], 0), copied, gathered)


PACK_PANELS = _function("pack_panels", partial(_copy, "float"))
"""Copies and scales."""

PACK_SHORT_PANELS = _function("pack_short_panels", partial(_copy, "i16"))
"""Copies what has 16 bits."""
