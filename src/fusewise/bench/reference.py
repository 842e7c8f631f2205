"""The right answers: from ONNX Runtime with its optimisations off where it is installed, else ONNX's own evaluator."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["answer"]


def answer(path: Path, feeds: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The name of the reference that was used, and all outputs of the ONNX file at `path`."""
    if importlib.util.find_spec("onnxruntime") is not None:
        found = _onnxruntime(path, feeds)
        if found is not None:
            return "onnxruntime", found
    from onnx.reference import ReferenceEvaluator

    return "onnx.reference", list(ReferenceEvaluator(str(path)).run(None, dict(feeds)))


def _onnxruntime(path: Path, feeds: Mapping[str, Any]) -> list[Any] | None:
    """None when this version of ONNX Runtime cannot run the model."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
        return list(session.run(None, dict(feeds)))
    except (state.Fail, state.NotImplemented, state.InvalidGraph, state.InvalidArgument, state.RuntimeException):
        return None
