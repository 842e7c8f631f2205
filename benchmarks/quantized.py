"""8-bit models here and in other runtimes: quantised by ONNX Runtime's own static quantiser, run with integer kernels.

    python -m benchmarks.quantized [NAME ...] [--vs onnxruntime] [--threads 2] [--json FILE]

Each model is calibrated on random images and written with QuantizeLinear and DequantizeLinear around every operator, weights
per channel, activations unsigned; then measured as `fusewise bench` does it. `steps` is the largest difference of an output, over
several inputs, from what the model says in exact numbers (ONNX's reference evaluator in float64), in quantisation steps of that
output; a sum that rounds the other way early on may change several later. Beside it stands how far ONNX Runtime is from that,
with its optimisations, and without, where it computes in floats. Run it from the root of the repository with the `bench` extra
installed, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from fusewise import api
from fusewise.benchmarking.timing import TimingBudget
from fusewise.files import write_text
from fusewise.frontend.onnx_export import to_model
from fusewise.zoo.catalogue import build

NAMES = ("resnet50", "mobilenet_v2")
IMAGES = 4
TRIES = 5
"""Random inputs on which answers are compared."""


def quantized(name: str, folder: Path) -> Path:
    """The zoo model as an 8-bit file."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    model = to_model(build(name))
    port = model.graph.input[0]
    shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]

    class Images(CalibrationDataReader):
        def __init__(self) -> None:
            images = (np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) for seed in range(IMAGES))
            self.left = iter([{port.name: image} for image in images])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    plain, prepared, target = (folder / f"{name}{end}.onnx" for end in ("", "-prepared", "-8bit"))
    onnx.save(model, plain)
    quant_pre_process(plain, prepared, skip_symbolic_shape=True)
    quantize_static(
        prepared,
        target,
        Images(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return target


def exact(path: Path) -> onnx.ModelProto:
    """The model with its float32 constants as float64, for the reference evaluator."""
    model = onnx.load(path)
    for array in model.graph.initializer:
        if array.data_type == onnx.TensorProto.FLOAT:
            array.CopyFrom(
                onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(array).astype(np.float64), array.name)
            )
    return model


def steps_apart(path: Path) -> tuple[float, ...]:
    """The largest difference of the first output from the exact one, in its quantisation steps: here, in ONNX Runtime, and in ONNX
    Runtime without its optimisations."""
    import onnxruntime

    level = onnxruntime.GraphOptimizationLevel
    sessions = []
    for chosen in (level.ORT_ENABLE_ALL, level.ORT_DISABLE_ALL):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = chosen
        sessions.append(onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
    port = sessions[0].get_inputs()[0]
    model = exact(path)
    last = next(node for node in model.graph.node if model.graph.output[0].name in node.output)
    step = onnx.numpy_helper.to_array(next(array for array in model.graph.initializer if array.name == last.input[1]))
    reference, runners = ReferenceEvaluator(model), (api.compile(str(path)), *sessions)
    found = []
    for seed in range(TRIES):
        image = np.random.default_rng(99 + seed).standard_normal(port.shape, dtype=np.float32)
        expected = reference.run(None, {port.name: image.astype(np.float64)})[0]
        found.append([np.abs(runner.run(None, {port.name: image})[0] - expected).max() / step for runner in runners])
    return tuple(float(worst) for worst in np.max(found, axis=0))


def table(results: list[dict[str, Any]]) -> str:
    """A Markdown table: one row a model, medians in milliseconds."""
    peers = list(dict.fromkeys(name for r in results for name in r["runtimes"] if name != "fusewise"))
    lines = [
        f"| model | Fusewise ms | {' | '.join(f'{name} ms' for name in peers)} | ratio | steps | theirs | in floats |",
        f"| --- | ---: | {' | '.join('---:' for _ in peers)} | ---: | ---: | ---: | ---: |",
    ]
    for r in results:
        cells = (f"{r['runtimes'][name]['p50_ms']:.2f}" for name in ("fusewise", *peers))
        steps = " | ".join(f"{apart:.2f}" for apart in r["steps"])
        lines.append(f"| {r['model']} | {' | '.join(cells)} | {r['ratio']:.2f} | {steps} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure 8-bit models against other runtimes.")
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--vs", default="onnxruntime")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    peers = tuple(name for name in given.vs.split(",") if name)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names:
            path = quantized(name, Path(folder))
            found = api.bench(
                str(path), against=peers, threads=given.threads, budget=TimingBudget(seconds=given.seconds)
            )
            results.append({**found, "model": f"{name}, 8 bits", "steps": steps_apart(path)})
            print(table(results[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(results))
    if given.json:
        write_text(given.json, json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
