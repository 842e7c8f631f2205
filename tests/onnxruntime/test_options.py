"""Options of sessions and runs, and what becomes of them, beside ONNX Runtime's."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import external_data_helper
from tests.onnxruntime.both import alike, ours, same, theirs
from tests.onnxruntime.models import scaled

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
SCALED = scaled().SerializeToString()


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_usual_values_are_the_same() -> None:
    for kind in ("SessionOptions", "RunOptions"):
        mine, other = getattr(ours, kind)(), getattr(theirs, kind)()
        plain = [name for name in public(type(other)) if not callable(getattr(other, name))]
        assert plain
        for name in plain:
            found, wanted = getattr(mine, name), getattr(other, name)
            assert getattr(found, "name", found) == getattr(wanted, "name", wanted), name


def test_members_that_are_missing_are_known() -> None:
    """Those of plug-ins for devices, of adapters and sparse tensors are left out on purpose."""
    session = ours.InferenceSession(SCALED)
    missing = {
        "SessionOptions": public(theirs.SessionOptions)
        - public(type(ours.SessionOptions()))
        - set(dir(ours.SessionOptions())),
        "RunOptions": public(theirs.RunOptions) - set(dir(ours.RunOptions())),
        "OrtValue": public(theirs.OrtValue) - public(ours.OrtValue),
        "IOBinding": public(theirs.IOBinding) - public(ours.IOBinding),
        "InferenceSession": public(theirs.InferenceSession) - set(dir(session)),
        "NodeArg": public(theirs.NodeArg) - set(dir(session.get_inputs()[0])),
        "ModelMetadata": public(theirs.ModelMetadata) - set(dir(session.get_modelmeta())),
    }
    assert {kind: sorted(names) for kind, names in missing.items() if names} == LEFT_OUT


LEFT_OUT = {
    "SessionOptions": [
        "add_external_initializers_from_files_in_memory",
        "add_provider_for_devices",
        "clear_ep_context_data_read_func",
        "set_ep_context_data_read_func",
        "set_load_cancellation_flag",
        "set_provider_selection_policy",
        "set_provider_selection_policy_delegate",
    ],
    "RunOptions": ["add_active_adapter"],
    "OrtValue": ["as_sparse_tensor", "ort_value_from_sparse_tensor"],
    "InferenceSession": [
        "create_ortvalue_from_shape_and_type",
        "get_input_epdevices",
        "get_input_memory_infos",
        "get_output_memory_infos",
        "get_provider_graph_assignment_info",
        "get_tuning_results",
        "release_captured_graph",
        "run_with_ortvaluevector",
        "set_ep_dynamic_options",
        "set_tuning_results",
    ],
}


SETTINGS: dict[str, Any] = {
    "intra_op_num_threads": (2, "a", 1.5, None),
    "enable_profiling": (1, False, "a"),
    "log_severity_level": (9, "a"),
    "logid": ("a", 5),
    "graph_optimization_level": (3, "all"),
    "execution_mode": (1,),
    "nope": (1,),
}


@pytest.mark.parametrize("name, value", [(name, value) for name, values in SETTINGS.items() for value in values])
def test_values_of_options_are_checked(name: str, value: Any) -> None:
    def use(ort: Any) -> Any:
        options = ort.SessionOptions()
        setattr(options, name, value)
        return getattr(options, name)

    same(use)


def test_entries() -> None:
    for kind, add, get in (
        ("SessionOptions", "add_session_config_entry", "get_session_config_entry"),
        ("RunOptions", "add_run_config_entry", "get_run_config_entry"),
    ):

        def use(ort: Any, value: Any, kind: str = kind, add: str = add, get: str = get) -> Any:
            options = getattr(ort, kind)()
            if value is not None:
                getattr(options, add)("a.key", value)
            return getattr(options, get)("a.key")

        for value in ("1", 1, None):
            same(lambda ort, value=value, use=use: use(ort, value))


def opened(ort: Any, data: Any = SCALED, **chosen: Any) -> Any:
    options = ort.SessionOptions()
    for name, value in chosen.items():
        setattr(options, name, value)
    return ort.InferenceSession(data, options)


def test_options_that_cannot_be_met_are_told_of_when_the_session_is_opened() -> None:
    same(lambda ort: opened(ort, log_severity_level=9) and None)
    with pytest.raises(ours.session.SessionError, match="must be 0"):
        opened(ours, intra_op_num_threads=-1)


def test_threads_and_levels_reach_the_compiler() -> None:
    assert opened(ours, intra_op_num_threads=1).model.executable.workers == 1
    plain = opened(ours, graph_optimization_level=ours.GraphOptimizationLevel.ORT_DISABLE_ALL)
    assert plain.model.summary["groups"] == 2 and opened(ours).model.summary["groups"] == 1
    assert alike(plain.run(None, {"x": X}), opened(theirs).run(None, {"x": X}))


def test_entries_of_ours_are_options_of_the_compiler() -> None:
    options = ours.SessionOptions()
    options.add_session_config_entry("fusewise.exact", "true")
    options.add_session_config_entry("fusewise.specialize", "3")
    assert ours.InferenceSession(SCALED, options).model.specialist is None  # exact answers never change
    options = ours.SessionOptions()
    options.add_session_config_entry("fusewise.specialize", "3")
    specialist = ours.InferenceSession(SCALED, options).model.specialist
    assert specialist is not None and specialist.most == 3
    assert opened(ours, use_deterministic_compute=True).model.specialist is None
    options.add_session_config_entry("fusewise.nope", "3")
    with pytest.raises(ours.session.SessionError, match="no option 'nope'"):
        ours.InferenceSession(SCALED, options)


@pytest.mark.parametrize("name, size", [("batch", 2), ("batch", 4), ("other", 4)])
def test_free_dimensions_by_name(name: str, size: int) -> None:
    def use(ort: Any) -> Any:
        options = ort.SessionOptions()
        options.add_free_dimension_override_by_name(name, size)
        session = ort.InferenceSession(SCALED, options)
        return session.get_inputs(), session.get_outputs(), session.run(None, {"x": X})

    same(use)


def test_free_dimensions_by_what_they_denote() -> None:
    data = scaled(denotation="DATA_BATCH").SerializeToString()

    def use(ort: Any) -> Any:
        options = ort.SessionOptions()
        options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
        options.add_free_dimension_override_by_denotation("DATA_CHANNEL", 9)
        session = ort.InferenceSession(data, options)
        return session.get_inputs(), session.run(None, {"x": X})

    same(use)


@pytest.mark.parametrize("name", ["w", "nothing"])
def test_initializers_are_replaced(name: str) -> None:
    kept = []

    def use(ort: Any) -> Any:
        options = ort.SessionOptions()
        kept.append(ort.OrtValue.ortvalue_from_numpy(np.full(3, 7, np.float32)))
        options.add_initializer(name, kept[-1])
        return ort.InferenceSession(SCALED, options).run(None, {"x": X})

    same(use)


def test_initializers_in_files_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    made = scaled()
    external_data_helper.convert_model_to_external_data(made, location="weights", size_threshold=0)
    onnx.save(made, path)
    (tmp_path / "weights").unlink()
    kept = []

    def use(ort: Any, source: Any) -> Any:
        options = ort.SessionOptions()
        kept.append(ort.OrtValue.ortvalue_from_numpy(np.full(3, 7, np.float32)))
        options.add_external_initializers(["w"], [kept[-1]])
        return ort.InferenceSession(source, options).run(None, {"x": X})

    for source in (path, SCALED):
        same(lambda ort, source=source: use(ort, source))


def test_the_optimised_model_is_written(tmp_path: Path) -> None:
    path = tmp_path / "optimised.onnx"
    opened(ours, optimized_model_filepath=str(path))
    assert alike(theirs.InferenceSession(path).run(None, {"x": X}), theirs.InferenceSession(SCALED).run(None, {"x": X}))
    with pytest.raises(ours.session.SessionError, match="cannot write"):
        opened(ours, optimized_model_filepath=str(tmp_path / "none" / "model.onnx"))


def test_profiles(tmp_path: Path) -> None:
    found = {}
    for runtime in (ours, theirs):
        prefix = str(tmp_path / runtime.__name__.replace(".", "_"))
        before = time.monotonic_ns()
        session = opened(runtime, enable_profiling=True, profile_file_prefix=prefix)
        for _ in range(2):
            session.run(None, {"x": X})
        if runtime is ours:
            assert before <= session.get_profiling_start_time_ns() <= time.monotonic_ns()
        name = session.end_profiling()
        assert name.startswith(prefix) and session.end_profiling() == ""
        found[runtime] = json.loads(Path(name).read_text())
    for runtime, events in found.items():
        runs = [event for event in events if event["name"] == "model_run"]
        nodes = [event for event in events if event["cat"] == "Node"]
        assert len(runs) == 2 and len(nodes) >= 2, runtime
        assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events)
        assert all(event["args"]["provider"] == "CPUExecutionProvider" for event in nodes)
        assert all({*event} == {"cat", "pid", "tid", "dur", "ts", "ph", "name", "args"} for event in events)
    for node in (event for event in found[ours] if event["cat"] == "Node"):
        inside = [
            run
            for run in found[ours]
            if run["name"] == "model_run" and run["ts"] <= node["ts"] <= run["ts"] + run["dur"]
        ]
        assert inside and node["args"]["op_name"]


def test_a_profile_that_nobody_ends_is_written(tmp_path: Path) -> None:
    session = opened(ours, enable_profiling=True, profile_file_prefix=str(tmp_path / "p"))
    session.run(None, {"x": X})
    del session
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]
