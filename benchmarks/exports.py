"""The published networks as the `transformers` package and PyTorch's two ONNX exporters write them, against ONNX Runtime.

    python -m benchmarks.exports [NAME ...] [--exporter tracer|dynamo] [--size full|shallow|small] [--json FILE]

Prints, for every file: nodes as read and as compiled, kernels, host steps, seconds to compile, and the largest difference
from ONNX Runtime's answer over its largest magnitude. Run it from the root of the repository, with the `torch` and `bench`
extras and `transformers` installed; nothing is downloaded, weights are random.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from tests.frontend.exports import BUILDERS, Size, export

from fusewise import api
from fusewise.benchmarking.accuracy import relative_error

TOLERANCE = 1e-5


def measure(name: str, dynamo: bool, size: Size) -> dict[str, Any]:
    """Export one model into a folder of its own, compile it, compare it; the figures of its row."""
    import onnxruntime

    with tempfile.TemporaryDirectory(prefix="fusewise-exports-") as folder:
        path = Path(folder) / "model.onnx"
        feeds = export(name, dynamo, path, size)
        gc.collect()
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        feeds = {port.name: feeds[port.name] for port in session.get_inputs()}
        (expected,) = session.run(None, feeds)
        del session
        read = len(api.load(path).nodes)
        model = api.compile(path, cache=False)
        (found,) = model.run(None, feeds)
    return {
        "model": name,
        "exporter": "dynamo" if dynamo else "tracer",
        "size": size,
        "nodes": read,
        "nodes_compiled": len(model.graph.nodes),
        "kernels": model.summary["kernels"],
        "host_steps": [step["op"] for step in model.summary["host"]],
        "compile_s": round(model.summary["compile_ms"] / 1e3, 2),
        "spread": float(expected.std() / np.abs(expected).max()),
        "error": relative_error(found, expected),
    }


def line(row: dict[str, Any]) -> str:
    host = ",".join(row["host_steps"]) if row["host_steps"] else "none"
    return (
        f"{row['model']:13} {row['exporter']:7} {row['nodes']:6} {row['nodes_compiled']:9} {row['kernels']:8} "
        f"{host:11} {row['compile_s']:9.1f} {row['error']:9.1e}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Real exports against ONNX Runtime.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BUILDERS)}; all by default")
    parser.add_argument("--exporter", choices=["tracer", "dynamo"], help="only this one; both by default")
    parser.add_argument("--size", choices=["full", "shallow", "small"], default="full")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(BUILDERS))
    if unknown:
        parser.error(f"there is no model {unknown[0]!r}; the models are {', '.join(BUILDERS)}")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # the exporters' own remarks
    ways = [way for way in ("tracer", "dynamo") if options.exporter in (None, way)]
    print("model         export   nodes  compiled  kernels host steps  compile s     error")
    rows = []
    for name in options.names or BUILDERS:
        for way in ways:
            rows.append(measure(name, way == "dynamo", options.size))
            print(line(rows[-1]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["error"] <= TOLERANCE for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
