"""The public ONNX backend test-suite, all of it, through its own runner; and the nine networks that come with it.

The suite is run in shards, so that several processes share it. Which tests fail is written down with the reason of each,
in `backend_failures.toml`, and must be exactly so. How many tests were compiled without a host step is printed at the end.
"""

from __future__ import annotations

import functools
import re
import tomllib
import unittest
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from fusewise import onnx_backend
from fusewise.errors import FusewiseError, UnsupportedModel, UsageError

HERE = Path(__file__).parent
EXPECTED = tomllib.loads((HERE / "backend_failures.toml").read_text())
SHARDS = 24
LIGHT = sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/light_*.onnx"))


@functools.cache
def suite(cache: Path) -> tuple[dict[str, unittest.TestCase], list[onnx_backend.Representation]]:
    """Every CPU test but the nine real ones, by name; and where the representation of the running test is put."""
    from onnx.backend.test import BackendTest

    latest: list[onnx_backend.Representation] = []

    def prepare(model, device="CPU", **options):
        latest[:] = [onnx_backend.prepare(model, device, cache=cache, threads=1, **options)]
        return latest[0]

    # asked for every test, and looks for the driver of a GPU each time
    backend = SimpleNamespace(prepare=prepare, supports_device=functools.cache(onnx_backend.supports_device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite makes its own data, infinities and all
        kinds = BackendTest(backend, __name__).test_cases
    tests = {
        name: kind(name)
        for title, kind in kinds.items()
        if "Real" not in title
        for name in unittest.defaultTestLoader.getTestCaseNames(kind)
        if name.endswith("_cpu")
    }
    return tests, latest


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    """One folder of compiled kernels for the whole session."""
    return tmp_path_factory.mktemp("kernels")


def reason_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_suite(shard, kernels, record_property):
    tests, latest = suite(kernels)
    failed: dict[str, str] = {}
    native = 0
    mine = sorted(tests)[shard::SHARDS]
    for name in mine:
        latest.clear()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tests[name].debug()
        except Exception as error:
            failed[name.removesuffix("_cpu")] = reason_of(error)
            continue
        native += latest[0].host_steps == 0
    record_property("onnx_suite", [len(mine), len(mine) - len(failed), native])
    listed = EXPECTED["failures"]
    unexpected = {name: why for name, why in failed.items() if name not in listed | EXPECTED["varies"]}
    repaired = [name for name in listed if f"{name}_cpu" in mine and name not in failed]
    assert not unexpected, "\n".join(f"{name}: {why}" for name, why in sorted(unexpected.items()))
    assert not repaired, f"these pass now; take them off the list: {repaired}"


@pytest.mark.slow
def test_enough_of_the_suite_passes_and_the_list_is_true(kernels):
    tests, _ = suite(kernels)
    names = {name.removesuffix("_cpu") for name in tests}
    listed = EXPECTED["failures"] | EXPECTED["varies"]
    assert onnx.__version__ == EXPECTED["onnx"], "the list belongs to another version of the suite"
    assert len(names) == EXPECTED["tests"]
    assert set(listed) <= names
    assert all(len(reason) > 10 for reason in listed.values())
    assert 1 - len(listed) / len(names) >= EXPECTED["least_share"]


@pytest.mark.slow
@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem.removeprefix("light_"))
def test_the_networks_that_come_with_the_suite(path, kernels):
    """Whole networks of the first years of ONNX, with constant weights and the outputs to expect of them."""
    model = onnx.load(path)
    expected = onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb"))
    weights = {tensor.name for tensor in model.graph.initializer}
    (given,) = [value for value in model.graph.input if value.name not in weights]
    shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    size = int(np.prod(shape))
    x = (np.arange(size, dtype=np.float32).reshape(shape) / size).astype(np.float32)
    ready = onnx_backend.prepare(model, cache=kernels)
    (found,) = ready.run([x])
    np.testing.assert_allclose(found, onnx.numpy_helper.to_array(expected), rtol=1e-3, atol=1e-5)
    assert ready.host_steps == 0


def test_there_are_nine_of_them():
    assert len(LIGHT) == 9


def test_only_cpus_are_supported():
    assert onnx_backend.supports_device("CPU")
    assert onnx_backend.supports_device("CPU:0")
    assert not onnx_backend.supports_device("CUDA")
    with pytest.raises(UnsupportedModel, match="CUDA"):
        onnx_backend.prepare(onnx.ModelProto(), "CUDA")


def relu_of(shape) -> onnx.ModelProto:
    kind = onnx.TensorProto.FLOAT
    return onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [onnx.helper.make_tensor_value_info("x", kind, shape)],
            [onnx.helper.make_tensor_value_info("y", kind, shape)],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )


