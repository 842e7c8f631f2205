"""From a model as it was given to one that runs on this processor: out of the cache, or planned and compiled now.

What a model can do later, to plan again, to grow, to be specialised, reads it once more and goes the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusewise.compiled import Model, opened
from fusewise.compiling import (
    Progress,
    StageClock,
    frozen,
    key_of,
    not_for_all_sizes,
    planned,
    sized_anyway,
    tell_of_cliff,
)
from fusewise.errors import within_memory
from fusewise.options import Options
from fusewise.runtime.folder import cache_folder, first_only
from fusewise.sources import graph_for, read
from fusewise.trace import Trace
from fusewise.version import VERSION

if TYPE_CHECKING:
    import numpy as np

    from fusewise.ir.graph import Graph
    from fusewise.making import Planned
    from fusewise.reporting.report import Report
    from fusewise.runtime.executable import Executable
    from fusewise.runtime.model_cache import Key, ModelCache
    from fusewise.sources import Source

__all__ = ["cpu_model"]


@dataclass(frozen=True)
class _How:
    """A model as it was given, by which options it is compiled, who is told of decisions, of what is odd and of progress, and since
    when."""

    model: Source
    options: Options
    trace: Trace
    warn: Callable[[str], None]
    clock: StageClock
    begin: float

    @property
    def folder(self) -> Path | None:
        return cache_folder(self.options.cache)

    def bound(self) -> Graph:
        """The graph, read now."""
        return graph_for(self.model, self.options)


def cpu_model(
    model: Source,
    options: Options,
    trace: Trace | None = None,
    progress: Progress | None = None,
    *,
    weights: Collection[np.ndarray] = (),
    look: Callable[[Planned, Trace], None] | None = None,
) -> Model:
    """The model, compiled for this processor. Constants that are byte for byte one of the `weights` are that one. `look` is shown
    what was planned, and the decisions, before machine code is made of it. Raises what `fusewise.compile` does.
    """
    begin, clock = time.perf_counter(), StageClock(progress)
    clock("loading", 0.0)
    from fusewise.runtime.model_cache import ModelCache, describes

    decisions = Trace(disabled=frozenset(options.disable)) if trace is None else trace
    how = _How(model, options, decisions, first_only(options.warn), clock, begin)
    key = None if how.folder is None or trace is not None or weights else key_of(model, options)
    store = None if how.folder is None or key is None else ModelCache(how.folder, how.warn)
    if store is None or key is None:
        return _compiled(how, weights, look)
    kept = _kept(how, store, key)
    if kept is not None:
        return kept

    def keep(built: Executable, notes: Mapping[str, Any]) -> None:
        if describes(key):  # still, now that all files were read
            store.store(key.text, built, notes, VERSION)

    return _compiled(how, weights, look, keep)


def _kept(how: _How, store: ModelCache, key: Key) -> Model | None:
    """What was compiled before and is in the cache; None where nothing is, or something is measured."""
    from fusewise.runtime.model_cache import unchanged

    kept = None if how.options.tune else store.fetch(key.text, VERSION, how.options.threads)
    if kept is None:
        return None
    kept.executable.limit_memory(how.options.memory_limit)
    tell_of_cliff(kept.notes["summary"], how.options)

    def planned_again() -> tuple[Graph, Trace]:
        return planned(how.bound(), how.options, how.trace, how.warn).graph, how.trace

    found = opened(kept, planned_again, how.begin, partial(_once_more, how.model, how.bound, how.options))
    return _with_more(found, lambda: unchanged(key, how.model, how.bound()), how)


def _compiled(
    how: _How,
    weights: Collection[np.ndarray],
    look: Callable[[Planned, Trace], None] | None,
    keep: Callable[[Executable, Mapping[str, Any]], None] | None = None,
) -> Model:
    """The model made now, and given away to be kept."""
    from fusewise.runtime import executable
    from fusewise.runtime.cache import KernelCache
    from fusewise.runtime.collection import uncollected
    from fusewise.runtime.compile import Helpers
    from fusewise.runtime.expected import expected_bytes
    from fusewise.runtime.resident import Resident

    with Helpers() as helpers, Resident(weights) as resident, nullcontext() if how.options.tune else uncollected():
        bound = how.bound()
        helpers.start_for(len(bound.nodes))  # so that they are ready when there is something to compile
        resident.start(expected_bytes(bound))
        how, found = _planned(how, bound)
        if look is not None:
            look(found, how.trace)
        bound = found.bound
        bound.forget()  # what passes have looked at is read again where it is needed
        built = executable.build(
            found.program,
            threads=how.options.threads,
            cache=None if how.folder is None else KernelCache(how.folder, how.warn),
            helpers=helpers,
            resident=resident,
            progress=how.clock,
        )
    built.limit_memory(how.options.memory_limit)
    made = _model(how, found, built)
    if keep is not None:
        keep(built, made.notes)
    found.graph.forget()
    return _with_more(made, lambda: bound, how)


def _planned(how: _How, bound: Graph) -> tuple[_How, Planned]:
    """The program, and how it came to be: for one size only where it cannot be made for all."""
    try:
        return how, planned(bound, how.options, how.trace, how.warn, how.clock)
    except not_for_all_sizes() as error:
        if not bound.symbols or how.options.grow:
            raise
        how.clock("loading", 0.0)
        sized, decisions = replace(how.options, free=False), Trace(disabled=frozenset(how.options.disable))
        how = replace(how, options=sized, trace=decisions)
        bound = sized_anyway(how.bound, sized, error)
    return how, planned(bound, how.options, how.trace, how.warn, how.clock)


def _model(how: _How, found: Planned, built: Executable) -> Model:
    """What was built, with its figures."""
    from fusewise.hosting import summary_of

    graph, bound, trace, program = found.graph, found.bound, how.trace, found.program
    stages = how.clock.stages  # before the whole, of which they are parts
    elapsed = (time.perf_counter() - how.begin) * 1e3
    figures = summary_of(graph, program, found.choice, built.figures, stages, elapsed)
    figures["frozen"] = frozen(partial(read, how.model), bound, how.options)
    tell_of_cliff(figures, how.options)
    choosing = program.figures["host_steps"] or any(node.op == "If" for node in bound.nodes)
    again = partial(_once_more, how.model, lambda: bound, how.options) if choosing else None
    return Model(built, lambda: (graph, trace), figures, None, again)


def _with_more(model: Model, bound: Callable[[], Graph], how: _How) -> Model:
    """The model, which has sizes that keep coming back run by programs of their own, if that is asked for, and can be compiled once
    more to grow in place, on the same weights, or to be reported on."""
    options, trace = how.options, how.trace

    def grown() -> Model:
        weights = tuple(model.executable.contents.constants.values())
        chosen = replace(options, shapes={}, symbols={}, values={}, specialize=0, tune=0, grow=True)
        return cpu_model(bound(), chosen, weights=weights)

    def report_again(times: bool, seed: int) -> Report:
        from fusewise.reporting.report import reported_again

        return reported_again(model, bound(), options, seed if times else None)

    model.grow, model.report_again = grown, report_again
    if options.specialize and model.summary["symbols"] and trace.limit is None:
        from fusewise.specializing import specialist_for

        model.specialist = specialist_for(model.executable, bound, options, trace.disabled)
        model.executable.specialize(model.specialist)
    return model


@within_memory("the model is compiled")
def _once_more(model: Source, bound: Callable[[], Graph], options: Options, apart: bool) -> Model | None:
    """A model compiled again for shapes that follow from its inputs alone; `apart`: whose dimensions of one name need not be equal,
    None for a model that reads all inputs whenever it is run."""
    from fusewise.frontend.free import names_apart
    from fusewise.frontend.infer_types import without_declared

    source = read(model) if apart else None
    if source is not None and not any(node.op == "If" for node in source.nodes):
        return None
    graph = bound() if source is None else graph_for(names_apart(source, frozenset(options.symbols)), options)
    return cpu_model(without_declared(graph), replace(options, shapes={}, symbols={}, values={}, strict=False))
