"""Errors by the names that programs written for ONNX Runtime catch.

Each begins as theirs do, with a number and a name in capitals, since programs look for these; the sentence behind is ours. All are
`FusewiseError`s, and have the error that they stand for as their cause.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from fusewise.errors import FusewiseError, InvalidData, InvalidModel, ResourceLimit, UnsupportedModel, UsageError

if TYPE_CHECKING:
    import onnx

__all__ = [
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "MissingInputs",
    "ModelLoaded",
    "NoModel",
    "NoSuchFile",
    "NotImplemented",
    "RefusedUse",
    "RuntimeException",
    "SessionError",
    "loading_error",
    "running_error",
]


class SessionError(FusewiseError):
    """What a session raises; `code` and `label` are those of ONNX Runtime's status."""

    code, label = 1, "FAIL"

    @classmethod
    def of(cls, sentence: object) -> Self:
        """The error with a sentence, begun as programs expect it."""
        return cls(f"[ONNXRuntimeError] : {cls.code} : {cls.label} : {sentence}")


class Fail(SessionError):
    """A model cannot be opened or run, for another reason than those below."""


class InvalidArgument(SessionError):
    """What a caller gave does not fit the model."""

    exit_status = 2
    code, label = 2, "INVALID_ARGUMENT"


class NoSuchFile(SessionError):
    """There is no model by that path."""

    exit_status = 2
    code, label = 3, "NO_SUCHFILE"


class NoModel(SessionError):
    """Never raised here: a session has a model."""

    code, label = 4, "NO_MODEL"


class EngineError(SessionError):
    """Never raised here."""

    code, label = 5, "ENGINE_ERROR"


class RuntimeException(SessionError):
    """A run could not be ended, as where memory is full."""

    code, label = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(SessionError):
    """The file is no ONNX model."""

    exit_status = 3
    code, label = 7, "INVALID_PROTOBUF"


class ModelLoaded(SessionError):
    """Never raised here."""

    code, label = 8, "MODEL_LOADED"


class NotImplemented(SessionError):  # noqa: A001 - the name that programs catch
    """The model, or the caller, asks for what there is not."""

    exit_status = 3
    code, label = 9, "NOT_IMPLEMENTED"


class InvalidGraph(SessionError):
    """The model breaks ONNX's rules."""

    exit_status = 3
    code, label = 10, "INVALID_GRAPH"


class EPFail(SessionError):
    """Never raised here: there is one provider."""

    code, label = 11, "EP_FAIL"


class RefusedUse(FusewiseError, RuntimeError):
    """What a caller does cannot be done; ONNX Runtime raises a plain `RuntimeError` in such a place."""

    exit_status = 2


class MissingInputs(FusewiseError, ValueError):
    """A run lacks inputs; ONNX Runtime raises a plain `ValueError` there."""

    exit_status = 2


def running_error(error: FusewiseError) -> SessionError:
    """What a run that ended with `error` raises."""
    if isinstance(error, UsageError | InvalidData):
        return InvalidArgument.of(error)
    return (RuntimeException if isinstance(error, ResourceLimit) else Fail).of(error)


def loading_error(error: FusewiseError, source: str | bytes) -> SessionError:
    """What opening the model at `source`, a path or its bytes, raises where that ended with `error`."""
    if isinstance(error, ResourceLimit):
        return RuntimeException.of(error)
    if not isinstance(error, InvalidModel | UnsupportedModel | UsageError):
        return Fail.of(error)
    from fusewise.frontend.onnx_import import message

    try:
        model = message(source)
    except FusewiseError:
        return (InvalidProtobuf if isinstance(source, bytes) or Path(source).exists() else NoSuchFile).of(error)
    if isinstance(error, UsageError) or not model.HasField("graph"):
        return InvalidArgument.of(error)
    if isinstance(error, InvalidModel) or _has_unknown(model):
        return InvalidGraph.of(error)
    return (Fail if _is_newer(model) else NotImplemented).of(error)


def _has_unknown(model: onnx.ModelProto) -> bool:
    """Does a node at its top use an operator that ONNX does not have?"""
    import onnx

    functions = {(one.name, one.domain) for one in model.functions}
    standard = {"": "", "ai.onnx": "", "ai.onnx.ml": "ai.onnx.ml"}
    return any(
        not onnx.defs.has(node.op_type, standard[node.domain])
        for node in model.graph.node
        if node.domain in standard and (node.op_type, node.domain) not in functions
    )


def _is_newer(model: onnx.ModelProto) -> bool:
    """Is it of an opset that ONNX does not have yet?"""
    import onnx

    return any(
        one.domain in ("", "ai.onnx") and one.version > onnx.defs.onnx_opset_version() for one in model.opset_import
    )
