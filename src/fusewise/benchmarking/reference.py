"""The right answers: from ONNX Runtime with its optimisations off where it is installed, else ONNX's own evaluator, corrected."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fusewise.errors import UnsupportedModel
from fusewise.ops.corrections import corrected_operators

if TYPE_CHECKING:
    import onnx

__all__ = ["answer", "reference_answer"]


def answer(model: Path | onnx.ModelProto, feeds: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The name of the reference that was used, and all outputs of an ONNX file or model.

    Raises `UnsupportedModel`, with the reason, when neither can run it on these feeds.
    """
    if importlib.util.find_spec("onnxruntime") is not None:
        found = _onnxruntime(model, feeds)
        if found is not None:
            return "onnxruntime", found
    return "onnx.reference", reference_answer(model, feeds)


def reference_answer(model: Path | onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """All outputs by ONNX's own evaluator, corrected where it is wrong; `UnsupportedModel`, with the reason, when it cannot run it.

    Operators in `ops.corrected_definitions.BY_DEFINITION` are then computed from the definitions that native code is made of: of
    them it is no second witness.
    """
    from onnx.reference import ReferenceEvaluator

    try:
        source = str(model) if isinstance(model, Path) else model
        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(source, new_ops=list(corrected_operators())).run(None, _own(feeds)))
    except Exception as error:  # no base class tells those of an evaluator that has gaps
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise UnsupportedModel(f"no reference runs the model: {reason}") from error


def _onnxruntime(model: Path | onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any] | None:
    """None when this version of ONNX Runtime cannot run the model."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(source, settings, providers=["CPUExecutionProvider"])
        if any("float8" in port.type for port in session.get_outputs()):  # which it gives out as plain bytes
            return None
        return list(session.run(None, _own(feeds)))
    except Exception:  # its own, and others for element types that it does not know
        return None


def _own(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Copies: ONNX Runtime writes running statistics over its feeds."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in feeds.items()}
