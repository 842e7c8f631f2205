"""Other runtimes behind one seam: each opens a model with the same number of threads and runs it on the same feeds.

All run float32 as float32, unless the subject allows bfloat16, at their best settings for latency; those on a GPU stand in
`benchmarking.gpu_peers`. Rows name their opener and do not import it, so that the table costs nothing and a meter's child process
can find the same opener by name.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from fusewise.errors import UsageError
from fusewise.words import no_such

__all__ = ["OURS", "PEERS", "Peer", "Session", "Subject", "opener_of", "peers_named", "usual_peers"]


@dataclass(frozen=True)
class Subject:
    """What is measured: an ONNX file, the same model as a saved `torch.export` program where there is one, the
    input names in order, and options (plain JSON values), of which other runtimes read shapes, precision and device."""

    path: Path
    inputs: tuple[str, ...] = ()
    program: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """What the model runs on here, as users write it."""
        return str(self.options.get("device", "cpu"))


class Session(Protocol):
    """An opened model."""

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """All outputs, in the model's order. They may be overwritten by the next run."""
        ...


class Opener(Protocol):
    def __call__(self, subject: Subject, threads: int) -> Session: ...


@dataclass(frozen=True)
class Peer:
    """One runtime. `opener` is `module:function`, `packages` what it imports, `gpu_opener` what opens it on a GPU.

    One without an `opener` runs on GPUs alone, one without a `gpu_opener` on the CPU whatever the model's device. `wheel` is what
    is installed to have it, where that is not named as the packages are.
    """

    name: str
    packages: tuple[str, ...]
    opener: str
    needs_program: bool = False
    gpu_opener: str = ""
    wheel: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """Packages that are not installed."""
        return tuple(name for name in self.packages if importlib.util.find_spec(name) is None)


_GPU = "fusewise.benchmarking.gpu_peers"

PEERS: tuple[Peer, ...] = (
    Peer("onnxruntime", ("onnxruntime",), "fusewise.benchmarking.peers:open_onnxruntime"),
    Peer("openvino", ("openvino",), "fusewise.benchmarking.peers:open_openvino"),
    Peer(
        "torch",
        ("torch",),
        "fusewise.benchmarking.peers:open_torch",
        needs_program=True,
        gpu_opener=f"{_GPU}:open_torch_on_gpu",
    ),
    Peer(
        "torch.compile",
        ("torch",),
        "fusewise.benchmarking.peers:open_torch_compile",
        needs_program=True,
        gpu_opener=f"{_GPU}:open_torch_compile_on_gpu",
    ),
    Peer(
        "onnxruntime-cuda",
        ("onnxruntime",),
        "",
        gpu_opener=f"{_GPU}:open_onnxruntime_cuda",
        wheel="onnxruntime-gpu",
    ),
    Peer(
        "tensorrt",
        ("onnxruntime",),
        "",
        gpu_opener=f"{_GPU}:open_tensorrt",
        wheel="onnxruntime-gpu",
    ),
)


OURS = Peer("fusewise", ("numpy", "onnx", "llvmlite.binding"), "fusewise.contestant:open_session")
"""This program. What it imports before it opens a model is not part of a load time, as other runtimes' libraries are not."""


def peers_named(names: tuple[str, ...], device: str = "cpu") -> tuple[Peer, ...]:
    """The rows of `PEERS` with these names, to be compared with a model on `device`; `UsageError` for a name that is unknown, not
    installed, or of a runtime that has no use for the device."""
    table = {peer.name: peer for peer in PEERS}
    for name in names:
        if name not in table:
            raise no_such("runtime", name, table)
        peer = table[name]
        if not peer.opener and device == "cpu":
            raise UsageError(f"{name} runs on a GPU, and the model on the CPU: give --device cuda, or leave {name} out")
        if peer.missing:
            wheel = peer.wheel or " ".join(peer.missing)
            raise UsageError(f"{name} is not installed; install it with: pip install {wheel}")
        if peer.gpu_opener and device != "cpu":
            reason = _imported(f"{_GPU}:absence_of")(name)
            if reason:
                raise UsageError(f"{name} cannot be compared with: {reason}")
    return tuple(table[name] for name in names)


def usual_peers(device: str = "cpu") -> tuple[tuple[str, ...], str]:
    """The names of what a model on `device` is compared with where nobody says, and why there are none: ONNX Runtime, on a GPU by
    its CUDA provider."""
    if device == "cpu":
        return ("onnxruntime",), ""
    try:
        peers_named(("onnxruntime-cuda",), device)
    except UsageError as reason:
        return (), str(reason)
    return ("onnxruntime-cuda",), ""


def opener_of(peer: Peer, device: str = "cpu") -> Opener:
    """The function that opens a model in this runtime, to be compared with one on `device`."""
    return cast(Opener, _imported(peer.gpu_opener if peer.gpu_opener and device != "cpu" else peer.opener))


def _imported(name: str) -> Any:
    """What `module:function` names."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


@dataclass(frozen=True)
class _OnnxRuntime:
    session: Any

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        return list(self.session.run(None, dict(feeds)))


def open_onnxruntime(subject: Subject, threads: int) -> Session:
    """ONNX Runtime on the CPU: every optimisation, spinning workers, operators one after the other."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    settings.add_session_config_entry("session.intra_op.allow_spinning", "1")
    settings.log_severity_level = 3
    return _OnnxRuntime(onnxruntime.InferenceSession(str(subject.path), settings, providers=["CPUExecutionProvider"]))


@dataclass(frozen=True)
class _OpenVino:
    request: Any
    outputs: int

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        found = self.request.infer(dict(feeds), share_inputs=True, share_outputs=True)
        return [found[k] for k in range(self.outputs)]


def open_openvino(subject: Subject, threads: int) -> Session:
    """OpenVINO on the CPU: float32 throughout or bfloat16 where it likes, as the subject says, one stream for latency, shapes
    fixed where the subject states them."""
    import openvino

    core = openvino.Core()
    model = core.read_model(str(subject.path))
    shapes = subject.options.get("shapes", {})
    if model.is_dynamic() and shapes:
        model.reshape({name: openvino.PartialShape(list(shape)) for name, shape in shapes.items()})
    settings = {
        "INFERENCE_PRECISION_HINT": "bf16" if subject.options.get("precision") == "bfloat16" else "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    compiled = core.compile_model(model, "CPU", settings)
    return _OpenVino(compiled.create_infer_request(), len(compiled.outputs))


@dataclass(frozen=True)
class _Torch:
    module: Any
    inputs: tuple[str, ...]

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        import torch

        with torch.inference_mode():
            found = self.module(*(torch.from_numpy(np.asarray(feeds[name])) for name in self.inputs))
        leaves = torch.utils._pytree.tree_leaves(found)
        return [leaf.numpy() for leaf in leaves]


def open_torch(subject: Subject, threads: int) -> Session:
    """PyTorch, eager. Sets the thread count of the whole process: PyTorch has no other."""
    import torch

    torch.set_num_threads(threads)
    return _Torch(torch.export.load(_program(subject)).module(), subject.inputs)


def open_torch_compile(subject: Subject, threads: int) -> Session:
    """PyTorch through `torch.compile`; the compilation itself happens in the first run."""
    import torch

    torch.set_num_threads(threads)
    return _Torch(torch.compile(torch.export.load(_program(subject)).module()), subject.inputs)


def _program(subject: Subject) -> Path:
    if subject.program is None:
        raise UsageError("PyTorch can only be compared on a model that came from a PyTorch module")
    return subject.program
