"""PyTorch, for those who come after: imported late, on one thread, from a seed, and put back as it was.

Batches of fusion groups are small, so that a second thread costs more than it gives; and the user's own settings of PyTorch are
not ours to change.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from fusewise.errors import UsageError

__all__ = ["PACKAGES", "at_work", "require"]

PACKAGES = ("torch", "torch_geometric", "safetensors")
"""What the extra `explain` installs."""


def require(what: str) -> Any:
    """The module `torch`, once all of `PACKAGES` are there; `UsageError` that says what to install, for `what` to work."""
    for package in PACKAGES:
        try:
            importlib.import_module(package)
        except ImportError:
            raise UsageError(f"{what} needs the package {package!r}; install fusewise[explain]") from None
    return importlib.import_module("torch")


@contextlib.contextmanager
def at_work(seed: int) -> Iterator[None]:
    """PyTorch on one thread with its random numbers from `seed`; afterwards both are as before."""
    import torch

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
