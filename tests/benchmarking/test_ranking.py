"""Which graph is the fastest, and when the input is given up for it: on made-up times; and that answers are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.benchmarking import ranking
from fusewise.benchmarking.ranking import difference, duel, fastest_first, lower_bound, settled, timed
from fusewise.benchmarking.timing import Timing, TimingBudget
from fusewise.errors import UnsupportedModel, UsageError
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder


def scaled(factor: float) -> Graph:
    build = GraphBuilder("scaled")
    x = build.input("x", (2, 3))
    return build.finish(build.op("Mul", x, build.constant(np.array(factor, np.float32))))


def sessions(speedup: float, noise: float, seed: int) -> Callable[[], tuple[float, float]]:
    """Rounds of a duel: how fast a session is is drawn when it is opened."""
    rng = np.random.default_rng(seed)
    return lambda: (
        10.0 * math.exp(noise * rng.standard_normal()),
        10.0 / speedup * math.exp(noise * rng.standard_normal()),
    )


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=30), st.sampled_from([0.9, 0.95, 0.99]))
def test_the_bound_is_the_order_statistic_of_the_sign_test(values: list[float], confidence: float) -> None:
    bound = lower_bound(values, confidence)
    n = len(values)
    chances = [sum(math.comb(n, k) for k in range(below + 1)) / 2**n for below in range(n)]
    allowed = sum(chance <= 1 - confidence for chance in chances)
    assert bound == (sorted(values)[allowed - 1] if allowed else 0.0)
    assert bound <= np.median(values)


def test_the_bound_holds_as_often_as_it_says() -> None:
    """Samples of a skewed distribution whose median is 1."""
    rng = np.random.default_rng(0)
    bounds = [lower_bound(list(rng.exponential(1 / math.log(2), 11))) for _ in range(2000)]
    assert 0.01 < np.mean(np.array(bounds) > 1.0) <= 0.05


def test_too_few_rounds_prove_nothing() -> None:
    assert lower_bound([2.0] * 4) == 0.0
    assert lower_bound([2.0] * 5) == 2.0


@pytest.mark.parametrize(
    "speedup, noise, least, most", [(1.0, 0.05, 0.0, 0.05), (0.98, 0.03, 0.0, 0.02), (1.05, 0.02, 0.95, 1.0)]
)
def test_noise_does_not_win_a_duel_and_a_gain_does(speedup: float, noise: float, least: float, most: float) -> None:
    verdicts = [duel(sessions(speedup, noise, seed), "onnxruntime") for seed in range(400)]
    assert least <= np.mean([verdict.wins for verdict in verdicts]) <= most


def test_a_duel_that_is_lost_ends() -> None:
    verdict = duel(sessions(0.5, 0.01, 0), "onnxruntime")
    assert (verdict.wins, verdict.rounds) == (False, 3)
    assert verdict.speedup == pytest.approx(0.5, rel=0.05)


def test_two_disturbed_rounds_do_not_decide() -> None:
    """What else the machine did fell on the faster graph twice."""
    rounds = iter([(10.0, 30.0), (10.0, 8.0), (10.0, 30.0), *[(10.0, 8.0)] * 8])
    verdict = duel(lambda: next(rounds), "onnxruntime")
    assert (verdict.wins, verdict.rounds, verdict.speedup, verdict.at_least) == (True, 11, 1.25, 1.25)


def test_every_round_opens_both_graphs_anew_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def opener(name: str) -> Callable[[], Callable[..., str]]:
        def opened_now() -> Callable[..., str]:
            opened.append(name)
            return lambda feeds: name

        return opened_now

    @contextmanager
    def openers(*_: object) -> Iterator[list[Callable[[], Callable[..., str]]]]:
        yield [opener("before"), opener("after")]

    def race(calls: list[Callable[[], str]], budget: TimingBudget) -> tuple[Timing, ...]:
        assert [call() for call in calls] == ["before", "after"]
        return Timing((3.0, 3.0, 9.0)), Timing((2.0, 2.0, 2.0))

    monkeypatch.setattr(ranking, "_openers", openers)
    monkeypatch.setattr(ranking, "race", race)
    verdict = settled(scaled(1.0), scaled(1.0), "onnxruntime", 1)
    assert (verdict.speedup, verdict.at_least, verdict.rounds) == (1.5, 1.5, 11)
    assert opened[:4] == ["after", "before", "before", "after"]
    assert len(opened) == 22


def test_the_shortest_median_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = (Timing((1.0, 5.0, 6.0)), Timing((3.0, 3.0, 3.0)), Timing((2.0, 4.0, 4.0)))
    monkeypatch.setattr(ranking, "timed", lambda *_: found)
    assert fastest_first([scaled(1.0)] * 3, "onnxruntime", 1) == [1, 2, 0]


def test_runtimes_that_are_not_there_or_refuse_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = TimingBudget(runs=1, seconds=0.0)
    with pytest.raises(UsageError, match="no runtime 'abacus'; there are fusewise, onnxruntime, openvino"):
        timed([scaled(1.0)], "abacus", 1, budget)
    monkeypatch.setattr(ranking, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="openvino is not installed"):
        timed([scaled(1.0)], "openvino", 1, budget)
    monkeypatch.undo()
    pytest.importorskip("onnxruntime")

    def refusing(*_: object) -> None:
        raise RuntimeError("a long story\nNo such operator")

    monkeypatch.setattr(ranking, "open_onnxruntime", refusing)
    with pytest.raises(UnsupportedModel, match="onnxruntime does not run this model: No such operator"):
        timed([scaled(1.0)], "onnxruntime", 1, budget)


def test_whole_graphs_are_timed_here() -> None:
    (found,) = timed([scaled(2.0)], "fusewise", 1, TimingBudget(runs=2, seconds=0.0, warmup=1))
    assert found.min_ms > 0


def test_answers_are_compared() -> None:
    assert difference(scaled(2.0), scaled(2.0)) == 0.0
    assert difference(scaled(2.0), scaled(3.0)) == pytest.approx(0.5)
