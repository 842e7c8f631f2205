"""The side of the compiler's process: a kernel's text to a cubin. Triton is imported here, and never by whoever asks
(`runtime.gpu.compile`)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from fusewise.codegen.gpu.kernel import IMPORTS
from fusewise.errors import FusewiseError

__all__ = ["compiling", "function_in"]

_PRODUCTS = re.compile(r"\b(?:wgmma\.mma_async|mma\.sync|tcgen05\.mma)\b")
"""Instructions of PTX that multiply tiles on tensor cores."""
_LOCAL = re.compile(r"\b(?:LDL|STL)\b")
"""Instructions of machine code that touch a thread's own memory."""
_HELD_ALIGNMENT = 16
"""Bytes: the most that Triton makes use of."""


def compiling(folder: str) -> Callable[[dict[str, Any]], tuple[dict[str, Any], bytes]]:
    """The job: of a kernel's `symbol`, `source`, `types`, `alignments`, `warps`, `stages`, the `capability` to compile for
    and whether multiplications and additions may be `contracted`, figures, and what is the `want`: the cubin, or PTX as text.
    Files go to `folder`."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    def job(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        function = getattr(function_in(folder, request["symbol"], request["source"]), request["symbol"])
        names = function.arg_names
        if len(names) != len(request["types"]):
            raise FusewiseError(f"its source takes {len(names)} arguments, and {len(request['types'])} are named")
        aligned = [number for number, boundary in enumerate(request["alignments"]) if boundary % _HELD_ALIGNMENT == 0]
        source = ASTSource(
            fn=function,
            signature={name: f"*{kind}" for name, kind in zip(names, request["types"], strict=True)},
            constexprs={},
            attrs={(number,): [["tt.divisibility", _HELD_ALIGNMENT]] for number in aligned},
        )
        options = {
            "num_warps": request["warps"],
            "num_stages": request["stages"],
            "enable_fp_fusion": request["contracted"],
        }
        made = triton.compile(source, target=GPUTarget("cuda", request["capability"], 32), options=options)
        return _figures(made, request["symbol"], len(names), Path(folder)), _form(made.asm[request["want"]])

    return job


def _form(made: str | bytes) -> bytes:
    return made.encode() if isinstance(made, str) else made


def function_in(folder: str, symbol: str, source: str) -> ModuleType:
    """The module with a kernel's source, which lies in a file because Triton reads it there."""
    import importlib.util
    from hashlib import blake2b

    text = IMPORTS + source
    name = f"{symbol}_{blake2b(text.encode(), digest_size=8).hexdigest()}"
    path = Path(folder, f"{name}.py")
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _figures(made: Any, symbol: str, parameters: int, folder: Path) -> dict[str, Any]:
    metadata, ptx = made.metadata, made.asm["ptx"]
    for need in ("global_scratch_size", "profile_scratch_size"):
        if getattr(metadata, need, 0):
            raise FusewiseError(f"Triton wants memory of its own for it ({need}), which no launch here gives")
    entry = re.search(r"\.entry\s+" + re.escape(symbol) + r"\s*\((.*?)\)", ptx, re.DOTALL)
    target = re.search(r"^\.target\s+(\w+)", ptx, re.MULTILINE)
    threads = re.search(r"\.reqntid\s+(\d+)", ptx)
    if entry is None or target is None or threads is None:
        raise FusewiseError("its PTX names no entry, target and number of threads")
    registers, stack = _resources(made.asm["cubin"], folder)
    return {
        "architecture": target[1],
        "registers": registers,
        "shared_bytes": metadata.shared,
        "stack_bytes": stack,
        "tensor_instructions": len(_PRODUCTS.findall(ptx)),
        "threads": int(threads[1]),
        "parameters": parameters,
        "hidden": entry[1].count(".param") - parameters,
    }


def _resources(cubin: bytes, folder: Path) -> tuple[int, int]:
    """Registers of a thread, and bytes of its memory, as NVIDIA's tool tells them. Memory that is set aside and that no instruction
    touches does not count: LLVM leaves some of what it optimised away."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)

    def told(what: str) -> str:
        return subprocess.run([tool, what, path], capture_output=True, text=True, check=True).stdout

    figures = {name: int(value) for name, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", told("-res-usage"))}
    stack = figures["STACK"] + figures["LOCAL"]
    return figures["REG"], stack if stack and _LOCAL.search(told("-sass")) else 0
