"""Models of the operators that detectors, flow, masks and speech need, as exporters write them, here and in ONNX Runtime.

    python -m benchmarks.operator_models [NAME ...] [--threads N] [--profile] [--json FILE] [--keep FOLDER]

Weights are random, nothing is downloaded. Prints for every model: seconds to compile, medians in milliseconds taken in turn, the
ratio (above one where ours is faster), the largest difference of answers, and host steps by operator; with `--profile` the
steps that take the time. Run it from the root of the repository with the `torch` and `bench` extras and `transformers`
installed, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from benchmarks.operator_models.build import Build, exported
from benchmarks.operator_models.built import keypoints, long_lstm, raft
from benchmarks.operator_models.exported import deformable_detr, mask2former, rt_detr, speech_encoder, vits
from benchmarks.zoo import machine

from fusewise import api
from fusewise.benchmarking.accuracy import worst_error
from fusewise.benchmarking.roofline import alike
from fusewise.benchmarking.timing import TimingBudget, race

MODELS: Mapping[str, tuple[Callable[[], Build], bool]] = {
    "rt_detr": (rt_detr, False),
    "mask2former": (mask2former, True),
    "deformable_detr": (deformable_detr, True),
    "raft": (raft, False),
    "vits": (vits, False),
    "keypoints": (keypoints, False),
    "speech_encoder": (speech_encoder, False),
    "long_lstm": (long_lstm, False),
}
"""By name: what makes it, and whether the exporter built on `torch.export` writes it, or else the one that traces."""


def measured(name: str, threads: int, profile: bool, folder: Path) -> dict[str, Any]:
    """The row of one model, whose file is left in `folder`."""
    torch.manual_seed(0)
    path = folder / f"{name}.onnx"
    make, dynamo = MODELS[name]
    given = exported(make(), path, dynamo)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    feeds = {port.name: given[port.name] for port in session.get_inputs()}
    model = api.compile(path, cache=False, threads=threads)
    expected, found = session.run(None, feeds), model.run(None, feeds)
    budget = TimingBudget(runs=20, seconds=1.0, limit_seconds=20.0, warmup=1)
    ours, theirs = race([lambda: model.run(None, feeds), lambda: session.run(None, feeds)], budget)
    row = {
        "model": name,
        "threads": threads,
        "exporter": "dynamo" if dynamo else "tracer",
        "nodes": len(model.graph.nodes),
        "compile_s": model.summary["compile_ms"] / 1e3,
        "ours_ms": ours.p50_ms,
        "theirs_ms": theirs.p50_ms,
        "ratio": theirs.p50_ms / ours.p50_ms,
        "error": worst_error(found, expected),
        "host": Counter(step["op"] for step in model.summary["host"]),
        "why": Counter(f"{step['op']}: {step['reason']}" for step in model.summary["host"]),
    }
    if profile:
        found_steps = api.profile(path, cache=False, threads=threads, runs=1 if ours.p50_ms > 500 else 10)[0]
        row["steps"] = alike(found_steps)
    return row


def line(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['model']:16} {row['failed']}"
    host = ", ".join(f"{op} {count}" for op, count in row["host"].most_common()) or "none"
    return (
        f"{row['model']:16} {row['threads']:7} {row['nodes']:5} {row['compile_s']:9.2f} {row['ours_ms']:9.2f}"
        f" {row['theirs_ms']:9.2f} {row['ratio']:6.2f} {row['error']:10.1e}  {host}"
    )


def slowest(row: dict[str, Any], most: int = 12) -> str:
    """Why nodes run on the host, and the groups that take longest together, in lines."""
    reasons = [f"    {count:4} {reason}" for reason, count in row["why"].most_common()]
    steps = [
        f"    {step['ms']:9.3f} ms {step['share']:5.1%} {step['count']:4} of {step['operators']} ({', '.join(step['kernels'])})"
        for step in row["steps"][:most]
    ]
    return "\n".join(reasons + steps)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Models of rarer operators against ONNX Runtime.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(MODELS)}; all by default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--profile", action="store_true", help="say which steps take the time")
    parser.add_argument("--keep", type=Path, help="leave the exported files in this folder")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(MODELS))
    if unknown:
        parser.error(f"there is no model {unknown[0]!r}; there are {', '.join(MODELS)}")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # the exporters' own remarks
    print("model            threads nodes compile s   ours ms   ORT ms  ratio difference  host steps")
    rows = []
    with tempfile.TemporaryDirectory(prefix="fusewise-operator-models-") as folder:
        for name in given.names or MODELS:
            try:
                rows.append(measured(name, given.threads, given.profile, given.keep or Path(folder)))
            except Exception as error:  # of two exporters and two runtimes: a failure is a row too
                rows.append({"model": name, "failed": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"})
            print(line(rows[-1]), flush=True)
            if given.profile and "failed" not in rows[-1]:
                print(slowest(rows[-1]), flush=True)
            if given.json:
                given.json.write_text(json.dumps({"machine": machine(given.threads), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
