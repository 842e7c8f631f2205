"""The same models on any machine: what each takes here and in other runtimes; and the machines side by side.

    python -m benchmarks.portability [MODEL ...] [--machine avx2] [--vs onnxruntime,openvino] [--threads N] [--json FILE]
    python -m benchmarks.portability --show FILE... [--fastest] [--svg FILE]

A run writes one file for a machine: the processor, its features, and for every model the time here and in every runtime that is
installed, taken in turn as `fusewise bench` does. A model is a zoo name or one of `benchmarks.beyond_zoo`, which come from PyTorch
modules, so that `torch.compile` runs them too. With `--machine` the compiler is held to a generic machine that this one can stand
for (avx512, avx2, sse2); the other runtimes are not, and use all there is. `--show` prints the files that it is given as one table,
a column for each machine, and draws them. Run it from the root of the repository, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.page import data_of
from tests.held.sitecustomize import MACHINES, hold

from fusewise.benchmarking.peers import PEERS, peers_named
from fusewise.errors import FusewiseError, UsageError
from fusewise.reporting.charts import svg
from fusewise.reporting.charts.panels import grouped_bars

if TYPE_CHECKING:  # what describes the machine is imported once it is settled which
    from fusewise.benchmarking.timing import TimingBudget

DEFAULT = ("mobilenet_v2", "efficientnet_b0", "yolo_v4", "tinybert", "gpt2")
FIGURES = ("p50", "min")
"""Medians, and the fastest runs, which other programs on the machine disturb least."""

KIND = "fusewise portability 1"
"""What a file says that it is."""


def installed() -> tuple[str, ...]:
    """The runtimes that can be compared with here, PyTorch as compiled."""
    return tuple(peer.name for peer in PEERS if peer.opener and not peer.missing and peer.name != "torch")


def described(threads: int | None, held: str | None) -> dict[str, Any]:
    """This machine: what `benchmarks.zoo` says of it, its features, and what the compiler is held to."""
    from benchmarks.zoo import machine

    from fusewise.runtime.host import host_target

    features = [name[1:] for name in host_target().features.split(",") if name.startswith("+")]
    return {**machine(threads), "cpu": host_target().cpu, "features": features, "held": held}


def measured(name: str, peers: Sequence[str], threads: int | None, budget: TimingBudget) -> dict[str, Any]:
    """The result for one model; an error is a result too."""
    from fusewise import api
    from fusewise.zoo.catalogue import MODELS

    options = api.Options(threads=threads)
    try:
        if any(model.name == name for model in MODELS):
            modules = {peer.name for peer in PEERS if peer.needs_program}
            against = [peer for peer in peers if peer not in modules]
            found = api.bench(f"{api.ZOO}{name}", options, against=against, budget=budget, weigh=False)
        else:
            found = _from_torch(name, options, peers, budget)
    except FusewiseError as error:
        return {"model": name, "error": str(error)}
    runtimes = {runtime: row for runtime, row in found["runtimes"].items() if "error" not in row}
    return {
        "model": name,
        **{key: _beside({runtime: row[f"{key}_ms"] for runtime, row in runtimes.items()}) for key in FIGURES},
        "errors": {runtime: row["error"] for runtime, row in found["runtimes"].items() if "error" in row},
        "max_rel_error": found["max_rel_error"],
    }


def _beside(ms: dict[str, float]) -> dict[str, dict[str, float]]:
    """Milliseconds, and how many times as long as Fusewise every other runtime takes."""
    return {"ms": ms, "ratios": {name: each / ms["fusewise"] for name, each in ms.items() if name != "fusewise"}}


def _from_torch(name: str, options: Any, peers: Sequence[str], budget: TimingBudget) -> dict[str, Any]:
    """A model of `benchmarks.beyond_zoo`, exported as ONNX and as PyTorch's own program."""
    import torch
    from benchmarks.beyond_zoo import ARCHITECTURES, MODULES, made

    from fusewise import api

    if name not in {*ARCHITECTURES, *MODULES}:
        raise UsageError(f"neither the zoo nor benchmarks.beyond_zoo has a model called {name!r}")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # the exporter's own remarks
    with torch.no_grad(), tempfile.TemporaryDirectory(prefix="fusewise-portability-") as folder:
        path, program = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}.pt2"
        module, given = made(name)
        torch.export.save(torch.export.export(module, (given,)), program)
        torch.onnx.export(module, (given,), path, dynamo=True, external_data=False, verbose=False)
        return api.bench(path, options, against=peers, budget=budget, weigh=False, program=program)


# --- side by side ---------------------------------------------------------------------------------------------------------


def read(path: Path) -> dict[str, Any]:
    """A file that a run wrote; `ValueError` says what is wrong with another."""
    found = data_of(path)
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise ValueError(f"{path} was not written by benchmarks.portability: write one on each machine, then show them")
    return found


