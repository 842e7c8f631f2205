"""Sizes that keep coming back: a program of their own, counted; the one used longest ago leaves; faults in the background."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from tests.runtime.free_programs import answers, feeds, free_program

from fusewise.errors import ResourceLimit
from fusewise.lower.fixed import fixed
from fusewise.runtime.executable import Executable, build, build_special
from fusewise.runtime.specialist import HOT_RUNS, HOT_SECONDS, Special, Specialist, Unwanted


@pytest.fixture(autouse=True)
def by_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are hot by the number of their runs alone, however slow the machine is."""
    monkeypatch.setattr("fusewise.runtime.specialist.HOT_SECONDS", float("inf"))


Sizes = Mapping[str, int]
Known = Sequence[np.ndarray]
GoOn = Callable[[], None]


class Maker:
    """Makes programs of the one for all sizes by writing in the sizes; `asked` are those it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.said: list[str] = []

    def __call__(self, sizes: Sizes, known: Known, go_on: GoOn) -> Special:
        self.asked.append((sizes["batch"], sizes["sequence"]))
        self.before(go_on)
        return build_special(fixed(free_program(), sizes), sizes, known, go_on)

    def before(self, go_on: GoOn) -> None:
        pass


def specialized(most: int, make: Maker, program: Executable | None = None) -> tuple[Executable, Specialist]:
    model = build(free_program()) if program is None else program
    made = Specialist(most, make, tuple(model.contents.constants.values()), make.said.append)
    model.specialize(made)
    return model, made


def check(model: Executable, batch: int, sequence: int) -> None:
    fed = feeds(batch, sequence)
    for found, wanted in zip(model.run(None, fed), answers(fed), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_array_equal(found, wanted)


def heat(model: Executable, made: Specialist, batch: int, sequence: int) -> None:
    """Run until a program has been made for these sizes, or could not be, and once more."""
    before = made.made + made.failed
    for _ in range(10_000):
        check(model, batch, sequence)
        if made.made + made.failed > before:
            return
        if made._thread is not None:
            made._thread.join()
    raise AssertionError("these sizes never get hot")


def sizes_of(made: Specialist) -> list[tuple[int, int]]:
    return [(one["batch"], one["sequence"]) for one in made.figures["sizes"]]


def test_sizes_that_come_back_get_a_program() -> None:
    make = Maker()
    model, made = specialized(2, make)
    for sequence in range(1, 9):
        check(model, 1, sequence)
    assert not make.asked
    for _ in range(HOT_RUNS):
        check(model, 2, 5)
    made.wait()
    assert make.asked == [(2, 5)]
    heat(model, made, 2, 5)
    plans = model._plans
    assert plans is not None
    assert plans._known[((2, 5, 4), (2, 5))].program is made.programs[((2, 5, 4), (2, 5))].contents.program
    count = plans.made
    for _ in range(3 * HOT_RUNS):
        check(model, 2, 5)
    assert (make.asked, plans.made, sizes_of(made)) == ([(2, 5)], count, [(2, 5)])
    check(model, 2, 6)


def test_two_runs_that_take_long_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusewise.runtime.specialist.HOT_SECONDS", HOT_SECONDS)
    made = Specialist(1, Maker(), (), lambda sentence: None)
    shapes = ((1, 1, 4), (1, 1))
    assert not made.ran(shapes, 700_000_000)
    assert made.ran(shapes, 1)
    for k in range(HOT_RUNS - 1):
        assert not made.ran(((k % 2 + 1, 2, 4),), 1)


def test_few_sizes_are_remembered() -> None:
    """However many come: the counts of those met last."""
    made = Specialist(1, Maker(), (), lambda sentence: None)
    for sequence in range(9000):
        made.ran(((1, sequence, 4),), 1)
    assert len(made._seen) < 5000
    assert ((1, 8999, 4),) in made._seen


def test_constants_are_shared() -> None:
    make = Maker()
    model, made = specialized(2, make)
    heat(model, made, 2, 5)
    heat(model, made, 3, 5)
    (weights,) = model.contents.constants.values()
    for one in made.programs.values():
        assert all(block is weights for block in one.contents.constants.values())
    figures = made.figures
    assert figures["shared_bytes"] == weights.nbytes
    assert figures["bytes"] == sum(one.code_bytes for one in made.programs.values())


def test_the_program_used_longest_ago_leaves_and_comes_back_later() -> None:
    make = Maker()
    model, made = specialized(2, make)
    for sequence in (4, 5):
        heat(model, made, 1, sequence)
    check(model, 1, 4)
    heat(model, made, 1, 6)
    assert sizes_of(made) == [(1, 4), (1, 6)]
    for _ in range(HOT_RUNS):
        check(model, 1, 5)
    assert not made.is_busy
    heat(model, made, 1, 5)
    assert sizes_of(made) == [(1, 6), (1, 5)]
    assert make.asked == [(1, 4), (1, 5), (1, 6), (1, 5)]


@pytest.mark.parametrize("error", [ResourceLimit("no room"), ValueError("odd"), MemoryError(), SystemExit(3)])
def test_what_goes_wrong_in_the_background_leaves_the_model_running(error: BaseException) -> None:
    class Failing(Maker):
        def before(self, go_on: GoOn) -> None:
            raise error

    make = Failing()
    model, made = specialized(2, make)
    heat(model, made, 1, 7)
    for _ in range(3 * HOT_RUNS):
        check(model, 1, 7)
    assert make.asked == [(1, 7)]
    assert (made.failed, made.made, sizes_of(made)) == (1, 0, [])
    assert len(make.said) == 1
    assert "batch=1, sequence=7" in make.said[0]


def test_a_warning_that_is_an_error_is_not_the_callers() -> None:
    class Failing(Maker):
        def before(self, go_on: GoOn) -> None:
            raise ValueError

    def loud(sentence: str) -> None:
        raise RuntimeWarning(sentence)

    model = build(free_program())
    made = Specialist(1, Failing(), (), loud)
    model.specialize(made)
    heat(model, made, 1, 7)
    check(model, 1, 7)


class Blocked(Maker):
    """Works until it is told to stop, or `ready` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = threading.Event()

    def before(self, go_on: GoOn) -> None:
        while not self.ready.wait(0.001):
            go_on()


