"""Runs every small graph on the machine at hand: `python -m tests.emulated.answers FILE` writes there, as NumPy's `.npz`, what
each gives and which kernels it got, and tells how long it took."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from tests.emulated.graphs import CASES, feeds_of

import fusewise

__all__ = ["KERNELS", "answers"]

KERNELS = "kernels of "
"""What the names of a graph's kernels are called in the file, before the name of the graph."""


def answers() -> dict[str, np.ndarray]:
    """Every output of every graph, called by the graph and its number; and the kernels."""
    found = {}
    for name, case in CASES.items():
        begin, graph = time.perf_counter(), case.graph()
        model = fusewise.compile(graph, threads=case.threads, exact=case.exact, cache=False)
        kernels = {event.what for event in model.trace if event.kind == "kernel" and event.applied}
        found[KERNELS + name] = np.array(sorted(kernels))
        for number, array in enumerate(model.run(None, feeds_of(graph))):
            found[f"{name}, output {number}"] = np.asarray(array)
        print(f"  {name}: {time.perf_counter() - begin:.1f} s", flush=True)
    return found


if __name__ == "__main__":
    np.savez(Path(sys.argv[1]), allow_pickle=False, **answers())
