"""Rounds of loops in one call of native code: the same as one after the other, and as ONNX Runtime has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import fusewise
from fusewise.errors import InvalidData, ResourceLimit
from fusewise.runtime import control, crew, nested, round_table

onnxruntime = pytest.importorskip("onnxruntime")
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code is worth making for any run, and is never found to be slow; rounds are shared out, however short."""
    monkeypatch.setattr(nested, "_WORTH_SECONDS", 0.0)
    monkeypatch.setattr(nested, "_LEAST_ROUNDS", 2)
    monkeypatch.setattr(nested, "_TRIAL", 0)
    monkeypatch.setattr(crew, "_SHORT_NS", 0)
    monkeypatch.setattr(control, "_FEW_ROUNDS", 0)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rounds were made in each call."""
    made: list[int] = []
    inner = round_table.run_rounds

    def counted(plan: Any, values: Any, ports: Any, lines: Any, count: int) -> Any:
        found = inner(plan, values, ports, lines, count)
        made.extend([found.count] if found is not None else [])
        return found

    monkeypatch.setattr(round_table, "run_rounds", counted)
    return made


def _value(name: str, kind: int = FLOAT, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(node: onnx.NodeProto, inputs: list[onnx.ValueInfoProto], outputs: list[str]) -> onnx.ModelProto:
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _loop(results: dict[str, list[str]], gathers: list[str]) -> onnx.ModelProto:
    """Three states s, t, u: what becomes of each is one of the body's values by name; `gathers` are gathered."""
    nodes = [
        helper.make_node("Cast", ["i"], ["number"], to=FLOAT),
        helper.make_node("Mul", ["s", "w"], ["sw"]),
        helper.make_node("Add", ["sw", "t"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["bent"]),
        helper.make_node("Add", ["u", "number"], ["counted"]),
        helper.make_node("ReduceSum", ["bent"], ["total"], keepdims=0),
        helper.make_node("Identity", ["c"], ["c2"]),
    ]
    nodes += [helper.make_node("Identity", [v], [f"{k}_next"]) for k, v in results.items()]
    nodes += [helper.make_node("Identity", [v], [f"all{k}"]) for k, v in enumerate(gathers)]
    body = helper.make_graph(
        nodes,
        "body",
        [_value("i", INT64, []), _value("c", BOOL, []), *(_value(k) for k in results)],
        [
            _value("c2", BOOL, []),
            *(_value(f"{k}_next") for k in results),
            *(_value(f"all{k}") for k in range(len(gathers))),
        ],
    )
    outputs = ["s_end", "t_end", "u_end", *(f"y{k}" for k in range(len(gathers)))]
    node = helper.make_node("Loop", ["trips", "", "s0", "t0", "u0"], outputs, body=body)
    states = [_value(name, FLOAT, ["n", 3]) for name in ("s0", "t0")]
    return _model(
        node, [_value("trips", INT64, []), *states, _value("u0", FLOAT, []), _value("w", FLOAT, [3])], outputs
    )


SAME_SHAPE = ("bent", "sum", "s", "t", "sw")


@settings(max_examples=25, deadline=None)
@given(
    s=st.sampled_from(SAME_SHAPE),
    t=st.sampled_from(SAME_SHAPE),
    u=st.sampled_from(("counted", "u", "total")),
    gathers=st.lists(st.sampled_from((*SAME_SHAPE, "total", "number")), max_size=3),
    trips=st.sampled_from((0, 1, 2, 3, 5, 40)),
    size=st.sampled_from((1, 2, 5)),
    threads=st.integers(1, 2),
)
def test_loops_are_as_round_by_round(
    s: str, t: str, u: str, gathers: list[str], trips: int, size: int, threads: int
) -> None:
    model = _loop({"s": s, "t": t, "u": u}, gathers)
    rng = np.random.default_rng(size)
    floats = {name: rng.standard_normal((size, 3), dtype=np.float32) for name in ("s0", "t0")}
    w = rng.standard_normal(3, dtype=np.float32) / 2
    feeds = {"trips": np.array(trips), **floats, "u0": np.array(0.5, np.float32), "w": w}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    ours = fusewise.compile(model, cache=False, threads=threads)
    for _ in range(2):
        wanted = session.run(None, feeds)
        for found, expected in zip(ours.run(None, feeds), wanted, strict=True):
            if trips:  # without rounds ONNX Runtime does not know all shapes
                assert found.shape == expected.shape
                np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
            assert found.flags.writeable


def test_a_loop_of_many_rounds_takes_few_calls(rounds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    model = _loop({"s": "bent", "t": "s", "u": "counted"}, ["total", "s"])
    feeds: dict[str, Any] = {name: np.full((2, 3), 0.1, np.float32) for name in ("s0", "t0")}
    feeds |= {"trips": np.array(500), "u0": np.array(0, np.float32), "w": np.full(3, 0.3, np.float32)}
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    ours = fusewise.compile(model, cache=False)
    for most in (1 << 18, 4_000):  # also in several tables
        rounds.clear()
        monkeypatch.setattr(round_table, "_MOST_WORDS", most)
        for found, expected in zip(ours.run(None, feeds), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
        assert sum(rounds) > 490
        assert len(rounds) <= 40


def test_a_state_that_grows_is_made_round_by_round(rounds: list[int]) -> None:
    nodes = [helper.make_node("Concat", ["s", "s"], ["s2"], axis=0), helper.make_node("Identity", ["c"], ["c2"])]
    inputs = [_value("i", INT64, []), _value("c", BOOL, []), _value("s")]
    body = helper.make_graph(nodes, "body", inputs, [_value("c2", BOOL, []), _value("s2")])
    node = helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)
    model = fusewise.compile(_model(node, [_value("trips", INT64, []), _value("x", FLOAT, ["n"])], ["y"]), cache=False)
    x = np.arange(3, dtype=np.float32)
    for _ in range(2):
        (found,) = model.run(None, {"trips": np.array(6), "x": x})
        np.testing.assert_array_equal(found, np.tile(x, 64))
    assert rounds == []


@settings(max_examples=12, deadline=None)
@given(length=st.sampled_from((1, 2, 3, 9, 70)), backwards=st.booleans(), axis=st.integers(0, 1))
def test_scans_are_as_round_by_round(length: int, backwards: bool, axis: int) -> None:
    nodes = [
        helper.make_node("Mul", ["h", "w"], ["hw"]),
        helper.make_node("Add", ["hw", "x"], ["h2"]),
        helper.make_node("Identity", ["h2"], ["y"]),
    ]
    body = helper.make_graph(nodes, "body", [_value("h"), _value("x")], [_value("h2"), _value("y")])
    how = {"num_scan_inputs": 1, "scan_input_axes": [axis], "scan_input_directions": [int(backwards)]}
    node = helper.make_node("Scan", ["h0", "xs"], ["h_end", "ys"], body=body, **how)
    shape = ["l", 4] if axis == 0 else [4, "l"]
    model = _model(
        node, [_value("h0", FLOAT, [4]), _value("xs", FLOAT, shape), _value("w", FLOAT, [4])], ["h_end", "ys"]
    )
    rng = np.random.default_rng(length)
    xs = rng.standard_normal((length, 4) if axis == 0 else (4, length), dtype=np.float32)
    feeds = {"h0": np.ones(4, np.float32), "xs": xs, "w": np.full(4, 0.7, np.float32)}
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    ours = fusewise.compile(model, cache=False)
    for _ in range(2):
        for found, expected in zip(ours.run(None, feeds), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_what_is_wrong_with_data_in_a_later_round_is_told() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["row"]),
        helper.make_node("Add", ["s", "row"], ["s2"]),
        helper.make_node("Identity", ["c"], ["c2"]),
    ]
    inputs = [_value("i", INT64, []), _value("c", BOOL, []), _value("s")]
    body = helper.make_graph(nodes, "body", inputs, [_value("c2", BOOL, []), _value("s2")])
    node = helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)
    given_ = [_value("trips", INT64, []), _value("x", FLOAT, ["n"]), _value("table", FLOAT, [20, "n"])]
    model = fusewise.compile(_model(node, given_, ["y"]), cache=False)
    feeds: dict[str, Any] = {"x": np.zeros(3, np.float32), "table": np.ones((20, 3), np.float32)}
    for _ in range(3):
        np.testing.assert_array_equal(model.run(None, {"trips": np.array(20), **feeds})[0], np.full(3, 20, np.float32))
    with pytest.raises(InvalidData, match="20"):
        model.run(None, {"trips": np.array(21), **feeds})
    np.testing.assert_array_equal(model.run(None, {"trips": np.array(20), **feeds})[0], np.full(3, 20, np.float32))


