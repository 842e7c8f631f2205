"""What all tests share: the machine that the compiler is held to, and the line on the ONNX test-suite at the end of a run."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from tests.held.sitecustomize import MACHINES, VARIABLE, hold

if TYPE_CHECKING:
    from fusewise.codegen.target import InstructionSet

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")  # how long an example takes is the machine's business


def pytest_addoption(parser):
    """The machine is settled as soon as its options are known: the next file of this kind may ask what it is."""
    group = parser.getgroup("fusewise", "the machine that code is generated for")
    group.addoption("--machine", choices=sorted(MACHINES), help="hold the compiler to a generic machine, not this one")
    group.addoption("--adds-apart", choices=("yes", "no"), help="whether its cores add with units of their own")
    group.addoption("--sanitize", action="store_true", help="whether kernels look at every access of memory")
    asked = parser.parse_known_args(sys.argv[1:])
    if asked.machine or asked.adds_apart or asked.sanitize:
        hold(asked.machine, asked.adds_apart, asked.sanitize)


def pytest_configure(config):
    """Garbage is looked for less often. What is compiled for another machine is kept apart from what is for this one."""
    gc.set_threshold(50_000, 20, 20)
    from fusewise.runtime import jit  # before anyone takes the function from there

    jit.compile_object = remembered(jit.compile_object)
    if os.environ.get(VARIABLE) and not hasattr(config, "workerinput"):
        cache = tempfile.TemporaryDirectory(prefix="fusewise-tests-")
        config.add_cleanup(cache.cleanup)
        os.environ["FUSEWISE_CACHE_DIR"] = cache.name


MOST_OBJECTS = 4096
"""How many kernels' machine code is kept, some tens of MB."""


def remembered(compile_object: Callable[..., bytes]) -> Callable[..., bytes]:
    """What gives the object file that LLVM made of a text before: tests compile the same small models again and again."""
    objects: dict[tuple[bytes, str, str], bytes] = {}

    @wraps(compile_object)
    def compiled(text: str, target: InstructionSet, level: str = "full") -> bytes:
        key = hashlib.blake2b(text.encode()).digest(), target.key, level
        if key not in objects:
            if len(objects) >= MOST_OBJECTS:
                objects.clear()
            objects[key] = compile_object(text, target, level)
        return objects[key]

    return compiled


@pytest.fixture(autouse=True, scope="session")
def alone():
    """Two processes share the cores already: each compiles its models by itself, without starting another one that helps."""
    from fusewise.runtime import compile as compilation  # not before the machine is settled

    with patch.object(compilation, "_started", lambda: None):
        yield


@pytest.fixture(scope="session")
def device():
    """One simulated GPU for tests that do not break it: its interpreter takes most of a second to start."""
    from fusewise.runtime.gpu.fake import FakeDriver

    driver = FakeDriver("sm_90", 1 << 26)
    yield driver
    driver.close()


BROWSER = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, one for the tests of a module: while it is open an event loop runs in this thread, which is nothing for others."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("there is no `chromium` on the path: on Debian, `apt-get install chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=BROWSER)
        yield opened
        opened.close()


def pytest_collection_finish():
    """What was imported and collected stays: garbage is looked for in what tests make."""
    gc.collect()
    gc.freeze()


def pytest_report_header(config):
    machine, adds_apart, sanitize = (config.getoption(name) for name in ("--machine", "--adds-apart", "--sanitize"))
    if not (machine or adds_apart or sanitize):
        return None
    found = f"held to: {machine or 'this machine'}, adds apart: {adds_apart or 'as it does'}"
    return f"{found}, memory checked" if sanitize else found


def pytest_terminal_summary(terminalreporter):
    """Add up what the shards of the ONNX backend suite recorded, wherever they ran."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, [])]
    shards = [value for r in reports for name, value in r.user_properties if name == "onnx_suite" and r.when == "call"]
    if shards:
        ran, passed, native = (sum(column) for column in zip(*shards, strict=True))
        terminalreporter.write_line(
            f"ONNX backend suite: {passed} of {ran} tests pass ({passed / ran:.2%}), {native} compiled without host steps"
        )
