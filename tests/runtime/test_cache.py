"""The kernel cache: hits are exact, damage is a miss, many processes share a folder, failures are told once."""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from errno import ENOSPC
from importlib import resources
from pathlib import Path

import llvmlite
import llvmlite.binding
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.codegen.target import TARGETS
from fusewise.runtime import cache as caching
from fusewise.runtime.cache import KernelCache, source_digest

AVX2 = TARGETS[1]
IMAGES = {"k1\nmatmul 3x4": b"\x7fELF one", "k2\nrelu": b"\x7fELF two" * 100, "k3\nempty": b""}
KEYS = list(IMAGES)


@pytest.fixture(autouse=True)
def one_version(monkeypatch):
    """All processes of a test agree on the version, even while someone edits the sources."""
    monkeypatch.setattr(caching, "_versions", lambda: "one version")


@pytest.fixture
def filled(tmp_path):
    cache = KernelCache(tmp_path)
    cache.store(IMAGES, set(IMAGES), AVX2)
    return cache


def fetched(folder, keys=KEYS, target=AVX2, warn=None):
    return KernelCache(folder, warn).fetch(keys, target)


def test_round_trip(filled, tmp_path):
    assert fetched(tmp_path) == IMAGES
    assert filled.info().files == 4
    assert filled.info().nbytes == sum(path.stat().st_size for path in filled.folder.iterdir())
    assert filled.clear() == 4
    assert filled.info().files == 0
    assert fetched(tmp_path) == {}


def test_other_programs_find_single_kernels(filled, tmp_path):
    assert fetched(tmp_path, [KEYS[1], "k9\nunknown", KEYS[0]]) == {key: IMAGES[key] for key in KEYS[:2]}


@pytest.mark.parametrize(
    "changed",
    [{"target": TARGETS[0]}, {"target": replace(AVX2, features="+sse4.2")}],
    ids=["cpu", "features"],
)
def test_other_circumstances_are_a_miss(filled, tmp_path, changed):
    assert fetched(tmp_path, **changed) == {}


def test_other_versions_are_a_miss(filled, tmp_path, monkeypatch):
    monkeypatch.setattr(caching, "_versions", lambda: "another version")
    assert fetched(tmp_path) == {}


def test_full_key_is_compared(filled, tmp_path):
    """As if two keys had one hash: the file is found, but it says what it holds."""
    own, other = (filled._path(caching._context(AVX2), [key]) for key in KEYS[:2])
    own.replace(other)
    assert fetched(tmp_path, KEYS[1:2]) == {}