def _while(
    condition: str, gathers: list[str], limit: bool = True, steps: tuple[onnx.NodeProto, ...] = ()
) -> onnx.ModelProto:
    """A state that bends, one that nobody reads, and a number, until the condition of this name is false, or after `trips`."""
    nodes = [
        helper.make_node("Mul", ["s", "w"], ["sw"]),
        helper.make_node("Tanh", ["sw"], ["bent"]),
        helper.make_node("Neg", ["bent"], ["last_next"]),
        helper.make_node("Add", ["u", "one"], ["counted"]),
        helper.make_node("Less", ["i", "stop"], ["by number"]),
        helper.make_node("Cast", ["counted"], ["made"], to=INT64),
        helper.make_node("LessOrEqual", ["made", "stop"], ["by state"]),
        helper.make_node("And", ["c", "by state"], ["by both"]),
        helper.make_node("Identity", ["c"], ["as before"]),
        *steps,
        helper.make_node("Identity", [condition], ["c2"]),
        *(helper.make_node("Identity", [v], [f"all{k}"]) for k, v in enumerate(gathers)),
    ]
    inputs = [_value("i", INT64, []), _value("c", BOOL, []), _value("s"), _value("last"), _value("u", FLOAT, [])]
    outputs = [_value("c2", BOOL, []), *(_value(v) for v in ("bent", "last_next")), _value("counted", FLOAT, [])]
    outputs += [_value(f"all{k}", BOOL if v.startswith("by") else FLOAT) for k, v in enumerate(gathers)]
    one = helper.make_tensor("one", FLOAT, [], [1.0])
    body = helper.make_graph(nodes, "body", inputs, outputs, [one])
    given_ = [
        _value("stop", INT64, []),
        *([_value("trips", INT64, [])] if limit else []),
        _value("c0", BOOL, []),
        *(_value(name, FLOAT, ["n", 3]) for name in ("s0", "last0")),
        _value("u0", FLOAT, []),
        _value("w", FLOAT, [3]),
    ]
    results = ["s_end", "last_end", "u_end", *(f"y{k}" for k in range(len(gathers)))]
    return _model(
        helper.make_node("Loop", ["trips" if limit else "", "c0", "s0", "last0", "u0"], results, body=body),
        given_,
        results,
    )


