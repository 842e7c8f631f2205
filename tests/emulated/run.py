"""Is code for AArch64 right? `python -m tests.emulated.run [--keep FOLDER] [--pytest ARGUMENTS]`, from the project's folder.

Small graphs of every kernel family (`graphs`) are compiled and run by an emulated AArch64 machine, and again by this one, and the
answers compared. It takes two minutes, the first half of it to fetch the machine: QEMU's user-mode emulator and Python for AArch64
from Debian, unpacked into a folder and not installed, and wheels for AArch64 from the package index. `--keep` leaves them in a
folder for the next time. It needs no rights, but a Debian system or one like it; where there is none, or no emulator can be had, it
says so and ends with status 0.

`--pytest tests/codegen/families/test_strassen.py -k chunks`, say, has the emulated machine run tests in place of the graphs. It
takes many times as long as this one, so one has to choose.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tests.emulated.answers import KERNELS, answers
from tests.emulated.graphs import CASES

from fusewise.benchmarking.accuracy import relative_error, tolerance_of

PROJECT = Path(__file__).resolve().parents[2]

RELEASE, KEYS, PYTHON = "bookworm", Path("/usr/share/keyrings/debian-archive-keyring.gpg"), "3.11"
"""Of Debian: what is unpacked, the keys it is signed with, and its version of Python."""

LIBRARY = (2, 36)
"""The version of its C library: wheels for it or older ones run there."""

TOOLS = ("pytest", "hypothesis", "onnxruntime")
"""What tests need beside the project's own needs; those that compare with PyTorch go without it, and fail."""

CONFIGURATION = """
APT::Architecture "{own}";
APT::Architectures {{ "{own}"; "arm64"; }};
Dir::State "{folder}/state";
Dir::State::status "{folder}/state/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "-";
APT::Install-Recommends "false";
APT::Sandbox::User "";
"""
"""Settings of an `apt` that knows nothing of this system, and leaves it alone."""


class Unavailable(Exception):
    """There is no emulator to be had here; says why."""


def _run(command: Sequence[str | Path], **environment: str) -> str:
    """What a command writes; raises `CalledProcessError` where it fails, after showing all that it wrote."""
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
    done.check_returncode()
    return done.stdout


def _unpacked(folder: Path) -> None:
    """Debian's emulator for this machine, and Python for an AArch64 one, in the folder."""
    try:
        own = _run(["dpkg", "--print-architecture"]).strip()
    except FileNotFoundError as error:
        raise Unavailable("this is no Debian system") from error
    if not KEYS.exists():
        raise Unavailable("Debian's keys are not here; install the package debian-archive-keyring")
    for name in ("state/lists/partial", "cache/archives/partial", "emulator", "machine"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "state/status").touch()
    (folder / "sources.list").write_text(f"deb [signed-by={KEYS}] http://deb.debian.org/debian {RELEASE} main\n")
    (folder / "apt.conf").write_text(CONFIGURATION.format(own=own, folder=folder))
    archives = folder / "cache/archives"
    wanted = {"emulator": [f"qemu-user-static:{own}"], "machine": [f"python{PYTHON}:arm64", "libstdc++6:arm64"]}
    try:
        _run(["apt-get", "update"], APT_CONFIG=str(folder / "apt.conf"))
        for place, packages in wanted.items():
            _run(["apt-get", "install", "--yes", "--download-only", *packages], APT_CONFIG=str(folder / "apt.conf"))
            for archive in archives.glob("*.deb"):
                _run(["dpkg-deb", "--extract", archive, folder / place])
                archive.unlink()
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise Unavailable("Debian's packages cannot be fetched") from error


def _wheels(folder: Path, needed: Sequence[str]) -> None:
    """Packages for AArch64, in the versions that the project is tested with."""
    platforms = [f"--platform=manylinux_{LIBRARY[0]}_{minor}_aarch64" for minor in range(17, LIBRARY[1] + 1)]
    _run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--target", folder),
            *("--only-binary=:all:", f"--python-version={PYTHON}", *platforms, "--platform=manylinux2014_aarch64"),
            *("--constraint", PROJECT / "constraints.txt", *needed),
        ]
    )


def _python(folder: Path, *words: str) -> int:
    """Run Python on the emulated machine, with the project on its path; the status that it ends with."""
    machine, emulator = folder / "machine", folder / "emulator/usr/bin/qemu-aarch64-static"
    path = os.pathsep.join(map(str, (folder / "wheels", folder / "tools", PROJECT / "src", PROJECT)))
    command = [emulator, "-L", machine, machine / f"usr/bin/python{PYTHON}", *words]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, env=environment, cwd=PROJECT, check=False).returncode


def _tests(folder: Path, arguments: Sequence[str]) -> int:
    """Run some of the project's tests on the emulated machine; pytest's status."""
    if not (folder / "tools").exists():
        _wheels(folder / "tools", TOOLS)
    return _python(folder, "-m", "pytest", "-p", "no:cacheprovider", *arguments)


def _graphs(folder: Path) -> int:
    """Run the graphs on both machines and compare: 0 if answers agree, else 1."""
    status = _python(folder, "-m", "tests.emulated.answers", str(folder / "answers.npz"))
    if status:
        print(f"The AArch64 machine gave no answers: its program ended with status {status}.")
        return 1
    print("This machine computes:", flush=True)
    with np.load(folder / "answers.npz") as found:
        faults = _faults(found, answers())
    print("\n".join(faults) or "Answers agree.")
    return 1 if faults else 0


def _faults(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> list[str]:
    """What is wrong with the answers of the emulated machine, in a sentence each."""
    faults = []
    for name, case in CASES.items():
        missing = sorted(set(case.kernels) - set(found[KERNELS + name].tolist()))
        if missing:
            faults.append(f"{name}: not run by {', '.join(missing)}, which it is there for")
    for name, answer in wanted.items():
        if name.startswith(KERNELS):
            continue
        error, most = relative_error(found[name], answer), tolerance_of(answer)
        if not error <= most:
            faults.append(f"{name}: {error:.2g} from this machine's, which may be {most:.2g}")
    return faults


def main() -> int:
    """0: answers agree, or there is no emulator; 1: they do not."""
    parser = argparse.ArgumentParser(description="Compare answers of an emulated AArch64 machine with this one's.")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the emulated machine is, or is to be left")
    parser.add_argument(
        "--pytest", nargs=argparse.REMAINDER, help="tests to be run there instead, and pytest's options"
    )
    given = parser.parse_args()
    if platform.machine() in ("aarch64", "arm64"):
        print("This is an AArch64 machine: its own tests say more.")
        return 0
    with tempfile.TemporaryDirectory(prefix="fusewise-aarch64-") as temporary:
        folder, begin = Path(temporary) if given.keep is None else given.keep.resolve(), time.perf_counter()
        try:
            if not (folder / "wheels").exists():
                _unpacked(folder)
                needed = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
                _wheels(folder / "wheels", needed)
        except Unavailable as why:
            print(f"Code for AArch64 is NOT tested: {why}.")
            return 0
        print(f"An AArch64 machine in {folder} ({time.perf_counter() - begin:.0f} s); it computes:", flush=True)
        return _graphs(folder) if given.pytest is None else _tests(folder, given.pytest)


if __name__ == "__main__":
    sys.exit(main())