def test_every_flipped_byte_is_a_miss(tmp_path):
    cache = KernelCache(tmp_path)
    cache.store({KEYS[0]: IMAGES[KEYS[0]]}, {KEYS[0]}, AVX2)
    (path,) = cache.folder.iterdir()
    good = path.read_bytes()
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x10
        path.write_bytes(bad)
        assert fetched(tmp_path, KEYS[:1]) == {}, f"byte {position} of {len(good)}"
        assert not path.exists(), "a damaged file is removed"
    path.write_bytes(good)
    assert fetched(tmp_path, KEYS[:1])


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_cut_or_overwritten_files_are_a_miss(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cache")
    cache = KernelCache(folder)
    cache.store(IMAGES, set(), AVX2)
    (path,) = cache.folder.iterdir()
    good = path.read_bytes()
    keep = data.draw(st.integers(0, len(good) - 1))
    path.write_bytes(good[:keep] + data.draw(st.binary(max_size=60).filter(lambda tail: good[:keep] + tail != good)))
    assert fetched(folder) == {}


def test_folder_is_private(filled):
    assert filled.folder.stat().st_mode & 0o777 == 0o700


def test_folder_others_may_write_to_is_not_used(filled, tmp_path):
    filled.folder.chmod(0o770)
    told = []
    cache = KernelCache(tmp_path, told.append)
    assert cache.fetch(KEYS, AVX2) == {}
    cache.store(IMAGES, set(IMAGES), AVX2)
    assert cache.fetch(KEYS, AVX2) == {}
    assert len(told) == 1
    assert "only you can write to" in told[0]
    assert not cache.info().usable


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs to give a folder away")
def test_folder_of_someone_else_is_not_used(filled, tmp_path):
    os.chown(filled.folder, 12345, -1)
    told = []
    assert fetched(tmp_path, warn=told.append) == {}
    assert len(told) == 1


def test_no_folder_can_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    told = []
    cache = KernelCache(tmp_path / "file", told.append)
    assert cache.fetch(KEYS, AVX2) == {}
    cache.store(IMAGES, set(IMAGES), AVX2)
    cache.fetch(KEYS, AVX2)
    assert len(told) == 1
    assert "working without the cache" in told[0]
    assert cache.info().files == 0
    assert not cache.info().usable


def test_asking_about_a_cache_makes_no_folder(tmp_path):
    cache = KernelCache(tmp_path / "none")
    assert cache.info().files == 0
    assert cache.clear() == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder_still_serves(filled, tmp_path):
    filled.folder.chmod(0o500)
    told = []
    cache = KernelCache(tmp_path, told.append)
    assert cache.fetch(KEYS, AVX2) == IMAGES
    cache.store({"new": b"x"}, {"new"}, AVX2)
    cache.store({"newer": b"x"}, {"newer"}, AVX2)
    assert len(told) == 1
    filled.folder.chmod(0o700)


def test_full_disk_is_told_once_and_leaves_nothing(filled, tmp_path, monkeypatch):
    before = sorted(filled.folder.iterdir())
    make = tempfile.NamedTemporaryFile

    def full(*arguments, **options):
        stream = make(*arguments, **options)

        def write(data):
            raise OSError(ENOSPC, "No space left on device")

        stream.write = write
        return stream

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    told = []
    cache = KernelCache(tmp_path, told.append)
    for number in range(3):
        cache.store({f"new{number}": b"x"}, {f"new{number}"}, AVX2)
    assert len(told) == 1
    assert "No space left on device" in told[0]
    assert sorted(filled.folder.iterdir()) == before
    assert cache.fetch(KEYS, AVX2) == IMAGES


def test_interrupt_while_writing_leaves_nothing(filled, tmp_path, monkeypatch):
    before = sorted(filled.folder.iterdir())

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        KernelCache(tmp_path).store({"new": b"x"}, {"new"}, AVX2)
    assert sorted(filled.folder.iterdir()) == before


def test_oldest_files_go_first(tmp_path):
    cache = KernelCache(tmp_path, limit_bytes=60_000)
    for number in range(10):
        cache.store({f"k{number}": bytes(9_000)}, {f"k{number}"}, AVX2)
        for age, path in enumerate(sorted(cache.folder.iterdir(), key=lambda path: -path.stat().st_mtime)):
            os.utime(path, (1e9 - 100 * age, 1e9 - 100 * age))
    assert cache.info().nbytes <= 60_000
    found = [number for number in range(10) if cache.fetch([f"k{number}"], AVX2)]
    assert 3 <= len(found) <= 6
    assert found == list(range(10 - len(found), 10))


def test_stray_files_of_killed_writers_go(filled):
    stray = filled.folder / "new-abandoned"
    stray.write_bytes(b"half")
    os.utime(stray, (1e9, 1e9))
    recent = filled.folder / "new-in-progress"
    recent.write_bytes(b"half")
    filled.store({"other": b"x"}, {"other"}, AVX2)
    assert not stray.exists()
    assert recent.exists()


def test_version_names_everything_that_matters(monkeypatch):
    monkeypatch.undo()
    version = caching._versions()
    assert source_digest() in version
    assert f"llvmlite {llvmlite.__version__}" in version
    assert f"llvm {llvmlite.binding.llvm_version_info[0]}." in version


def test_digest_follows_the_sources(tmp_path, monkeypatch):
    assert len(source_digest()) == 32
    for place in caching._GENERATORS:
        path = tmp_path / place
        if path.suffix:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("a = 1")
        else:
            path.mkdir(parents=True)
            (path / "one.py").write_text("a = 1")
    monkeypatch.setattr(resources, "files", lambda package: tmp_path)
    digest = source_digest.__wrapped__
    first = digest()
    (tmp_path / "codegen" / "notes.txt").write_text("not a source")
    assert digest() == first
    (tmp_path / "codegen" / "one.py").write_text("a = 2")
    second = digest()
    assert second != first
    (tmp_path / "codegen" / "one.py").rename(tmp_path / "codegen" / "two.py")
    assert digest() not in (first, second)


WRITER = """
import hashlib, sys
from pathlib import Path
from fusewise.codegen.target import TARGETS
from fusewise.runtime import cache as caching
caching._versions = lambda: "one version"
cache = caching.KernelCache(Path(sys.argv[1]))
print("ready", flush=True)
def image(key):
    return hashlib.sha256(key.encode()).digest() * 600
round = 0
while round < int(sys.argv[2]):
    keys = [f"k{(round * 7 + j) % 40}" for j in range(1 + round % 4)]
    for key, found in cache.fetch(keys, TARGETS[1]).items():
        assert found == image(key), key
    cache.store({key: image(key) for key in keys}, set(keys), TARGETS[1])
    round += 1
print("done", flush=True)
"""


def start_writer(folder, rounds):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(rounds)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_share_a_folder(tmp_path):
    writers = [start_writer(tmp_path, 60) for _ in range(3)]
    for writer in writers:
        assert writer.communicate(timeout=60)[0].split() == ["ready", "done"]
        assert writer.returncode == 0
    assert not [path for path in KernelCache(tmp_path).folder.iterdir() if path.name.startswith("new-")]


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.slow)], ids=["few", "many"])
def test_killed_writers_leave_a_working_cache(tmp_path, kills):
    for number in range(kills):
        writer = start_writer(tmp_path, 1_000_000)
        assert writer.stdout.readline() == "ready\n"
        time.sleep(0.003 * (number % 12))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        for k in range(40):
            for key, found in fetched(tmp_path, [f"k{k}"]).items():
                assert found == hashlib.sha256(key.encode()).digest() * 600
    survivor = start_writer(tmp_path, 40)
    assert survivor.communicate(timeout=60)[0].split() == ["ready", "done"]
    assert survivor.returncode == 0
    assert len(fetched(tmp_path, [f"k{k}" for k in range(40)])) == 40
