# ruff: noqa: T201
"""Quantise a model with ONNX Runtime's tools, and compare speed and answers: float and integers, here and in ONNX Runtime.

    python examples/quantise_and_compare.py [MODEL] [--samples 8] [--threads N] [--seconds 1]

MODEL is an ONNX file of fixed shapes, or `zoo:NAME`. It is quantised with a scale for each channel from random samples, which say
nothing of what it is worth on data: for that, give your own to `Samples`. Needs onnxruntime.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import fusewise

Feeds = Mapping[str, Any]
Run = Callable[[Feeds], list[Any]]


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Random inputs of a model, one after another."""

    def __init__(self, model: fusewise.Model, count: int) -> None:
        self.feeds: Iterator[Feeds] = iter([model.random_inputs(seed) for seed in range(count)])

    def get_next(self) -> Feeds | None:
        return next(self.feeds, None)


def quantised(source: Path, target: Path, samples: Samples) -> None:
    """The model with QuantizeLinear and DequantizeLinear around what is to be computed with integers."""
    quantize_static(
        str(source),
        str(target),
        samples,
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        weight_type=QuantType.QInt8,
        activation_type=QuantType.QUInt8,
    )


def opened(path: Path, threads: int | None) -> dict[str, Run]:
    """The model here and in ONNX Runtime, with the same threads."""
    ours = fusewise.compile(path, threads=threads)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads or 0
    theirs = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    return {"fusewise": lambda feeds: ours.run(None, feeds), "onnxruntime": lambda feeds: theirs.run(None, dict(feeds))}


def milliseconds(runs: Mapping[str, Run], feeds: Feeds, seconds: float) -> dict[str, float]:
    """The median time of each, in turn; workers that spin after a run are given time to sleep."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not all(len(found) > 2 for found in times.values()):
        for name, run in runs.items():
            time.sleep(0.03)
            run(feeds)
            begin = time.perf_counter()
            run(feeds)
            times[name].append((time.perf_counter() - begin) * 1e3)
    return {name: median(found) for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default="zoo:mobilenet_v2")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seconds", type=float, default=1.0, help="of timing for each form")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quantised-") as folder:
        forms = {"float": Path(folder) / "float.onnx", "integers": Path(folder) / "integers.onnx"}
        fusewise.save(fusewise.optimize(asked.model), forms["float"])
        compiled = fusewise.compile(forms["float"], threads=asked.threads)
        quantised(forms["float"], forms["integers"], Samples(compiled, asked.samples))
        feeds = compiled.random_inputs(seed=asked.samples)
        answers: dict[str, np.ndarray] = {}
        for form, path in forms.items():
            runs = opened(path, asked.threads)
            for name, run in runs.items():
                answers[f"{form} in {name}"] = np.asarray(run(feeds)[0], np.float64)
            times = milliseconds(runs, feeds, asked.seconds)
            size = path.stat().st_size / 1e6
            print(f"{form}: {size:.1f} MB, " + ", ".join(f"{name} {ms:.2f} ms" for name, ms in times.items()))
    exact = answers["float in onnxruntime"]
    for name, found in answers.items():
        error = np.abs(found - exact).max() / max(np.abs(exact).max(), np.finfo(np.float64).tiny)
        same = np.mean(found.reshape(len(found), -1).argmax(1) == exact.reshape(len(exact), -1).argmax(1))
        print(f"{name}: differs by {error:.1e} of the largest answer; the largest is the same in {same:.0%} of samples")


if __name__ == "__main__":
    main()
