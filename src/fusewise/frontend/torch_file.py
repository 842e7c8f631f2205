"""PyTorch modules in files of Python, as models are named on the command line: `file.py:NAME`."""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.words import no_such

__all__ = ["graph_in", "is_module_name", "module_in"]

INPUTS = "example_inputs"
_FORM = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)")


def is_module_name(model: str) -> bool:
    """Is a model named as `file.py:NAME`?"""
    return _FORM.fullmatch(model) is not None


def module_in(model: str) -> tuple[Any, tuple[Any, ...]]:
    """The module called so, for inference, and its example inputs. The file is run, as any program is.

    NAME is a `torch.nn.Module`, or what gives one when it is called: a class, or a function, which may give a tuple of the module
    and its inputs. Else inputs are what the file calls `example_inputs`. `UsageError` where that is not so.
    """
    found = _FORM.fullmatch(model)
    if found is None:
        raise UsageError(f"{model!r} is not of the form file.py:NAME")
    try:
        import torch
    except ImportError:
        raise UsageError(
            f"{model} is a PyTorch module, and PyTorch is not installed; install fusewise[torch]"
        ) from None
    path, name = Path(found["file"]), found["name"]
    names = _run(path)
    if name not in names:
        raise no_such(f"name in {path}:", name, (key for key in names if not key.startswith("_")))
    module, inputs = names[name], names.get(INPUTS)
    if not isinstance(module, torch.nn.Module) and callable(module):
        module = _called(module, model)
    if isinstance(module, tuple) and len(module) == 2:
        module, inputs = module
    if not isinstance(module, torch.nn.Module):
        raise UsageError(
            f"{model} is neither a torch.nn.Module nor a function that gives one, but {type(module).__name__}"
        )
    if inputs is None:
        raise UsageError(
            f"{model} has no example inputs: let {name} be a function that gives (module, inputs), or have"
            f" {INPUTS} = (tensor, ...) in {path}"
        )
    return module.eval(), tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)


def graph_in(model: str, program: Path | None = None) -> Graph:
    """The graph of a module in a file, which is also saved as a `torch.export` program where a path for that is given: the peers
    `torch` and `torch.compile` open such. Raises what `module_in` and `from_torch` raise.
    """
    from fusewise.frontend.torch_import import from_torch

    module, inputs = module_in(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of PyTorch about itself
        if program is not None:
            import torch

            with torch.no_grad():
                torch.export.save(torch.export.export(module, inputs), program)
        return from_torch(module, inputs)


def _run(path: Path) -> dict[str, Any]:
    """The names that a file of Python defines."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"fusewise_model_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be run as Python")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the file raises
        raise _failed(error, path) from error
    finally:
        sys.path.remove(str(path.parent))
    return vars(module)


def _called(function: Any, model: str) -> Any:
    try:
        return function()
    except Exception as error:
        raise _failed(error, Path(_FORM.fullmatch(model)["file"])) from error  # type: ignore[index]


def _failed(error: Exception, path: Path) -> UsageError:
    """That a file ended with an error, and in which of its lines."""
    line, trace = getattr(error, "lineno", None), error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    where = f" in line {line}" if line else ""
    return UsageError(f"{path} ends{where} with {type(error).__name__}: {error}")
