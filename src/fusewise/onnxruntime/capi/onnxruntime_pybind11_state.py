"""The errors and classes that programs import from a module of this name."""

from __future__ import annotations

from fusewise.onnxruntime.errors import (
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoaded,
    NoModel,
    NoSuchFile,
    NotImplemented,  # noqa: A004 - the name that programs catch
    RuntimeException,
)
from fusewise.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from fusewise.onnxruntime.ports import ModelMetadata, NodeArg
from fusewise.onnxruntime.values import OrtDevice, OrtValue

__all__ = [
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoaded",
    "ModelMetadata",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotImplemented",
    "OrtDevice",
    "OrtValue",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
]
