"""Programs written for ONNX Runtime give the same when this package stands in its place."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.onnxruntime.both import alike, ours, plain, theirs
from tests.onnxruntime.scripts import SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_scripts(script: Callable[[ModuleType, Path], Any], tmp_path: Path) -> None:
    found = []
    for runtime in (ours, theirs):
        folder = tmp_path / runtime.__name__
        folder.mkdir()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning)
            found.append(plain(script(runtime, folder)))
    assert alike(*found, tolerance=1e-4), found
