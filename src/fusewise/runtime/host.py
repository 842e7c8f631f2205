"""Describes this machine: what code is generated for, how many workers it should have, how much memory it may use.

Everything is read from LLVM, `/proc` and `/sys`; a source that is missing is left out, so containers and other systems get
sensible answers. `root` lets a test stand another machine's files in place of this one's.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import takewhile
from pathlib import Path

from fusewise.codegen.machine.processors import PROCESSORS, Processor
from fusewise.codegen.target import Target
from fusewise.errors import ResourceLimit, UsageError
from fusewise.runtime.permission import permits_tiles
from fusewise.words import size_text

__all__ = [
    "MAXIMUM_WORKERS",
    "MEMORY_SHARE",
    "check_memory",
    "host_target",
    "memory_limit",
    "planned_limit",
    "processor",
    "target_of",
    "worker_count",
]

MAXIMUM_WORKERS = 256
"""More workers than this are refused: a barrier among them would cost more than the work."""

MEMORY_SHARE = 0.8
"""The part of the memory limit that a program's planned buffers may take."""

_SYSTEM = Path("/")


@cache
def host_target() -> Target:
    """The CPU this process runs on, with what the system lets it use."""
    import llvmlite.binding as llvm

    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # a system whose features LLVM cannot read: stay with what every such CPU has
        features = {}
    features = _permitted(features)
    flags = {name for name, present in features.items() if present}
    text = ",".join(f"{'+' if present else '-'}{name}" for name, present in sorted(features.items()))
    target = target_of(llvm.get_process_triple(), llvm.get_host_cpu_name(), flags)
    sizes = cache_bytes()
    return replace(
        target,
        features=text,
        l1_bytes=sizes.get("l1_bytes", target.l1_bytes),
        l2_bytes=sizes.get("l2_bytes", target.l2_bytes),
        l3_bytes=sizes.get("l3_bytes", target.l3_bytes),
    )


def _permitted(features: Mapping[str, bool]) -> dict[str, bool]:
    """Features, without tiles where this process may not use them."""
    tiles = {name for name, present in features.items() if present and name.startswith("amx")}
    refused = tiles if tiles and not permits_tiles() else set()
    return {name: present and name not in refused for name, present in features.items()}


def target_of(triple: str, cpu: str, flags: set[str]) -> Target:
    """The vector unit that a set of LLVM feature names promises; caches are left at their defaults."""
    machine = triple.split("-", 1)[0]
    if machine in ("aarch64", "arm64"):
        return Target("host", triple, cpu, "", vector_bits=128, registers=32, fma=True)
    if flags >= {"avx512f", "avx512vl", "avx512dq", "avx512bw"}:
        known = PROCESSORS.get(cpu, Processor())
        wide = Target("host", triple, cpu, "", vector_bits=512, registers=32, fma=True)
        wide = replace(wide, multiply_bits=known.multiply_bits or 1024, adds_apart=known.adds_apart)
        return wide.with_figures(overhead=known.overhead)
    if flags >= {"avx2", "fma"}:
        return Target("host", triple, cpu, "", vector_bits=256, registers=16, fma=True)
    registers = 16 if machine in ("x86_64", "amd64") else 8
    return Target("host", triple, cpu, "", vector_bits=128, registers=registers, fma="fma" in flags)


def processor(root: Path = _SYSTEM) -> str:
    """What the system says of the CPU and its features, without LLVM, and whether this process may use its tiles: where it says
    the same, code for this machine runs. Empty where it says nothing."""
    try:
        with (root / "proc/cpuinfo").open() as file:
            first = list(takewhile(str.strip, file))
    except OSError:
        return ""
    facts = dict([part.strip() for part in line.split(":", 1)] for line in first if ":" in line)
    known = [facts.get(name, "") for name in ("vendor_id", "cpu family", "model", "flags")]
    if not all(known):
        return ""
    tiles = [] if "amx_tile" not in known[-1].split() else ["tiles" if permits_tiles() else "no tiles"]
    return "; ".join((platform.machine(), *known, *tiles))


