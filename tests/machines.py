"""The machines that tests generate code for: this one, and the generic ones whose code it runs."""

from __future__ import annotations

import llvmlite.binding as llvm

from fusewise.codegen.target import TARGETS, Target
from fusewise.runtime.host import host_target

__all__ = ["runnable"]

NEEDS = {
    "avx512": "avx512f avx512bw avx512cd avx512dq avx512vl avx2 bmi bmi2 f16c fma lzcnt movbe",
    "avx2": "avx2 bmi bmi2 f16c fma lzcnt movbe",
    "sse2": "sse2",
    "neon": "neon",
}
"""Features of a CPU, by LLVM's names, without which it does not run code for a generic target."""


def runnable() -> tuple[Target, ...]:
    """What `runtime.host` describes, named `host`, and every generic target that this machine can stand for."""
    host = host_target()
    present = {name for name, is_present in llvm.get_host_cpu_features().items() if is_present}
    family = host.triple.split("-", 1)[0]
    others = (t for t in TARGETS if t.triple.split("-", 1)[0] == family and present.issuperset(NEEDS[t.name].split()))
    return host, *others
