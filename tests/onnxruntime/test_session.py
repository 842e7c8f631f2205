"""Sessions: what they take, give and raise, beside ONNX Runtime's."""

from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.onnxruntime.both import Use, alike, ours, same, theirs
from tests.onnxruntime.models import model, one, overridable, port, scaled

import fusewise
from fusewise.errors import FusewiseError

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
SCALED = scaled().SerializeToString()


@pytest.mark.parametrize("names", [None, [], ["z"], ("z", "y"), ["z", "z"], "z", ["q"]], ids=repr)
def test_outputs_by_name(names: Any) -> None:
    same(lambda ort: ort.InferenceSession(SCALED).run(names, {"x": X}))


FEEDS: dict[str, Any] = {
    "an array": {"x": X},
    "a list": {"x": [[1.0, 2.0, 3.0]]},
    "whole numbers": {"x": [[1, 2, 3]]},
    "no rows": {"x": X[:0]},
    "strided": {"x": X.T.copy().T},
    "float64": {"x": X.astype(np.float64)},
    "int64": {"x": X.astype(np.int64)},
    "too few dimensions": {"x": X[0]},
    "another width": {"x": np.ones((2, 4), np.float32)},
    "nothing": {},
    "another name": {"x": X, "k": X},
    "a number for a name": {1: X},
    "None": None,
    "no dictionary": [X],
}


@pytest.mark.parametrize("feeds", FEEDS.values(), ids=FEEDS)
def test_inputs(feeds: Any) -> None:
    same(lambda ort: ort.InferenceSession(SCALED).run(None, feeds))


def test_inputs_may_be_values_of_the_runtime() -> None:
    same(lambda ort: ort.InferenceSession(SCALED).run(None, {"x": ort.OrtValue.ortvalue_from_numpy(X)}))


BROKEN: dict[str, Any] = {
    "bytes that are no message": b"garbage",
    "no bytes": b"",
    "an unknown operator": one("Nope", [port("x", 2)], [port("y", 2)]),
    "a domain without a version": one("Nope", [port("x", 2)], [port("y", 2)], domain="my"),
    "an opset of the future": one("Relu", [port("x", 2)], [port("y", 2)], opset=99),
    "an unknown attribute": one("Relu", [port("x", 2)], [port("y", 2)], alpha=1.0),
    "a type that does not fit": one(
        "Relu", [port("x", 2, kind=TensorProto.STRING)], [port("y", 2, kind=TensorProto.STRING)]
    ),
    "no file": "/there/is/none.onnx",
    "a number": 5,
    "nothing": None,
    "a message": scaled(),
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_opened(source: Any) -> None:
    same(lambda ort: ort.InferenceSession(source).get_providers())


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"garbage")
    same(lambda ort: ort.InferenceSession(tmp_path / "broken.onnx"))
    same(lambda ort: ort.InferenceSession(tmp_path))


def test_paths_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(SCALED)
    for source in (path, str(path), SCALED):
        same(lambda ort, source=source: ort.InferenceSession(source).run(None, {"x": X}))


def test_a_compiled_file_is_a_model(tmp_path: Path) -> None:
    fusewise.compile(SCALED, cache=False).save(tmp_path / "model.fw")
    session = ours.InferenceSession(tmp_path / "model.fw")
    assert [port.name for port in session.get_inputs()] == ["x"]
    assert alike(session.run(["z"], {"x": X}), [np.maximum(X * [1, 2, 3], 0).astype(np.float32)])
    assert session.get_modelmeta().producer_name == ""
    with pytest.raises(ours.session.NotImplemented, match="own format"):
        ours.InferenceSession(tmp_path / "model.ort")


def ports(ort: Any, data: bytes) -> Any:
    session = ort.InferenceSession(data)
    return session.get_inputs(), session.get_outputs(), session.get_overridable_initializers()


SIGNATURES = {
    "names": SCALED,
    "an initializer": overridable(),
    "no name": one("Relu", [port("x", None, 3)], [port("y", None, 3)]),
    "more rows": one("Concat", [port("x", "n", 3), port("w", "n", 3)], [port("y", "both", 3)], axis=0),
    "texts": one("Identity", [port("x", None, kind=TensorProto.STRING)], [port("y", None, kind=TensorProto.STRING)]),
    "a scalar": one("Neg", [port("x")], [port("y")]),
    "a sequence": one(
        "SequenceConstruct",
        [port("x", 2)],
        [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)],
    ),
}


@pytest.mark.parametrize("data", SIGNATURES.values(), ids=SIGNATURES)
def test_inputs_and_outputs_are_described_alike(data: bytes) -> None:
    same(lambda ort: ports(ort, data))


def test_ports_are_shown() -> None:
    same(lambda ort: str(ort.InferenceSession(SCALED).get_inputs()[0]))


def test_metadata() -> None:
    def said(ort: Any) -> Any:
        meta = ort.InferenceSession(SCALED).get_modelmeta()
        names = "producer_name graph_name domain description graph_description version".split()
        return [*(getattr(meta, name) for name in names), dict(sorted(meta.custom_metadata_map.items()))]

    same(said)


