"""What groups of operators took on this machine: one SQLite file in the user's cache folder, shared by all processes.

An entry has a key that says everything its duration depends on (`runtime.measure` makes it), and the median, the spread and the
number of its samples, or why it could not be measured. Beside entries there are choices, what tuning made of them for a model, and
moves, what searches for an order of passes learned.
Every entry is on disk before `record` returns, so an interruption loses nothing; writers wait for one another, readers for
nobody.

A file that is damaged, locked, of another layout or of another machine is left as it is. One warning says so, and a new file is
begun beside it: `profile.sqlite`, `profile-2.sqlite` and so on, the first that can be used. Where the disk takes nothing more a
new file would be no better: entries stay in memory, and a file that could not be begun goes. DNNFusion (W. Niu et al., PLDI
2021) keeps the same, collected once and used for every model.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from fusewise.records import record
from fusewise.runtime.folder import first_only, folder_fault

__all__ = ["Measurement", "ProfileDatabase", "ProfileInfo"]

_FOLDER, _MOST_FILES = "profile", 9
_APPLICATION, _LAYOUT = 0x46757365, 2  # of SQLite's header: whose file it is, and the version of the tables
_TABLES = """
    CREATE TABLE machine (name TEXT NOT NULL);
    CREATE TABLE entries (
        key TEXT PRIMARY KEY, what TEXT NOT NULL, median_ns REAL, spread_ns REAL, count INTEGER NOT NULL, failure TEXT NOT NULL,
        time REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE choices (key TEXT PRIMARY KEY, choice TEXT NOT NULL, time REAL NOT NULL) WITHOUT ROWID;
"""
_MOVES = """
    CREATE TABLE IF NOT EXISTS moves (
        objective TEXT NOT NULL, behind TEXT NOT NULL, name TEXT NOT NULL, put INTEGER NOT NULL, tried INTEGER NOT NULL,
        changed INTEGER NOT NULL, priced INTEGER NOT NULL, cheaper INTEGER NOT NULL, PRIMARY KEY (objective, behind, name, put)
    ) WITHOUT ROWID
"""
"""Made in older files of the same layout, too: who does not know of it does not miss it."""

_KEPT = ("entries", "choices", "moves")
_PAUSE_SECONDS = 0.02
_COLUMNS = "key, what, median_ns, spread_ns, count, failure"

_Result = TypeVar("_Result")


@record(frozen=True, slots=True)
class Measurement:
    """One entry. `spread_ns` is the distance between the quartiles, `failure` why there are no figures (then None)."""

    key: str
    what: str
    median_ns: float | None
    spread_ns: float | None
    count: int
    failure: str = ""


@record(frozen=True)
class ProfileInfo:
    """What a database holds; `path` is None when it is kept in memory only."""

    path: Path | None
    entries: int
    failed: int
    nbytes: int
    machine: str


class _Unsuitable(Exception):
    """Why a file cannot be used."""


class ProfileDatabase:
    """Measurements by key in `folder`, for the machine called `machine`.

    `warn` is told, as a sentence and once, why the usual file is not used. `wait_seconds`: how long another process may keep
    the file to itself. Methods never raise for a file's sake: in the end entries live in memory. Several threads may use one
    object, and a forked child opens the file anew.
    """

    def __init__(
        self,
        folder: Path,
        machine: str,
        warn: Callable[[str], None] | None = None,
        *,
        wait_seconds: float = 5.0,
    ) -> None:
        self.folder = folder / _FOLDER
        self.machine = machine
        self._complain = (lambda sentence: None) if warn is None else first_only(warn)
        self._wait_seconds = wait_seconds
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._path: Path | None = None
        self._owner = 0
        self._refused: set[Path] = set()
        self._made: set[Path] = set()
        self._full = False

    def lookup(self, key: str) -> Measurement | None:
        """The entry under `key`; None when there is none."""
        row = self._run(lambda c: c.execute(f"SELECT {_COLUMNS} FROM entries WHERE key = ?", (key,)).fetchone())
        return None if row is None else Measurement(*row)

    def record(self, key: str, samples_ns: Sequence[float], what: str = "") -> Measurement:
        """Keep the median and spread of samples, in nanoseconds, in the place of what was there."""
        found = Measurement(key, what, statistics.median(samples_ns), _spread(samples_ns), len(samples_ns))
        self._put(found)
        return found

    def fail(self, key: str, reason: str, what: str = "") -> Measurement:
        """Keep that there is no measurement, and why."""
        found = Measurement(key, what, None, None, 0, reason)
        self._put(found)
        return found

    def choice(self, key: str) -> str | None:
        """What was chosen under `key`, as text; None when nothing was."""
        row = self._run(lambda c: c.execute("SELECT choice FROM choices WHERE key = ?", (key,)).fetchone())
        return None if row is None else str(row[0])

    def choose(self, key: str, choice: str) -> None:
        """Keep a choice in the place of what was there."""
        values = (key, choice, time.time())
        self._run(lambda c: c.execute("INSERT OR REPLACE INTO choices (key, choice, time) VALUES (?, ?, ?)", values))

    def moves(self, objective: str) -> list[tuple[str, str, bool, int, int, int, int]]:
        """What searches for an order of passes learned: the pass before, the pass, whether it was put there or taken out, how often
        that was tried and changed the graph by any objective, and was priced and was cheaper by this one."""
        query = """
            SELECT behind, name, put, sum(tried), sum(changed), sum(iif(objective = ?1, priced, 0)),
                sum(iif(objective = ?1, cheaper, 0))
            FROM moves GROUP BY behind, name, put ORDER BY behind, name, put
        """
        rows = self._run(lambda c: c.execute(query, (objective,)).fetchall())
        return [(behind, name, bool(put), *counts) for behind, name, put, *counts in rows]

    def add_moves(self, objective: str, rows: Sequence[tuple[str, str, bool, int, int, int, int]]) -> None:
        """Add what a search learned, in rows as `moves` has them, to what is known."""
        statement = """
            INSERT INTO moves VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET tried = tried + excluded.tried,
                changed = changed + excluded.changed, priced = priced + excluded.priced, cheaper = cheaper + excluded.cheaper
        """
        values = [(objective, *row) for row in rows]

        def add(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany(statement, values)
            except sqlite3.Error:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

        self._run(add)

    @property
    def begun(self) -> bool:
        """Is there a file? Asking does not make one."""
        return any(self.folder.glob("profile*.sqlite"))

    def entries(self) -> list[Measurement]:
        """Everything, in the order of the keys."""
        rows = self._run(lambda c: c.execute(f"SELECT {_COLUMNS} FROM entries ORDER BY key").fetchall())
        return [Measurement(*row) for row in rows]

    def info(self) -> ProfileInfo:
        """Where the entries are and how many."""
        entries, failed = self._run(
            lambda c: c.execute("SELECT count(*), count(nullif(failure, '')) FROM entries").fetchone()
        )
        nbytes = sum(file.stat().st_size for file in self._files(self._path)) if self._path is not None else 0
        return ProfileInfo(self._path, entries, failed, nbytes, self.machine)

    def clear(self) -> int:
        """Remove every entry of this machine, every choice, and what searches learned; the number of entries removed."""

        def remove(connection: sqlite3.Connection) -> int:
            count = connection.execute("DELETE FROM entries").rowcount
            for table in _KEPT[1:]:
                connection.execute(f"DELETE FROM {table}")
            connection.execute("VACUUM")
            return count

        return self._run(remove)

    def close(self) -> None:
        """Let go of the file; the next call opens it again."""
        with self._lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

    # --- files --------------------------------------------------------------------------------------------------------

    def _put(self, entry: Measurement) -> None:
        values = (entry.key, entry.what, entry.median_ns, entry.spread_ns, entry.count, entry.failure, time.time())
        self._run(
            lambda c: c.execute(
                f"INSERT OR REPLACE INTO entries ({_COLUMNS}, time) VALUES (?, ?, ?, ?, ?, ?, ?)", values
            )
        )

    def _run(self, action: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Do something with the file in use; when that fails, with the next."""
        with self._lock:
            while True:
                connection = self._opened()
                try:
                    return action(connection)
                except sqlite3.Error as error:
                    if self._path is None:
                        raise
                    self._refuse(self._path, error)
                    self.close()
                    if self._full and self._path in self._made and _is_empty(self._path):
                        self._remove(self._path)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._connection = next(self._candidates())
        return self._connection

    def _candidates(self) -> Iterator[sqlite3.Connection]:
        """Connections to the files that can be used, the usual one first, in the end to memory."""
        fault = folder_fault(self.folder)
        if fault:
            self._complain(f"the folder of measurements {self.folder} {fault}; this program keeps its own in memory")
        for number in range(1, 0 if fault else _MOST_FILES + 1):
            if self._full:
                break
            self._path = self.folder / ("profile.sqlite" if number == 1 else f"profile-{number}.sqlite")
            if self._path in self._refused:
                continue
            try:
                if _begun(self._path):
                    self._made.add(self._path)
                yield _connected(self._path, self.machine, self._wait_seconds)
            except (_Unsuitable, sqlite3.Error, OSError) as error:
                self._refuse(self._path, error)
                if self._full and self._path in self._made:
                    self._remove(self._path)
        self._path = None
        yield _connected(None, self.machine, self._wait_seconds)

    def _files(self, path: Path) -> Iterator[Path]:
        """The database at `path` and what SQLite keeps beside it."""
        yield from self.folder.glob(f"{path.name}*")

    def _remove(self, path: Path) -> None:
        for file in self._files(path):
            with suppress(OSError):
                file.unlink()

    def _refuse(self, path: Path, error: Exception) -> None:
        self._refused.add(path)
        self._full = self._full or _is_full(error)
        where = "in memory" if self._full else "in a file beside it"
        self._complain(f"measurements in {path} are left alone: {error}; keeping new ones {where}")


def _spread(samples: Sequence[float]) -> float:
    """The distance between the quartiles."""
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return high - low


def _begun(path: Path) -> bool:
    """Make an empty file, readable for its owner only; False where there is one."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def _is_empty(path: Path) -> bool:
    """Has nobody kept anything in a file? Read as it lies, which needs no room."""
    log = path.with_name(f"{path.name}-wal")
    try:
        if log.exists() and log.stat().st_size:
            return False
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            return not any(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _KEPT)
        finally:
            connection.close()
    except (sqlite3.Error, OSError):
        return False


def _is_full(error: Exception) -> bool:
    """Does the disk take nothing more?"""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _connected(path: Path | None, machine: str, wait_seconds: float) -> sqlite3.Connection:
    """A connection to a database with our tables, made if the file is empty. Raises when it is something else, or has no room."""
    deadline = time.monotonic() + wait_seconds
    while True:
        connection = sqlite3.connect(
            ":memory:" if path is None else path, timeout=wait_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("BEGIN IMMEDIATE")
            _prepare(connection, machine)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA synchronous = NORMAL")
            return connection
        except BaseException as error:
            connection.close()
            # SQLite does not wait by itself while another process is the first to choose how the file is kept
            if not (
                isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            ):
                raise
            if time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


def _prepare(connection: sqlite3.Connection, machine: str) -> None:
    """Make the tables in an empty file, check them in any other."""
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (layout,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables and not owner and not layout:
        for statement in (*filter(str.strip, _TABLES.split(";")), _MOVES):
            connection.execute(statement)
        connection.execute("INSERT INTO machine VALUES (?)", (machine,))
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {_LAYOUT}")
        return
    if owner != _APPLICATION or layout != _LAYOUT:
        raise _Unsuitable("it is of another program or version")
    (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if state != "ok":
        raise _Unsuitable(f"it is damaged ({state})")
    if connection.execute("SELECT name FROM machine").fetchall() != [(machine,)]:
        raise _Unsuitable("they were taken on another machine")
    connection.execute(_MOVES)
