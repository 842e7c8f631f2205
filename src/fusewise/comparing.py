"""Is a model faster here than elsewhere? One comparison as a user asks for it, and what comes of it as the user holds it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusewise.cards import Card, carded, one_line
from fusewise.options import Options, OptionsDict, portable
from fusewise.version import VERSION
from fusewise.words import size_text

if TYPE_CHECKING:
    from fusewise.benchmarking.timing import TimingBudget
    from fusewise.ir.graph import Graph

__all__ = ["Comparison", "ComparisonDict", "ComparisonSettings", "compared"]

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class ComparisonSettings:
    """What to compare with, and how.

    `against`: names of runtimes; None for ONNX Runtime, on a GPU by its CUDA provider where that is installed. Inputs are drawn
    from `seed`. `budget` says how long to time. `program` is the same model saved by `torch.export.save`, which the peers `torch`
    and `torch.compile` need. With `weigh` off, load time and peak memory are not measured. Given values of symbols as `sizes`,
    all runtimes take the model with free dimensions, and each has a row for itself; on a GPU ours has a program for each.
    """

    against: Sequence[str] | None = None
    seed: int = 0
    budget: TimingBudget | None = None
    weigh: bool = True
    program: str | Path | None = None
    sizes: Sequence[Mapping[str, int]] = ()

    def named(self, device: str) -> tuple[str, ...]:
        """The runtimes to compare a model on `device` with."""
        from fusewise.benchmarking.peers import usual_peers

        return usual_peers(device)[0] if self.against is None else tuple(self.against)

    @staticmethod
    def taken_from(settings: Mapping[str, Any]) -> tuple[ComparisonSettings, dict[str, Any]]:
        """The settings among others, and these others; None is what nobody says."""
        own = ComparisonSettings.__dataclass_fields__
        given = {name: value for name, value in settings.items() if name in own and value is not None}
        return ComparisonSettings(**given), {name: value for name, value in settings.items() if name not in own}


class ComparisonDict(OptionsDict, total=False):
    """`ComparisonSettings` and `Options`, given one by one."""

    against: Sequence[str] | None
    seed: int | None
    budget: TimingBudget | None
    weigh: bool | None
    program: str | Path | None
    sizes: Sequence[Mapping[str, int]] | None


def _card(found: Comparison) -> Card:
    threads = found["threads"]
    where = f"{found['device']} and " if "device" in found else ""
    title = (
        f"{one_line(found['model'])} in {found['precision']} on {where}{threads} thread{'' if threads == 1 else 's'}"
    )
    if "sizes" not in found:
        return Card(f"Comparison: {title}: {_ratio(found)}", tuple(_rows(found)))
    rows = [(",".join(f"{k}={v}" for k, v in each["symbols"].items()), _ratio(each)) for each in found["sizes"]]
    return Card(f"Comparison: {title} at {len(rows)} sizes", tuple(rows))


def _ratio(found: Mapping[str, Any]) -> str:
    return (
        "no other runtime" if found["ratio"] is None else f"{found['ratio']:.2f} times as fast as {found['best_peer']}"
    )


def _rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for name, row in found["runtimes"].items():
        if "error" in row:
            rows.append((name, one_line(row["error"], 100)))
            continue
        parts = [f"{row['p50_ms']:.4g} ms (median of {row['runs']:,} runs, 90 % within {row['p90_ms']:.4g} ms)"]
        parts += [] if row["max_rel_error"] is None else [f"differs by {row['max_rel_error']:.1e}"]
        parts += [] if row["peak_rss_mb"] is None else [f"peak {size_text(int(row['peak_rss_mb'] * 1e6))}"]
        rows.append((name, ", ".join(parts)))
    return rows


@carded(_card)
class Comparison(dict[str, Any]):
    """A dictionary, ready to print as JSON, that shows itself in a few lines.

    `model`, `threads`, `precision`, the `device` if it is no CPU, the `machine` as reports have it (processor, system, workers,
    what code may use, caches with their bytes), `made` (the version of Fusewise, the time in UTC), and what
    `benchmarking.contest.contest` gives; for several sizes a row for each under `sizes`, with these values as `symbols`.
    """


def compared(
    source: Any, graph: Graph, name: str, options: Options, settings: ComparisonSettings, progress: Progress
) -> Comparison:
    """Compare with other runtimes: same threads, same inputs, runs taken in turn.

    `source` is what is read where no dimension is left open, `graph` is what was read. Raises `UsageError` for an unknown runtime.
    """
    from fusewise.benchmarking.contest import ContestRules, contest
    from fusewise.benchmarking.inputs import random_feeds
    from fusewise.benchmarking.machine import this_machine
    from fusewise.benchmarking.peers import OURS, Subject, peers_named
    from fusewise.frontend.given import sized_at
    from fusewise.frontend.onnx_export import as_file
    from fusewise.runtime.gpu import drivers
    from fusewise.runtime.host import worker_count

    peers, threads, sizes = (
        peers_named(settings.named(options.device), options.device),
        worker_count(options.threads),
        settings.sizes,
    )
    if options.on_gpu:
        drivers.opened(options.device).close()  # what is missing is told before anything is compiled
    program = None if settings.program is None else Path(settings.program)
    with tempfile.TemporaryDirectory(prefix="fusewise-bench-") as folder:
        path = as_file(source, graph, Path(folder))

        def one(sized: Graph) -> dict[str, Any]:
            is_free = sizes and not options.on_gpu
            stated = {} if is_free else {each: list(sized.tensor(each).dims) for each in graph.inputs}
            subject = Subject(path, graph.inputs, program, portable(options, stated))
            cold = replace(subject, options={**subject.options, "cache": False})
            rules = ContestRules(threads, settings.budget, settings.weigh, cold)
            return contest(OURS, peers, subject, random_feeds(sized, settings.seed), rules, progress)

        rows = [{"symbols": dict(each), **one(sized_at(graph, each))} for each in sizes]
        found = {"sizes": rows} if sizes else one(graph)
    about = {
        "threads": threads,
        "precision": options.precision,
        **({"device": options.device} if options.on_gpu else {}),
        "machine": this_machine(threads),
        "made": {"fusewise": VERSION, "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")},
    }
    return Comparison({"model": name, **about, **found})