def _while_feeds(size: int, stop: int, trips: int | None) -> dict[str, Any]:
    rng = np.random.default_rng(size)
    floats = {name: rng.standard_normal((size, 3), dtype=np.float32) for name in ("s0", "last0")}
    feeds = {"stop": np.array(stop), "c0": np.array(True), **floats, "u0": np.array(0, np.float32)}
    return {**feeds, "w": np.full(3, 0.9, np.float32), **({} if trips is None else {"trips": np.array(trips)})}


@settings(max_examples=15, deadline=None)
@given(
    condition=st.sampled_from(("by number", "by state", "by both")),
    gathers=st.lists(st.sampled_from(("bent", "s", "counted", "by state", "by both")), max_size=3),
    trips=st.sampled_from((None, 0, 1, 2, 7, 33, 1 << 40)),
    stops=st.lists(st.integers(-1, 8) | st.sampled_from((30, 31, 32, 33, 127, 128, 129)), min_size=2, max_size=4),
    size=st.sampled_from((1, 2, 5)),
    threads=st.integers(1, 2),
)
def test_a_condition_ends_rounds_anywhere(
    condition: str, gathers: list[str], trips: int | None, stops: list[int], size: int, threads: int
) -> None:
    model = _while(condition, gathers, trips is not None)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    ours = fusewise.compile(model, cache=False, threads=threads)
    for stop in stops:
        feeds = _while_feeds(size, stop, trips)
        for found, expected in zip(ours.run(None, feeds), session.run(None, feeds), strict=True):
            if trips != 0:
                assert found.shape == expected.shape
                np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
            assert found.flags.writeable


