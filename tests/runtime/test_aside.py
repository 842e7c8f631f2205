"""Work beside the caller: results, errors, and what is over when."""

from __future__ import annotations

import threading

import pytest

from fusewise.runtime.aside import Aside, Spread, mapped


def test_a_call_runs_beside_the_caller_and_gives_its_result():
    asked, told = threading.Event(), threading.Event()

    def work() -> int:
        asked.set()
        return 7 if told.wait(60) else 0

    with Aside(work) as call:
        assert asked.wait(60)  # it runs while this thread waits
        told.set()
        assert call.result() == call.result() == 7


def test_an_error_is_raised_where_the_result_is_asked_for():
    def work() -> int:
        raise ValueError("nothing to do")

    with Aside(work) as call:
        pass
    with pytest.raises(ValueError, match="nothing to do"):
        call.result()


def test_a_call_is_over_when_its_block_is():
    told, over = threading.Event(), []

    def work() -> None:
        told.wait(60)
        over.append(True)

    def planned() -> None:
        with Aside(work):
            told.set()
            raise KeyError("planning")

    with pytest.raises(KeyError, match="planning"):
        planned()
    assert over == [True]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("times", [0, 1, 3, 100])
def test_every_number_is_called_once_and_results_keep_their_order(times, threads):
    called: list[int] = []

    def work(number: int) -> int:
        called.append(number)
        return number * number

    assert mapped(work, times, threads) == [number * number for number in range(times)]
    assert sorted(called) == list(range(times))


def test_several_threads_call_at_once():
    both = threading.Barrier(2)
    assert len(mapped(lambda number: both.wait(60), 2, 2)) == 2


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("error", [IndexError, OSError])
def test_the_first_error_ends_the_others(error, threads):
    called: list[int] = []

    def work(number: int) -> int:
        called.append(number)
        if number == 5:
            raise error("cannot read")
        return number

    with pytest.raises(error, match="cannot read"):
        mapped(work, 1_000_000, threads)
    assert len(called) < 1_000_000
    assert not [thread for thread in threading.enumerate() if thread.name == "fusewise-aside"]


def test_helpers_begin_before_the_caller_asks():
    begun = threading.Event()

    def work(number: int) -> int:
        begun.set()
        return 10 * number

    with Spread(work, 3) as spread:
        spread.help(1)
        assert begun.wait(60)
        spread.help(5)  # no more than there are calls
        assert spread.results() == spread.results() == [0, 10, 20]


def test_nothing_begins_after_the_block():
    called: list[int] = []
    begun, told = threading.Event(), threading.Event()

    def work(number: int) -> None:
        called.append(number)
        begun.set()
        told.wait(60)

    with Spread(work, 100) as spread:
        spread.help(1)
        assert begun.wait(60)
        threading.Timer(0.2, told.set).start()  # the block ends before the call does
    assert called == [0]
    assert not [thread for thread in threading.enumerate() if thread.name == "fusewise-aside"]
