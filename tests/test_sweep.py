"""Sweeps: the same results whoever runs them, nothing finished is lost, and clear words for a wrong file."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fusewise.errors import InvalidModel, UsageError
from fusewise.sweep import SweepTask, executors_named, finished, run_sweep, tasks_from

FILE = """
models = ["zoo:squeezenet1_1"]
buffers = ["128KiB", "10B"]
schemes = ["lbdf", "brr"]
searches = ["random", "local"]
explainers = ["none", "smallest"]
seeds = [0, 1]
plans = 20
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "sweep.toml"
    path.write_text(text)
    return path


def echo(task: SweepTask) -> dict[str, Any]:
    return {"summary": {"seed": task.seed}}


def killer(task: SweepTask) -> dict[str, Any]:
    """Kills its worker the first time it sees seed 3."""
    flag = Path(task.hardware)
    if task.seed == 3 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"summary": {"seed": task.seed}}


def deadly(task: SweepTask) -> dict[str, Any]:
    if task.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"summary": {"seed": task.seed}}


def tasks(count: int, hardware: str = "edge-256k") -> list[SweepTask]:
    return [
        SweepTask("zoo:x", hardware, None, "lbdf", "local", "dram", None, 0.3, 1, None, seed) for seed in range(count)
    ]


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the time taken."""
    return [
        {**row, "summary": {k: v for k, v in row["summary"].items() if k != "search_s"}} if "summary" in row else row
        for row in rows
    ]


def test_all_combinations(tmp_path: Path) -> None:
    found = tasks_from(written(tmp_path, FILE))
    assert len(found) == len(set(found)) == 2 * 2 * 2 * 2 * 2
    assert {task.explainer for task in found} == {None, "smallest"}
    assert {(task.asking, task.edits) for task in found} == {("anew", None)}
    more = tasks_from(written(tmp_path, f'{FILE}asking = ["anew", "once"]\nedits = 1'))
    assert len(more) == 2 * len(found) and {(task.asking, task.edits) for task in more} == {("anew", 1), ("once", 1)}


@pytest.mark.slow
def test_results_do_not_depend_on_the_workers(tmp_path: Path) -> None:
    wanted = tasks_from(written(tmp_path, FILE))
    alone = run_sweep(wanted, tmp_path / "alone.jsonl", executors_named("processes", 1))
    both = run_sweep(wanted, tmp_path / "both.jsonl", executors_named("processes", 2))
    dask = run_sweep(wanted, tmp_path / "dask.jsonl", executors_named("dask", 2))
    assert plain(alone) == plain(both) == plain(dask)
    errors = [row["error"] for row in alone if "error" in row]
    assert len(errors) == 8, errors  # a buffer of 10 bytes holds nothing under LBDF
    assert [row["task"] for row in alone] == [asdict(task) for task in wanted]


def test_a_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    run_sweep(tasks(3), path, executors_named("processes", 1), work=echo)
    with path.open("a") as file:
        file.write('{"task": {"half')
    before = path.read_text().splitlines()[:3]
    rows = run_sweep(tasks(5), path, executors_named("processes", 1), work=echo)
    assert [row["summary"]["seed"] for row in rows] == [0, 1, 2, 3, 4]
    assert path.read_text().splitlines()[:3] == before and len(path.read_text().splitlines()) == 5


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    rows = run_sweep(tasks(6, str(tmp_path / "flag")), path, executors_named("processes", 2), work=killer)
    assert [row["summary"]["seed"] for row in rows] == list(range(6))
    assert len(path.read_text().splitlines()) == 6


def test_a_task_that_always_kills_its_worker_is_given_up(tmp_path: Path) -> None:
    rows = run_sweep(tasks(2), tmp_path / "results.jsonl", executors_named("processes", 1), work=deadly)
    assert "summary" in rows[0] and "died 3 times" in rows[1]["error"]


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("models = [", "not a TOML file"),
        ("seeds = [1]", '"models" is missing'),
        ('models = ["zoo:x"]\nseed = [1]', "did you mean 'seeds'"),
        ('models = ["zoo:x"]\nseeds = ["a"]', "'a' in 'seeds' must be a number"),
        ('models = ["zoo:x"]\nschemes = []', "'schemes' is an empty list"),
        ("models = [3]", "3 in 'models' must be a text"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        tasks_from(written(tmp_path, text))


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        tasks_from(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="no executor called 'threads'"):
        executors_named("threads", 1)
    (tmp_path / "other.jsonl").write_text(json.dumps({"x": 1}) + "\n")
    with pytest.raises(InvalidModel, match="no results of a sweep"):
        finished(tmp_path / "other.jsonl")
    with pytest.raises(UsageError, match="cannot write"):
        run_sweep(tasks(1), tmp_path / "no" / "folder.jsonl", executors_named("processes", 1), work=echo)
