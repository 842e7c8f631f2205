"""Kernels written by hand, and programs of them."""

from __future__ import annotations

import importlib.util

import pytest

from fusewise.codegen.gpu.kernel import GpuKernel

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: pip install 'fusewise[gpu]'"
)

BLOCK = 64


def _kernel(symbol: str, arguments: str, body: str, blocks: int = 1, kind: str = "fp32") -> GpuKernel:
    names = tuple(arguments.split())
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    source = f"@triton.jit\ndef {symbol}({', '.join(names)}):\n{lines}"
    return GpuKernel(symbol, source, names, (kind,) * len(names), (16,) * len(names), (blocks,))


def pointwise(symbol: str, arguments: str, expression: str, count: int, kind: str = "fp32") -> GpuKernel:
    """`out = expression` over `count` elements; the arguments but the last, `out`, are loaded by name with `v` before."""
    inputs = arguments.split()
    loads = "\n".join(f"v{name} = tl.load({name} + i, mask=m)" for name in inputs)
    return _kernel(
        symbol,
        f"{arguments} out",
        f"i = tl.program_id(0) * {BLOCK} + tl.arange(0, {BLOCK})\nm = i < {count}\n{loads}\n"
        f"tl.store(out + i, {expression}, mask=m)",
        -(-count // BLOCK),
        kind,
    )


def saxpy(count: int) -> GpuKernel:
    """2 x + y."""
    return pointwise("saxpy", "x y", "vx * 2.0 + vy", count)


def total(count: int) -> GpuKernel:
    """The sum of at most 1024 elements, by a function of Triton's own that is compiled or interpreted as kernels are."""
    return _kernel(
        "total",
        "x out",
        f"i = tl.arange(0, 1024)\ntl.store(out, tl.sum(tl.load(x + i, mask=i < {count}, other=0.0), 0))",
    )


def product(rows: int, columns: int, depth: int, precision: str = "tf32x3") -> GpuKernel:
    """a @ b of float32, of sizes up to 64."""
    size = 64
    return _kernel(
        "product",
        "a b out",
        f"""
r = tl.arange(0, {size})[:, None]
c = tl.arange(0, {size})[None, :]
x = tl.load(a + r * {depth} + c, mask=(r < {rows}) & (c < {depth}), other=0.0)
y = tl.load(b + r * {columns} + c, mask=(r < {depth}) & (c < {columns}), other=0.0)
z = tl.dot(x, y, input_precision="{precision}")
tl.store(out + r * {columns} + c, z, mask=(r < {rows}) & (c < {columns}))""",
    )
