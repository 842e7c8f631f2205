"""Execution providers: sessions run on the CPU, and programs that ask for others are told and run on it, as ONNX Runtime does.

A session is on a GPU by the entry `fusewise.device` alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

__all__ = ["CPU", "CUDA", "get_all_providers", "get_available_providers", "get_device", "warn_of_others"]

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"

Provider = str | tuple[str, dict[Any, Any]]


def get_available_providers() -> list[str]:
    """What sessions can run on."""
    return [CPU]


def get_all_providers() -> list[str]:
    """What there could be on another machine: the same."""
    return [CPU]


def get_device() -> str:
    """What sessions run on, as `CPU`."""
    return "CPU"


def warn_of_others(providers: Sequence[Provider] | None, options: Sequence[dict[Any, Any]] | None) -> None:
    """Warn of each provider that there is not, and of those named twice. `ValueError` for what are no providers."""
    seen: set[str] = set()
    for name in _names(providers, options):
        if name in seen:
            warnings.warn(f"provider {name!r} is named twice", UserWarning, stacklevel=4)
        elif name != CPU:
            hint = "; for a GPU add the session's entry 'fusewise.device'" if name == CUDA else ""
            warnings.warn(
                f"provider {name!r} is not available; available: {CPU!r}, which runs the model{hint}",
                UserWarning,
                stacklevel=4,
            )
        seen.add(name)


def _names(providers: Sequence[Provider] | None, options: Sequence[dict[Any, Any]] | None) -> list[str]:
    if providers is None:
        return []
    if isinstance(providers, str) or not isinstance(providers, Sequence):
        raise ValueError(f"providers are given as a list of names, not as {providers!r}")
    if options is not None and (
        isinstance(options, str)
        or not isinstance(options, Sequence)
        or len(options) != len(providers)
        or not all(isinstance(each, dict) for each in options)
        or not all(isinstance(each, str) for each in providers)
    ):
        raise ValueError(
            "options of providers are a list with a dictionary for each of the providers, which are names then"
        )
    names = [
        each[0] if isinstance(each, tuple) and len(each) == 2 and isinstance(each[1], dict) else each
        for each in providers
    ]
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"a provider is a name, or a name with a dictionary of options, not {name!r}")
    return [name for name in names if isinstance(name, str)]
