"""What one core makes of its matrix unit: products of several sizes, as shares of what the unit does in registers alone.

    python -m benchmarks.matrix_unit [--sizes 256,512,1024] [--json FILE]

A product has as many rows and columns as it is deep, its right operand is a constant, and it is compiled and run as a model of one
worker: in bfloat16 (`precision="bfloat16"`), in bytes (MatMulInteger, unsigned by signed), and in float32, by parts where the cost
model says so. A share of float32 in parts is of a third of the peak of bfloat16, as it takes three products for one. The peak
is a loop of nothing but products of tiles that are loaded once. Times are the least of several runs. Where there is no matrix unit,
or the system refuses it, it says so. Run it from the root of the repository, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fusewise
from fusewise.codegen.instructions.table import AMX_BF16, AMX_INT8
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.instruction import Instruction, TileIn
from fusewise.codegen.target import Target
from fusewise.files import write_text
from fusewise.ir.dtypes import INT8, UINT8
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load

SIZES = (256, 512, 768, 1024)
CHAINS, ROUNDS, CALLS = 4, 20_000, 50
"""Sums that are added to in turn, which hide the latency of a product; how often each in a call; and calls."""

BYTES = next(row for row in AMX_INT8 if (row.left, row.right) == (UINT8, INT8))


def peak_program(row: Instruction) -> Module:
    """A function of memory for a tile and a number of rounds."""
    module = Module()
    f = module.function("peak", ("ptr", "i64"))
    memory, count = f.arguments
    form = row.matrix
    assert form is not None
    form.unit.begin(f)
    for number in range(CHAINS):
        form.unit.zero(f, number)
    for number in (CHAINS, CHAINS + 1):
        form.unit.load(f, number, TileIn(memory, 64))

    def once(_: Any, carried: Sequence[Any]) -> None:
        for number in range(CHAINS):
            form.multiply(f, number, CHAINS, CHAINS + 1)

    f.loop(0, count, 1, once, rolled=True)
    for number in range(CHAINS):
        form.unit.store(f, number, TileIn(memory, 64))
    form.unit.end(f)
    f.give_back()
    return module


def peak(row: Instruction, target: Target) -> float:
    """Giga-operations a second of one core, two for each product."""
    library = load([compile_object(llvm_text(peak_program(row), target), target, "full")], ["peak"])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.addresses["peak"])
    tile = np.zeros(1024, np.uint8)
    best = least(lambda: call(tile.ctypes.data, ROUNDS), CALLS)
    assert row.matrix is not None
    return 2 * row.rows * row.lanes * row.matrix.steps * row.terms * CHAINS * ROUNDS / best / 1e9


def least(run: Callable[[], object], calls: int) -> float:
    """Seconds of the fastest of several calls."""
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


def floats(n: int) -> Graph:
    b, rng = GraphBuilder("product"), np.random.default_rng(0)
    return b.finish(b.op("MatMul", b.input("x", (n, n)), b.constant(rng.standard_normal((n, n), dtype=np.float32))))


def whole(n: int) -> Graph:
    b, rng = GraphBuilder("product"), np.random.default_rng(0)
    weights = rng.integers(-127, 128, (n, n)).astype(np.int8)
    return b.finish(b.op("MatMulInteger", b.input("x", (n, n), UINT8), b.constant(weights)))


KINDS: Mapping[str, tuple[Callable[[int], Graph], Instruction, int, Mapping[str, Any]]] = {
    "bfloat16": (floats, AMX_BF16, 1, {"precision": "bfloat16"}),
    "int8": (whole, BYTES, 1, {}),
    "float32": (floats, AMX_BF16, 3, {}),
}
"""By name: a graph of a size, the instruction, its products for one, and settings."""


def measured(kind: str, n: int, calls: int = CALLS) -> dict[str, Any]:
    """Giga-operations a second of a product, and the kernels that it was compiled to."""
    graph_of, _, _, settings = KINDS[kind]
    model = fusewise.compile(graph_of(n), threads=1, cache=False, **settings)
    feeds = model.random_inputs()
    best = least(lambda: model.run(None, feeds), calls)
    kernels = {event.what for event in model.trace if event.kind == "kernel" and event.applied}
    return {"kind": kind, "size": n, "gflops": 2 * n**3 / best / 1e9, "kernels": sorted(kernels)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="rows, columns and depth, with commas")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there, too")
    given = parser.parse_args(arguments)
    target = host_target()
    if not AMX_BF16.is_native(target) or not BYTES.is_native(target):
        print(f"No matrix unit here ({target.cpu}).")
        return 0
    peaks = {row.name: peak(row, target) for row in (AMX_BF16, BYTES)}
    print("peak: " + ", ".join(f"{name} {rate:.0f} GFLOP/s" for name, rate in peaks.items()))
    rows = []
    for kind, (_, row, products, _) in KINDS.items():
        for n in map(int, given.sizes.split(",")):
            found = measured(kind, n)
            rows.append({**found, "share": found["gflops"] * products / peaks[row.name]})
            print(
                f"{kind:9} {n:5}  {found['gflops']:7.0f} GFLOP/s  {rows[-1]['share']:6.1%}  {', '.join(found['kernels'])}"
            )
    if given.json is not None:
        write_text(given.json, json.dumps({"cpu": target.cpu, "peaks": peaks, "products": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
