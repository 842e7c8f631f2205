"""Speed of single kernels on one core: GFLOP/s, share of the core's peak and compile time, for shapes of well-known networks.

    python benchmarks/kernels.py [--json] [--only TEXT]

Each kernel is compiled by its favourite schedule and called as the only worker. The time is that of the calling thread on
the processor, best of several calls, so that other programs on the machine disturb little. The peak is that of a loop of
nothing but fused multiply-adds on registers. Winograd's form counts as the direct one, so its share may be above 100.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusewise.codegen.choose import alternatives
from fusewise.codegen.kernel import Implementation
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tree import vector
from fusewise.codegen.steps.prefetch import next_bytes
from fusewise.codegen.target import Target
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, Operand, Store, Task
from fusewise.ops.expr import Expr, index, load
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object
from fusewise.runtime.jit import load as link


@dataclass(frozen=True)
class Case:
    """One kernel to time: the network it is from, the task, and its arithmetic operations."""

    network: str
    what: str
    task: Task
    flops: int


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    stored = dense((shape[0], *shape[2:], shape[1]))
    return (stored[0], stored[-1], *stored[1:-1])


def element(name: str, rank: int, prefix: str = "p") -> Expr:
    return load(name, FLOAT32, tuple(index(f"{prefix}{k}") for k in range(rank)))


def anchored(
    op: str,
    family: str,
    attributes: dict[str, object],
    operands: Sequence[Operand],
    out: tuple[int, ...],
    result: Operand,
) -> Task:
    anchor = Anchor(
        op,
        family,
        tuple(attributes.items()),
        tuple(TensorType(FLOAT32, o.shape) for o in operands),
        tuple(element(o.name, len(o.shape)) for o in operands),
        TensorType(FLOAT32, out),
    )
    at = tuple(index(f"i{k}") for k in range(len(out)))
    return Task(out, (*operands, result), (Store(result.name, at, load(ACC, FLOAT32, at)),), anchor)


def convolution(
    network: str,
    size: int,
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    image: bool = False,
) -> Case:
    pad = kernel // 2
    extent = (size + 2 * pad - kernel) // stride + 1
    x, w, y = (1, inputs, size, size), (outputs, inputs // groups, kernel, kernel), (1, outputs, extent, extent)
    operands = (
        Operand("in0", FLOAT32, x, dense(x) if image else channels_last(x)),
        Operand("const0", FLOAT32, w, dense(w), constant=True),
        Operand("const1", FLOAT32, (outputs,), (1,), constant=True),
    )
    attributes: dict[str, object] = {"strides": (stride,) * 2, "pads": (pad,) * 4, "group": groups}
    task = anchored("Conv", "conv", attributes, operands, y, Operand("out0", FLOAT32, y, channels_last(y)))
    kind = f"{kernel}x{kernel}/{stride}" + (f" groups {groups}" if groups > 1 else "")
    return Case(network, f"{kind} {size}x{size} {inputs}->{outputs}", task, 2 * math.prod(y) * math.prod(w[1:]))


def product(network: str, rows: int, depth: int, columns: int) -> Case:
    a, b, y = (rows, depth), (depth, columns), (rows, columns)
    operands = (Operand("in0", FLOAT32, a, dense(a)), Operand("const0", FLOAT32, b, dense(b), constant=True))
    task = anchored("MatMul", "matmul", {}, operands, y, Operand("out0", FLOAT32, y, dense(y)))
    return Case(network, f"product {rows}x{depth}x{columns}", task, 2 * rows * depth * columns)


def heads(network: str, count: int, rows: int, depth: int, columns: int, keys: bool) -> Case:
    """One of attention's two products; heads lie side by side in memory, as projections write them."""
    a, b, y = (1, count, rows, depth), (1, count, depth, columns), (1, count, rows, columns)
    side_by_side = (rows * count * depth, depth, count * depth, 1)
    left = side_by_side if keys else dense(a)
    right = (columns * count * depth, depth, 1, count * depth) if keys else (1, columns, count * columns, 1)
    operands = (Operand("in0", FLOAT32, a, left), Operand("in1", FLOAT32, b, right))
    task = anchored("MatMul", "matmul", {}, operands, y, Operand("out0", FLOAT32, y, dense(y)))
    flops = 2 * math.prod(y) * depth
    return Case(network, f"{'scores' if keys else 'context'} {count}x{rows}x{depth}x{columns}", task, flops)


