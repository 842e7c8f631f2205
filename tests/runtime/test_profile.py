"""The profile database: what is kept, many processes at once, and files that cannot be used."""

from __future__ import annotations

import os
import sqlite3
import stat
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.runtime.profile import Measurement, ProfileDatabase

MACHINE = "a machine"

WRITER = """
import sys
from pathlib import Path
from fusewise.runtime.profile import ProfileDatabase
folder, name = Path(sys.argv[1]), sys.argv[2]
told = []
database = ProfileDatabase(folder, "a machine", told.append, wait_seconds=60)
print("ready", flush=True)
sys.stdin.readline()
for k in range(60):
    database.record(f"{name}:{k}", [k, k + 1.0, k + 2.0])
    database.record("shared", [1.0, 2.0, 3.0])
    assert database.lookup(f"{name}:{k}").median_ns == k + 1
print(told)
"""


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def opened(tmp_path: Path, told: list[str]) -> Callable[..., ProfileDatabase]:
    def open_(machine: str = MACHINE, wait_seconds: float = 0.1) -> ProfileDatabase:
        return ProfileDatabase(tmp_path, machine, told.append, wait_seconds=wait_seconds)

    return open_


@pytest.fixture
def usual(tmp_path: Path) -> Path:
    """Where the database is, unless it cannot be."""
    return tmp_path / "profile" / "profile.sqlite"


def test_what_is_recorded_is_found_by_later_processes(
    opened: Callable[..., ProfileDatabase], told: list[str], usual: Path
) -> None:
    assert opened().lookup("k") is None
    first = opened().record("k", [3.0, 1.0, 2.0, 10.0], "Conv+Relu")
    assert first == Measurement("k", "Conv+Relu", 2.5, 3.0, 4)
    assert opened().lookup("k") == first
    assert opened().record("k", [7.0]) == opened().lookup("k") == Measurement("k", "", 7.0, 0.0, 1)
    assert told == []
    assert stat.S_IMODE(usual.stat().st_mode) == 0o600


@given(st.lists(st.floats(1, 1e9), min_size=1, max_size=30))
def test_median_and_spread_are_those_of_the_samples(samples: list[float]) -> None:
    found = ProfileDatabase(Path(os.devnull) / "none", MACHINE).record("k", samples)
    assert found.median_ns == statistics.median(samples)
    assert found.count == len(samples)
    assert found.spread_ns is not None
    assert 0 <= found.spread_ns <= max(samples) - min(samples)


def test_a_failure_keeps_its_reason(opened: Callable[..., ProfileDatabase]) -> None:
    opened().fail("k", "TopK runs on the host", "TopK")
    assert opened().lookup("k") == Measurement("k", "TopK", None, None, 0, "TopK runs on the host")
    opened().record("j", [1.0])
    info = opened().info()
    assert (info.entries, info.failed) == (2, 1)
    assert info.nbytes > 0


def test_clearing_removes_all_and_says_how_many(opened: Callable[..., ProfileDatabase]) -> None:
    database = opened()
    for key in "abc":
        database.record(key, [1.0])
    assert [entry.key for entry in opened().entries()] == ["a", "b", "c"]
    assert opened().clear() == 3
    assert database.entries() == []


def test_two_processes_write_at_once(opened: Callable[..., ProfileDatabase], tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("first", "second")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        said, _ = writer.communicate(timeout=120)
        assert (writer.returncode, said) == (0, "[]\n")
    assert opened().info().entries == 121


def test_threads_share_one_object(opened: Callable[..., ProfileDatabase]) -> None:
    database = opened()
    threads = [
        threading.Thread(target=lambda k=k: [database.record(f"{k}:{i}", [1.0]) for i in range(20)]) for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert database.info().entries == 80


def test_a_killed_writer_loses_nothing_it_recorded(opened: Callable[..., ProfileDatabase], tmp_path: Path) -> None:
    code = WRITER.replace("for k in", "database.record('early', [5.0])\nimport os; os.kill(os.getpid(), 9)\nfor k in")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), "x"], input="go\n", text=True, check=False)
    assert done.returncode == -9
    found = opened().lookup("early")
    assert found is not None
    assert found.median_ns == 5.0


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _scribbled(path: Path) -> None:
    path.write_bytes(b"this was never a database\n" * 100)


