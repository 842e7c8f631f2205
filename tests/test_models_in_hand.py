"""What a user does with a compiled model and a graph in hand beside running them: call, copy, pickle, close."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.test_compiled import elsewhere, rewritten

import fusewise
from fusewise.compiled import Model, restored
from fusewise.errors import InvalidModel, ResourceLimit, UnsupportedModel, UsageError
from fusewise.frontend.onnx_export import save
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder

LEFT, RIGHT = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)


def both(*, two: bool = True) -> Graph:
    """Sum and difference of two inputs, of which one has a name that is no word of Python."""
    b = GraphBuilder("both")
    x, y = b.input("x", (2, 3)), b.input("y:0", (2, 3))
    return b.finish(*([b.op("Add", x, y)] if not two else [b.op("Add", x, y), b.op("Sub", x, y)]))


@pytest.fixture
def model() -> Model:
    return fusewise.compile(both(), cache=False, threads=2)


def free() -> Any:
    """A product of any number of rows."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 200], np.ones(600, np.float32))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "free",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 200])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# --- called ---------------------------------------------------------------------------------------------------------


def test_called_in_order_and_by_name(model: Model) -> None:
    expected = [LEFT + RIGHT, LEFT - RIGHT]
    for found in (
        model(LEFT, RIGHT),
        model(LEFT, **{"y:0": RIGHT}),
        model(**{"y:0": RIGHT, "x": LEFT}),
        model({"y:0": RIGHT, "x": LEFT}),
        model(LEFT.tolist() and LEFT, RIGHT),
    ):
        assert type(found) is list
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_one_output_is_one_array() -> None:
    found = fusewise.compile(both(two=False), cache=False)(LEFT, RIGHT)
    assert isinstance(found, np.ndarray) and np.array_equal(found, LEFT + RIGHT)


@pytest.mark.parametrize(
    "values, feeds, sentence",
    [
        ((LEFT, RIGHT, LEFT), {}, "called with 3 arrays and has 2 inputs"),
        ((LEFT,), {"x": LEFT}, "input 'x' is given twice"),
        ((LEFT,), {}, "no value was given for input 'y:0'"),
        ((), {}, "no value was given for"),
        ((LEFT,), {"z": RIGHT}, "no input 'z'"),
        (({"x": LEFT},), {}, "no value was given for input 'y:0'"),
        (({"x": LEFT, "self": RIGHT},), {}, "no input 'self'"),
    ],
)
def test_what_it_cannot_be_called_with(
    model: Model, values: tuple[Any, ...], feeds: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        model(*values, **feeds)


# --- copied and pickled ---------------------------------------------------------------------------------------------


def through_joblib(model: Model, folder: Path) -> Any:
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib")


@pytest.mark.parametrize(
    "again",
    [
        *(lambda model, _, p=p: pickle.loads(pickle.dumps(model, p)) for p in (0, pickle.HIGHEST_PROTOCOL)),
        lambda model, _: copy.copy(model),
        lambda model, _: copy.deepcopy({"kept": [model]})["kept"][0],
        through_joblib,
    ],
)
def test_another_of_the_same(model: Model, tmp_path: Path, again: Callable[[Model, Path], Model]) -> None:
    """Independent of the first, which may be closed."""
    expected = model(LEFT, RIGHT)
    found = again(model, tmp_path)
    model.close()
    assert all(np.array_equal(a, b) for a, b in zip(found(LEFT, RIGHT), expected, strict=True))
    assert found.executable.workers == 2 and found.summary["groups"] == model.summary["groups"]
    assert [port.name for port in found.get_inputs()] == ["x", "y:0"]
    with pytest.raises(UsageError, match="holds no graph"):
        _ = found.graph


def test_a_model_of_all_sizes_keeps_its_limit_of_memory() -> None:
    model = fusewise.compile(free(), cache=False, memory_limit=10_000)
    found = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(model))))
    for rows in (1, 5):
        assert np.array_equal(found(np.ones((rows, 3), np.float32)), np.full((rows, 200), 3, np.float32))
    with pytest.raises(ResourceLimit):
        found(np.ones((5000, 3), np.float32))


