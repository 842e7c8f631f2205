"""`fusewise bench`: a model here and in other runtimes, compared fairly."""

from __future__ import annotations

import json as text
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusewise.cli.options import (
    Cache,
    Device,
    Disable,
    Exact,
    Exported,
    Fusion,
    Json,
    ModelName,
    Precision,
    Sanitize,
    Seed,
    Shapes,
    Specialize,
    Symbols,
    Threads,
    Tune,
    Values,
    check_folder,
    check_for_cpu,
    model_of,
    options_of,
    sizes_of,
)
from fusewise.cli.reports import ReportFile, check_report, write_report
from fusewise.cli.streams import note
from fusewise.errors import UsageError
from fusewise.files import write_text
from fusewise.words import MIB, sizes_text

if TYPE_CHECKING:
    from fusewise.ir.graph import Graph

__all__ = ["bench"]

Versus = Annotated[
    str | None,
    typer.Option(
        "--vs",
        metavar="NAMES",
        help="Runtimes, comma-separated: onnxruntime, openvino, for file.py:NAME also torch and torch.compile, with --device cuda"
        " onnxruntime-cuda and tensorrt; or none. Where nobody says: onnxruntime, or onnxruntime-cuda.",
    ),
]
Runs = Annotated[int, typer.Option("--runs", min=1, help="At least so many timed runs of each runtime.")]
Seconds = Annotated[float, typer.Option("--seconds", min=0.0, help="At least so many timed seconds of each runtime.")]
Batch = Annotated[
    int | None,
    typer.Option("--batch", min=1, help="Samples in each input; a fixed batch is rewritten where shapes follow."),
]
Profile = Annotated[bool, typer.Option("--profile", help="Print where the time goes: a roofline of every group.")]
TraceFile = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE.json", help="Write one run's kernels, worker by worker, for Perfetto."),
]
Memory = Annotated[
    bool, typer.Option("--memory", help="Count memory accesses and cache misses too, without and with fusion.")
]
Caches = Annotated[
    str | None,
    typer.Option(
        "--caches", metavar="LEVELS", help="With --memory: other caches than this machine's, as 64K:4,512K:8,4M:16."
    ),
]
Weigh = Annotated[bool, typer.Option("--weigh/--no-weigh", help="Measure load time and peak memory too.")]


