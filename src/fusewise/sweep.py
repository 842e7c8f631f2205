"""Many plans: every combination of networks, buffers, schemes, searches, explainers and seeds, on any number of workers.

Takes a TOML file, gives one JSON line a task, appended as soon as it is done. A sweep that was stopped goes on where it was; a
task whose worker died is tried again; a task's result depends on the task alone, so neither the workers nor their number matter.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusewise.errors import FusewiseError, InvalidModel, ResourceLimit, UsageError
from fusewise.words import nearest

if TYPE_CHECKING:
    from fusewise.ir.graph import Graph

__all__ = ["Executors", "SweepTask", "executors_named", "finished", "plan_task", "run_sweep", "tasks_from"]

ATTEMPTS = 3
"""How often a task is started before its worker's death counts as its result."""

Progress = Callable[[str, float], None]

Executors = Callable[[], Any]
"""Gives a context in which an executor runs; called again when one broke."""


@dataclass(frozen=True, slots=True)
class SweepTask:
    """One plan to make; fields as in `planning.PlanOptions`."""

    model: str
    hardware: str
    buffer: str | None
    scheme: str
    search: str
    objective: str
    explainer: str | None
    share: float
    plans: int | None
    seconds: float | None
    seed: int
    asking: str = "anew"
    edits: int | None = None

    @property
    def key(self) -> str:
        """The task as text; equal tasks have equal keys."""
        return json.dumps(asdict(self), sort_keys=True)


_AXES = {
    "models": "model",
    "hardware": "hardware",
    "buffers": "buffer",
    "schemes": "scheme",
    "searches": "search",
    "objectives": "objective",
    "explainers": "explainer",
    "shares": "share",
    "asking": "asking",
    "edits": "edits",
    "plans": "plans",
    "seconds": "seconds",
    "seeds": "seed",
}
"""Keys of the file and the field each fills; every one may be a list, and all combinations are made."""

_DEFAULTS: dict[str, list[Any]] = {
    "hardware": ["edge-256k"],
    "buffers": [None],
    "schemes": ["lbdf"],
    "searches": ["exact"],
    "objectives": ["dram"],
    "explainers": [None],
    "shares": [0.3],
    "asking": ["anew"],
    "edits": [None],
    "plans": [None],
    "seconds": [None],
    "seeds": [0],
}

_KINDS: dict[str, tuple[type, ...]] = {
    "share": (float, int),
    "edits": (int,),
    "plans": (int,),
    "seconds": (float, int),
    "seed": (int,),
}


