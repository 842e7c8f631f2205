"""Which of several graphs of one model is the fastest, is it faster than the input beyond doubt, and do they answer alike.

Run as a whole, in turn, on the same feeds. How fast a model runs also depends on where its weights and intermediate results
happen to lie in memory, which stays as it is while a session is open: two sessions of one model may differ by several percent
for good. So a *duel* opens both graphs anew for every round, and counts rounds, not runs.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from fusewise.benchmarking.accuracy import worst_error
from fusewise.benchmarking.inputs import random_feeds
from fusewise.benchmarking.peers import Subject, open_onnxruntime, open_openvino
from fusewise.benchmarking.reference import answer
from fusewise.benchmarking.timing import Timing, TimingBudget, race
from fusewise.errors import UnsupportedModel, UsageError
from fusewise.frontend import onnx_export
from fusewise.frontend.lowest_opset import at_lowest_opset
from fusewise.ir.graph import Graph
from fusewise.lower.program import Program
from fusewise.words import no_such

__all__ = [
    "CONFIDENCE",
    "RUNTIMES",
    "DuelResult",
    "contest",
    "difference",
    "duel",
    "fastest_first",
    "lower_bound",
    "program_opener",
    "settled",
    "timed",
]

RUNTIMES = ("fusewise", "onnxruntime", "openvino")
"""Where a graph can be timed as a whole: in this program, and in others that are installed."""

CONFIDENCE = 0.95
_ROUNDS = 11
_RANKING = TimingBudget(runs=10, seconds=0.2, limit_seconds=20.0, warmup=2)
_ROUND = TimingBudget(runs=20, seconds=0.05, limit_seconds=4.0, warmup=1)

Run = Callable[[Mapping[str, Any]], object]
Open = Callable[[], Run]


@dataclass(frozen=True, slots=True)
class DuelResult:
    """How a duel ended: `speedup` is the median over rounds of the input's time over the other's, `at_least` a bound that
    its true median lies above with `CONFIDENCE`. The input is given up only where that bound is above 1.
    """

    runtime: str
    speedup: float
    at_least: float
    rounds: int

    @property
    def wins(self) -> bool:
        """Is the other graph faster than the input beyond doubt?"""
        return self.at_least > 1.0


def lower_bound(values: Sequence[float], confidence: float = CONFIDENCE) -> float:
    """What the median of the distribution that these were drawn from lies above, with that confidence; 0 if they are too few.

    An order statistic, as in the sign test: of n values fewer than k lie below the median with a probability that is known
    whatever the distribution is, so the kth smallest is the bound for the largest k that is improbable enough.
    """
    n, below, k = len(values), 0.0, 0
    while k < n and below + math.comb(n, k) / 2**n <= 1 - confidence:
        below += math.comb(n, k) / 2**n
        k += 1
    return sorted(values)[k - 1] if k else 0.0


def duel(pair: Callable[[], tuple[float, float]], runtime: str, rounds: int = _ROUNDS) -> DuelResult:
    """The input against another graph; `pair` measures one round: the time of the input and that of the other, taken in turn.

    It ends early when the other cannot win any more, which is no reason to doubt the other outcome.
    """
    ratios: list[float] = []
    while len(ratios) < rounds:
        before, after = pair()
        ratios.append(before / after)
        rest = [math.inf] * (rounds - len(ratios))
        if lower_bound([*ratios, *rest]) <= 1.0:
            break
    return DuelResult(runtime, median(ratios), lower_bound(ratios), len(ratios))


def settled(before: Graph, after: Graph, runtime: str, threads: int) -> DuelResult:
    """The duel of two graphs of one model in a runtime. Raises `UnsupportedModel` when it runs one of them not."""
    with _openers([before, after], runtime, threads) as (first, second):
        return contest(first, second, random_feeds(before, 0), runtime)


def contest(first: Open, second: Open, feeds: Mapping[str, Any], runtime: str) -> DuelResult:
    """The duel of two models on the same feeds, both opened anew for every round, now the one and now the other before."""
    turned = False

    def pair() -> tuple[float, float]:
        nonlocal turned
        turned = not turned
        opened = [second(), first()][::-1] if turned else [first(), second()]
        found = race([partial(run, feeds) for run in opened], _ROUND)
        return found[0].p50_ms, found[1].p50_ms

    return duel(pair, runtime)


def fastest_first(graphs: Sequence[Graph], runtime: str, threads: int) -> list[int]:
    """The numbers of the graphs, that of the shortest median first. Raises what `settled` raises."""
    found = timed(graphs, runtime, threads, _RANKING)
    return sorted(range(len(graphs)), key=lambda k: found[k].p50_ms)


def timed(graphs: Sequence[Graph], runtime: str, threads: int, budget: TimingBudget) -> tuple[Timing, ...]:
    """The time of each graph in one of `RUNTIMES`, runs taken in turn. Raises what `settled` raises."""
    feeds = random_feeds(graphs[-1], 0)
    with _openers(graphs, runtime, threads) as openers:
        return race([partial(opened(), feeds) for opened in openers], budget)


@contextmanager
def _openers(graphs: Sequence[Graph], runtime: str, threads: int) -> Iterator[list[Open]]:
    """What opens each graph, as often as wanted; files and compiled kernels are made once."""
    with tempfile.TemporaryDirectory(prefix="fusewise-rank-") as folder:
        yield [_opener(graph, Path(folder) / f"{k}.onnx", runtime, threads) for k, graph in enumerate(graphs)]


def _opener(graph: Graph, path: Path, runtime: str, threads: int) -> Open:
    if runtime == "fusewise":
        return _our_opener(graph, path.parent / "kernels", threads)
    openers = {"onnxruntime": open_onnxruntime, "openvino": open_openvino}
    if runtime not in openers:
        raise no_such("runtime", runtime, RUNTIMES)
    if find_spec(runtime) is None:
        raise UsageError(f"{runtime} is not installed: pip install 'fusewise[bench]'")
    onnx_export.save(at_lowest_opset(graph), path)

    def opened() -> Run:
        try:
            return openers[runtime](Subject(path), threads).run
        except Exception as error:  # runtimes raise what they like
            reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            raise UnsupportedModel(f"{runtime} does not run this model: {reason[0]}") from None

    return opened


def _our_opener(graph: Graph, kernels: Path, threads: int) -> Open:
    from fusewise.codegen.assemble import generate
    from fusewise.codegen.legalize import legalized
    from fusewise.fusion.plan import partition
    from fusewise.runtime.host import host_target
    from fusewise.trace import Trace

    trace = Trace()
    groups = partition(legalized(graph, host_target(), trace), trace)
    program = generate(groups, host_target(), trace, workers=threads)
    return program_opener(program, kernels, threads)


def program_opener(program: Program, kernels: Path, threads: int | None) -> Open:
    """What opens a program; the folder `kernels` keeps its compiled kernels for the next time."""
    from fusewise.runtime.executable import build

    def opened() -> Run:
        built = build(program, threads=threads, cache=kernels)
        return lambda feeds: built.run(None, dict(feeds))

    return opened


def difference(before: Graph, after: Graph) -> float:
    """The largest relative error of `after` on random inputs, by ONNX Runtime or the reference evaluator."""
    feeds = random_feeds(before, 0)
    with tempfile.TemporaryDirectory(prefix="fusewise-check-") as folder:
        answers = []
        for name, graph in (("before", before), ("after", after)):
            path = Path(folder) / f"{name}.onnx"
            onnx_export.save(at_lowest_opset(graph), path)
            answers.append(answer(path, feeds)[1])
            path.unlink()
    return worst_error(answers[1], answers[0])
