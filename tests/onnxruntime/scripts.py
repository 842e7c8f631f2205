"""Ten ways in which programs use ONNX Runtime, as guides and examples show them. Each is given the runtime by its usual name."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import helper
from tests.onnxruntime import models
from tests.test_examples import of_tokens

Result = list[Any]


def image_classification(ort: ModuleType, folder: Path) -> Result:
    path = folder / "classifier.onnx"
    path.write_bytes(models.classifier())
    session = ort.InferenceSession(str(path), providers=ort.get_available_providers())
    entry = session.get_inputs()[0]
    height, width = entry.shape[2:]
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    image = (pixels.astype("float32") / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    image = image.transpose(2, 0, 1)[np.newaxis].astype(np.float32)
    probabilities = session.run([session.get_outputs()[0].name], {entry.name: image})[0][0]
    best = np.argsort(probabilities)[::-1][:5]
    return [best, probabilities[best]]


def question_answering(ort: ModuleType, folder: Path) -> Result:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(models.answers(), options, providers=["CPUExecutionProvider"])
    tokens = np.random.default_rng(1).integers(0, 64, (3, 20))
    lengths = np.array([20, 13, 7])
    encoded = {"input_ids": tokens, "attention_mask": (np.arange(20) < lengths[:, None]).astype(np.int64)}
    feeds = {port.name: encoded[port.name] for port in session.get_inputs()}
    starts, ends = session.run(["start_logits", "end_logits"], feeds)
    found = [(int(a.argmax()), int(b.argmax())) for a, b in zip(starts, ends, strict=True)]
    return [starts, ends, found]


def object_detection(ort: ModuleType, folder: Path) -> Result:
    session = ort.InferenceSession(models.detector(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    shape = session.get_inputs()[0].shape
    image = np.random.default_rng(2).random(shape, np.float32)
    outputs = session.run(None, {session.get_inputs()[0].name: image})
    rows = np.transpose(np.squeeze(outputs[0]))
    scores = rows[:, 4:].max(1)
    kept: list[int] = []
    for k in np.argsort(-scores, kind="stable"):
        if scores[k] >= 0.5 and all(overlap(rows[k], rows[other]) < 0.5 for other in kept):
            kept.append(int(k))
    return [kept, rows[kept], rows[kept, 4:].argmax(1), session.get_providers()]


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    low = np.maximum(a[:2] - abs(a[2:4]) / 2, b[:2] - abs(b[2:4]) / 2)
    high = np.minimum(a[:2] + abs(a[2:4]) / 2, b[:2] + abs(b[2:4]) / 2)
    shared = float(np.prod(np.maximum(high - low, 0)))
    return shared / (float(abs(a[2] * a[3])) + float(abs(b[2] * b[3])) - shared + 1e-9)


def generation(ort: ModuleType, folder: Path) -> Result:
    session = ort.InferenceSession(of_tokens().SerializeToString(), providers=["CPUExecutionProvider"])
    past = {
        port.name: ort.OrtValue.ortvalue_from_numpy(np.zeros((1, port.shape[1], 0, port.shape[3]), np.float32))
        for port in session.get_inputs()
        if port.name.startswith("past")
    }
    prompt, found = [3, 1, 4], []
    tokens = np.array([prompt[:1]])
    for step in range(1, 9):
        binding = session.io_binding()
        length = next(iter(past.values())).shape()[2]
        binding.bind_cpu_input("input_ids", tokens)
        binding.bind_cpu_input("attention_mask", np.ones((1, length + tokens.shape[1]), np.int64))
        for name, value in past.items():
            binding.bind_ortvalue_input(name, value)
        for port in session.get_outputs():
            binding.bind_output(port.name, "cpu")
        session.run_with_iobinding(binding)
        logits, *present = binding.get_outputs()
        past = dict(zip(past, present, strict=True))
        found.append(int(logits.numpy()[0, -1].argmax()))
        tokens = np.array([[prompt[step] if step < len(prompt) else found[-1]]])
    return [found, [value.shape() for value in past.values()], next(iter(past.values())).numpy()]


def classical_model(ort: ModuleType, folder: Path) -> Result:
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(3)
    x = rng.standard_normal((60, 4)).astype(np.float32)
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, np.arange(60) % 3)
    session = ort.InferenceSession(to_onnx(fitted, x[:1]).SerializeToString(), providers=["CPUExecutionProvider"])
    name, label = session.get_inputs()[0].name, session.get_outputs()[0].name
    return [session.run([label], {name: x})[0], session.run(None, {name: x[:5]})[1], session.get_outputs()[1].type]


def batch_service(ort: ModuleType, folder: Path) -> Result:
    session = ort.InferenceSession(models.classifier(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(4)
    requests = [rng.standard_normal((int(rng.integers(1, 5)), 3, 32, 32), dtype=np.float32) for _ in range(40)]
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda image: session.run(None, {"image": image})[0], requests))


def profiling(ort: ModuleType, folder: Path) -> Result:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    session = ort.InferenceSession(models.classifier(), options, providers=["CPUExecutionProvider"])
    for _ in range(3):
        session.run(None, {"image": np.zeros((1, 3, 32, 32), np.float32)})
    events = json.loads(Path(session.end_profiling()).read_text())
    runs = [event for event in events if event["cat"] == "Session" and event["name"] == "model_run"]
    kernels = [event for event in events if event["cat"] == "Node" and event["name"].endswith("_kernel_time")]
    within = sum(event["dur"] for event in kernels) <= sum(event["dur"] for event in runs)
    return [len(runs), within, any("Conv" in event["args"]["op_name"] for event in kernels)]


def metadata(ort: ModuleType, folder: Path) -> Result:
    path = folder / "model.onnx"
    path.write_bytes(models.detector())
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    meta = session.get_modelmeta()
    stride = int(meta.custom_metadata_map["stride"])
    names = meta.custom_metadata_map["labels"].split(",")
    said = [meta.producer_name, meta.graph_name, meta.domain, meta.description, meta.version]
    ports = [(port.name, port.shape, port.type) for port in (*session.get_inputs(), *session.get_outputs())]
    return [stride, names, said, ports]


def quantised_model(ort: ModuleType, folder: Path) -> Result:
    x, w = models.random((16, 24), 5), models.random((24, 8), 6)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"]),
        helper.make_node("MatMul", ["xd", "wd"], ["y"]),
    ]
    scale = np.float32(abs(w).max() / 127)
    constants = {
        "xs": np.float32(abs(x).max() / 127),
        "xz": np.uint8(128),
        "ws": scale,
        "wz": np.int8(0),
        "wq": np.round(w / scale).astype(np.int8),
    }
    made = models.model(nodes, [models.port("x", "batch", 24)], [models.port("y", "batch", 8)], constants)
    onnx.save(made, folder / "quantised.onnx")
    session = ort.InferenceSession(folder / "quantised.onnx", providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": x})[0]
    return [found, bool(abs(found - x @ w).max() < 0.05)]


def free_batch(ort: ModuleType, folder: Path) -> Result:
    free = ort.InferenceSession(models.classifier(), providers=["CPUExecutionProvider"])
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 4)
    fixed = ort.InferenceSession(models.classifier(), options, providers=["CPUExecutionProvider"])
    images = np.random.default_rng(7).standard_normal((4, 3, 32, 32), dtype=np.float32)
    try:
        fixed.run(None, {"image": images[:1]})
        refused = False
    except Exception as error:
        refused = type(error).__name__ == "InvalidArgument"
    shapes = [session.get_inputs()[0].shape for session in (free, fixed)]
    return [shapes, refused, fixed.run(None, {"image": images})[0], free.run(None, {"image": images[:3]})[0]]


SCRIPTS = (
    *(image_classification, question_answering, object_detection, generation, classical_model),
    *(batch_service, profiling, metadata, quantised_model, free_batch),
)
