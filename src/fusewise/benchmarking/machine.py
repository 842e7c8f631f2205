"""The machine that something is measured on, in a few facts."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from fusewise.codegen.target import Target
from fusewise.runtime.host import host_target

__all__ = ["this_machine"]

_CPU_FACTS = Path("/proc/cpuinfo")


def this_machine(workers: int, facts: Path = _CPU_FACTS) -> dict[str, Any]:
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
