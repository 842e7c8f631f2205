"""Where things are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusewise.runtime.folder import CACHE_VARIABLE, cache_folder


def test_the_environment_names_the_folder_whoever_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "named"))
    assert cache_folder(True) == tmp_path / "named"
    assert cache_folder(tmp_path / "asked") == tmp_path / "asked"
    assert cache_folder(False) is None
    monkeypatch.setenv(CACHE_VARIABLE, "")
    own = cache_folder(True)
    assert own is not None and own.name == "fusewise" and own.is_absolute()