TEXTS = (np.array(["a", "bc"]), np.array(["a", "bc"], object), ["a", "bc"], np.array([1, 2], object))


@pytest.mark.parametrize("texts", TEXTS, ids=repr)
def test_texts(texts: Any) -> None:
    same(lambda ort: ort.InferenceSession(SIGNATURES["texts"]).run(None, {"x": texts}))


def test_sequences() -> None:
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    data = one("SequenceAt", [sequence, port("i", kind=TensorProto.INT64)], [port("y", None, None)])
    for feeds in ({"s": [X, X + 1], "i": np.array(1)}, {"s": X, "i": np.array(0)}):
        same(lambda ort, feeds=feeds: ort.InferenceSession(data).run(None, feeds))
    same(lambda ort: ort.InferenceSession(SIGNATURES["a sequence"]).run(None, {"x": X[0, :2]}))
    feeds_of = {"x": X[0, :2]}

    def kinds(ort: Any) -> Any:
        values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feeds_of.items()}
        return [
            (value.data_type(), value.is_tensor(), value.is_tensor_sequence(), value.has_value())
            for value in ort.InferenceSession(SIGNATURES["a sequence"]).run_with_ort_values(None, values)
        ]

    same(kinds)


def test_positions_outside_are_told_of_when_the_model_is_run() -> None:
    data = one("Gather", [port("x", "n", 3), port("i", 2, kind=TensorProto.INT64)], [port("y", None, None)])
    same(lambda ort: ort.InferenceSession(data).run(None, {"x": X, "i": np.array([0, 5])}))


def test_initializers_that_are_inputs_may_be_given() -> None:
    weights = np.array([0, 1, 0], np.float32)
    for feeds in ({"x": X}, {"x": X, "w": weights}, {"w": weights}):
        same(lambda ort, feeds=feeds: ort.InferenceSession(overridable()).run(None, feeds))


PROVIDERS: dict[str, Any] = {
    "the CPU": ["CPUExecutionProvider"],
    "another": ["CUDAExecutionProvider", "CPUExecutionProvider"],
    "only another": ["CUDAExecutionProvider"],
    "with options": [("CPUExecutionProvider", {"use_arena": "1"})],
    "twice": ["CPUExecutionProvider", "CPUExecutionProvider"],
    "none": [],
}


@pytest.mark.parametrize("providers", PROVIDERS.values(), ids=PROVIDERS)
def test_providers(providers: Any, recwarn: pytest.WarningsRecorder) -> None:
    def opened(ort: Any) -> Any:
        session = ort.InferenceSession(SCALED, providers=providers)
        return session.get_providers(), session.get_provider_options()

    same(opened)
    told = []
    for runtime in (theirs, ours):
        recwarn.clear()
        opened(runtime)
        told.append([str(one.message) for one in recwarn])
    assert len(told[0]) == len(told[1])


def test_what_are_no_providers_is_told_of_or_raised() -> None:
    with pytest.warns(UserWarning, match="list of names"):
        ours.InferenceSession(SCALED, providers="CPUExecutionProvider")
    with pytest.raises(ValueError, match="not 5"):
        ours.InferenceSession(SCALED, providers=[5], enable_fallback=0)
    with pytest.warns(UserWarning, match="not available"):
        ours.InferenceSession(SCALED).set_providers(["Foo"])


def test_async_runs_call_back() -> None:
    def called(ort: Any, names: Any, feeds: Any) -> Any:
        session, done, found = ort.InferenceSession(SCALED), threading.Event(), []

        def back(results: list[np.ndarray], data: Any, error: str) -> None:
            found.append([results, data, error == "", threading.current_thread() is threading.main_thread()])
            done.set()

        session.run_async(names, feeds, back, "mine")
        assert done.wait(20)
        return found[0]

    for names, feeds in ((["z"], {"x": X}), (None, {"x": X}), (["k"], {"x": X}), (None, {"x": X[:, :2]}), (None, {})):
        same(lambda ort, names=names, feeds=feeds: called(ort, names, feeds))
    same(lambda ort: ort.InferenceSession(SCALED).run_async(None, {"x": X}, 5, None))


def test_an_error_in_a_callback_is_told_of_by_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    told, done = [], threading.Event()

    def hook(about: threading.ExceptHookArgs) -> None:
        told.append(about.exc_value)
        done.set()

    monkeypatch.setattr(threading, "excepthook", hook)

    def back(*_: Any) -> None:
        raise KeyError("mine")

    ours.InferenceSession(SCALED).run_async(None, {"x": X}, back, None)
    assert done.wait(20) and isinstance(told[0], KeyError)


def test_runs_that_are_asked_to_terminate() -> None:
    def asked(ort: Any) -> Any:
        options = ort.RunOptions()
        options.terminate = True
        return ort.InferenceSession(SCALED).run(None, {"x": X}, options)

    same(asked)
    same(lambda ort: ort.InferenceSession(SCALED).run(None, {"x": X}, ort.RunOptions()))
    same(lambda ort: ort.InferenceSession(SCALED).run(None, {"x": X}, 5))


