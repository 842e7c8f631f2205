"""`torch.compile` with this program behind it beside Inductor with freezing, on ten architectures of `transformers` and `timm`.

    python -m benchmarks.torch_compile [NAME ...] [--threads 2] [--runs 15] [--json FILE] [--warm FOLDER]

For each: the first call of either, with empty caches, in a process of its own, from `torch.compile` to the answer; then, in one
process, runs of either in turn, each after a pause in which idle workers go to sleep and a run that is not timed. Answers are
compared with those of eager PyTorch, by the largest difference over the largest answer. `--warm` times runs alone, with the
caches that an earlier call with the same folder left.
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

BACKENDS = ("inductor", "fusewise")
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


def first_call(name: str, backend: str, threads: int) -> dict[str, Any]:
    """Seconds until the first answer, in this process, and how far it is from eager PyTorch's."""
    import torch

    torch.set_num_threads(threads)
    module, inputs = built(name)
    with torch.no_grad(), torch._inductor.config.patch(freezing=backend == "inductor"):
        begin = time.perf_counter()
        answer = compiled(module, backend)(**inputs)
        seconds = time.perf_counter() - begin
        return {"first_s": seconds, "difference": difference(answer, module(**inputs))}


def in_turn(name: str, threads: int, runs: int) -> dict[str, Any]:
    """Milliseconds of runs of both and of eager PyTorch, taken in turn in this process."""
    import torch

    torch.set_num_threads(threads)
    module, inputs = built(name)
    times: dict[str, list[float]] = {}
    with torch.no_grad():
        ways: dict[str, Callable[..., Any]] = {"eager": module}
        for backend in BACKENDS:
            with torch._inductor.config.patch(freezing=backend == "inductor"):
                torch._dynamo.reset()
                ways[backend] = compiled(module, backend)
                ways[backend](**inputs)
        for _ in range(runs):
            for way, call in ways.items():
                time.sleep(PAUSE_SECONDS)
                call(**inputs)
                begin = time.perf_counter()
                call(**inputs)
                times.setdefault(way, []).append((time.perf_counter() - begin) * 1e3)
    return times


def asked(step: str, *arguments: str, folder: Path) -> Any:
    """What one step says in a process of its own, whose caches lie in the folder."""
    caches = {"FUSEWISE_CACHE_DIR": str(folder / "fusewise"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    command = [sys.executable, "-m", "benchmarks.torch_compile", "--step", step, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **caches})
    return json.loads(done.stdout.splitlines()[-1])


def measured(name: str, threads: int, runs: int, warm: Path | None) -> dict[str, Any]:
    """All figures of one architecture."""
    with tempfile.TemporaryDirectory(prefix="fusewise-torch-") as made:
        folder = Path(made) if warm is None else warm
        is_new = warm is None or not (warm / f"{name}.json").exists()
        if is_new:
            first = {one: asked("first", name, one, str(threads), folder=folder) for one in BACKENDS}
            if warm is not None:
                (warm / f"{name}.json").write_text(json.dumps(first))
        else:
            first = json.loads((folder / f"{name}.json").read_text())
        return {"model": name, "first": first, "ms": asked("runs", name, str(threads), str(runs), folder=folder)}


def ratio(found: dict[str, Any]) -> float:
    """How many times as long Inductor takes, by medians."""
    return median(found["ms"]["inductor"]) / median(found["ms"]["fusewise"])


def row(found: dict[str, Any]) -> str:
    """A line of the table."""

    def spread(times: Sequence[float]) -> str:
        return f"{median(times):.2f} ({min(times):.2f} to {max(times):.2f})"

    first = found["first"]
    cells = [
        found["model"],
        *(spread(found["ms"][way]) for way in ("fusewise", "inductor", "eager")),
        f"{ratio(found):.2f}",
        f"{min(found['ms']['inductor']) / min(found['ms']['fusewise']):.2f}",
        *(f"{first[one]['first_s']:.1f}" for one in reversed(BACKENDS)),
        f"{first['fusewise']['difference']:.1e}",
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
    parser.add_argument("--warm", type=Path, help="where caches and first calls are kept")
    parser.add_argument("--step", choices=("first", "runs"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.step == "first":
        name, backend, threads = given.names
        print(json.dumps(first_call(name, backend, int(threads))))
        return
    if given.step == "runs":
        name, threads, runs = given.names
        print(json.dumps(in_turn(name, int(threads), int(runs))))
        return
    packages = ("torch", "timm", "transformers", "onnxscript")
    print(", ".join(f"{name} {version(name)}" for name in packages), f"{given.threads} threads", sep=", ")
    results = []
    print(HEAD, flush=True)
    for name in given.names or MODELS:
        results.append(measured(name, given.threads, given.runs, given.warm))
        print(row(results[-1]), flush=True)
        if given.json:
            given.json.write_text(json.dumps({"machine": machine(given.threads), "results": results}, indent=2) + "\n")
    print(f"geometric mean of the ratios: {math.exp(sum(math.log(ratio(one)) for one in results) / len(results)):.2f}")


if __name__ == "__main__":
    main()
