"""The names that `import fusewise` gives stay what they are, whatever of the package is imported."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import fusewise

ROOM_NAMES = {module.name for module in pkgutil.iter_modules(fusewise.__path__)}


def test_no_public_name_is_a_room() -> None:
    """Importing a room sets it as an attribute of the package, in place of what had its name."""
    assert not ROOM_NAMES.intersection(fusewise.__all__)


@pytest.mark.parametrize("name", fusewise.__all__)
def test_a_public_name_is_no_module(name: str) -> None:
    assert callable(getattr(fusewise, name))


@pytest.mark.parametrize("name", ["dynamo", "onnxruntime"])
def test_modules_that_the_documentation_names_are_there(name: str) -> None:
    """In a process of its own, where nothing has imported them."""
    script = f"import sys, fusewise; assert 'fusewise.{name}' not in sys.modules; print(fusewise.{name}.__name__)"
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(fusewise.__file__).parent.parent)},
    )
    assert ended.stdout.strip() == f"fusewise.{name}" and name in dir(fusewise)


def test_names_stay_when_every_module_is_imported() -> None:
    """In a process of its own: names asked for before and after importing all modules, and `bench` after a first `verify`."""
    script = """
import importlib, json, pkgutil, fusewise
before = {name: getattr(fusewise, name) for name in fusewise.__all__}
for module in pkgutil.walk_packages(fusewise.__path__, "fusewise."):
    if module.name != "fusewise.__main__":
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] == "fusewise":
                raise
print(json.dumps([name for name, kept in before.items() if getattr(fusewise, name) is not kept]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(fusewise.__file__).parent.parent)},
    )
    assert json.loads(ended.stdout) == []


def test_the_benchmarking_room_leaves_the_verb() -> None:
    importlib.import_module("fusewise.benchmarking.timing")
    assert fusewise.bench is importlib.import_module("fusewise.api").bench
