"""Bound inputs and outputs, beside ONNX Runtime's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.onnxruntime.both import ours, same
from tests.onnxruntime.models import scaled

import fusewise
from fusewise.errors import UsageError

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
SCALED = scaled().SerializeToString()


def bound(ort: Any, *outputs: str) -> tuple[Any, Any]:
    session = ort.InferenceSession(SCALED)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X.copy())
    for name in outputs:
        binding.bind_output(name)
    return session, binding


def test_outputs_get_memory_when_they_have_none() -> None:
    def use(ort: Any) -> Any:
        session, binding = bound(ort, "z", "y", "z")
        session.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu(), binding.get_outputs()

    same(use)


def test_outputs_lie_where_they_are_bound() -> None:
    def use(ort: Any) -> Any:
        session, binding = bound(ort)
        y, z = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(y))
        binding.bind_output("z", "cpu", 0, np.float32, [2, 3], z.ctypes.data)
        session.run_with_iobinding(binding)
        places = [value.data_ptr() for value in binding.get_outputs()] == [y.ctypes.data, z.ctypes.data]
        return y, z, places, np.shares_memory(binding.copy_outputs_to_cpu()[0], y)

    same(use)


def test_what_an_input_holds_when_the_model_is_run_counts() -> None:
    def use(ort: Any) -> Any:
        session, binding = bound(ort, "y")
        x = X.copy()
        found = []
        for _ in range(2):
            binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
            session.run_with_iobinding(binding)
            found.append(binding.copy_outputs_to_cpu()[0])
            x += 1
        value = ort.OrtValue.ortvalue_from_numpy(x)
        binding.bind_ortvalue_input("x", value)
        value.update_inplace(x * 2)
        session.run_with_iobinding(binding)
        return *found, binding.copy_outputs_to_cpu()[0]

    same(use)


def bind_wrongly(ort: Any, what: str) -> Any:
    session, binding = bound(ort, "y")
    value = ort.OrtValue.ortvalue_from_numpy
    if what == "another input":
        binding.bind_cpu_input("q", X)
    elif what == "a list":
        binding.bind_cpu_input("x", [1])
    elif what == "another type":
        binding.bind_cpu_input("x", X.astype(np.float64))
    elif what == "another width":
        binding.bind_cpu_input("x", X[:, :2].copy())
    elif what == "an address alone":
        binding.bind_output("y", "cpu", 0, np.float32, None, X.ctypes.data)
    elif what == "another type of output":
        binding.bind_ortvalue_output("y", value(np.zeros((2, 3), np.float64)))
    elif what == "a smaller output":
        binding.bind_ortvalue_output("y", value(np.zeros((1, 3), np.float32)))
    elif what == "a larger output":
        binding.bind_ortvalue_output("y", value(np.zeros((4, 3), np.float32)))
    elif what == "no output":
        binding.clear_binding_outputs()
    elif what == "no input":
        binding.clear_binding_inputs()
    elif what == "other rows than before":
        session.run_with_iobinding(binding)
        binding.bind_cpu_input("x", np.ones((5, 3), np.float32))
    elif what == "another session":
        session = ort.InferenceSession(SCALED)
    elif what == "no device":
        binding.bind_output("y", "nowhere")
    session.run_with_iobinding(binding)


WRONG = (
    *("another input", "a list", "another type", "another width", "an address alone", "another type of output"),
    *("a smaller output", "a larger output", "no output", "other rows than before", "another session", "no device"),
)


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_an_error(what: str) -> None:
    same(lambda ort: bind_wrongly(ort, what))


def test_a_missing_input_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no value was given for input 'x'"):
        bind_wrongly(ours, "no input")


def test_nothing_is_written_behind_an_array_that_is_too_small() -> None:
    model = fusewise.compile(SCALED, cache=False, threads=1)
    around = np.full(30, 7, np.float32)
    with pytest.raises(UsageError, match=r"shape \[2, 3\]"):
        model.run_into({"x": X}, {"y": around[9:12].reshape(1, 3)})
    assert (around == 7).all()


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(0, 40), begin=st.integers(0, 17), names=st.permutations(["y", "z"]), data=st.data())
def test_results_lie_anywhere_even_in_inputs(rows: int, begin: int, names: list[str], data: st.DataObject) -> None:
    """Arrays for results may begin at any element, and lie within each other's and the input's memory."""
    model = MODEL
    memory = np.random.default_rng(rows).standard_normal(400, dtype=np.float32)
    x = memory[begin : begin + 3 * rows].reshape(rows, 3)
    wanted = model.run(names, {"x": x.copy()})
    starts = [data.draw(st.integers(0, 400 - 3 * rows)) for _ in names]
    if abs(starts[0] - starts[1]) < 3 * rows:
        starts = starts[:1]  # two results cannot lie in one place
    into = {name: memory[at : at + 3 * rows].reshape(rows, 3) for name, at in zip(names, starts, strict=False)}
    kept = memory.copy()
    found = model.run_into({"x": x}, into)
    for (name, array), result, expected in zip(into.items(), found, wanted, strict=False):
        assert result is array, name
        np.testing.assert_array_equal(array, expected)
    outside = np.ones(400, bool)
    for at in starts[: len(into)]:
        outside[at : at + 3 * rows] = False
    np.testing.assert_array_equal(memory[outside], kept[outside])


MODEL = fusewise.compile(SCALED, cache=False, threads=1)


@pytest.mark.parametrize("array", [np.zeros((3, 2), np.float32).T, np.zeros((2, 3), np.int32), [[0] * 3] * 2], ids=repr)
def test_arrays_that_cannot_be_written_to_are_refused(array: Any) -> None:
    with pytest.raises(UsageError, match="output 'y' is written into an array"):
        MODEL.run_into({"x": X}, {"y": array})
    fixed = np.zeros((2, 3), np.float32)
    fixed.flags.writeable = False
    with pytest.raises(UsageError, match="writable"):
        MODEL.run_into({"x": X}, {"y": fixed})
