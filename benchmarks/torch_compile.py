"""`torch.compile` with this program behind it beside Inductor with freezing, on ten architectures of `transformers` and `timm`.

    python -m benchmarks.torch_compile [NAME ...] [--threads 2] [--runs 15] [--json FILE]

It needs `timm`, which the extra `dev` does without: timm brings torchvision, and where that does not fit the build of PyTorch
`transformers` cannot be imported either.

For each, in a process of its own with empty caches: the first call of ours, which also pays for what both import, and of
Inductor's, from `torch.compile` to the answer; then runs of both and of eager PyTorch in turn, each after a pause in which idle
workers go to sleep and a run that is not timed. Answers are compared with eager PyTorch's, by the largest difference over the
largest answer.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.torch_models import MODELS, built
from benchmarks.zoo import machine

BACKENDS = ("fusewise", "inductor")
PAUSE_SECONDS = 0.03
"""Longer than idle workers of either spin."""


def compiled(module: Any, backend: str) -> Callable[..., Any]:
    """The module through `torch.compile`. Dynamo forgets what it has compiled before."""
    import torch

    if backend == "inductor":
        return torch.compile(module, backend="inductor")
    from fusewise.dynamo import backend as ours

    return torch.compile(module, backend=ours)


def leaves(found: Any) -> list[Any]:
    """The tensors of an answer."""
    import torch

    values = found.to_tuple() if hasattr(found, "to_tuple") else found
    return [one for one in torch.utils._pytree.tree_leaves(values) if isinstance(one, torch.Tensor)]


def difference(found: Any, expected: Any) -> float:
    """Of two answers, the largest over all outputs of max |a - b| / max |b|."""
    pairs = zip(leaves(found), leaves(expected), strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def measured_here(name: str, threads: int, runs: int) -> dict[str, Any]:
    """All figures of one architecture, in this process: seconds of first calls, milliseconds of runs, the largest differences."""
    import torch

    torch.set_num_threads(threads)
    module, inputs = built(name)
    ways: dict[str, Callable[..., Any]] = {"eager": module}
    found: dict[str, Any] = {"model": name, "first_s": {}, "difference": {}, "ms": {}}
    with torch.no_grad():
        expected = module(**inputs)
        for backend in BACKENDS:
            torch._dynamo.reset()
            with torch._inductor.config.patch(freezing=backend == "inductor"):
                begin = time.perf_counter()
                ways[backend] = compiled(module, backend)
                answer = ways[backend](**inputs)
                found["first_s"][backend] = time.perf_counter() - begin
            found["difference"][backend] = difference(answer, expected)
        for _ in range(runs):
            for way, call in ways.items():
                time.sleep(PAUSE_SECONDS)
                call(**inputs)
                begin = time.perf_counter()
                call(**inputs)
                found["ms"].setdefault(way, []).append((time.perf_counter() - begin) * 1e3)
    return found


def measured(name: str, threads: int, runs: int) -> dict[str, Any]:
    """The same in a process of its own, with empty caches."""
    with tempfile.TemporaryDirectory(prefix="fusewise-torch-") as folder:
        caches = {"FUSEWISE_CACHE_DIR": f"{folder}/fusewise", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
        command = [
            sys.executable,
            "-m",
            "benchmarks.torch_compile",
            name,
            "--threads",
            str(threads),
            "--runs",
            str(runs),
        ]
        environment = {**os.environ, **caches}
        done = subprocess.run([*command, "--here"], stdout=subprocess.PIPE, text=True, check=True, env=environment)
        return dict(json.loads(done.stdout.splitlines()[-1]))


def ratio(found: dict[str, Any]) -> float:
    """How many times as long Inductor takes, by medians."""
    return median(found["ms"]["inductor"]) / median(found["ms"]["fusewise"])


def row(found: dict[str, Any]) -> str:
    """A line of the table."""

    def spread(times: Sequence[float]) -> str:
        return f"{median(times):.2f} ({min(times):.2f} to {max(times):.2f})"

    cells = [
        found["model"],
        *(spread(found["ms"][way]) for way in (*BACKENDS, "eager")),
        f"{ratio(found):.2f}",
        f"{min(found['ms']['inductor']) / min(found['ms']['fusewise']):.2f}",
        *(f"{found['first_s'][backend]:.1f}" for backend in BACKENDS),
        f"{found['difference']['fusewise']:.1e}",
    ]
    return f"| {' | '.join(cells)} |"


HEAD = """\
| model | fusewise ms | inductor ms | eager ms | ratio of medians | of least | first call s | inductor's | difference |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure torch.compile with Fusewise beside Inductor with freezing.")
    parser.add_argument("names", nargs="*", help=f"architectures (default: all): {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.here:
        print(json.dumps(measured_here(given.names[0], given.threads, given.runs)))
        return
    packages = ("torch", "timm", "transformers", "onnxscript")
    print(", ".join(f"{name} {version(name)}" for name in packages), f"{given.threads} threads", sep=", ")
    results = []
    print(HEAD, flush=True)
    for name in given.names or MODELS:
        results.append(measured(name, given.threads, given.runs))
        print(row(results[-1]), flush=True)
        if given.json:
            given.json.write_text(json.dumps({"machine": machine(given.threads), "results": results}, indent=2) + "\n")
    print(f"geometric mean of the ratios: {math.exp(sum(math.log(ratio(one)) for one in results) / len(results)):.2f}")


if __name__ == "__main__":
    main()
