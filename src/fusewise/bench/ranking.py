"""Which of several graphs of one model is the fastest, and do they answer alike: run as a whole, in turn, on the same feeds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fusewise.bench.accuracy import worst_error
from fusewise.bench.inputs import random_feeds
from fusewise.bench.peers import Subject, open_onnxruntime, open_openvino
from fusewise.bench.reference import answer
from fusewise.bench.timing import Budget, Timing, race
from fusewise.frontend import onnx_export
from fusewise.frontend.lowest_opset import at_lowest_opset
from fusewise.ir.graph import Graph

__all__ = ["MARGIN", "difference", "ranked", "timed"]

MARGIN = 0.02
"""What another graph must gain on the input: more than timing is good for."""

RANKING = Budget(runs=20, seconds=1.0, limit_seconds=30.0, warmup=2)


def ranked(graphs: Sequence[Graph], runtime: str, threads: int) -> list[int]:
    """The numbers of the graphs, the fastest first. The last is the input: the others must gain `MARGIN` on it.

    Both the shortest run and the median must gain: what else a machine does adds to the one, chance helps the other.
    """
    *others, start = timed(graphs, runtime, threads, RANKING)
    shares = [max(t.min_ms / start.min_ms, t.p50_ms / start.p50_ms) * (1.0 + MARGIN) for t in others]
    return sorted(range(len(graphs)), key=lambda k: shares[k] if k < len(shares) else 1.0)


def timed(graphs: Sequence[Graph], runtime: str, threads: int, budget: Budget) -> tuple[Timing, ...]:
    """The time of each graph in `measured` (this program), `onnxruntime` or `openvino`, runs taken in turn."""
    feeds = random_feeds(graphs[-1], 0)
    with tempfile.TemporaryDirectory(prefix="fusewise-rank-") as folder:
        runs = []
        for k, graph in enumerate(graphs):
            path = Path(folder) / f"{k}.onnx"
            if runtime != "measured":
                onnx_export.save(at_lowest_opset(graph), path)
            runs.append(_run_of(path, graph, runtime, threads))
        return race([lambda run=run: run(feeds) for run in runs], budget)  # type: ignore[misc]


def _run_of(path: Path, graph: Graph, runtime: str, threads: int) -> Callable[[Mapping[str, Any]], object]:
    if runtime == "onnxruntime":
        return open_onnxruntime(Subject(path), threads).run
    if runtime == "openvino":
        return open_openvino(Subject(path), threads).run
    from fusewise.codegen.assemble import generate
    from fusewise.fusion.plan import partition
    from fusewise.passes.pipeline import run as run_passes
    from fusewise.runtime.executable import build
    from fusewise.runtime.host import host_target
    from fusewise.trace import Trace

    trace = Trace()
    program = generate(partition(run_passes(graph), trace), host_target(), trace, workers=threads)
    built = build(program, threads=threads)
    return lambda feeds: built.run(None, dict(feeds))


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