def test_in_another_process(model: Model, tmp_path: Path) -> None:
    """Which needs neither the model's file nor ONNX."""
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(model))
    script = f"""
import pickle, sys, numpy as np
from pathlib import Path
model = pickle.loads(Path({str(tmp_path / "model.pickle")!r}).read_bytes())
print(model(np.full((2, 3), 2, np.float32), np.ones((2, 3), np.float32))[1].sum(), "onnx" in sys.modules)
"""
    source = str(Path(fusewise.__file__).parent.parent)
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": source}
    )
    assert ended.stdout == "6.0 False\n"


def test_for_another_processor_and_damaged(model: Model, tmp_path: Path) -> None:
    """The errors of a compiled file."""
    make, (data, threads, limit) = model.__reduce__()
    assert make is restored and restored(data, threads, limit)(LEFT, RIGHT)
    (tmp_path / "model.fw").write_bytes(data)
    other = rewritten(tmp_path / "model.fw", tmp_path / "other.fw", lambda m: elsewhere(m, features="+quantum"))
    with pytest.raises(UnsupportedModel, match="the pickled model was compiled for .*lacks quantum"):
        restored(other.read_bytes())
    for damaged in (b"", data[:-1], data[:100], data[:-64] + bytes(63) + b"\x01"):
        with pytest.raises(InvalidModel, match="the pickled model is"):
            restored(damaged)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_graphs(again: Callable[[Graph], Graph], tmp_path: Path) -> None:
    """From memory, of free sizes, and with weights that lie in a file still."""
    b = GraphBuilder("stored")
    weight = b.constant(np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32))
    save(b.finish(b.op("MatMul", b.input("x", (1, 300)), weight)), tmp_path / "stored.onnx")
    for graph in (both(), fusewise.load(free(), free=True), fusewise.load(tmp_path / "stored.onnx")):
        found = again(graph)
        assert found == graph and repr(found) == repr(graph)
        assert found.symbols == graph.symbols
        fed = (
            np.random.default_rng(1).standard_normal((2, 3) if graph.name != "stored" else (1, 300)).astype(np.float32)
        )
        feeds = dict.fromkeys(graph.inputs, fed)
        answers = (fusewise.compile(one, cache=False).run(None, feeds) for one in (graph, found))
        assert all(np.array_equal(a, b) for a, b in zip(*answers, strict=True))


# --- closed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda model: model.run(None, {}),
        lambda model: model(LEFT, RIGHT),
        lambda model: model.get_inputs(),
        lambda model: model.get_outputs(),
        lambda model: model.random_inputs(),
        lambda model: model.graph,
        lambda model: model.trace,
        lambda model: model.save("never.fw"),
        lambda model: model.bind_cache(8),
        lambda model: model.executable,
        pickle.dumps,
    ],
)
def test_nothing_is_asked_of_a_closed_model(model: Model, use: Callable[[Model], Any]) -> None:
    assert model.graph is not None
    model.close()
    with pytest.raises(UsageError, match="the model is closed"):
        use(model)


def test_a_block_closes_it(model: Model) -> None:
    with model as held:
        assert held is model and not model.is_closed
        held(LEFT, RIGHT)
    assert model.is_closed
    model.close()
    with pytest.raises(UsageError, match="closed"), model:
        model(LEFT, RIGHT)


def test_a_closed_model_holds_no_memory(model: Model) -> None:
    known = weakref.ref(model.executable)
    model.close()
    gc.collect()
    assert known() is None


def test_runs_under_way_end_as_they_would(model: Model) -> None:
    """Of many threads each run gives the answer or says that the model is closed."""
    begun, answers, refusals = threading.Event(), [], []

    def work() -> None:
        while True:
            try:
                answers.append(model(LEFT, RIGHT)[0])
            except UsageError as error:
                refusals.append(str(error))
                return
            begun.set()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait(60)
    model.close()
    for thread in threads:
        thread.join(60)
    assert all(np.array_equal(answer, LEFT + RIGHT) for answer in answers) and len(refusals) == 4
