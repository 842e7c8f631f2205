"""How many workers make a run, on machines that are made up: quiet, noisy, shared, slower for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from fusewise import api
from fusewise.runtime.crew import Crew
from fusewise.runtime.run_plan import Stretch

MS = 1_000_000

Cost = Callable[[int, np.random.Generator], float]
"""Milliseconds of a run, by the number of workers."""


def spent(crew: Crew, seconds: float, cost: Cost, start_ns: int = 0, seed: int = 0) -> tuple[Counter[int], int]:
    """Milliseconds that runs of each size took in so many seconds, and the time at the end."""
    rng, now, found = np.random.default_rng(seed), start_ns, Counter[int]()
    while now < start_ns + seconds * 1e9:
        size = crew.size
        taken = int(cost(size, rng) * MS)
        crew.took(now, now + taken)
        now += taken
        found[size] += taken // MS if taken >= MS else 1
    return found, now


def quiet(size: int, rng: np.random.Generator) -> float:
    return 10 / size * (1 + 0.3 * rng.random())


def shared(size: int, rng: np.random.Generator, workers: int = 2) -> float:
    """Another process has a core half of the time, for as long as that of a run."""
    return quiet(size, rng) * (1 if size < workers else rng.choice([1.4, 3.5]))


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_a_quiet_machine_is_used_whole(workers: int) -> None:
    assert set(spent(Crew(workers), 3, quiet)[0]) == {workers}


@pytest.mark.parametrize("calls, size", [(5, 2), (1000, 1)])
def test_short_calls_are_made_by_one_even_beside_a_busy_core(calls: int, size: int) -> None:
    """Each takes a third of a microsecond, or 60."""
    found, _ = spent(Crew(2, calls), 1, lambda workers, rng: 0.3 if workers == 1 else 20 if calls == 1000 else 0.2)
    assert found[size] > 0.95 * found.total()


@pytest.mark.parametrize("meeting, size", [(0.001, 2), (0.02, 1)])
def test_a_short_run_is_made_by_one_where_meeting_takes_longer(meeting: float, size: int) -> None:
    def short(workers: int, rng: np.random.Generator) -> float:
        return (0.02 / workers + meeting * (workers > 1)) * (1 + 0.1 * rng.random())

    found, _ = spent(Crew(2), 0.5, short)
    assert found[size] > 0.95 * found.total()


@pytest.mark.parametrize("first_ms", [0.2, 20.0])
def test_where_meeting_takes_equally_long_each_time_what_one_worker_took_is_remembered(first_ms: float) -> None:
    """Twelve calls, between which the other worker is put aside each time: no run is slow beside others. The first run may begin
    the threads, which takes longer than any."""
    crew = Crew(2, 12)
    crew.took(0, int(first_ms * MS))
    found, _ = spent(crew, 1, lambda size, rng: 0.02 if size == 1 else 0.134 * (1 + 0.05 * rng.random()), 20 * MS)
    assert found[1] > 0.95 * found.total()


def test_what_takes_no_longer_than_calling_workers_is_one_s_though_its_first_runs_were_slow() -> None:
    crew = Crew(2)
    times = iter([200_000, 8_000, 8_000])
    now = 0
    while crew.is_short is None and now < 10 * MS:
        taken = next(times, 1_500 if crew.size == 1 else 3_000)
        crew.took(now, now + taken)
        now += taken
    assert crew.is_short


def test_a_run_that_is_slow_now_and_then_changes_nothing() -> None:
    def now_and_then(size: int, rng: np.random.Generator) -> float:
        return quiet(size, rng) * (8 if rng.random() < 0.1 else 1)

    assert set(spent(Crew(2), 5, now_and_then)[0]) == {2}


@pytest.mark.parametrize("seed", range(5))
def test_beside_a_busy_core_fewer_work_and_all_again_once_it_is_free(seed: int) -> None:
    crew = Crew(2)
    _, now = spent(crew, 1, quiet, seed=seed)
    beside, now = spent(crew, 5, shared, now, seed)
    assert beside[1] > 0.7 * beside.total()
    _, now = spent(crew, 1, quiet, now, seed)  # to be found out within this
    assert set(spent(crew, 3, quiet, now, seed)[0]) == {2}


def test_of_many_workers_only_one_is_left_out() -> None:
    crew = Crew(8)
    _, now = spent(crew, 1, quiet)
    beside, _ = spent(crew, 5, lambda size, rng: shared(size, rng, 8), now)
    assert beside[7] > 0.7 * beside.total()
    assert set(beside) <= {7, 8}


def test_half_of_many_where_several_cores_are_busy() -> None:
    def crowded(size: int, rng: np.random.Generator) -> float:
        return quiet(size, rng) * (1 if size <= 4 else 5)

    crew = Crew(8)
    _, now = spent(crew, 1, quiet)
    beside, _ = spent(crew, 5, crowded, now)
    assert beside[4] > 0.7 * beside.total()


def test_a_machine_that_is_slower_for_all_is_used_whole() -> None:
    crew = Crew(2)
    _, now = spent(crew, 1, quiet)
    found, _ = spent(crew, 20, lambda size, rng: 2 * quiet(size, rng), now)
    assert found[1] < 0.02 * found.total()


def test_short_runs_that_become_longer_are_not_slow() -> None:
    crew = Crew(2)
    _, now = spent(crew, 0.01, lambda size, rng: 0.02)
    found, _ = spent(crew, 0.1, lambda size, rng: 0.09, now)
    assert found[1] < 0.02 * found.total()


def test_rounds_of_short_calls_are_made_by_one() -> None:
    crew = Crew(2)
    assert crew.for_rounds is None
    crew.took_alone(500)
    assert (crew.for_rounds, crew.size) == (1, 2)
    crew.forget()
    assert crew.for_rounds is None
    crew.took_alone(50_000)
    assert crew.for_rounds is None
    crew.took_alone(50_000)
    assert crew.for_rounds == crew.size == 2
    assert Crew(1).for_rounds == 1


def test_a_model_answers_the_same_whoever_works() -> None:
    model = api.compile("zoo:squeezenet1_1", cache=False, threads=3)
    feeds = model.random_inputs()
    (expected,) = model.run(None, feeds)
    stretches = [part for part in model.executable._lane.plan.parts if isinstance(part, Stretch)]
    for size in (2, 1):
        for stretch in stretches:
            stretch.crew.size = size
        np.testing.assert_array_equal(model.run(None, feeds)[0], expected)