def test_run_model_and_is_compatible():
    x = np.array([[-1, 2]], np.float32)
    (y,) = onnx_backend.run_model(relu_of([1, 2]), [x], cache=False)
    assert np.array_equal(y, [[0, 2]])
    assert onnx_backend.is_compatible(relu_of([1, 2]), cache=False)
    broken = relu_of([1, 2])
    broken.graph.node[0].op_type = "Frobnicate"
    assert not onnx_backend.is_compatible(broken)


@pytest.mark.parametrize("free", [True, False])
def test_a_free_shape_is_compiled_once_or_for_each_size_of_which_few_are_kept(free):
    ready = onnx_backend.prepare(relu_of(["n", 2]), cache=False, free=free)
    for n in (2, 3, 1, *range(4, 14)):
        x = np.full((n, 2), -1.5, np.float32)
        assert ready.run([x])[0].shape == (n, 2)
    assert len(ready._compiled) == (1 if free else onnx_backend.SPECIALISATIONS)
    with pytest.raises(UsageError, match="2 were given"):
        ready.run([x, x])


def test_run_node_takes_lists_and_mappings_and_optional_inputs():
    node = onnx.helper.make_node("Clip", ["x", "", "high"], ["y"])
    x, high = np.array([-1, 5], np.float32), np.array(2, np.float32)
    for inputs in ([x, high], {"x": x, "high": high}):
        (y,) = onnx_backend.run_node(node, inputs, cache=False)
        assert np.array_equal(y, [-1, 2])
    double = onnx.helper.make_node("Add", ["x", "x"], ["y"])
    (y,) = onnx_backend.run_node(double, [x, x], cache=False)
    assert np.array_equal(y, 2 * x)
    with pytest.raises(UsageError, match=re.escape("reads 2 values, but 1")):
        onnx_backend.run_node(double, [x])


def sum_over(axes_shape) -> onnx.ModelProto:
    float32, int64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    return onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)],
            "g",
            [
                onnx.helper.make_tensor_value_info("x", float32, [2, 3, 4]),
                onnx.helper.make_tensor_value_info("axes", int64, axes_shape),
            ],
            [onnx.helper.make_tensor_value_info("y", float32, None)],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )


def test_contents_that_decide_shapes_are_compiled_for():
    ready = onnx_backend.prepare(sum_over(["k"]), cache=False)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for axes in ([1], [0, 2], [1], [-1]):
        (y,) = ready.run([x, np.array(axes, np.int64)])
        assert np.array_equal(y, x.sum(axis=tuple(axes)))
        assert ready.host_steps == 0
    assert len(ready._compiled) == 3
    with pytest.raises(UsageError):
        ready.run([x, np.array([1.0], np.float32)])


def test_contents_that_are_other_ones_each_time_are_data():
    """Nine different contents: the last is left to code for any."""
    ready = onnx_backend.prepare(sum_over([3]), cache=False)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    orders = [(a - 3 * p, b - 3 * q, 3 - a - b) for a, b in ((0, 1), (1, 2), (2, 0)) for p in (0, 1) for q in (0, 1)]
    for axes in orders[: onnx_backend.SPECIALISATIONS]:
        assert ready.run([x, np.array(axes, np.int64)])[0] == x.sum()
        assert ready.host_steps == 0
    for axes in orders[onnx_backend.SPECIALISATIONS :]:
        assert ready.run([x, np.array(axes, np.int64)])[0] == x.sum()
        assert ready.host_steps == 1


def test_contents_that_do_not_fit_are_data_that_do_not():
    ready = onnx_backend.prepare(sum_over(["k"]), cache=False)
    x = np.ones((2, 3, 4), np.float32)
    with pytest.raises(FusewiseError, match="ReduceSum"):
        ready.run([x, np.array([7], np.int64)])
    assert ready.run([x, np.array([1], np.int64)])[0].shape == (2, 4)
