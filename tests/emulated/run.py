"""Is code for AArch64 right? `python -m tests.emulated.run [--keep FOLDER]`, from the project's folder.

Small graphs of every kernel family (`graphs`) are compiled and run by an emulated AArch64 machine, and again by this one, and the
answers compared. It takes two minutes, the first half of it to fetch the machine: QEMU's user-mode emulator and Python for AArch64
from Debian, unpacked into a folder and not installed, and wheels for AArch64 from the package index. `--keep` leaves them in a
folder for the next time. It needs no rights, but a Debian system or one like it; where there is none, or no emulator can be had, it
says so and ends with status 0.
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

from fusewise.bench.accuracy import relative_error, tolerance_of

PROJECT = Path(__file__).resolve().parents[2]

RELEASE, KEYS, PYTHON = "bookworm", Path("/usr/share/keyrings/debian-archive-keyring.gpg"), "3.11"
"""Of Debian: what is unpacked, the keys it is signed with, and its version of Python."""

LIBRARY = (2, 36)
"""The version of its C library: wheels for it or older ones run there."""

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


def _wheels(folder: Path) -> None:
    """What the project needs, for AArch64, in the versions that it is tested with."""
    needed = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    platforms = [f"--platform=manylinux_{LIBRARY[0]}_{minor}_aarch64" for minor in range(17, LIBRARY[1] + 1)]
    _run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--target", folder / "wheels"),
            *("--only-binary=:all:", f"--python-version={PYTHON}", *platforms, "--platform=manylinux2014_aarch64"),
            *("--constraint", PROJECT / "constraints.txt", *needed),
        ]
    )


def _emulated(folder: Path) -> dict[str, np.ndarray]:
    """The answers of the emulated machine; raises `CalledProcessError` where it gives none."""
    machine, emulator = folder / "machine", folder / "emulator/usr/bin/qemu-aarch64-static"
    path = os.pathsep.join(map(str, (folder / "wheels", PROJECT / "src", PROJECT)))
    command = [emulator, "-L", machine, machine / f"usr/bin/python{PYTHON}", "-m", "tests.emulated.answers"]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([*command, folder / "answers.npz"], env=environment, cwd=PROJECT, check=True)
    with np.load(folder / "answers.npz") as found:
        return dict(found)


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
    kept: Path | None = parser.parse_args().keep
    if platform.machine() in ("aarch64", "arm64"):
        print("This is an AArch64 machine: its own tests say more.")
        return 0
    with tempfile.TemporaryDirectory(prefix="fusewise-aarch64-") as temporary:
        folder, begin = Path(temporary) if kept is None else kept.resolve(), time.perf_counter()
        try:
            if not (folder / "wheels").exists():
                _unpacked(folder)
                _wheels(folder)
        except Unavailable as why:
            print(f"Code for AArch64 is NOT tested: {why}.")
            return 0
        print(f"An AArch64 machine in {folder} ({time.perf_counter() - begin:.0f} s); it computes:", flush=True)
        try:
            found = _emulated(folder)
        except subprocess.CalledProcessError as error:
            print(f"The AArch64 machine gave no answers: its program ended with status {error.returncode}.")
            return 1
        print("This machine computes:", flush=True)
        faults = _faults(found, answers())
    print("\n".join(faults) or f"Answers agree ({time.perf_counter() - begin:.0f} s).")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
