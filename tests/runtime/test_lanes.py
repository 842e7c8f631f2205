"""Several threads run one model at the same time, each in memory of its own, and wait in turn where there is no more."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from tests.onnxruntime.models import classifier, scaled

import fusewise
from fusewise.errors import ResourceLimit, UsageError
from fusewise.runtime import executable, lanes
from fusewise.runtime.lane import Lane
from fusewise.runtime.lanes import Lanes


class Plan:
    """Stands for a program's plans, which nothing looks at here."""


def lane(workers: int = 2) -> Lane:
    return Lane(Plan(), workers, 1)  # type: ignore[arg-type]


def in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("workers, most", [(1, 1), (1, 3), (2, 2), (2, 4), (8, 3)])
def test_a_lane_is_one_threads_at_a_time(workers: int, most: int) -> None:
    found = Lanes(lane(workers), most, lambda: lane(1))
    inside: dict[int, int] = {}
    wrong, seen = [], set()

    def client(number: int) -> None:
        for _ in range(60):
            mine = found.take()
            if inside.get(id(mine)) is not None:
                wrong.append(mine)
            inside[id(mine)] = number
            time.sleep(0.0002)
            if inside[id(mine)] != number:
                wrong.append(mine)
            inside[id(mine)] = None  # type: ignore[assignment]
            seen.add(id(mine))
            found.leave(mine)

    in_threads(12, client)
    assert not wrong
    assert found.count == most and len(seen) == most
    assert not found._waiting


def test_who_waits_first_is_served_first() -> None:
    found, order = Lanes(lane(), 1, lane), []

    def client(number: int) -> None:
        mine = found.take()
        order.append(number)
        time.sleep(0.002)
        found.leave(mine)

    holding = found.take()
    threads = []
    for number in range(6):
        threads.append(threading.Thread(target=client, args=(number,)))
        threads[-1].start()
        while len(found._waiting) <= number:
            time.sleep(0.0005)
    found.leave(holding)
    for thread in threads:
        thread.join(60)
    assert order == list(range(6))


def test_a_run_by_itself_has_all_workers_and_many_have_one_each() -> None:
    found = Lanes(lane(2), 2, lambda: lane(1))
    found._waited = lanes._PATIENCE
    first = found.take()
    assert first is found.first and not first.is_crowded
    others: list[Lane] = []
    took, go_on = threading.Event(), threading.Event()

    def client() -> None:
        others.append(found.take())
        took.set()
        go_on.wait(60)
        found.leave(others[0])

    thread = threading.Thread(target=client)
    thread.start()
    assert took.wait(60)
    assert others[0] is not first and others[0].is_crowded
    found.leave(first)
    first = found.take()
    assert first.is_crowded
    found.leave(first)
    go_on.set()
    thread.join(60)
    first = found.take()
    assert not first.is_crowded


def test_there_are_no_other_lanes_for_fewer_runs_than_workers() -> None:
    found = Lanes(lane(8), 4, lambda: lane(1))
    found._waited = lanes._PATIENCE
    first, taken = found.take(), []

    def client(number: int) -> None:
        mine = found.take()
        taken.append(mine)
        found.leave(mine)

    thread = threading.Thread(target=client, args=(0,))
    thread.start()
    time.sleep(4 * lanes._LONGEST_WAIT_S)
    assert not taken
    found.leave(first)
    thread.join(60)
    assert taken == [first]


def test_without_room_runs_take_turns() -> None:
    def full() -> Lane:
        raise ResourceLimit("no room")

    found = Lanes(lane(), 4, full)
    done = []

    def client(number: int) -> None:
        for _ in range(20):
            mine = found.take()
            time.sleep(0.0002)
            found.leave(mine)
        done.append(number)

    in_threads(4, client)
    assert len(done) == 4 and found.count == 1