def tasks_from(path: Path) -> tuple[SweepTask, ...]:
    """The tasks of a sweep file, in order; `UsageError` names the key that is wrong.

    An explainer or a buffer called `none` stands for none.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a TOML file: {error}") from None
    for key in data:
        if key not in _AXES:
            raise UsageError(f"{path}: unknown key {key!r}; {nearest(key, _AXES)}")
    if not data.get("models"):
        raise UsageError(f'{path}: key "models" is missing; give a list such as ["zoo:mobilenet_v2"]')
    columns = [_values(path, key, data.get(key, _DEFAULTS.get(key, []))) for key in _AXES]
    made = (SweepTask(**dict(zip(_AXES.values(), row, strict=True))) for row in product(*columns))
    return tuple({task.key: task for task in made}.values())


def _values(path: Path, key: str, given: object) -> list[Any]:
    kinds = _KINDS.get(_AXES[key], (str,))
    found = given if isinstance(given, list) else [given]
    if not found:
        raise UsageError(f"{path}: {key!r} is an empty list")
    values: list[Any] = []
    for value in found:
        if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
            raise UsageError(f"{path}: {value!r} in {key!r} must be {'a text' if kinds == (str,) else 'a number'}")
        values.append(None if value == "none" else value)
    return values


def plan_task(task: SweepTask) -> dict[str, Any]:
    """Make the plan of a task: its figures, or why there is none."""
    from fusewise import api

    settings = asdict(task)
    try:
        return {"summary": api.plan(_graph(settings.pop("model")), **settings).summary}
    except FusewiseError as error:
        return {"error": str(error), "status": error.exit_status}


@lru_cache(maxsize=4)
def _graph(model: str) -> Graph:
    """A model ready to be planned. Tasks of one come one after another, and building it takes longer than many a plan."""
    from fusewise import api
    from fusewise.accel.network import prepare

    return prepare(api.load(model))


def finished(path: Path) -> dict[str, dict[str, Any]]:
    """The results in a file by task key; what follows the last whole line is cut off. `InvalidModel` for another kind of file."""
    if not path.exists():
        return {}
    try:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        found = {}
        for line in whole.splitlines():
            row = json.loads(line)
            found[json.dumps(row["task"], sort_keys=True)] = row
        if len(whole) != len(data):
            os.truncate(path, len(whole))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidModel(f"{path} holds no results of a sweep ({error!r}); give another name") from None
    return found


def run_sweep(
    tasks: Sequence[SweepTask],
    path: Path,
    executors: Executors,
    *,
    work: Callable[[SweepTask], dict[str, Any]] = plan_task,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """The results of all tasks, in their order; those in `path` are not made again, new ones are appended to it.

    Raises `UsageError` or `ResourceLimit` when the file cannot be written.
    """
    done = finished(path)
    waiting = {task.key: task for task in tasks if task.key not in done}
    attempts = dict.fromkeys(waiting, 0)
    while waiting:
        for key in waiting:
            attempts[key] += 1
        for task, found in _round(list(waiting.values()), executors, work, attempts):
            row = {"task": asdict(task), **found}
            _append(path, row)
            done[task.key] = row
            del waiting[task.key]
            if progress is not None:
                progress(f"planning: {len(done)} of {len(tasks)} plans", len(done) / len(tasks))
    return [done[task.key] for task in tasks]


def _round(
    tasks: Sequence[SweepTask],
    executors: Executors,
    work: Callable[[SweepTask], dict[str, Any]],
    attempts: Mapping[str, int],
) -> Iterator[tuple[SweepTask, dict[str, Any]]]:
    """Results as they come. When a worker dies, its executor is given up and what it had not done is left for another round;
    a task that was there each time counts as failed."""
    with executors() as executor:
        future_of: dict[Future[dict[str, Any]], SweepTask] = {}
        try:
            for task in tasks:
                future_of[executor.submit(work, task)] = task
        except BrokenExecutor:  # it broke while tasks were still being handed in
            pass
        for future in as_completed(future_of):
            task = future_of[future]
            try:
                yield task, future.result()
            except BrokenExecutor as error:
                if attempts[task.key] >= ATTEMPTS:
                    yield task, {"error": f"the worker died {ATTEMPTS} times: {error}", "status": 1}


def _append(path: Path, row: Mapping[str, Any]) -> None:
    """One whole line, on disk before anything else is done."""
    try:
        with path.open("ab") as file:
            file.write(json.dumps(row).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        kind = ResourceLimit if error.errno == 28 else UsageError
        raise kind(f"cannot write {path}: {error.strerror}; run the sweep again to go on") from None


def executors_named(name: str, workers: int) -> Executors:
    """`processes`, `dask` (a cluster on this machine) or `dask://host:port`; `UsageError` for anything else."""
    if name == "processes":
        return lambda: ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    if name == "dask" or name.startswith("dask://"):
        return lambda: _dask(None if name == "dask" else name.replace("dask://", "tcp://", 1), workers)
    raise UsageError(f"there is no executor called {name!r}: use processes, dask or dask://HOST:PORT")


@contextmanager
def _dask(address: str | None, workers: int) -> Iterator[Executor]:
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise UsageError("a Dask cluster needs the extra `cluster`: pip install 'fusewise[cluster]'") from None
    try:
        if address is None:
            with (
                LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
                Client(cluster) as client,
            ):
                yield client.get_executor()
        else:
            with Client(address, timeout="10s") as client:
                yield client.get_executor()
    except (OSError, TimeoutError) as error:
        raise UsageError(f"no Dask scheduler answers at {address}: {error}") from None