def heading(machine: dict[str, Any]) -> str:
    """A machine in a few words."""
    held = f", held to {machine['held']}" if machine["held"] else ""
    return f"{machine['processor']} ({machine['cpu']}{held}), {machine['threads']} threads"


def table(files: Sequence[dict[str, Any]], figure: str = "p50") -> str:
    """Markdown: a row for each model, a column for each machine, with our milliseconds and how long others take beside that."""
    models = list(dict.fromkeys(result["model"] for file in files for result in file["results"]))
    heads = [heading(file["machine"]) for file in files]
    lines = [f"| model | {' | '.join(heads)} |", f"| --- | {' | '.join('---' for _ in heads)} |"]
    for model in models:
        cells = [next((_cell(r, figure) for r in file["results"] if r["model"] == model), "") for file in files]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(result: dict[str, Any], figure: str = "p50") -> str:
    if "error" in result:
        return str(result["error"])
    others = [f"{runtime} {ratio:.2f}x" for runtime, ratio in result[figure]["ratios"].items()]
    others += [f"{runtime} cannot run it" for runtime in result["errors"]]
    return ", ".join([f"{result[figure]['ms']['fusewise']:.2f} ms", *others])


def drawing(files: Sequence[dict[str, Any]], figure: str = "p50") -> str:
    """The same as an SVG: a panel for each model, in it a group of bars for each machine."""
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for number, file in enumerate(files, start=1):
        machine = file["machine"]
        words = [
            f"{number}. {machine['processor'][:20]}",
            machine["cpu"],
            f"as {machine['held']}" if machine["held"] else "",
        ]
        name = "\n".join(filter(None, words))
        for result in file["results"]:
            if "error" not in result:
                panels.setdefault(result["model"], {})[name] = {"fusewise": 1.0, **result[figure]["ratios"]}
    return svg(
        grouped_bars(panels, title="Times beside those of Fusewise, machine by machine", up="times as long", mark=1.0)
    )


# --- the command ----------------------------------------------------------------------------------------------------------


def main() -> None:
    """Measure this machine, or show several."""
    parser = argparse.ArgumentParser(description="The same models on any machine, here and in other runtimes.")
    parser.add_argument(
        "models", nargs="*", help=f"zoo names, or of benchmarks.beyond_zoo (default: {' '.join(DEFAULT)})"
    )
    parser.add_argument("--machine", choices=sorted(MACHINES), help="hold the compiler to a generic machine")
    parser.add_argument("--vs", help="runtimes (default: all that are installed)")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path, help="where to write (default: portability-PROCESSOR.json)")
    parser.add_argument("--show", type=Path, nargs="+", metavar="FILE", help="files of runs, to be set side by side")
    parser.add_argument("--fastest", action="store_true", help="with --show: fastest runs in place of medians")
    parser.add_argument("--svg", type=Path, help="with --show: where to draw them")
    given = parser.parse_args()
    if given.show:
        try:
            files = [read(path) for path in given.show]
        except ValueError as error:
            parser.error(str(error))
        figure = "min" if given.fastest else "p50"
        print(table(files, figure))
        if given.svg:
            given.svg.write_text(drawing(files, figure))
        return
    if given.svg:
        parser.error("--svg draws what --show is given")
    if given.machine:
        hold(given.machine, None)
        if not _can_stand_for(given.machine):
            parser.error(f"this machine does not run code for {given.machine}")
    peers = installed() if given.vs is None else tuple(filter(None, given.vs.split(",")))
    try:
        peers_named(peers)
    except FusewiseError as error:
        parser.error(str(error))
    _measure(given, peers)


def _can_stand_for(machine: str) -> bool:
    """Has this processor all that a generic one has?"""
    import llvmlite.binding as llvm
    from tests.machines import NEEDS

    present = {name for name, is_present in llvm.get_host_cpu_features().items() if is_present}
    return present.issuperset(NEEDS[MACHINES[machine]].split())


def _measure(given: argparse.Namespace, peers: Sequence[str]) -> None:
    """Every model on this machine; the file is rewritten after each, so that a long run may be stopped."""
    from fusewise.benchmarking.timing import TimingBudget

    about = described(given.threads, given.machine)
    words = re.sub(r"\W+", "-", "-".join(filter(None, (about["processor"], about["held"])))).strip("-").lower()
    path = given.json or Path(f"portability-{words}.json")
    results: list[dict[str, Any]] = []
    for name in given.models or DEFAULT:
        results.append(measured(name, peers, given.threads, TimingBudget(runs=given.runs, seconds=given.seconds)))
        found = {"kind": KIND, "machine": about, "results": results}
        path.write_text(json.dumps(found, indent=2) + "\n")
        print(f"{name}: {_cell(results[-1])}", file=sys.stderr, flush=True)
    print(table([found]))
    print(f"\nwritten to {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
