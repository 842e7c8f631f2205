"""Processes that Triton works in."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.runtime.gpu.kernels import needs_triton

from fusewise.errors import ResourceLimit
from fusewise.runtime.gpu import process

pytestmark = needs_triton

ROOT = Path(__file__).parents[3]


def idling(folder: str, *arguments: int):
    """A job that says who does it, and one that never ends."""

    def job(request):
        if request["what"] == "sleep":
            time.sleep(1000)
        if request["what"] == "die":
            os._exit(3)
        return {"pid": os.getpid(), "folder": folder}, b""

    return job


_ASKER = """
import sys
from fusewise.runtime.gpu.process import TritonProcess

process = TritonProcess("tests.runtime.gpu.test_process:idling")
print(*(process.ask({"what": "who"})[0][name] for name in ("pid", "folder")), flush=True)
process.ask({"what": "sleep"})
"""


def test_it_does_not_outlive_who_asked(tmp_path: Path) -> None:
    """A run that is killed leaves no interpreter at work behind it, and no folder."""
    # Its search path has "" for the folder it works in, and the job is found by nothing else.
    with subprocess.Popen([sys.executable, "-c", _ASKER], stdout=subprocess.PIPE, text=True, cwd=ROOT) as asker:
        assert asker.stdout is not None
        said, folder = asker.stdout.readline().split()
        pid = int(said)
        assert Path(folder).is_dir()
        asker.send_signal(signal.SIGKILL)
    for _ in range(600):
        if not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
            assert not Path(folder).exists()
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("it goes on")


def test_folders_that_nobody_uses_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, new, file, other = (tmp_path / f"fusewise-triton-{name}" for name in ("left", "new", "file", "link"))
    for folder in (left, new):
        (folder / "cache").mkdir(parents=True)
    os.utime(left, (0, 0))
    file.write_text("somebody's")
    other.symlink_to(new)
    used = process._Folder()
    os.utime(used.name, (0, 0))
    assert not left.exists() and new.exists() and file.exists()
    process._Folder().close()
    assert sorted(tmp_path.iterdir()) == sorted((Path(used.name), new, file, other))
    used.close()
    assert not Path(used.name).exists()


def test_an_answer_cut_short_is_none() -> None:
    """A process that is killed while it answers must not leave half a cubin, which would be kept."""
    for whole in (b'{"bytes": 4}\n1234', b'{"bytes": 0}\n'):
        assert process._received(io.BytesIO(whole))[1] == whole.partition(b"\n")[2]
        for end in range(len(whole)):
            with pytest.raises(EOFError):
                process._received(io.BytesIO(whole[:end]))


def test_what_cannot_be_started_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = process.TritonProcess("tests.runtime.gpu.test_process:idling")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    with pytest.raises(ResourceLimit, match="a process for Triton to work in cannot be started: No such file"):
        asked.ask({"what": "who"})
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ResourceLimit, match="cannot be started: No such file or directory .*nowhere"):
        asked.ask({"what": "who"})


def test_an_interrupt_ends_what_is_under_way_and_the_next_request_starts_anew() -> None:
    asked = process.TritonProcess("tests.runtime.gpu.test_process:idling")
    first = asked.ask({"what": "who"})[0]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(asked.ask, {"what": "sleep"})
        while not asked._turn.locked():
            time.sleep(0.01)
        asked.interrupt()
        with pytest.raises(process.TritonStopped, match="ended by SIGKILL"):
            waiting.result(60)
    second = asked.ask({"what": "who"})[0]
    asked.interrupt()
    assert len({one["pid"] for one in (first, second)}) == 2
    assert not Path(first["folder"]).exists() and not Path(second["folder"]).exists()
    with pytest.raises(process.TritonStopped, match="ended with status 3"):
        asked.ask({"what": "die"})
    asked.close()