def _older(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 7")


def _foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")


@pytest.mark.parametrize("spoil", [_truncated, _scribbled, _older, _foreign])
def test_a_file_that_cannot_be_used_is_left_alone_and_another_begun(
    spoil: Callable[[Path], None], opened: Callable[..., ProfileDatabase], told: list[str], usual: Path
) -> None:
    before = opened()
    for k in range(200):
        before.record(f"{k} {'x' * 50}", [1.0])
    before.close()
    spoil(usual)
    spoilt = usual.read_bytes()
    database = opened()
    database.record("k", [4.0])
    assert database.lookup("k") is not None
    assert database.info().path == usual.with_name("profile-2.sqlite")
    assert len(told) == 1
    assert str(usual) in told[0]
    assert usual.read_bytes() == spoilt
    again = opened().lookup("k")
    assert again is not None
    assert again.median_ns == 4.0


def test_a_file_of_another_machine_is_left_alone(
    opened: Callable[..., ProfileDatabase], told: list[str], usual: Path
) -> None:
    opened("first").record("k", [1.0])
    assert opened("second").lookup("k") is None
    assert told == [
        f"measurements in {usual} are left alone: they were taken on another machine; keeping new ones in a file beside it"
    ]
    opened("second").record("k", [2.0])
    assert [opened(name).lookup("k").median_ns for name in ("first", "second")] == [1.0, 2.0]  # type: ignore[union-attr]


def test_a_locked_file_is_waited_for_and_then_left_alone(
    opened: Callable[..., ProfileDatabase], told: list[str], usual: Path
) -> None:
    opened().record("k", [1.0])
    holder = sqlite3.connect(usual, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    database = opened()
    database.record("j", [2.0])
    assert database.info().path == usual.with_name("profile-2.sqlite")
    assert len(told) == 1
    assert "locked" in told[0]
    holder.execute("ROLLBACK")
    holder.close()
    assert opened().lookup("k") is not None


def test_a_file_that_breaks_while_in_use(opened: Callable[..., ProfileDatabase], told: list[str], usual: Path) -> None:
    database = opened()
    database.record("k", [1.0])
    with sqlite3.connect(usual) as connection:
        connection.execute("DROP TABLE entries")
    database.record("j", [2.0])
    assert database.lookup("j") is not None
    assert len(told) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")
def test_a_folder_that_others_may_write_to_is_not_trusted(
    opened: Callable[..., ProfileDatabase], told: list[str], tmp_path: Path
) -> None:
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile").chmod(0o777)
    database = opened()
    database.record("k", [1.0])
    assert database.lookup("k") is not None
    assert database.info().path is None
    assert len(told) == 1
    assert "only you can write to" in told[0]
    assert list((tmp_path / "profile").iterdir()) == []


FULL = """
import resource, signal, sys
from pathlib import Path
from fusewise.runtime.profile import ProfileDatabase
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
told = []
database = ProfileDatabase(Path(sys.argv[1]), "a machine", told.append)
for k in range(200):
    database.record(f"{k}" * 50, [1.0, 2.0])
assert len(told) == 1 and "in memory" in told[0], told
assert database.lookup("199" * 50).count == 2
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of files")
@pytest.mark.parametrize("room", [100, 6000, 17000, 40000])
def test_a_full_disk_leaves_no_database_that_holds_nothing(tmp_path: Path, room: int) -> None:
    subprocess.run([sys.executable, "-c", FULL, str(tmp_path), str(room)], check=True)
    for path in (tmp_path / "profile").glob("*.sqlite"):
        assert path.name == "profile.sqlite"
        assert sqlite3.connect(path).execute("SELECT count(*) FROM entries").fetchone()[0]


MOVES = [("", "FuseOps", True, 3, 2, 1, 0), ("FuseOps", "AlterOpLayout", False, 1, 1, 1, 1)]


def test_what_searches_learn_adds_up(opened: Callable[..., ProfileDatabase]) -> None:
    first, second = opened(), opened()
    assert first.moves("latency") == []
    first.add_moves("latency", MOVES)
    second.add_moves("latency", MOVES[:1])
    second.add_moves("memory", [("", "FuseOps", True, 4, 0, 0, 0), ("", "FoldConstant", True, 1, 1, 1, 1)])
    assert first.moves("latency") == [
        ("", "FoldConstant", True, 1, 1, 0, 0),
        ("", "FuseOps", True, 10, 4, 2, 0),
        ("FuseOps", "AlterOpLayout", False, 1, 1, 1, 1),
    ], "what is cheaper by another objective says nothing, but whether the graph changed does"
    assert first.moves("memory")[0] == ("", "FoldConstant", True, 1, 1, 1, 1)
    first.clear()
    assert second.moves("latency") == []


def test_a_file_from_before_searches_learned_is_gone_on_with(
    opened: Callable[..., ProfileDatabase], told: list[str], usual: Path
) -> None:
    before = opened()
    before.record("key", [1.0])
    before.close()
    with sqlite3.connect(usual) as connection:
        connection.execute("DROP TABLE moves")
    connection.close()
    after = opened()
    after.add_moves("latency", MOVES)
    assert after.lookup("key") is not None
    assert after.moves("latency") == MOVES
    assert after.info().path == usual
    assert not told
