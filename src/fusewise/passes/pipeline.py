"""The clean-up and what comes behind it, as lists of passes, and running such a list until nothing changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from fusewise.ir.graph import Graph
from fusewise.passes.catalogue import CATALOGUE
from fusewise.passes.expand_undefined import expand_undefined
from fusewise.passes.fold_batch_norm import lower_batch_norm
from fusewise.passes.mixed_precision import mixed_precision
from fusewise.passes.own_weights import own_weights
from fusewise.passes.recognise_attention import recognise_attention
from fusewise.passes.recognise_group_norm import recognise_group_norm
from fusewise.passes.runner import MOST_ROUNDS, Pass, PassStep, Runner
from fusewise.passes.scale_by_column import scale_by_column
from fusewise.passes.scale_samples import scale_samples
from fusewise.passes.short_weights import halved_weights
from fusewise.passes.split_wide import split_wide
from fusewise.passes.unroll_recurrences import unroll_recurrences
from fusewise.passes.write_out import write_out
from fusewise.trace import Trace

__all__ = ["CLEAN", "DEFINED", "MOST_ROUNDS", "PORTABLE", "PRECISIONS", "Pass", "run"]

CLEAN: tuple[Pass, ...] = tuple(row.function for row in CATALOGUE)
"""The clean-up passes in their usual order: what uncovers work for others comes first."""

_NATIVE_ONLY = (recognise_attention, recognise_group_norm, lower_batch_norm)

PORTABLE: tuple[Pass, ...] = tuple(step for step in CLEAN if step not in _NATIVE_ONLY)
"""The clean-up passes for other runtimes. ONNX Runtime has no Attention with a mask that is broadcast, and finds its own; it is no
faster with group normalisation as one node; and it runs a batch normalisation that is left over faster than the product and the
sum."""

DEFINED: tuple[Pass, ...] = (write_out, expand_undefined, scale_samples, split_wide, scale_by_column, own_weights)
"""The passes after which as much as can be has native code, whatever the precision."""

PRECISIONS: Mapping[str, tuple[Pass, ...]] = MappingProxyType(
    {"float32": (), "float16": (halved_weights,), "bfloat16": (unroll_recurrences, mixed_precision)}
)
"""The passes behind the others that bring a graph of float32 to a precision."""

Clock = Callable[[], float]

_STEPS: Mapping[Pass, PassStep] = MappingProxyType({row.function: row for row in CATALOGUE})


def run(
    graph: Graph,
    passes: Sequence[Pass] = CLEAN,
    trace: Trace | None = None,
    *,
    verify: bool = True,
    exact: bool = False,
    clock: Clock = time.perf_counter,
) -> Graph:
    """The graph after `passes`, repeated until a whole round changes nothing (at most `MOST_ROUNDS` rounds).

    Late passes wait for a round in which the others changed nothing.
    `exact` leaves out passes that may change a rounding; passes not in the catalogue count as such. Passes whose name is in
    `trace.disabled` are left out too. Every pass leaves an event of kind `pass` with the number of nodes before and after
    and its time. With `verify` each new graph is checked; `BrokenGraph` names the pass that broke it.
    """
    steps = [
        _STEPS.get(one) or PassStep(getattr(one, "__name__", str(one)), one, "", "reassociating") for one in passes
    ]
    runner = Runner(Trace() if trace is None else trace, clock, check=verify)
    return runner.settled(graph, [step for step in steps if not exact or step.numeric_class == "exact"])
