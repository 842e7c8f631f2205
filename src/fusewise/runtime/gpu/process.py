"""Triton in a process of its own.

Triton decides when it is imported whether its functions compile or are interpreted, so whoever wants both needs two
processes; and what the compiler does to a process (LLVM ends it at an assertion) is nothing for a user's. Both sides are
here: `TritonProcess` asks, `serve` answers. A message is a line of JSON and bytes behind it.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from fusewise.errors import FusewiseError, ResourceLimit
from fusewise.runtime.gpu.driver import NoTriton

__all__ = ["Job", "TritonProcess", "TritonStopped", "require_triton", "serve"]

Job = Callable[[dict[str, Any]], tuple[dict[str, Any], bytes]]
"""Of a request the answer, as JSON and as bytes. What it raises is the answer `{"error": its kind, "text": ...}`."""

_LONGEST = 400
"""Characters of what another program says."""

_PREFIX = "fusewise-triton-"
_NEW_SECONDS = 60.0
"""A folder that is not older may be about to be locked."""


class TritonStopped(FusewiseError):
    """The process in which Triton ran ended while it was asked."""


def require_triton() -> None:
    """Raise `NoTriton` where it is not installed. Nothing is imported."""
    if importlib.util.find_spec("triton") is None:
        raise NoTriton("kernels for a GPU are compiled by Triton, which is not installed: pip install 'fusewise[gpu]'")


class TritonProcess:
    """Answers requests one after the other by the job `where` (`module:function` of this package). May be asked by any thread.

    It is started by the first request, with `arguments` for the job, the file descriptors `keep` and what `environment` adds;
    after it ended, by the next one.
    """

    def __init__(
        self,
        where: str,
        arguments: Sequence[int] = (),
        keep: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._where, self._arguments, self._keep = where, tuple(arguments), tuple(keep)
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: _Folder | None = None
        self._said: IO[bytes] | None = None
        self._turn = threading.Lock()

    def ask(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """The answer, an error's among them. `NoTriton` where it is not installed, `TritonStopped` when the process ended."""
        with self._turn:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                _send(process.stdin, request)
                return _received(process.stdout)
            except (OSError, EOFError, ValueError, KeyError) as error:  # the last two: something else wrote there
                raise self._stopped() from error
            except BaseException:  # an interrupt: what it would answer now belongs to nobody
                self._end()
                raise

    def close(self) -> None:
        """End the process."""
        with self._turn:
            self._end()

    def interrupt(self) -> None:
        """End the process, also in the middle of a request: whoever waits for the answer gets `TritonStopped`."""
        if self._turn.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._turn.release()
            return
        process = self._process
        if process is not None:
            process.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            return self._process
        require_triton()
        try:
            self._process = self._opened()
        except OSError as error:
            self._end()
            where = f" ({error.filename})" if error.filename else ""
            raise ResourceLimit(
                f"a process for Triton to work in cannot be started: {error.strerror or error}{where}"
            ) from error
        return self._process

    def _opened(self) -> subprocess.Popen[bytes]:
        self._folder = _Folder()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed when the process is ended
        module, function = self._where.split(":")
        paths = json.dumps(sys.path)  # with "", the folder it works in: what this process could import, that one can
        call = f"serve({function}, {self._folder.name!r}, {self._arguments})"
        imports = f"from {__name__} import serve; from {module} import {function}"
        return subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path[:] = {paths}; {imports}; {call}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, "TRITON_CACHE_DIR": str(Path(self._folder.name, "cache")), **self._environment},
            pass_fds=self._keep,
            start_new_session=True,  # an interrupt on the terminal is for us
        )

    def _stopped(self) -> TritonStopped:
        """What to say of a process that ended."""
        assert self._process is not None
        assert self._said is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        code = self._process.returncode
        self._said.seek(0)
        last = self._said.read().decode(errors="replace").strip().splitlines()[-1:]
        self._end()
        if code is not None and code < 0:
            how = f"by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"by signal {-code}"
        else:
            how = f"with status {code}"
        about = f" ({last[0][:_LONGEST]})" if last else ""
        if code == -signal.SIGKILL:
            about = f"{about}, as systems do when memory is full: compile with fewer threads"
        return TritonStopped(f"the process in which Triton works ended {how}{about}")

    def _end(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]  # both are pipes
            try:
                self._process.wait(1)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for one in (self._said, self._folder):
            if one is not None:
                one.close()
        self._process = self._said = self._folder = None

    def __del__(self) -> None:
        with suppress(Exception):
            self._end()


class _Folder:
    """A folder for what Triton writes, by its `name`. It is locked for as long as somebody uses it: those that nobody does were
    left by runs that were killed, and are removed when another is made."""

    def __init__(self) -> None:
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            _remove_if_left(path)
        self.name = tempfile.mkdtemp(prefix=_PREFIX)
        self._lock = os.open(self.name, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def close(self) -> None:
        """Remove it with all that is there."""
        shutil.rmtree(self.name, ignore_errors=True)
        os.close(self._lock)


def _remove_if_left(path: Path) -> None:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # it is gone, or somebody else's
        return
    try:
        about = os.fstat(lock)
        if about.st_uid == os.getuid() and time.time() - about.st_mtime > _NEW_SECONDS:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    except OSError:  # somebody uses it
        pass
    finally:
        os.close(lock)


def serve(make: Callable[..., Job], folder: str, arguments: Sequence[int]) -> None:
    """Answer requests from standard input by the job that `make(folder, *arguments)` gives. What Triton prints goes to standard
    error. The process ends when standard input is closed, also in the middle of a job: whoever asked is gone then, and the `folder`
    goes, too."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = SimpleQueue[dict[str, Any]]()
    threading.Thread(target=_listen, args=(requests, folder), daemon=True).start()
    job = make(folder, *arguments)
    while True:
        request = requests.get()
        try:
            answer, blob = job(request)
        except Exception as error:
            root = _root(error)
            answer, blob = {"error": type(root).__name__, "text": _sentence(root)}, b""
        _send(answers, answer, blob)


def _listen(requests: SimpleQueue[dict[str, Any]], folder: str) -> None:
    while True:
        try:
            requests.put(_received(sys.stdin.buffer)[0])
        except EOFError:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)


def _root(error: BaseException) -> BaseException:
    """Of an error that only carries others the first of these."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _sentence(error: BaseException) -> str:
    """What an error says, in a line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST else f"... {text[-_LONGEST:]}"


def _send(stream: IO[bytes], message: Mapping[str, Any], blob: bytes = b"") -> None:
    stream.write(json.dumps({**message, "bytes": len(blob)}).encode() + b"\n" + blob)
    stream.flush()


def _received(stream: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    """Raises `EOFError` where nothing comes any more, in the middle of a message, too."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    message: dict[str, Any] = json.loads(line)
    nbytes = message.pop("bytes")
    blob = stream.read(nbytes)
    if len(blob) != nbytes:
        raise EOFError
    return message, blob
