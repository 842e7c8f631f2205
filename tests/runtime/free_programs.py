"""Programs with symbols, written by hand: what tests of plans, files and limits run."""

from __future__ import annotations

import numpy as np

from fusewise.ir.deciding import Condition
from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.ir.graph import Check, Constant
from fusewise.ir.size import Symbol, size_of
from fusewise.ir.types import TensorType
from fusewise.lower.program import (
    SIZES,
    Buffer,
    KernelCode,
    NativeStep,
    Place,
    Port,
    Program,
    StepVersions,
)

BATCH, SEQUENCE = Symbol("batch", 0, 1000), Symbol("sequence", 1, 4096)
B, S = size_of(BATCH), size_of(SEQUENCE)
COLUMNS = 4


def arithmetic(symbol: str, operation: str) -> KernelCode:
    """target[i] = a[i] op b[i % sizes[1]] for i < sizes[0], for arguments (a, b, target, sizes), dealt out element by element."""
    text = f"""
    define void @{symbol}(ptr %arguments, i64 %low, i64 %high, i64 %of, i64 %worker, i64 %again) {{
    entry:
      %a = load ptr, ptr %arguments
      %b.at = getelementptr ptr, ptr %arguments, i64 1
      %b = load ptr, ptr %b.at
      %c.at = getelementptr ptr, ptr %arguments, i64 2
      %c = load ptr, ptr %c.at
      %sizes.at = getelementptr ptr, ptr %arguments, i64 3
      %sizes = load ptr, ptr %sizes.at
      %count = load i64, ptr %sizes
      %period.at = getelementptr i64, ptr %sizes, i64 1
      %period = load i64, ptr %period.at
      %any = icmp slt i64 %low, %count
      br i1 %any, label %loop, label %done
    loop:
      %i = phi i64 [ %low, %entry ], [ %next, %loop ]
      %j = srem i64 %i, %period
      %pa = getelementptr float, ptr %a, i64 %i
      %pb = getelementptr float, ptr %b, i64 %j
      %pc = getelementptr float, ptr %c, i64 %i
      %x = load float, ptr %pa
      %y = load float, ptr %pb
      %z = {operation} float %x, %y
      store float %z, ptr %pc
      %next = add i64 %i, %of
      %more = icmp slt i64 %next, %count
      br i1 %more, label %loop, label %done
    done:
      ret void
    }}"""
    return KernelCode(symbol, f"free {operation}", lambda: text)


W = np.arange(COLUMNS, dtype=np.float32) / 3


def step(kernel: int, a: Place, b: Place, target: Place, count: int, period: int) -> NativeStep:
    return NativeStep(kernel, (a, b, target, Place(SIZES)), f"step {kernel}", 0, sizes=(count, period))


def free_program(**changes: object) -> Program:
    """y = (x + w) * w, and z = x - w over the rows before the last, if there are few, else (x + w) over them.

    `x` is float32[batch, sequence, 4] and `mask` float32[batch, sequence]; `shape` is the shape of x, int64[3]. The intermediate
    x + w lies in the arena.
    """
    count = B * S * COLUMNS
    kind, less = TensorType(FLOAT32, (B, S, COLUMNS)), TensorType(FLOAT32, (B * S - B, COLUMNS))
    buffers = (
        Buffer("input", count * 4, value="x"),
        Buffer("input", B * S * 4, value="mask"),
        Buffer("output", count * 4, value="y"),
        Buffer("output", 4 * COLUMNS * (B * S - B), value="z"),
        Buffer("constant", W.nbytes, value="w", data=Constant(W)),
        Buffer("arena", count * 4, place=0),
        Buffer("sizes", 24, value="shape", contents=(B, S, COLUMNS)),
        Buffer("sizes", 8, value="narrow", contents=(B * S, S // 2)),
    )
    few = Condition("nonnegative", 8 - S)
    last = Place(5, COLUMNS * 4 * B)
    steps = (
        step(0, Place(0), Place(4), Place(5), count, COLUMNS),
        step(1, Place(5), Place(4), Place(2), count, COLUMNS),
        StepVersions(
            COLUMNS * (B * S - B),
            (
                ((few,), step(2, Place(0), Place(4), Place(3), COLUMNS * (B * S - B), COLUMNS)),
                ((), step(3, last, Place(4), Place(3), COLUMNS * (B * S - B), COLUMNS)),
            ),
        ),
    )
    settled: dict[str, object] = {
        "inputs": (Port("x", kind, 0), Port("mask", TensorType(FLOAT32, (B, S)), 1)),
        "outputs": (
            Port("y", kind, 2),
            Port("z", less, 3),
            Port("shape", TensorType(INT64, (3,)), 6),
            Port("middle", kind, 5),
        ),
        "buffers": buffers,
        "kernels": tuple(
            arithmetic(name, op) for name, op in (("add", "fadd"), ("mul", "fmul"), ("sub", "fsub"), ("add2", "fadd"))
        ),
        "steps": steps,
        "arena_bytes": 4096,
        "groups": 3,
        "opsets": (("", 22),),
        "workers": 2,
        "symbols": (BATCH, SEQUENCE),
        "checks": (Check(Condition("nonzero", S - 13), "node 'n' (Reshape) cannot take 13 tokens"),),
    }
    return Program(**settled | changes)  # type: ignore[arg-type]


def feeds(batch: int, sequence: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch * 5000 + sequence)
    x = rng.standard_normal((batch, sequence, COLUMNS)).astype(np.float32)
    return {"x": x, "mask": np.ones((batch, sequence), np.float32)}


def answers(given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What `free_program` gives."""
    x = given["x"]
    batch, sequence, _ = x.shape
    rows = x.reshape(-1, COLUMNS)
    many = (rows + W)[batch:] + W if batch else rows
    z = rows[: batch * sequence - batch] - W if sequence <= 8 else many
    return [(x + W) * W, z, np.array(x.shape, np.int64), x + W]