def bench(
    context: typer.Context,
    model: ModelName,
    vs: Versus = None,
    exported: Exported = False,
    shape: Shapes = None,
    symbol: Symbols = None,
    value: Values = None,
    batch: Batch = None,
    threads: Threads = None,
    runs: Runs = 50,
    seconds: Seconds = 3.0,
    weigh: Weigh = True,
    profile: Profile = False,
    trace: TraceFile = None,
    memory: Memory = False,
    caches: Caches = None,
    seed: Seed = 0,
    exact: Exact = False,
    disable: Disable = None,
    fusion: Fusion = "dnnfusion",
    precision: Precision = "float32",
    device: Device = "cpu",
    tune: Tune = 0.0,
    sanitize: Sanitize = False,
    specialize: Specialize = 0,
    cache: Cache = True,
    report: ReportFile = None,
    json: Json = False,
) -> None:
    """Time MODEL here and in other runtimes, in turn, on the same inputs and threads."""
    from fusewise import api
    from fusewise.benchmarking.batch import batched
    from fusewise.benchmarking.caches import parsed_levels
    from fusewise.benchmarking.timing import TimingBudget
    from fusewise.cli.show import print_json, progress

    context.params["symbol"], sizes = sizes_of(symbol)
    options = options_of(context)
    _check_sizes(bool(sizes), profile or trace is not None or memory or bool(caches))
    check_folder(trace)
    check_report(report)
    check_for_cpu(device, trace=trace, memory=memory, caches=caches)
    levels = None if caches is None else parsed_levels(caches)
    peers, alone = _peers(vs, device)
    with progress() as tell, _module(model_of(model, exported), peers, device) as (subject, program):
        if batch is not None:
            subject, symbols = batched(subject, batch)
            options = replace(options, symbols={**options.symbols, **symbols})
        counting = partial(_counted, subject, options, seed, levels, seconds) if memory or levels else None
        found = api.bench(
            subject,
            options,
            against=peers,
            seed=seed,
            budget=TimingBudget(runs=runs, seconds=seconds),
            weigh=weigh,
            program=program,
            sizes=sizes,
            progress=tell,
        )
        if profile or trace is not None:
            tell("profiling", 1.0)
            figures, events = api.profile(subject, options, seed=seed, tune=0.0)
        if counting is not None:
            found["memory"] = counting(tell)
        document = None if report is None else api.report(subject, options, seed=seed, progress=tell).document
    if alone:
        note(f"compared with nothing: {alone}")
    found["model"] = model
    if trace is not None:
        write_text(trace, text.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
    if profile:
        found["profile"] = figures
    print_json(found) if json else _show(found)
    if report is not None and document is not None:
        from fusewise.reporting.document.bench import bench_part

        write_report(context, report, model, "bench", {**document, "bench": bench_part(found)})


def _check_sizes(are_several: bool, is_looked_into: bool) -> None:
    """Refuses to look into a run of several sizes."""
    if are_several and is_looked_into:
        raise UsageError(
            "several sizes are timed, not looked into: give each symbol one size with --profile, --trace or --memory"
        )


def _peers(vs: str | None, device: str) -> tuple[tuple[str, ...], str]:
    """The names that `--vs` has, or the usual ones, and why there are none of these."""
    from fusewise.benchmarking.peers import usual_peers

    if vs is not None:
        return tuple(name.strip() for name in vs.split(",") if name.strip() not in ("", "none")), ""
    return usual_peers(device)


@contextmanager
def _module(model: str, peers: Sequence[str], device: str) -> Iterator[tuple[Graph | str, Path | None]]:
    """MODEL, of a module in a file the graph, and the same module as a file for peers that run modules; None where none does.

    `UsageError` where there is such a peer, and MODEL is no module.
    """
    from fusewise.benchmarking.peers import peers_named
    from fusewise.frontend.torch_file import graph_in, is_module_name

    needy = [peer.name for peer in peers_named(tuple(peers), device) if peer.needs_program]
    if not is_module_name(model):
        if needy:
            raise UsageError(
                f"{needy[0]} runs PyTorch modules: name one as file.py:NAME, or leave {needy[0]} out of --vs"
            )
        yield model, None
        return
    with TemporaryDirectory(prefix="fusewise-bench-") as folder:
        path = Path(folder) / "program.pt2" if needy else None
        yield graph_in(model, path), path


def _counted(subject: Any, options: Any, seed: int, levels: Any, seconds: float, progress: Any) -> dict[str, Any]:
    """What `counting.compared` finds: without fusion, and as the options say."""
    from fusewise import api
    from fusewise.counting import Variant, compared
    from fusewise.frontend.given import sized_at

    stated = {"shapes": options.shapes, "symbols": options.symbols, "values": options.values}
    graph = sized_at(api.load(subject, **stated, free=True), {})
    given = Variant(options.fusion, tuple(options.disable), options.exact, options.precision)
    variants = {"without fusion": replace(given, fusion="none"), "with fusion": given}
    return compared(
        graph, variants, threads=options.threads, levels=levels, seconds=seconds, seed=seed, progress=progress
    )


def _show(found: dict[str, Any]) -> None:
    _show_sizes(found) if "sizes" in found else _show_one(found)
    if "profile" in found:
        _show_roofline(found["profile"])
    if "memory" in found:
        _show_memory(found["memory"])


def _show_sizes(found: dict[str, Any]) -> None:
    """A row for each tuple of sizes: what all runtimes take, and how they compare."""
    from fusewise.cli.show import table

    names = list(dict.fromkeys(name for each in found["sizes"] for name in each["runtimes"]))
    rows = []
    for each in found["sizes"]:
        times = [_median(each["runtimes"].get(name, {})) for name in names]
        ratio = "-" if each["ratio"] is None else f"{each['ratio']:.2f} x {each['best_peer']}"
        error = "-" if each["max_rel_error"] is None else f"{each['max_rel_error']:.1e}"
        rows.append((sizes_text(each["symbols"]), *times, ratio, error))
    headings = ("sizes", *(f"{name} ms" for name in names), "speed", "difference")
    table(headings, rows, title=_title(found))


def _title(found: dict[str, Any]) -> str:
    where = [found["device"]] if "device" in found else []
    return ", ".join((found["model"], found["precision"], *where, _threads(found["threads"])))


def _threads(number: int) -> str:
    return "1 thread" if number == 1 else f"{number} threads"


def _median(row: dict[str, Any]) -> str:
    return "cannot" if "error" in row else _ms(row["p50_ms"]) if row else "-"


def _ms(milliseconds: float) -> str:
    """Two digits after the point, four of what is so short that these would say nothing."""
    return f"{milliseconds:.2f}" if milliseconds >= 0.1 else f"{milliseconds:.4f}"


def _show_one(found: dict[str, Any]) -> None:
    from fusewise.cli.show import sentence, table

    headings = ("runtime", "p50 ms", "p90 ms", "min ms", "compile ms", "load ms", "peak MiB", "difference")
    rows = []
    for name, row in found["runtimes"].items():
        if "error" in row:
            rows.append((name, "cannot", *[""] * (len(headings) - 2)))
            continue
        error = row["max_rel_error"]
        times = [_ms(row[key]) for key in ("p50_ms", "p90_ms", "min_ms")]
        peak = None if row.get("peak_rss_mb") is None else row["peak_rss_mb"] * 1e6 / MIB
        costs = ["-" if cost is None else f"{cost:.0f}" for cost in (row.get("compile_ms"), row.get("load_ms"), peak)]
        rows.append((name, *times, *costs, "-" if error is None else f"{error:.1e}"))
    ranks = (0, 1, 4, 3, 5, 6, 7, 2)
    table(headings, rows, title=_title(found), ranks=ranks)
    for name, row in found["runtimes"].items():
        if "error" in row:
            sentence(f"{name} cannot run it: {row['error']}")
    if found["ratio"] is not None:
        verdict = "faster" if found["ratio"] >= 1 else "slower"
        factor = max(found["ratio"], 1 / found["ratio"])
        typer.echo(f"{factor:.2f} x {verdict} than {found['best_peer']} (median of {_runs(found)} runs)")


def _runs(found: dict[str, Any]) -> int:
    return int(found["runtimes"]["fusewise"]["runs"])


def _show_memory(found: dict[str, Any]) -> None:
    """A row for each variant, the groups that miss most, what the processor counted, and what it does not count."""
    from fusewise.cli.show import count, sentence, table
    from fusewise.counting import headings, rows

    levels = ", ".join(f"{level['name']} {level['bytes'] >> 10} KiB" for level in found["caches"])
    table(headings(found), rows(found), title=f"memory, {_threads(found['threads'])}, modelled caches {levels}")
    groups = found["variants"]["with fusion"]["by_group"][:_MOST_GROUPS]
    names = [level["name"] for level in found["caches"]]
    cells = [
        (
            group["operators"][:40],
            f"{group['needed_bytes'] / 1e6:.2f}",
            f"{group['accesses'] / 1e6:.3f}",
            *(f"{group['misses'][name] / 1e3:.1f}" for name in names),
            _named(group["nodes"]),
        )
        for group in groups
    ]
    told = ("group", "needed MB", "accesses M", *(f"{name} misses k" for name in names), "nodes")
    table(told, cells, title="with fusion, the groups that miss most", words=(0, len(told) - 1))
    counters = [row["counters"] for row in found["variants"].values()]
    if counters[0]:
        figures = [(event, *(count(each.get(event)) for each in counters)) for event in counters[0]]
        table(("counted", *found["variants"]), figures, title="the processor's own counters, a run")
    if found["without_counters"]:
        sentence(f"not counted by the processor: {found['without_counters']}")


_MOST_ROWS, _MOST_NAMES, _MOST_GROUPS = 40, 3, 8


def _named(nodes: list[str]) -> str:
    """The first nodes of a group."""
    return ", ".join(nodes[:_MOST_NAMES]) + (" ..." if len(nodes) > _MOST_NAMES else "")


def _level(level: dict[str, Any]) -> str:
    """`L2 118`."""
    return f"{level['name']} {level['gbs']:.3g}"


def _show_roofline(found: dict[str, Any]) -> None:
    """The groups that take longest, equal ones together, each with its share of what the machine can do."""
    from fusewise.benchmarking.roofline import alike
    from fusewise.cli.show import table

    machine, groups = found["machine"], alike(found)
    rows = [
        (
            row["operators"][:40],
            str(row["count"]),
            f"{row['ms']:.{3 if row['ms'] >= 0.1 else 4}f}",
            f"{row['share']:.1%}",
            f"{row['gflops']:.1f}",
            f"{row['gbs']:.1f}",
            f"{row['peak']:.0%} {row['level'] if row['bound'] == 'memory' else row['bound']}",
            ", ".join(kernel.split()[0] for kernel in row["kernels"])[:30],
            _named(row["nodes"]),
        )
        for row in groups[:_MOST_ROWS]
    ]
    where = f"this machine with {_threads(machine['threads'])}"
    title = (
        f"{_ms(found['ms'])} ms, {found['gflops']:.0f} GFLOP/s; {machine.get('device', where)}: "
        f"{machine['gflops']:.0f} GFLOP/s; {', '.join(_level(level) for level in machine['levels'])} GB/s"
    )
    headings = ("group", "count", "ms", "share", "GFLOP/s", "GB/s", "of peak", "kernel", "nodes")
    table(headings, rows, title, words=(0, 6, 7, 8), ranks=(0, 5, 1, 2, 6, 7, 3, 4, 8))
    if len(groups) > _MOST_ROWS:
        typer.echo(f"{len(groups) - _MOST_ROWS} more kinds of groups; --json has every group")
    if machine["disturbed"]:
        typer.echo(machine["disturbed"], err=True)
