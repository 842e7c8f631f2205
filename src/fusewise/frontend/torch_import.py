"""PyTorch in: a module is captured by `torch.export`, written by PyTorch's ONNX exporter in memory, and imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusewise.errors import UnsupportedModel, UsageError
from fusewise.frontend.free import RANGES
from fusewise.frontend.onnx_import import load
from fusewise.ir.graph import Graph
from fusewise.ir.size import LARGEST

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
    `torch.export.export`; the ranges that it finds of these are the graph's (`frontend.free.RANGES`). The module is exported for
    inference and is left as it was. Raises `UsageError` when the `torch` extra is missing, and `UnsupportedModel` with PyTorch's
    reason when the module cannot be exported.
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
    graph = load(program.model_proto)
    ranges = _ranges(program)
    return graph.replace(metadata=(*graph.metadata, (RANGES, ranges))) if ranges else graph


def _ranges(program: Any) -> str:
    """The ranges of dimensions by the names that the exporter gives them: `batch=0..64,sequence=0..2048`.

    A least size of 2 is PyTorch's way to tell sizes from 1, which it takes for broadcast, and no limit of what it wrote.
    """
    exported = getattr(program, "exported_program", None)
    if exported is None:
        return ""
    names = {
        value.name: [d.dim_param for d in value.type.tensor_type.shape.dim] for value in program.model_proto.graph.input
    }
    found = {}
    for node in exported.graph.nodes:
        shape = getattr(node.meta.get("val"), "shape", ()) if node.op == "placeholder" else ()
        for name, size in zip(names.get(node.name, ()), shape, strict=False):
            bounds = exported.range_constraints.get(getattr(getattr(size, "node", None), "expr", None))
            if name.isidentifier() and bounds is not None:
                found[name] = _number(bounds.lower), _number(bounds.upper)
    stated = {name: (low if low > 2 else 0, high) for name, (low, high) in found.items()}
    return ",".join(f"{name}={low}..{high}" for name, (low, high) in stated.items() if (low, high) != (0, LARGEST))


def _number(bound: Any) -> int:
    try:
        return min(max(int(bound), 0), LARGEST)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return LARGEST  # infinity