def cache_bytes(root: Path = _SYSTEM) -> dict[str, int]:
    """Sizes of the data caches that cpu 0 sees, as `l1_bytes`, `l2_bytes`, `l3_bytes`; unknown ones are absent."""
    found: dict[str, int] = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        size = re.fullmatch(r"(\d+)([KMG]?)", _text(index / "size"))
        if size is None or _text(index / "type") == "Instruction":
            continue
        scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[size[2]]
        found[f"l{_text(index / 'level')}_bytes"] = int(size[1]) * scale
    if root == _SYSTEM:
        names = {"l1_bytes": "LEVEL1_DCACHE", "l2_bytes": "LEVEL2_CACHE", "l3_bytes": "LEVEL3_CACHE"}
        for field, name in names.items():
            size_bytes = _sysconf(f"SC_{name}_SIZE")
            if field not in found and size_bytes > 0:
                found[field] = size_bytes
    return {field: size for field, size in found.items() if field in ("l1_bytes", "l2_bytes", "l3_bytes") and size > 0}


def worker_count(requested: int | None = None, root: Path = _SYSTEM) -> int:
    """How many workers to use: `requested`, or as many as there are physical cores this process may run on.

    The default is the smallest of the CPU affinity, the container's CPU quota (rounded down) and the physical cores, since a
    worker without a core of its own makes every barrier wait. Raises `UsageError` for a number below 1 or above 256.
    """
    if requested is not None:
        if not 1 <= requested <= MAXIMUM_WORKERS:
            raise UsageError(f"the number of threads must be between 1 and {MAXIMUM_WORKERS}, not {requested}")
        return requested
    allowed = _affinity()
    cores = {_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or cpu for cpu in allowed}
    limits = [len(cores), *(int(quota) for quota in _cpu_quotas(root))]
    return min(MAXIMUM_WORKERS, max(1, min(limits)))


def memory_limit(root: Path = _SYSTEM) -> int:
    """Bytes this process may use: physical memory, or the container's limit when that is smaller."""
    limits = [_sysconf("SC_PHYS_PAGES") * _sysconf("SC_PAGE_SIZE")]
    for folder in _control_groups(root, "memory"):
        limits += [
            int(text) for name in ("memory.max", "memory.limit_in_bytes") if (text := _text(folder / name)).isdigit()
        ]
    known = [limit for limit in limits if limit > 0]
    return min(known) if known else 1 << 62


def _affinity() -> set[int]:
    try:
        return set(os.sched_getaffinity(0))
    except AttributeError:  # systems without affinity
        count = os.cpu_count()
        return set(range(1 if count is None else count))


def _cpu_quotas(root: Path) -> Iterator[float]:
    """CPUs' worth of time that each enclosing control group grants."""
    for folder in _control_groups(root, "cpu"):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0:
            yield int(quota) / int(period)


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the control groups this process is in, innermost first: version 2, then version 1 of `controller`."""
    base = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, separator, path = rest.partition(":")
        if not separator:
            continue
        if names == "":
            mount = base
        elif controller in names.split(","):
            mount = base / controller
            if not mount.exists():
                mount = base / names
        else:
            continue
        inside = mount / path.lstrip("/")
        yield from (folder for folder in (inside, *inside.parents) if folder.is_relative_to(mount))
        # In a container with its own view, the path names folders outside it and only the mount point exists.


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _sysconf(name: str) -> int:
    try:
        return os.sysconf(name)
    except (AttributeError, OSError, ValueError):
        return 0


def planned_limit(limit_bytes: int | None = None) -> int:
    """The most bytes that a program may plan for: the share of the memory limit, or what a user allows where that is less."""
    share = int(memory_limit() * MEMORY_SHARE)
    return share if limit_bytes is None else min(share, limit_bytes)


def check_memory(nbytes: float, what: str, limit_bytes: int | None = None) -> None:
    """Raise `ResourceLimit` when `nbytes` is more than the share of the memory limit a program may plan for."""
    limit = int((memory_limit() if limit_bytes is None else limit_bytes) * MEMORY_SHARE)
    if nbytes > limit:
        raise ResourceLimit(
            f"{what} would take {size_text(int(nbytes))}, more than {MEMORY_SHARE:.0%} of the memory this process may use "
            f"({size_text(limit)}): use smaller input shapes or a machine with more memory"
        )
