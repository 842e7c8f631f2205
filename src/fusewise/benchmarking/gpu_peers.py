"""Other runtimes on a GPU of NVIDIA's: ONNX Runtime with its CUDA and TensorRT providers, PyTorch eager and compiled.

All take arrays of the host and give such, as ours does, so the copies to the device and back are in every time. A runtime that
would fall back to the CPU is an error, not a slow GPU. TF32 is off unless the subject asks for it, but in TensorRT, which
has no switch for it here: it may use TF32 for float32 unless NVIDIA_TF32_OVERRIDE=0 is set.

Chosen and called on stand-ins, and on ONNX Runtime's and PyTorch's CPU; not measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fusewise.errors import UsageError
from fusewise.records import record

if TYPE_CHECKING:
    from fusewise.benchmarking.peers import Session, Subject

__all__ = ["absence_of", "open_onnxruntime_cuda", "open_tensorrt", "open_torch_compile_on_gpu", "open_torch_on_gpu"]

_CUDA, _TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"
_CUDA_KIND = "cuda"


def absence_of(name: str) -> str:
    """Why the runtime of this name, whose packages are there, cannot use a GPU; empty where it can."""
    if name in ("torch", "torch.compile"):
        import torch

        if torch.cuda.is_available():
            return ""
        return f"PyTorch {torch.__version__} finds no GPU here: leave {name} out, or install PyTorch for CUDA"
    import onnxruntime

    provider = _TENSORRT if name == "tensorrt" else _CUDA
    if provider in onnxruntime.get_available_providers():
        return ""
    return f"the installed ONNX Runtime has no {provider}: install it with: pip install onnxruntime-gpu"


# --- ONNX Runtime ---------------------------------------------------------------------------------------------------------


@record(frozen=True, slots=True)
class _Spot:
    """A device as ONNX Runtime names it."""

    kind: str
    number: int


class _BoundSession:
    """A session whose inputs and outputs have memory on the device for good, as its CUDA graph wants them."""

    def __init__(self, session: Any, spot: _Spot, feeds: Mapping[str, Any], values: Any) -> None:
        """`values` is ONNX Runtime's class of values on devices."""
        self._session, self._binding = session, session.io_binding()
        self._inputs = {
            name: values.ortvalue_from_numpy(np.array(array, order="C"), spot.kind, spot.number)
            for name, array in feeds.items()
        }
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        self._outputs = []
        for port in session.get_outputs():
            made = values.ortvalue_from_shape_and_type(port.shape, _numpy_type(port.type), spot.kind, spot.number)
            self._binding.bind_ortvalue_output(port.name, made)
            self._outputs.append(made)

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        for name, array in feeds.items():
            self._inputs[name].update_inplace(np.require(array, requirements="C"))
        self._session.run_with_iobinding(self._binding)
        return [value.numpy() for value in self._outputs]


class _DeviceSession:
    """A session on a device, bound at its first run where every shape is a number."""

    def __init__(self, session: Any, spot: _Spot, values: Any) -> None:
        self._session, self._spot, self._values = session, spot, values
        self._bound: _BoundSession | None = None
        ports = (*session.get_inputs(), *session.get_outputs())
        self._may_bind = all(_is_fixed(port) for port in ports)

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        if not self._may_bind:
            return list(self._session.run(None, dict(feeds)))
        if self._bound is None:
            self._bound = _BoundSession(self._session, self._spot, feeds, self._values)
        return self._bound.run(feeds)


_NUMPY_TYPES = {
    **{f"tensor({name})": np.dtype(name) for name in "uint8 int8 uint16 int16 uint32 int32 uint64 int64 bool".split()},
    "tensor(float16)": np.dtype(np.float16),
    "tensor(float)": np.dtype(np.float32),
    "tensor(double)": np.dtype(np.float64),
}


def _numpy_type(kind: str) -> np.dtype[Any]:
    return _NUMPY_TYPES[kind]


def _is_fixed(port: Any) -> bool:
    return port.type in _NUMPY_TYPES and all(isinstance(size, int) for size in port.shape)


