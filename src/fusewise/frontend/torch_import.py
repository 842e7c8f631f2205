"""PyTorch in: a module is captured by `torch.export`, written by PyTorch's ONNX exporter in memory, and imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusewise.errors import UnsupportedModel, UsageError
from fusewise.frontend.onnx_import import load
from fusewise.ir.graph import Graph

__all__ = ["from_torch"]

_EXPORT_OPSET = (
    20  # the newest that PyTorch's exporter writes well in all versions supported; the importer goes on from it
)


def from_torch(
    module: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> Graph:
    """The graph of a `torch.nn.Module` or an `ExportedProgram`.

    `args` and `kwargs` are example inputs; `dynamic_shapes` says which of their dimensions stay symbolic, as in
    `torch.export.export`. The module is exported for inference and is left as it was. Raises `UsageError` when the `torch`
    extra is missing, and `UnsupportedModel` with PyTorch's reason when the module cannot be exported.
    """
    try:
        import onnxscript  # noqa: F401 - the exporter needs it, and says so less clearly
        import torch
    except ImportError as error:
        raise UsageError(
            f"importing a PyTorch module needs the package {error.name!r}; install fusewise[torch]"
        ) from None
    training = bool(getattr(module, "training", False)) and isinstance(module, torch.nn.Module)
    if training:
        module.eval()
    try:
        with torch.no_grad():
            program = torch.onnx.export(
                module,
                tuple(args),
                kwargs=dict(kwargs or {}),
                dynamic_shapes=dynamic_shapes,
                dynamo=True,
                opset_version=_EXPORT_OPSET,
                verbose=False,
            )
    except Exception as error:  # the exporter raises many kinds, its own and those of the traced code
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UnsupportedModel(f"PyTorch cannot export {type(module).__name__} to ONNX: {reason}") from error
    finally:
        if training:
            module.train()
    return load(program.model_proto)
