"""Tiles are asked for once, and threads and forked children have the answer."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fusewise.runtime import permission
from fusewise.runtime.permission import permits_tiles


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    permits_tiles.cache_clear()
    yield
    permits_tiles.cache_clear()


@pytest.mark.parametrize("answer", [0, -1])
def test_the_system_is_asked_once(monkeypatch: pytest.MonkeyPatch, answer: int) -> None:
    """For permission for the tile data, state 18, by `arch_prctl`."""
    asked: list[tuple[int, ...]] = []

    def syscall(*numbers: ctypes.c_long) -> int:
        asked.append(tuple(number.value for number in numbers))
        return answer

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(syscall=syscall))
    assert permits_tiles() == permits_tiles() == (answer == 0)
    assert asked == [(158, 0x1023, 18)]


@pytest.mark.parametrize("system, machine", [("darwin", "x86_64"), ("win32", "AMD64"), ("linux", "aarch64")])
def test_other_systems_are_not_asked(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("is asked"))
    assert not permission.permits_tiles()


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists() or not hasattr(os, "fork"), reason="no Linux")
def test_this_machine_has_no_permission_without_tiles() -> None:
    assert not permits_tiles() or "amx_tile" in Path("/proc/cpuinfo").read_text()
