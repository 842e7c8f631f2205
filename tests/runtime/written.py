"""Programs written by hand, for tests of what runs them."""

import numpy as np

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant
from fusewise.ir.types import TensorType
from fusewise.lower.program import Buffer, HostStep, KernelCode, NativeStep, Place, Port, Program

F8 = TensorType(FLOAT32, (2, 4))


def binary(symbol, count, element="float", operation="fadd"):
    """target[i] = a[i] op b[i] for arguments (a, b, target), shared among the workers element by element."""
    text = f"""
    define void @{symbol}(ptr %arguments, i64 %worker, i64 %workers) {{
    entry:
      %a = load ptr, ptr %arguments
      %b.at = getelementptr ptr, ptr %arguments, i64 1
      %b = load ptr, ptr %b.at
      %c.at = getelementptr ptr, ptr %arguments, i64 2
      %c = load ptr, ptr %c.at
      %any = icmp slt i64 %worker, {count}
      br i1 %any, label %loop, label %done
    loop:
      %i = phi i64 [ %worker, %entry ], [ %next, %loop ]
      %pa = getelementptr {element}, ptr %a, i64 %i
      %pb = getelementptr {element}, ptr %b, i64 %i
      %pc = getelementptr {element}, ptr %c, i64 %i
      %x = load {element}, ptr %pa
      %y = load {element}, ptr %pb
      %z = {operation} {element} %x, %y
      store {element} %z, ptr %pc
      %next = add i64 %i, %workers
      %more = icmp slt i64 %next, {count}
      br i1 %more, label %loop, label %done
    done:
      ret void
    }}"""
    return KernelCode(symbol, f"binary {count} {element} {operation}", lambda: text)


def host_step(node, opset, reads, writes, reason="", group=-1):
    """A step of one node; what it leaves out is written as in the node, under an empty name."""
    named = [tuple(operand for operand in operands if operand[0]) for operands in (reads, writes)]
    return HostStep((node,), opset, *named, (reason,), group)


def constant(array):
    return Buffer("constant", array.nbytes, value="w", data=Constant(np.asarray(array)))


def program(buffers, kernels, steps, **changes):
    """One float32[2,4] input `x` in buffer 0 and output `y` in buffer 1, unless `changes` say otherwise."""
    settled = {
        "inputs": (Port("x", F8, 0),),
        "outputs": (Port("y", F8, 1),),
        "arena_bytes": max([b.offset + b.nbytes for b in buffers if b.kind == "arena"], default=0),
        "groups": len(steps),
        "opsets": (("", 22),),
        "workers": 3,
    }
    return Program(**settled | {"buffers": tuple(buffers), "kernels": tuple(kernels), "steps": tuple(steps)} | changes)


W = np.arange(8, dtype=np.float32).reshape(2, 4) / 3
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def chain():
    """y = ((x + w) + x) + w, through two arena slots."""
    add = binary("add", 8)
    buffers = [
        Buffer("input", 32, value="x"),
        Buffer("output", 32, value="y"),
        Buffer("arena", 32, 0),
        Buffer("arena", 32, 64),
        constant(W),
    ]
    steps = [
        NativeStep(0, (Place(0), Place(4), Place(2)), "first", 0),
        NativeStep(0, (Place(2), Place(0), Place(3)), "second", 1),
        NativeStep(0, (Place(3), Place(4), Place(1)), "third", 2),
    ]
    return program(buffers, [add], steps)
