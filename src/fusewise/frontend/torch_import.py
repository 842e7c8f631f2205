"""PyTorch in: a module is captured by `torch.export`, written by PyTorch's ONNX exporter in memory, and imported."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fusewise.errors import UsageError
from fusewise.frontend.free import RANGES
from fusewise.frontend.onnx_import import load
from fusewise.frontend.torch_export import exported
from fusewise.ir.graph import Graph
from fusewise.ir.size import LARGEST
from fusewise.tensors import is_tensor

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

    `args` and `kwargs` are example inputs (one tensor alone may stand for itself); `dynamic_shapes` says which of their dimensions
    stay symbolic, as in `torch.export.export`; the ranges that it finds of these are the graph's (`frontend.free.RANGES`). The
    module is exported for inference and is left as it was. Raises `UsageError` when the `torch` extra is missing or the module is
    none, and `UnsupportedModel` with PyTorch's innermost reason, the line of the user's code and a hint when it cannot be exported.
    """
    torch = sys.modules.get("torch")
    if torch is not None and not isinstance(module, torch.nn.Module | torch.export.ExportedProgram):
        raise UsageError(
            f"example inputs go with a PyTorch module, not with a value of the type {type(module).__name__}"
        )
    is_module = torch is not None and isinstance(module, torch.nn.Module)
    modes = [(part, part.training) for part in module.modules()] if is_module else []
    for part, _ in modes:
        part.training = False
    try:
        program = exported(
            module,
            (args,) if is_tensor(args) else args,
            named=type(module).__name__,
            kwargs=dict(kwargs or {}),
            dynamic_shapes=dynamic_shapes,
            opset_version=_EXPORT_OPSET,
        )
    finally:
        for part, mode in modes:
            part.training = mode
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
