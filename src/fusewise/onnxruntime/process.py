"""What programs ask of ONNX Runtime as a whole."""

from __future__ import annotations

from fusewise.version import VERSION

__all__ = [
    "INTERFACE",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_build_info",
    "get_version_string",
    "set_seed",
]

INTERFACE = "1.31.1"
"""The version of ONNX Runtime whose interface this is; programs ask whether it is recent enough."""


def get_version_string() -> str:
    """The version of ONNX Runtime whose interface this is."""
    return INTERFACE


def get_build_info() -> str:
    """What runs the models, in truth."""
    return f"Fusewise {VERSION}, with the interface of ONNX Runtime {INTERFACE}"


def set_seed(seed: int) -> None:
    """Nothing: what is random draws from a generator of its own; give the operator's attribute `seed`."""


def enable_telemetry_events() -> None:
    """Nothing: nothing is ever sent."""


def disable_telemetry_events() -> None:
    """Nothing, as above."""
