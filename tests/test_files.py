"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fusewise.errors import ResourceLimit, UsageError
from fusewise.files import write_text, written_whole


def test_both_appear_together(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    with written_whole(first, second) as (one, two):
        one.write_text("1")
        two.write_text("2")
        assert not first.exists() and not second.exists()
    assert (first.read_text(), second.read_text()) == ("1", "2")
    assert len(list(tmp_path.iterdir())) == 2


def test_an_interruption_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_text(path, "old")

    def interrupted() -> None:
        with written_whole(path) as (draft,):
            draft.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    with pytest.raises(ResourceLimit, match="nothing was left behind"), written_whole(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write .*No such file"):
        write_text(tmp_path / "none" / "a", "text")


def test_a_device_is_written_to_and_stays_one() -> None:
    full = Path("/dev/full")
    if not full.is_char_device():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(ResourceLimit, match="cannot write /dev/full: No space left on device"):
        write_text(full, "much")
    assert full.is_char_device() and not list(full.parent.glob(".full.*"))
    write_text(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()
