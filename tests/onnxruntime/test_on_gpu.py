"""Sessions on a GPU, by the entry `fusewise.device`, on a simulated one."""

from __future__ import annotations

import gc
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.onnxruntime.models import scaled
from tests.runtime.gpu.kernels import needs_triton
from tests.runtime.gpu.sharing import compile_nothing, share

import fusewise.onnxruntime as ort
from fusewise.onnxruntime.errors import InvalidArgument, NotImplemented  # noqa: A004 - the name that programs catch

pytestmark = needs_triton

X = np.array([[1, -1, 2], [3, 4, -5]], np.float32)
Y = X * np.array([1, 2, 3], np.float32)


@pytest.fixture(autouse=True)
def here(device: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    compile_nothing(monkeypatch)
    return list(share(monkeypatch, device))


def options(**entries: str) -> ort.SessionOptions:
    found = ort.SessionOptions()
    for name, text in {"cache": "false", "device": "cuda", **entries}.items():
        found.add_session_config_entry(f"fusewise.{name}", text)
    return found


def opened(chosen: ort.SessionOptions, **words: Any) -> ort.InferenceSession:
    return ort.InferenceSession(scaled().SerializeToString(), chosen, **words)


def test_a_session_runs_there() -> None:
    chosen = options()
    chosen.add_free_dimension_override_by_name("batch", 2)
    session = opened(chosen, providers=["CPUExecutionProvider"])
    assert session.model.device == "cuda:sm_90" and session.get_providers()[0] == "CUDAExecutionProvider"
    assert session.get_provider_options().keys() == set(session.get_providers())
    assert session.get_inputs()[0].shape == [2, 3]
    y, z = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, Y)
    np.testing.assert_array_equal(z, np.maximum(Y, 0))
    np.testing.assert_array_equal(session.run(["y"], {"x": X.tolist()})[0], Y)
    binding, target = session.io_binding(), np.zeros((2, 3), np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(target))
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, Y)
    with pytest.raises(InvalidArgument, match="expected"):
        session.run(None, {"x": X[:1]})


def test_sizes_that_nobody_gave_come_with_the_inputs() -> None:
    session = opened(options())
    for rows in (1, 2, 1):
        np.testing.assert_array_equal(session.run(["y"], {"x": X[:rows]})[0], Y[:rows])


def test_sizes_that_are_fixed_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fusewise.onnxruntime"):
        session = opened(options(free="false"))
    assert "a program for cuda:sm_90 is for one size, batch = 1: add_free_dimension_override_by_name" in caplog.text
    np.testing.assert_array_equal(session.run(["y"], {"x": X[:1]})[0], Y[:1])


def test_a_compiled_file_is_a_session_too(tmp_path: Path) -> None:
    opened(options(device="cuda:sm_90")).model.save(tmp_path / "m.fw")
    session = ort.InferenceSession(str(tmp_path / "m.fw"))
    np.testing.assert_array_equal(session.run(["y"], {"x": X[:1]})[0], Y[:1])


def test_what_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = options()
    chosen.enable_profiling = True
    chosen.profile_file_prefix = str(tmp_path / "profile")
    with pytest.raises(NotImplemented, match="leave enable_profiling out"):
        opened(chosen)
    gc.collect()
    assert not list(tmp_path.iterdir()), "a session that was refused has nothing to write"
    for entries, words in (
        ({"device": "tpu"}, "no device 'tpu'"),
        ({"sanitize": "true"}, "sanitize is for models that run"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            opened(options(**entries))
    with pytest.warns(UserWarning, match="for a GPU add the session's entry 'fusewise.device'"):
        ort.InferenceSession(scaled().SerializeToString(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    share(monkeypatch, None)
    with pytest.raises(InvalidArgument, match="there is no driver"):
        opened(options())
