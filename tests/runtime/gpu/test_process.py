"""Processes that Triton works in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.runtime.gpu.kernels import needs_triton

pytestmark = needs_triton

ROOT = Path(__file__).parents[3]


def idling(folder: str, *arguments: int):
    """A job that says who does it, and one that never ends."""

    def job(request):
        if request["what"] == "sleep":
            time.sleep(1000)
        return {"pid": os.getpid()}, b""

    return job


_ASKER = """
import sys
from fusewise.runtime.gpu.process import TritonProcess

process = TritonProcess("tests.runtime.gpu.test_process:idling")
print(process.ask({"what": "who"})[0]["pid"], flush=True)
process.ask({"what": "sleep"})
"""


def test_it_does_not_outlive_who_asked(tmp_path: Path) -> None:
    """A run that is killed leaves no interpreter at work behind it."""
    # Its search path has "" for the folder it works in, and the job is found by nothing else.
    with subprocess.Popen([sys.executable, "-c", _ASKER], stdout=subprocess.PIPE, text=True, cwd=ROOT) as asker:
        assert asker.stdout is not None
        pid = int(asker.stdout.readline())
        asker.send_signal(signal.SIGKILL)
    for _ in range(600):
        if not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("it goes on")