def test_nobody_waits_and_nothing_is_made_meanwhile() -> None:
    make = Blocked()
    model, made = specialized(4, make)
    for sequence in (4, 5, 6):
        for _ in range(HOT_RUNS + 1):
            check(model, 1, sequence)
    assert made.is_busy
    make.ready.set()
    heat(model, made, 1, 4)
    heat(model, made, 1, 6)
    assert make.asked == [(1, 4), (1, 6)]


def test_closing_ends_the_thread() -> None:
    make = Blocked()
    model, made = specialized(1, make)
    for _ in range(HOT_RUNS):
        check(model, 1, 4)
    thread = made._thread
    assert thread is not None
    assert thread.daemon
    assert thread.is_alive()
    made.close()
    assert not thread.is_alive()
    for _ in range(2 * HOT_RUNS):
        check(model, 1, 5)
    assert make.asked == [(1, 4)]
    assert (made.made, made.failed) == (0, 0)


def test_no_thread_outlives_the_model() -> None:
    make = Blocked()
    model, made = specialized(1, make)
    for _ in range(HOT_RUNS):
        check(model, 1, 4)
    thread, known = made._thread, weakref.ref(model)
    assert thread is not None
    assert thread.is_alive()
    del model
    gc.collect()
    assert known() is None
    thread.join(60)
    assert not thread.is_alive()


def test_unwanted_work_is_given_up() -> None:
    made = Specialist(1, Maker(), (), lambda sentence: None)
    made._go_on()
    made.stop()
    with pytest.raises(Unwanted):
        made._go_on()


def test_many_threads() -> None:
    make = Maker()
    model, made = specialized(2, make)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for k in range(12 * HOT_RUNS):
                check(model, 1 + (number + k) % 2, 3 + k % 3)
                if k % HOT_RUNS == 0:
                    time.sleep(0.001)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert made.figures["failed"] == 0
    assert len(sizes_of(made)) <= 2
    made.close()


def test_the_arena_grows_beside_programs_of_one_size() -> None:
    make = Maker()
    model, made = specialized(2, make)
    heat(model, made, 2, 5)
    for sequence in (5, 50, 5, 500, 5):
        check(model, 2, sequence)
    assert make.asked == [(2, 5)]
    assert sizes_of(made) == [(2, 5)]


def test_the_plan_of_a_program_of_one_size_stays() -> None:
    make = Maker()
    model, made = specialized(1, make)
    plans = model._plans
    assert plans is not None
    for sequence in range(20, 50):
        check(model, 2, sequence)
    heat(model, made, 2, 5)
    for sequence in range(20, 50):
        check(model, 2, sequence)
    count = plans.made
    check(model, 2, 5)
    assert plans.made == count
    assert len(plans._known) <= 17


def test_programs_leave_before_a_size_is_refused_for_memory() -> None:
    """Their own constants are given up where the program for all sizes has no room beside them."""

    class Apart(Maker):
        def __call__(self, sizes: Sizes, known: Known, go_on: GoOn) -> Special:
            return super().__call__(sizes, (), go_on)

    model, made = specialized(2, Apart())
    heat(model, made, 1, 5)
    assert made.own_bytes == 16
    for limit in range(16, 10_000, 8):
        try:
            model.limit_memory(limit)
            check(model, 1, 6)
        except ResourceLimit:
            assert made.own_bytes == 16
            continue
        break
    assert made.own_bytes == 0
    check(model, 1, 6)


def test_a_program_for_which_there_is_no_room_is_forgotten() -> None:
    class Apart(Maker):
        def __call__(self, sizes: Sizes, known: Known, go_on: GoOn) -> Special:
            return super().__call__(sizes, (), go_on)

    make = Apart()
    model, made = specialized(2, make)
    plans = model._plans
    assert plans is not None
    check(model, 2, 9)
    fits = 16
    while True:
        try:
            model.limit_memory(fits)
            plans._known.clear()
            check(model, 2, 9)
            break
        except ResourceLimit:
            fits += 8
    heat(model, made, 2, 9)
    for _ in range(3 * HOT_RUNS):
        check(model, 2, 9)
    assert sizes_of(made) == []
    assert make.asked == [(2, 9)]
