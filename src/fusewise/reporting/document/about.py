"""What a document says of the model, the machine and the options: its first parts."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fusewise.benchmarking.describe import description
from fusewise.codegen.target import Target
from fusewise.frontend.given import sized_at
from fusewise.ir.deciding import hint
from fusewise.ir.graph import Graph
from fusewise.ir.size import size_of
from fusewise.options import Options, settings_of
from fusewise.runtime.host import host_target

__all__ = ["machine_part", "model_part", "options_part"]

_CPU_FACTS = Path("/proc/cpuinfo")


def model_part(name: str, bound: Graph) -> dict[str, Any]:
    """What the model is; of free dimensions the sizes to plan for are its `symbols`."""
    return {
        "name": name,
        **description(sized_at(bound, {})),
        "inputs": {value: str(bound.types[value]) for value in bound.inputs},
        "outputs": {value: str(bound.types[value]) for value in bound.outputs},
        "symbols": {symbol.name: hint(size_of(symbol)) for symbol in bound.symbols},
    }


def machine_part(workers: int, facts: Path = _CPU_FACTS) -> dict[str, Any]:
    """The processor, its vector registers and caches, and how many `workers` run the model. `facts`: what the system says of
    it."""
    target = host_target()
    caches = (("L1", target.l1_bytes), ("L2", target.l2_bytes), ("L3", target.l3_bytes))
    return {
        "processor": _processor(facts) or target.cpu,
        "system": f"{platform.system()} {platform.machine()}",
        "threads": workers,
        "instruction_set": _instruction_set(target),
        "caches": [{"name": name, "bytes": nbytes} for name, nbytes in caches if nbytes],
    }


def _processor(facts: Path) -> str:
    try:
        lines = facts.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _instruction_set(target: Target) -> str:
    multiplies = ", fused multiply-adds" if target.fma else ""
    return f"{target.cpu}: {target.registers} vector registers of {target.vector_bits} bits{multiplies}"


def options_part(options: Options) -> dict[str, Any]:
    """The options that are not as they are by default, as plain data."""
    said, usual = (_plain(one) for one in (options, Options()))
    return {name: value for name, value in said.items() if value != usual[name]}


def _plain(options: Options) -> Mapping[str, Any]:
    passes = options.passes if isinstance(options.passes, bool | str) else [str(one) for one in options.passes]
    numbers = ("threads", "tune", "memory_limit", "specialize")
    return {
        **settings_of(options),
        "passes": passes,
        "cache": options.cache if isinstance(options.cache, bool) else str(options.cache),
        **{name: getattr(options, name) for name in numbers},
    }
