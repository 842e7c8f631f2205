"""What Dynamo calls for each graph that it has captured, and when a graph is left to PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fusewise.dynamo.captured import captured, fixed_arguments
from fusewise.dynamo.parts import Part, PartsInTurn, in_parts
from fusewise.dynamo.running import CompiledCapture
from fusewise.errors import FusewiseError, UnsupportedModel, UsageError
from fusewise.options import Options, options_from

__all__ = ["LEFT", "SPLIT", "TUNING_SECONDS", "backend"]

TUNING_SECONDS = 60.0
"""How long each graph is tuned for under `mode="max-autotune"`, unless `options` says so."""

LEFT = "torch.compile, backend fusewise: a graph is left to PyTorch"
"""How the warning begins that tells of a graph that is not compiled."""

SPLIT = "torch.compile, backend fusewise: a graph is compiled in parts"
"""How the warning begins that tells of a graph of which something is left to PyTorch."""

_MODES: Mapping[str, float] = {
    "default": 0.0,
    "reduce-overhead": 0.0,
    "max-autotune": TUNING_SECONDS,
    "max-autotune-no-cudagraphs": TUNING_SECONDS,
}
"""Seconds to tune for, by the modes of `torch.compile`."""

_NOT_FOR_GRAPHS = ("shapes", "symbols", "values", "grow")
"""Options that name inputs of a whole model."""


def backend(
    module: Any, example_inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Native code for a graph that Dynamo captured, as a function of the graph's inputs.

    `options` are fields of `fusewise.Options`. A graph that cannot be compiled, or whose answers need gradients, is returned as it
    is, with one warning that says why. Raises `UsageError` for a mode or an option that there is not.
    """
    chosen = _options(mode, options or {})
    inference = partial(_compiled, options=chosen)
    try:
        if _surely_trains(module, example_inputs):
            raise _NeedsGradients
        return _ahead_of_time(module, example_inputs, inference)
    except _NeedsGradients:
        _warn(
            f"{LEFT}, since its answers need gradients: call the model under torch.no_grad() or torch.inference_mode()"
        )
    except UsageError:
        raise
    except FusewiseError as error:
        _warn(f"{LEFT}: {error}")
    forward: Callable[..., Any] = module.forward
    return forward


class _NeedsGradients(Exception):
    """PyTorch asks for a graph of which it would ask for gradients."""


def _ahead_of_time(module: Any, example_inputs: Sequence[Any], inference: Callable[..., Any]) -> Callable[..., Any]:
    import torch
    from torch._decomp import get_decompositions
    from torch._dynamo.backends.common import aot_autograd

    norms = [getattr(torch.ops.aten, name) for name in _NORMS_OF_BATCHES if hasattr(torch.ops.aten, name)]
    compiler = aot_autograd(
        fw_compiler=_refuse_training, inference_compiler=inference, decompositions=get_decompositions(norms)
    )
    found: Callable[..., Any] = compiler(module, example_inputs)
    return found


_NORMS_OF_BATCHES = (
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_batch_norm_with_update",
    "_batch_norm_with_update_functional",
    "_batch_norm_no_update",
)
"""Operators that PyTorch's exporter writes with running statistics even where a batch's own are asked for: they are taken apart
before. In evaluation it is another one that is captured, which the exporter writes as what it is."""


def _refuse_training(module: Any, example_inputs: Sequence[Any]) -> Any:
    raise _NeedsGradients


def _surely_trains(module: Any, example_inputs: Sequence[Any]) -> bool:
    """Does the graph need gradients, as is seen at once? Tracing it tells where it switches them off itself."""
    import torch

    if not torch.is_grad_enabled() or not any(getattr(value, "requires_grad", False) for value in example_inputs):
        return False
    return all("grad" not in str(getattr(node.target, "__name__", "")) for node in module.graph.nodes)


def _compiled(module: Any, example_inputs: Sequence[Any], options: Options) -> Callable[..., Any]:
    """The graph that AOTAutograd made: inputs come as one list, and results go as one."""
    fixed = fixed_arguments()
    try:
        return CompiledCapture(captured(module, fixed), options, module.forward, _left_behind)
    except UnsupportedModel as error:
        found = in_parts(module, fixed, error)
        if found is None:
            raise
    _warn(f"{SPLIT}, round what is left to PyTorch: {'; '.join(found.reasons)}")
    return PartsInTurn(found, [_run_of(part, options) for part in found.parts])


def _run_of(part: Part, options: Options) -> Callable[[list[Any]], Sequence[Any]]:
    """A part of a graph as a function of the list of what it reads."""
    forward = part.module.forward
    if part.capture is None:
        return lambda values: forward(*values)
    return CompiledCapture(part.capture, options, forward, _left_behind)


def _left_behind(error: Exception) -> None:
    reason = " ".join(str(error).split()) or type(error).__name__
    kind = "" if isinstance(error, UnsupportedModel) else f"{type(error).__name__}: "
    _warn(f"{LEFT}: {kind}{reason}")


def _options(mode: str | None, options: Mapping[str, Any]) -> Options:
    """How graphs are compiled, on the threads that PyTorch uses."""
    import torch

    if mode is not None and mode not in _MODES:
        raise UsageError(f"there is no mode {mode!r} of torch.compile; choose from {', '.join(_MODES)}")
    for name in options:
        if name in _NOT_FOR_GRAPHS:
            raise UsageError(
                f"the option {name!r} names inputs of a whole model; torch.compile sees graphs, which have their own"
            )
    chosen = options_from(None, {"tune": _MODES[mode or "default"], "threads": torch.get_num_threads(), **options})
    _require_known(chosen)
    return chosen if chosen.cache is not False or "tune" in options else replace(chosen, tune=0.0)


def _require_known(options: Options) -> None:
    """Raises `UsageError` for names that there are not, and a GPU that is not here, before a graph is left to PyTorch on their
    account."""
    from fusewise.codegen.legalize import check_precision
    from fusewise.decisions import require_known
    from fusewise.fusion.plan import check_planner
    from fusewise.runtime.gpu import drivers

    if options.on_gpu:  # whose precisions were looked at with the device
        drivers.opened(options.device).close()
    else:
        check_precision(options.precision, options.exact)
    check_planner(options.fusion)
    require_known(options.disable)


def _warn(sentence: str) -> None:
    warnings.warn(sentence, RuntimeWarning, stacklevel=2)
