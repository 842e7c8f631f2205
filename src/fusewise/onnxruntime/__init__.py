"""Fusewise where ONNX Runtime stands: `import fusewise.onnxruntime as ort`, and programs written for that run as they are.

Classes, functions and errors have the names that they have there; `docs/onnxruntime.md` says of each what it does here. Inside this
package `import onnxruntime` is ONNX Runtime itself, since all imports are absolute.
"""

from __future__ import annotations

from fusewise.onnxruntime.binding import IOBinding
from fusewise.onnxruntime.log import set_default_logger_severity, set_default_logger_verbosity
from fusewise.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from fusewise.onnxruntime.ports import ModelMetadata, NodeArg
from fusewise.onnxruntime.process import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_build_info,
    get_version_string,
    set_seed,
)
from fusewise.onnxruntime.providers import get_all_providers, get_available_providers, get_device
from fusewise.onnxruntime.session import InferenceSession
from fusewise.onnxruntime.values import OrtDevice, OrtValue

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtDevice",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

__version__ = get_version_string()