def test_a_call_that_is_lost_holds_nobody_up() -> None:
    """As one that came for a thread which a signal had taken out of the row."""
    found, done = Lanes(lane(), 1, lane), []
    gone = threading.Lock()
    gone.acquire()
    holding = found.take_first()
    thread = threading.Thread(target=lambda: (found.leave(found.take()), done.append(1)))
    thread.start()
    while not found._waiting:
        time.sleep(0.0005)
    found._waiting.appendleft(gone)
    found.leave(holding)
    thread.join(60)
    assert done


def test_a_thread_that_is_inside_is_refused() -> None:
    found = Lanes(lane(), 2, lane)
    mine = found.take()
    with pytest.raises(UsageError, match="from within itself"):
        found.take()
    found.leave(mine)
    found.leave(found.take())


def answers(model: fusewise.Model, feeds: Sequence[dict[str, np.ndarray]], clients: int = 6, runs: int = 40) -> None:
    """All clients get what each of the feeds alone gives, also while the first lane is taken."""
    wanted = [model.run(None, one) for one in feeds]
    found = model.executable.lanes
    found._waited = lanes._PATIENCE
    holding = found.take_first()
    in_threads(1, lambda number: clients_get(model, feeds, wanted, clients, runs // 2))
    assert found.count > 1
    found.leave(holding)
    clients_get(model, feeds, wanted, clients, runs)


def clients_get(model: fusewise.Model, feeds: Any, wanted: Any, clients: int, runs: int) -> None:
    wrong: list[Any] = []

    def client(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(runs):
            k = int(rng.integers(len(feeds)))
            found = model.run(None, feeds[k])
            if not all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(found, wanted[k], strict=True)):
                wrong.append(k)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that short runs overlap
    try:
        in_threads(clients, client)
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def images(*rows: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"image": rng.standard_normal((count, 3, 32, 32), dtype=np.float32)} for count in rows]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"specialize": 4}, {"symbols": {"batch": 2}}], ids=repr)
def test_threads_get_their_own_answers(monkeypatch: pytest.MonkeyPatch, threads: int, settings: dict[str, Any]) -> None:
    monkeypatch.setattr(executable, "worker_count", lambda asked=None: asked or 3)
    model = fusewise.compile(classifier(), cache=False, threads=threads, **settings)
    feeds = images(2, 2) if "symbols" in settings else images(*range(1, 20))
    answers(model, feeds, runs=60)
    if model.specialist is not None:
        model.specialist.wait()
        answers(model, feeds)
        model.close()


def test_programs_of_single_sizes_are_used_by_all_lanes_and_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "worker_count", lambda asked=None: asked or 2)
    model = fusewise.compile(classifier(), cache=False, threads=1, specialize=1)
    specialist, (small, large) = model.specialist, images(1, 3)
    assert specialist is not None
    other = model.executable._beside()
    values = [list(one.values()) for one in (small, large)]
    general = other.plan(values[0]).program  # type: ignore[union-attr]
    for one, value in zip((small, large), values, strict=True):
        while value[0].shape not in [shapes[0] for shapes in specialist.programs]:
            model.run(None, one)
            specialist.wait()
        special = next(iter(specialist.programs.values()))
        assert other.plan(value).program is special.contents.program  # type: ignore[union-attr]
        assert len(other._special_known) == 1  # type: ignore[union-attr]
    assert other.plan(values[0]).program is general  # type: ignore[union-attr]
    model.close()


def test_where_memory_is_limited_or_the_host_has_steps_runs_take_turns() -> None:
    limited = fusewise.compile(scaled(), cache=False, threads=1, memory_limit=1 << 30)
    assert limited.executable.lanes._most == 1
    port = onnx.helper.make_tensor_value_info
    kinds = [port(name, onnx.TensorProto.STRING, [4]) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("StringConcat", ["x", "x"], ["y"])], "g", kinds[:1], kinds[1:]
    )
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    assert fusewise.compile(made, cache=False).executable.lanes._most == 1