def attention(network: str, count: int, tokens: int, size: int, causal: bool = False) -> Case:
    """A whole attention; heads lie side by side in memory. Under a causal mask only half of the operations are counted."""
    shape = (1, count, tokens, size)
    side_by_side = (tokens * count * size, size, count * size, 1)
    operands = [Operand(f"in{k}", FLOAT32, shape, side_by_side) for k in range(3)]
    attributes: dict[str, object] = {"is_causal": int(causal)}
    task = anchored(
        "Attention", "attention", attributes, operands, shape, Operand("out0", FLOAT32, shape, side_by_side)
    )
    flops = 4 * count * tokens * tokens * size // (2 if causal else 1)
    return Case(network, f"attention {count}x{tokens}x{size}{' causal' if causal else ''}", task, flops)


CASES: tuple[Case, ...] = (
    convolution("ResNet-50", 224, 3, 64, 7, 2, image=True),
    convolution("ResNet-50", 56, 64, 64, 1),
    convolution("ResNet-50", 56, 64, 64, 3),
    convolution("ResNet-50", 56, 64, 256, 1),
    convolution("ResNet-50", 56, 256, 512, 1, 2),
    convolution("ResNet-50", 28, 128, 128, 3),
    convolution("ResNet-50", 14, 256, 256, 3),
    convolution("ResNet-50", 14, 1024, 256, 1),
    convolution("ResNet-50", 7, 512, 512, 3),
    convolution("ResNet-50", 7, 512, 2048, 1),
    product("ResNet-50", 1, 2048, 1000),
    convolution("ResNeXt-50", 56, 128, 128, 3, 1, 32),
    convolution("ResNeXt-50", 28, 256, 256, 3, 1, 32),
    convolution("ResNeXt-50", 14, 512, 512, 3, 1, 32),
    convolution("VGG16", 224, 64, 64, 3),
    convolution("VGG16", 112, 128, 128, 3),
    convolution("VGG16", 28, 512, 512, 3),
    convolution("VGG16", 14, 512, 512, 3),
    product("VGG16", 1, 25088, 4096),
    convolution("MobileNetV2", 224, 3, 32, 3, 2, image=True),
    convolution("MobileNetV2", 112, 32, 32, 3, 1, 32),
    convolution("MobileNetV2", 112, 16, 96, 1),
    convolution("MobileNetV2", 112, 96, 96, 3, 2, 96),
    convolution("MobileNetV2", 56, 144, 24, 1),
    convolution("MobileNetV2", 14, 384, 384, 3, 1, 384),
    convolution("MobileNetV2", 7, 960, 960, 3, 1, 960),
    convolution("MobileNetV2", 7, 160, 960, 1),
    convolution("ConvNeXt-Tiny", 56, 96, 96, 7, 1, 96),
    product("BERT-base", 128, 768, 768),
    product("BERT-base", 128, 768, 3072),
    product("BERT-base", 128, 3072, 768),
    heads("BERT-base", 12, 128, 64, 128, keys=True),
    heads("BERT-base", 12, 128, 128, 64, keys=False),
    attention("BERT-base", 12, 128, 64),
    attention("GPT-2", 12, 128, 64, causal=True),
    product("GPT-2", 128, 768, 50257),
    product("ViT-B/16", 197, 768, 3072),
    product("ViT-B/16", 197, 3072, 768),
    attention("ViT-B/16", 12, 197, 64),
    product("MobileBERT", 128, 128, 512),
    product("MobileBERT", 128, 512, 128),
    attention("MobileBERT", 4, 128, 32),
    product("odd", 131, 257, 515),
    product("odd", 999, 500, 333),
)


