"""A file of a user with PyTorch modules in it, as they are named on the command line."""

from __future__ import annotations

from pathlib import Path

__all__ = ["written"]

_NET = """import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 4)
    def forward(self, x):
        return torch.relu(self.inner(x))

def make():
    return Net(), (torch.ones(2, 6),)

def broken():
    raise ValueError("no weights here")

net, number, example_inputs = Net(), 3, torch.ones(5, 6)
"""


def written(folder: Path) -> Path:
    """The file `net.py` in a folder: a function `make`, one that is `broken`, a class `Net` and a module `net`."""
    path = folder / "net.py"
    path.write_text(_NET)
    return path
