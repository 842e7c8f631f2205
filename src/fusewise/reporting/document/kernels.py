"""Kernels and steps as parts of the document: the code that was made, and what runs it on what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fusewise.lower.program import HostStep, NativeStep, Program, StepVersions
from fusewise.runtime.run_plan import Contents

__all__ = ["kernel_parts", "step_parts"]


def kernel_parts(program: Program, contents: Contents) -> list[dict[str, Any]]:
    """Every kernel once: its loops and tiles (`nest`), its LLVM IR (`ir`), and bytes of its object file (`code_bytes`)."""
    sizes = dict(zip(contents.symbols, map(len, contents.images), strict=False))
    ways: dict[int, str] = {}
    used: dict[int, list[int]] = {}
    for number, step in enumerate(program.steps):
        for one in _versions(step):
            ways.setdefault(one.kernel, one.way)
            used.setdefault(one.kernel, []).append(number)
    found = []
    for number, kernel in enumerate(program.kernels):
        way, (nest, text) = ways.get(number, ""), kernel.texts()
        found.append(
            {
                "id": number,
                "symbol": kernel.symbol,
                "way": way,
                "family": way.partition(" ")[0] or kernel.key.partition("|")[0],
                "schedule": _schedule(way),
                "nest": nest,
                "ir": text,
                "code_bytes": sizes.get(kernel.symbol),
                "steps": list(dict.fromkeys(used.get(number, ()))),
            }
        )
    return found


def _versions(step: NativeStep | StepVersions | HostStep) -> tuple[NativeStep, ...]:
    if isinstance(step, HostStep):
        return ()
    return (step,) if isinstance(step, NativeStep) else tuple(one for _, one in step.versions)


def _schedule(way: str) -> dict[str, str]:
    """The parameters that a kernel's description names."""
    return dict(part.split("=", 1) for part in way.split(" ") if "=" in part)


def step_parts(program: Program) -> list[dict[str, Any]]:
    """Every step in its order: the kernel that it calls, or why its nodes run on the host, and the values that it touches."""
    groups = len(program.accounts)
    return [
        {"index": number, "group": step.group if 0 <= step.group < groups else None, "label": step.label, **_step(step)}
        for number, step in enumerate(program.steps)
    ]


def _step(step: NativeStep | StepVersions | HostStep) -> Mapping[str, Any]:
    if isinstance(step, HostStep):
        return {
            "kind": "host",
            "kernel": None,
            "barrier": False,
            "strips": 0,
            "reads": _names(step.reads),
            "writes": _names(step.writes),
            "reason": "; ".join(dict.fromkeys(step.reasons)),
        }
    first = _versions(step)[0]
    versions = len(_versions(step))
    return {
        "kind": "native",
        "kernel": first.kernel,
        "barrier": first.barrier,
        "strips": first.strips,
        "reads": list(dict.fromkeys(value for value, written in first.touched if value and not written)),
        "writes": list(dict.fromkeys(value for value, written in first.touched if value and written)),
        "reason": "" if versions == 1 else f"the first of {versions} versions whose conditions hold is run",
    }


def _names(operands: Iterable[Sequence[Any]]) -> list[str]:
    return [str(operand[0]) for operand in operands]