def peak_gflops(target: Target) -> float:
    """What one core does in fused multiply-adds, on as many independent registers as hide their latency."""
    chains, rounds = 12, 100_000
    module = Module()
    f = module.function("peak", ("ptr", "i64"))
    memory, count = f.arguments
    kind = vector("float", target.lanes)
    a, b = f.load(kind, memory), f.load(kind, f.at(memory, target.lanes))
    start = [f.load(kind, f.at(memory, (k + 2) * target.lanes)) for k in range(chains)]
    sums = f.loop(
        0, count, 1, lambda _, carried: [multiply_add(f, target, x, a, b) for x in carried], start, rolled=True
    )
    for k, value in enumerate(sums):
        f.store(value, f.at(memory, k * target.lanes))
    f.give_back()
    library = link([compile_object(llvm_text(module, target.instructions), target)], ["peak"])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.addresses["peak"])
    room = np.zeros((chains + 2) * target.lanes, np.float32)
    times = []
    for _ in range(100):
        begin = time.thread_time()
        call(room.ctypes.data, rounds)
        times.append(time.thread_time() - begin)
    return 2 * chains * target.lanes * rounds / min(times) / 1e9


def arrays_of(way: Implementation, target: Target) -> list[np.ndarray]:
    """A buffer per argument: random operands, packed where the kernel wants them so, scratch for one worker."""
    rng = np.random.default_rng(0)
    found = []
    for argument in way.arguments:
        if argument.name == "scratch":
            found.append(np.zeros(argument.nbytes + 64, np.uint8))
            continue
        if argument.name == "next":
            found.append(np.zeros(next_bytes(target), np.uint8))
            continue
        plain = rng.standard_normal(way.task.operand(argument.name).shape, dtype=np.float32)
        packed = plain if argument.packing is None else argument.packing.pack(plain)
        # as the runtime has it, buffers begin at a cache line
        room = np.empty(packed.size + 16, np.float32)
        start = -room.ctypes.data % 64 // 4
        room[start : start + packed.size] = packed.reshape(-1)
        found.append(room[start : start + packed.size])
    return found


def measure(case: Case, target: Target, seconds: float) -> dict[str, object]:
    """Compile a case and time it."""
    way = next(alternatives(case.task, target))
    began = time.process_time()
    text = llvm_text(way.build(target.instructions, "kernel"), target.instructions)
    written = time.process_time()
    library = link([compile_object(text, target, way.level)], ["kernel"])
    compiled = time.process_time()
    arrays = arrays_of(way, target)
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 5)(library.addresses["kernel"])
    call(pointers, 0, 1, 1, 0, 0)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 200):
        start = time.thread_time()
        call(pointers, 0, 1, 1, 0, 0)
        times.append(time.thread_time() - start)
    best = min(times)
    return {
        "network": case.network,
        "case": case.what,
        "kernel": way.kernel.name,
        "gflops": case.flops / best / 1e9,
        "ms": best * 1e3,
        "ir_ms": (written - began) * 1e3,
        "llvm_ms": (compiled - written) * 1e3,
        "schedule": repr(way.schedule),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write JSON")
    parser.add_argument("--only", default="", help="cases whose network or shape contains this")
    parser.add_argument("--seconds", type=float, default=0.3, help="time spent on each case")
    options = parser.parse_args()
    target = host_target()
    peak = peak_gflops(target)
    if not options.json:
        sys.stdout.write(f"peak of one core: {peak:.1f} GFLOP/s\n")
    rows = []
    for case in CASES:
        if options.only not in f"{case.network} {case.what}":
            continue
        row = measure(case, target, options.seconds)
        rows.append(row)
        if not options.json:
            sys.stdout.write(
                f"{row['network']:14} {row['case']:32} {row['gflops']:7.1f} GFLOP/s {row['gflops'] / peak:4.0%} {row['ms']:9.3f} ms"
                f"   compiled in {row['ir_ms']:4.1f} + {row['llvm_ms']:5.1f} ms\n"
            )
            sys.stdout.flush()
    if options.json:
        json.dump(
            {"target": target.cpu, "vector_bits": target.vector_bits, "peak_gflops": peak, "cases": rows},
            sys.stdout,
            indent=1,
        )
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
