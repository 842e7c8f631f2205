"""Other runtimes on the same GPU: each opens a case, keeps its inputs on the device, and gives one finished run for a call.

ONNX Runtime gets the very graph, with its weights; in float16 as its own converter writes it. `torch.compile` gets the same
architecture from `timm` or `transformers`, with weights of its own, which no time depends on. In float32 neither may use TF32.
Runtimes of `fusewise bench --vs` copy inputs and outputs in every run; these do not.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from benchmarks.gpu.cases import Case

from fusewise.frontend.onnx_export import save
from fusewise.ir.graph import Graph

__all__ = ["PEERS", "Contestant", "GpuPeer", "PeerMissing"]


class PeerMissing(Exception):
    """Why a runtime cannot be measured here: a phrase."""


@dataclass(frozen=True)
class Contestant:
    """A model that another runtime has opened: `run` returns when the device is done, `close` gives its memory back."""

    run: Callable[[], object]
    close: Callable[[], object]


@dataclass(frozen=True)
class GpuPeer:
    """A runtime, and how many seconds must be left to open a case in it."""

    open: Callable[[Case, Graph, Mapping[str, Any]], Contestant]
    seconds: float


def open_onnxruntime(case: Case, graph: Graph, feeds: Mapping[str, Any]) -> Contestant:
    """ONNX Runtime's CUDA provider: all optimisations, one CUDA graph, inputs and outputs on the device."""
    try:
        import onnxruntime
    except ImportError:
        raise PeerMissing("onnxruntime is not installed") from None
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise PeerMissing("the installed onnxruntime has no CUDA provider: pip install onnxruntime-gpu")
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    settings.log_severity_level = 3
    how = {"enable_cuda_graph": "1", "use_tf32": str(int(case.precision == "tf32"))}
    with tempfile.TemporaryDirectory(prefix="fusewise-") as folder:
        path = str(Path(folder) / "model.onnx")
        save(graph, path)
        if case.precision == "float16":
            _halved(path)
        session = onnxruntime.InferenceSession(path, settings, providers=[("CUDAExecutionProvider", how)])
    binding = session.io_binding()
    kept = [
        onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value), "cuda", 0) for value in feeds.values()
    ]
    for name, value in zip(feeds, kept, strict=True):
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        shape = graph.tensor(output.name).dims
        kind = np.float16 if output.type == "tensor(float16)" else graph.tensor(output.name).dtype.numpy
        kept.append(onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), kind, "cuda", 0))
        binding.bind_ortvalue_output(output.name, kept[-1])

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return Contestant(run, kept.clear)


def _halved(path: str) -> None:
    """Have a file in float16, inputs and outputs as they were."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(path), keep_io_types=True), path)


_TIMM = MappingProxyType({"resnet50": "resnet50", "mobilenet_v2": "mobilenetv2_100", "vgg16": "vgg16"})


def open_torch(case: Case, graph: Graph, feeds: Mapping[str, Any]) -> Contestant:
    """`torch.compile(mode="max-autotune")`, which uses CUDA graphs."""
    try:
        import torch
    except ImportError:
        raise PeerMissing("torch is not installed") from None
    if not torch.cuda.is_available():
        raise PeerMissing("the installed torch sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.precision == "tf32"
    module, inputs = module_of(case)
    module = module.eval().to("cuda")
    if case.precision in ("float16", "bfloat16"):
        module = module.to(getattr(torch, case.precision))
        inputs = [one.to(getattr(torch, case.precision)) if one.is_floating_point() else one for one in inputs]
    inputs = [one.to("cuda") for one in inputs]
    compiled = torch.compile(module, mode="max-autotune")

    def run() -> None:
        with torch.inference_mode():
            compiled(*inputs)
        torch.cuda.synchronize()

    def close() -> None:
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()

    for _ in range(3):  # it compiles, then records its graphs
        run()
    return Contestant(run, close)


def module_of(case: Case) -> tuple[Any, list[Any]]:
    """A case's architecture in PyTorch, and inputs of its shapes; `PeerMissing` where its library is not installed."""
    import torch

    try:
        if case.model in _TIMM:
            from benchmarks.torch_models import import_timm

            return import_timm().create_model(_TIMM[case.model]), [torch.randn(case.batch, 3, 224, 224)]
        import transformers
    except ImportError as error:
        raise PeerMissing(f"the library that has the model is not installed ({error})") from None
    tokens = torch.randint(0, 1000, (case.batch, 128))
    if case.model == "bert_base":
        return transformers.BertModel(transformers.BertConfig()), [tokens]
    if case.model == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False)), [tokens]
    raise PeerMissing(f"there is no module for {case.model} here")


PEERS: Mapping[str, GpuPeer] = MappingProxyType(
    {"onnxruntime": GpuPeer(open_onnxruntime, 20.0), "torch.compile": GpuPeer(open_torch, 90.0)}
)
"""By name, those that take less to open first."""