def test_few_rounds_are_made_one_by_one(rounds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last run had few, too, or so many are to come."""
    monkeypatch.setattr(control, "_FEW_ROUNDS", 6)
    ours = fusewise.compile(_while("by state", ["bent"]), cache=False)
    made = []
    for stop in (100, 100, 2, 2, 2, 50, 50):
        rounds.clear()
        assert len(ours.run(None, _while_feeds(2, stop, 200))[3]) == stop + 1
        made.append(sum(rounds))
    assert made[1:] == [101, 3, 0, 0, 51 - 6, 51]


def test_no_round_is_made_where_the_condition_is_false_at_first(rounds: list[int]) -> None:
    ours = fusewise.compile(_while("by state", ["bent"]), cache=False)
    feeds = _while_feeds(2, 100, 200)
    s, *_, bent = ours.run(None, feeds)
    np.testing.assert_array_equal(s, bent[-1])
    assert sum(rounds) > 90
    rounds.clear()
    s, *_, bent = ours.run(None, {**feeds, "c0": np.array(False)})
    np.testing.assert_array_equal(s, feeds["s0"])
    assert (len(bent), rounds) == (0, [])


@pytest.mark.parametrize("limit", [False, True])
def test_rounds_until_a_condition_take_few_calls(
    limit: bool, rounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nested, "_CALL_SECONDS", 60)  # on a machine however busy
    ours = fusewise.compile(_while("by number", ["bent"], limit), cache=False, threads=1)
    feeds = _while_feeds(2, 3000, 1 << 40 if limit else None)
    calls = []
    for _ in range(2):
        rounds.clear()
        assert len(ours.run(None, feeds)[3]) == 3001
        calls.append(len(rounds))
    assert (sum(rounds), calls[1]) == (3001, 5)  # 32, 96, 384, 1536, and the rest
    rounds.clear()
    monkeypatch.setattr(round_table, "_MOST_BYTES", 100 * 24)  # bent has 24 bytes
    assert len(ours.run(None, feeds)[3]) == 3001
    assert max(rounds) == 100
    monkeypatch.setattr(round_table, "_MOST_BYTES", 24)
    rounds.clear()
    assert len(ours.run(None, feeds)[3]) == 3001
    assert rounds == []


@pytest.mark.parametrize("is_known", [False, True])
def test_rounds_that_take_long_are_not_all_in_one_call(
    is_known: bool, rounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a run can be interrupted."""
    monkeypatch.setattr(nested, "_CALL_SECONDS", 1e-9)
    ours = fusewise.compile(_while("as before" if is_known else "by number", ["bent"]), cache=False)
    for _ in range(2):
        rounds.clear()
        assert len(ours.run(None, _while_feeds(2, 400, 401))[3]) == 401
    assert set(rounds[:-1]) == {2}
    monkeypatch.setattr(nested, "_CALL_SECONDS", 10)
    ours.run(None, _while_feeds(2, 400, 401))
    assert rounds[-1] > 100


def test_a_condition_that_stays_true_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = fusewise.compile(_while("by both", ["bent"], limit=False), cache=False)
    for _ in range(2):
        ours.run(None, _while_feeds(2, 100, None))
    monkeypatch.setattr("fusewise.runtime.control.MOST_ROUNDS", 500)
    monkeypatch.setattr("fusewise.ops.allowed.MOST_ROUNDS", 500)
    assert len(ours.run(None, _while_feeds(2, 499, None))[3]) == 500
    with pytest.raises(ResourceLimit, match="more than 500 rounds"):
        ours.run(None, _while_feeds(2, 500, None))
    assert len(ours.run(None, _while_feeds(2, 499, None))[3]) == 500


def test_a_condition_ends_rounds_before_one_that_is_wrong() -> None:
    wrong = (
        helper.make_node("Gather", ["w", "place"], ["element"]),
        helper.make_node("Less", ["element", "limit"], ["by element"]),
        helper.make_node("And", ["by element", "by number"], ["both"]),
    )
    model = _while("both", ["bent"], limit=False, steps=wrong)
    body = model.graph.node[0].attribute[0].g
    body.node.insert(9, helper.make_node("Min", ["i", "four"], ["place"]))
    body.initializer.append(helper.make_tensor("four", INT64, [], [4]))
    body.initializer.append(helper.make_tensor("limit", FLOAT, [], [5.0]))
    ours = fusewise.compile(model, cache=False)
    for stop in (2, 2, 1):
        assert len(ours.run(None, _while_feeds(2, stop, None))[3]) == stop + 1
    with pytest.raises(InvalidData, match="3"):
        ours.run(None, _while_feeds(2, 3, None))
    assert len(ours.run(None, _while_feeds(2, 2, None))[3]) == 3


def test_one_value_may_be_several_outputs(rounds: list[int]) -> None:
    """What is carried, gathered and looked at under one name."""
    model = _while("by number", ["bent", "bent"])
    body = model.graph.node[0].attribute[0].g
    names = {"c2": "by both", "all0": "bent", "all1": "bent", "last_next": "bent"}
    for value in body.output:
        value.name = names.get(value.name, value.name)
    body.output.append(_value("by both", BOOL))
    model.graph.node[0].output.append("conditions")
    model.graph.output.append(onnx.ValueInfoProto(name="conditions"))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    ours = fusewise.compile(model, cache=False)
    for stop in (40, 40, 3, 0):
        feeds = _while_feeds(2, stop, 1000)
        for found, expected in zip(ours.run(None, feeds), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert sum(rounds) > 60


_CHOICES: dict[str, tuple[list[onnx.NodeProto], list[onnx.NodeProto]]] = {
    "small": ([helper.make_node("Sub", ["s", "bent"], ["x"])], [helper.make_node("Mul", ["s", "bent"], ["x"])]),
    "positions": ([helper.make_node("Gather", ["s", "place"], ["x"], axis=1)], [helper.make_node("Neg", ["s"], ["x"])]),
    "shapes": ([helper.make_node("Concat", ["s", "s"], ["x"], axis=0)], [helper.make_node("Neg", ["s"], ["x"])]),
}


@pytest.mark.parametrize("kind", _CHOICES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_choice_in_a_round(kind: str, threads: int, rounds: list[int]) -> None:
    """Small branches are native code of the round; what only one of them may do is done by the node."""
    branches = [helper.make_graph(nodes, f"branch{k}", [], [_value("x")]) for k, nodes in enumerate(_CHOICES[kind])]
    steps = (
        helper.make_node("Less", ["i", "three"], ["early"]),
        helper.make_node("Sub", ["three", "i"], ["left"]),
        helper.make_node("Max", ["left", "zero"], ["above"]),
        helper.make_node("Sub", ["above", "one of"], ["below"]),
        helper.make_node("Unsqueeze", ["below", "zero axis"], ["far"]),
        helper.make_node("Concat", ["far", "far", "far"], ["place"], axis=0),
        helper.make_node("If", ["early"], ["chosen"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("ReduceSum", ["chosen"], ["total"], keepdims=0),
    )
    model = _while("by both", ["total"], steps=steps)
    body = model.graph.node[0].attribute[0].g
    for name, dims, number in (("three", [], 3), ("zero", [], 0), ("one of", [], 1), ("zero axis", [1], 0)):
        body.initializer.append(helper.make_tensor(name, INT64, dims, [number]))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    ours = fusewise.compile(model, cache=False, threads=threads)
    for stop, size in ((40, 2), (40, 2), (2, 2), (7, 5), (40, 1)):
        feeds = _while_feeds(size, stop, 1000)
        for found, expected in zip(ours.run(None, feeds), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert (sum(rounds) > 60) == (kind == "small")