def test_values_in_and_out() -> None:
    same(
        lambda ort: ort.InferenceSession(SCALED).run_with_ort_values(["z"], {"x": ort.OrtValue.ortvalue_from_numpy(X)})
    )


def test_the_errors_are_those_of_the_package_too() -> None:
    with pytest.raises(FusewiseError, match=r"INVALID_ARGUMENT : input 'x'") as caught:
        ours.InferenceSession(SCALED).run(None, {"x": X[0]})
    assert isinstance(caught.value.__cause__, FusewiseError)
    from fusewise.onnxruntime.capi import onnxruntime_pybind11_state as state

    assert isinstance(caught.value, state.InvalidArgument)


def test_many_threads_run_one_session() -> None:
    session = ours.InferenceSession(SCALED)
    wrong: list[int] = []

    def client(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(100):
            x = rng.standard_normal((int(rng.integers(1, 9)), 3), dtype=np.float32)
            if not np.array_equal(session.run(["y"], {"x": x})[0], x * np.array([1, 2, 3], np.float32)):
                wrong.append(number)

    threads = [threading.Thread(target=client, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_native_run_lets_other_threads_go_on() -> None:
    """Nobody else would count while one product of seconds held the interpreter."""
    data = one("MatMul", [port("a", 1500, 1500), port("b", 1500, 1500)], [port("y", 1500, 1500)])
    session = ours.InferenceSession(data)
    a = np.ones((1500, 1500), np.float32)
    session.run(None, {"a": a, "b": a})
    begun, ended = threading.Event(), threading.Event()

    def run() -> None:
        begun.set()
        session.run(None, {"a": a, "b": a})
        ended.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(100)  # nobody takes the interpreter from a thread that does not let go of it
    try:
        thread = threading.Thread(target=run)
        thread.start()
        begun.wait(20)
        time.sleep(0)
        went_on = not ended.is_set()
        thread.join()
    finally:
        sys.setswitchinterval(before)
    assert went_on


@pytest.mark.parametrize("use", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_session_is_neither_pickled_nor_copied(use: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="open the model again where it is wanted"):
        use(ours.InferenceSession(SCALED))


def test_a_wrong_name_of_an_input_is_named() -> None:
    session = ours.InferenceSession(SCALED)
    with pytest.raises(ValueError, match="not given: x; the model has no input 'X'$"):
        session.run(None, {"X": X})
    with pytest.raises(ValueError, match="not given: x; the model has no input 'X'$"):
        session.run_async(None, {"X": X}, print, None)
    with pytest.raises(ValueError, match="not given: x$"):
        session.run(None, {})


def test_names_are_found_when_first_used() -> None:
    script = (
        "import sys, fusewise; assert 'fusewise.onnxruntime' not in sys.modules;"
        "fusewise.InferenceSession, fusewise.SessionOptions; assert 'onnxruntime' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_session_says_what_it_ignores(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ours.SessionOptions()
    options.log_severity_level = 1
    options.logid = "mine"
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    monkeypatch.setattr(logging.getLogger("fusewise.onnxruntime"), "level", logging.ERROR)
    ours.InferenceSession(SCALED, options)
    assert [record.getMessage() for record in caplog.records] == [
        "mine: these options have no effect here: enable_mem_pattern, session.intra_op.allow_spinning"
    ]


def test_optional_outputs_by_name() -> None:
    node = helper.make_node("Dropout", ["x"], ["y", "m"])
    data = model([node], [port("x", "n", 3)], [port("y", "n", 3), port("m", "n", 3, kind=TensorProto.BOOL)])
    for names in (["m"], ["y", "m"]):
        same(lambda ort, names=names: ort.InferenceSession(data.SerializeToString()).run(names, {"x": X}))


USES: dict[str, Use] = {
    "get_available_providers": lambda ort: "CPUExecutionProvider" in ort.get_available_providers(),
    "get_device": lambda ort: ort.get_device(),
    "a severity": lambda ort: ort.set_default_logger_severity(2),
    "no severity": lambda ort: ort.set_default_logger_severity(9),
    "a seed": lambda ort: ort.set_seed(1),
    "telemetry": lambda ort: ort.disable_telemetry_events(),
    "fallback": lambda ort: ort.InferenceSession(SCALED).disable_fallback(),
    "options": lambda ort: ort.InferenceSession(SCALED).get_session_options().graph_optimization_level.name,
    "no profile": lambda ort: ort.InferenceSession(SCALED).end_profiling(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_else_there_is(use: Use) -> None:
    same(use)


def test_libraries_of_operators_are_refused() -> None:
    with pytest.raises(ours.session.NotImplemented, match="register_domain"):
        ours.SessionOptions().register_custom_ops_library("/none.so")


def test_a_message_is_what_onnx_reads() -> None:
    from fusewise.frontend.onnx_import import message

    assert onnx.ModelProto.FromString(SCALED) == message(SCALED)
