"""Holds the compiler to another machine than this one, in every process of a test run: where this folder is on Python's path and
`VARIABLE` is set, Python imports this module before anything else.

`runtime.host` then describes a generic machine that this one can stand for, with this one's caches; nothing of the package is
imported before it is asked for.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

__all__ = ["MACHINES", "VARIABLE", "hold"]

VARIABLE = "FUSEWISE_TESTS_MACHINE"
"""The name of a machine of `MACHINES`, or nothing for this one, and behind a comma `yes` or `no` if its cores are to add with units
of their own or not, and behind another `checked` if kernels are to look at every access of memory."""

MACHINES = {"sse2": "sse2", "avx2": "avx2", "avx512": "avx512", "avx512-once": "avx512", "neon": "neon"}
"""The generic target of each; `once`: a core begins one multiply-add of its widest vectors in a cycle."""


def hold(machine: str | None, adds_apart: str | None, sanitize: bool = False) -> None:
    """Hold this process and all that it starts to a machine; `runtime.host` must not have been imported."""
    assert "fusewise.runtime.host" not in sys.modules, "the machine has been asked for before"
    os.environ[VARIABLE] = f"{machine or ''},{adds_apart or ''},{'checked' if sanitize else ''}"
    folder, path = str(Path(__file__).parent), os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, path)])
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `runtime.host` where it is, and has it changed once it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "fusewise.runtime.host":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None and spec.loader is not None
        spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, own: importlib.abc.Loader) -> None:
        self.own = own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.own.exec_module(module)
        _change(module)


def _change(host: ModuleType) -> None:
    """Have the module describe the machine that is asked for."""
    from dataclasses import replace
    from functools import cache

    from fusewise.codegen.target import TARGETS, Target

    words = os.environ[VARIABLE]
    machine, adds_apart, checked = words.split(",")
    this_target, this_processor = host.host_target, host.processor

    @cache
    def host_target() -> Target:
        """The machine that tests hold the compiler to."""
        this = target = this_target()
        if machine:
            generic = next(target for target in TARGETS if target.name == MACHINES[machine])
            caches = {name: getattr(this, name) for name in ("l1_bytes", "l2_bytes", "l3_bytes")}
            target = replace(generic, name="host", triple=this.triple, **caches)
        if machine.endswith("-once"):
            target = replace(target, multiply_bits=target.vector_bits)
        if adds_apart:
            target = replace(target, adds_apart=adds_apart == "yes")
        return replace(target, sanitize=True) if checked else target

    def processor(*given: Path) -> str:
        """What the system says of the CPU, and what this one is held to: compiled files are for that machine alone."""
        found = this_processor(*given)
        return f"{found}; held to {words}" if found and not given else found

    host.host_target, host.processor = host_target, processor


if os.environ.get(VARIABLE) and __name__ == "sitecustomize":
    sys.meta_path.insert(0, _Finder())