def open_onnxruntime_cuda(subject: Subject, threads: int) -> Session:
    """ONNX Runtime on the GPU: every optimisation, the fastest convolutions found by trying, inputs and outputs bound, one CUDA
    graph where it can capture one. Convolutions and products of float32 are float32; with `tf32` they are that."""
    precision = subject.options.get("precision", "float32")
    if precision not in ("float32", "tf32"):
        raise NotImplementedError(f"its CUDA provider runs a model in the types that it has, not in {precision}")
    options = {
        "device_id": str(_number(subject)),
        "use_tf32": str(int(precision == "tf32")),
        "cudnn_conv_algo_search": "EXHAUSTIVE",
    }
    try:
        return _opened(subject, threads, [(_CUDA, {**options, "enable_cuda_graph": "1"})])
    except UsageError:
        raise
    except Exception:  # a model of which a node is not for the GPU cannot be captured
        return _opened(subject, threads, [(_CUDA, options)])


def open_tensorrt(subject: Subject, threads: int) -> Session:
    """TensorRT as a provider of ONNX Runtime, in the subject's precision, one CUDA graph."""
    precision = subject.options.get("precision", "float32")
    options = {"device_id": str(_number(subject)), "trt_cuda_graph_enable": "1"}
    switch = {"float16": "trt_fp16_enable", "bfloat16": "trt_bf16_enable"}.get(precision)
    options |= {} if switch is None else {switch: "1"}
    others = {"device_id": str(_number(subject)), "use_tf32": str(int(precision == "tf32"))}
    return _opened(subject, threads, [(_TENSORRT, options), (_CUDA, others)])


def _opened(subject: Subject, threads: int, providers: list[tuple[str, dict[str, str]]]) -> Session:
    """A session with the first of `providers`; `UsageError` where it was left for another."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    settings.log_severity_level = 3
    tried = [*providers, "CPUExecutionProvider"]
    found = onnxruntime.InferenceSession(str(subject.path), settings, providers=tried, enable_fallback=0)
    wanted, took = providers[0][0], found.get_providers()[0]
    if took != wanted:
        raise UsageError(
            f"ONNX Runtime has {wanted}, but lacks libraries or a GPU for it and would run on {took}: leave it out, or "
            "install what its page on that provider asks for"
        )
    return _DeviceSession(found, _Spot(_CUDA_KIND, _number(subject)), onnxruntime.OrtValue)


# --- PyTorch --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TorchOnDevice:
    """A module on a device. `within` is the context that every run happens in."""

    module: Any
    inputs: tuple[str, ...]
    place: str
    within: Any = nullcontext

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        import torch

        given = [torch.from_numpy(np.require(feeds[name], requirements="C")).to(self.place) for name in self.inputs]
        with torch.inference_mode(), self.within():
            found = self.module(*given)
        return [leaf.cpu().numpy() for leaf in torch.utils._pytree.tree_leaves(found)]


def open_torch_on_gpu(subject: Subject, threads: int) -> Session:
    """PyTorch, eager, on the GPU; 16-bit precisions are its automatic casts."""
    place = f"{_CUDA_KIND}:{_number(subject)}"
    return _TorchOnDevice(_module(subject, place), subject.inputs, place, partial(_casts, _precision(subject, threads)))


def open_torch_compile_on_gpu(subject: Subject, threads: int) -> Session:
    """`torch.compile` with its longest search, which captures CUDA graphs; the compilation happens in the first run."""
    import torch

    place = f"{_CUDA_KIND}:{_number(subject)}"
    precision = _precision(subject, threads)
    compiled = torch.compile(_module(subject, place), mode="max-autotune")
    return _TorchOnDevice(compiled, subject.inputs, place, partial(_casts, precision))


def _module(subject: Subject, place: str) -> Any:
    import torch
    from torch.export.passes import move_to_device_pass

    if subject.program is None:
        raise UsageError("PyTorch can only be compared on a model that came from a PyTorch module")
    return move_to_device_pass(torch.export.load(subject.program), place).module()


def _precision(subject: Subject, threads: int) -> str:
    """The subject's precision, in which PyTorch's products of float32 are from now on: it has one setting for the process."""
    import torch

    precision: str = subject.options.get("precision", "float32")
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    return precision


def _casts(precision: str) -> AbstractContextManager[Any]:
    import torch

    kinds = {"float16": torch.float16, "bfloat16": torch.bfloat16}
    return torch.autocast(_CUDA_KIND, kinds[precision]) if precision in kinds else nullcontext()


def _number(subject: Subject) -> int:
    """The GPU's, of `cuda:1`; 0 for any of an architecture."""
    rest = str(subject.options.get("device", "")).partition(":")[2]
    return int(rest) if rest.isdecimal() else 0
