"""Fusewise compiles ONNX models to native code, in-process, and says why it did what it did.

>>> import fusewise
>>> model = fusewise.compile("model.onnx")
>>> outputs = model.run(None, {"x": x})

Names are loaded when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fusewise.version import VERSION

if TYPE_CHECKING:
    from fusewise import dynamo as dynamo
    from fusewise import onnxruntime as onnxruntime
    from fusewise.api import Model as Model
    from fusewise.api import bench as bench
    from fusewise.api import compile as compile  # noqa: A004 - the verb of the trade
    from fusewise.api import explain as explain
    from fusewise.api import from_torch as from_torch
    from fusewise.api import inspect as inspect
    from fusewise.api import load as load
    from fusewise.api import open_compiled as open_compiled
    from fusewise.api import optimize as optimize
    from fusewise.api import plan as plan
    from fusewise.api import report as report
    from fusewise.api import save as save
    from fusewise.api import to_onnx as to_onnx
    from fusewise.api import verify as verify
    from fusewise.errors import FusewiseError as FusewiseError
    from fusewise.frontend.domains.register import DomainOperator as DomainOperator
    from fusewise.frontend.domains.register import register_domain as register_domain
    from fusewise.gradients import gradient as gradient
    from fusewise.onnxruntime.options import SessionOptions as SessionOptions
    from fusewise.onnxruntime.session import InferenceSession as InferenceSession
    from fusewise.options import Options as Options
    from fusewise.trace import Trace as Trace

__all__ = [
    "DomainOperator",
    "FusewiseError",
    "InferenceSession",
    "Model",
    "Options",
    "SessionOptions",
    "Trace",
    "bench",
    "compile",
    "explain",
    "from_torch",
    "gradient",
    "inspect",
    "load",
    "open_compiled",
    "optimize",
    "plan",
    "register_domain",
    "report",
    "save",
    "to_onnx",
    "verify",
]

__version__ = VERSION

_ELSEWHERE = {
    "DomainOperator": "fusewise.frontend.domains.register",
    "FusewiseError": "fusewise.errors",
    "InferenceSession": "fusewise.onnxruntime.session",
    "SessionOptions": "fusewise.onnxruntime.options",
    "Trace": "fusewise.trace",
    "Options": "fusewise.options",
    "gradient": "fusewise.gradients",
    "open_compiled": "fusewise.compiled",
    "register_domain": "fusewise.frontend.domains.register",
}

_MODULES = ("dynamo", "onnxruntime")  # that users name behind `import fusewise` alone


def __getattr__(name: str) -> Any:
    if name not in __all__ and name not in _MODULES:
        raise AttributeError(f"module 'fusewise' has no attribute {name!r}")
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"fusewise.{name}")
    return getattr(importlib.import_module(_ELSEWHERE.get(name, "fusewise.api")), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
