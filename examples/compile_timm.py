# ruff: noqa: T201
"""A vision model of `timm` through `torch.compile`, with this program behind it, beside eager PyTorch.

    python examples/compile_timm.py [MODEL] [--batch 1] [--size 224] [--threads N] [--pretrained]

Weights are random unless pretrained ones are asked for, which `timm` fetches. What is shown: how far the answers are from eager
PyTorch's, how long the first call takes, which compiles, and how long later ones take.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import timm
import torch

from fusewise.dynamo import backend


def seconds(call: Callable[[Any], Any], x: Any, runs: int = 10) -> float:
    """The fastest of several runs, the first of which does not count."""
    call(x)
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        call(x)
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    """Compile, compare, time."""
    parser = argparse.ArgumentParser(description="Compile a model of timm.")
    parser.add_argument("model", nargs="?", default="resnet18")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--threads", type=int, help="default: as many as PyTorch takes")
    parser.add_argument("--pretrained", action="store_true")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    model = timm.create_model(given.model, pretrained=given.pretrained).eval()
    x = torch.randn(given.batch, 3, given.size, given.size)
    fast = torch.compile(model, backend=backend)  # or backend="fusewise", where the package is installed
    with torch.inference_mode():
        begin = time.perf_counter()
        answer = fast(x)
        first = time.perf_counter() - begin
        expected = model(x)
        print(f"difference: {float((answer - expected).abs().max() / expected.abs().max()):.1e} of the largest")
        print(f"first call: {first:.1f} s")
        print(f"run: {seconds(fast, x) * 1e3:.2f} ms, eager PyTorch {seconds(model, x) * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
