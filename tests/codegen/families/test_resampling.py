"""Interpolation by prepared rows: ONNX Runtime's answers in every layout, whichever kernel takes the case."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from tests.codegen.ways import refusal, text_of, way

from fusewise.codegen.candidates import candidates
from fusewise.codegen.families.generic.resampling import SEPARABLE_RESAMPLING
from fusewise.codegen.target import TARGETS
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.types import TensorType
from fusewise.lower.index import Simplifier
from fusewise.lower.task import Anchor, Operand, Store, Task
from fusewise.ops.definition import definition
from fusewise.ops.expr import Expr, binary, cast, const, index, load, substitute
from fusewise.ops.resize import RESIZE
from fusewise.ops.sampling import call_of_sample
from fusewise.ops.spec import Sample
from fusewise.runtime.jit import compile_assembly

RELAXED = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")

Shape = tuple[int, ...]


def order(rank: int, channels_last: bool) -> Shape:
    """Axes from the slowest to the fastest."""
    return (0, *range(2, rank), 1) if channels_last else tuple(range(rank))


def operand(name: str, shape: Shape, channels_last: bool) -> Operand:
    strides, step = [0] * len(shape), 1
    for axis in reversed(order(len(shape), channels_last)):
        strides[axis] = step
        step *= shape[axis]
    return Operand(name, FLOAT32, shape, tuple(strides))


def resize_task(
    source: Shape,
    target: Shape,
    attributes: Mapping[str, Any],
    last: tuple[bool, bool] = (False, False),
    fused: bool = False,
) -> Task:
    """Resize from `source` to `target`, `last` telling which side is channels last; when `fused`, of the absolute values and
    with the larger of the result and a number per channel (operand in1)."""
    sample = Sample((("float32", source), None, None, np.array(target, np.int64)), dict(attributes))
    call, _ = call_of_sample(RESIZE[0], sample, np.random.default_rng(0))
    at = tuple(index(f"i{k}") for k in range(len(target)))

    def bound(node: Expr) -> Expr | None:
        if node.op != "load":
            return None
        read = load("in0", FLOAT32, node.args)
        return binary("max", read, const(0.0, FLOAT32) - read) if fused else read

    value = Simplifier({f"i{k}": extent for k, extent in enumerate(target)}).simplify(
        substitute(definition(RESIZE[0], call, 0, at), bound)
    )
    operands = [operand("in0", source, last[0]), operand("out0", target, last[1])]
    if fused:
        operands.append(Operand("in1", FLOAT32, (target[1],), (1,)))
        value = binary("max", value, load("in1", FLOAT32, (at[1],)))
    return Task(target, tuple(operands), (Store("out0", at, value),))


def reference(x: np.ndarray, target: Shape, attributes: Mapping[str, Any]) -> np.ndarray:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)
    sizes = helper.make_tensor("sizes", TensorProto.INT64, [len(target)], target)
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", x.shape), ("y", target))]
    graph = helper.make_graph([node], "resize", ports[:1], ports[1:], [sizes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def check(run_kernel, target, task: Task, attributes: Mapping[str, Any], last: tuple[bool, bool], workers: int) -> str:
    """Run the first kernel that accepts, and compare; gives its name."""
    rng = np.random.default_rng(1)
    source, out = task.operand("in0").shape, task.extents
    x = rng.standard_normal(source, dtype=np.float32)
    fused = any(o.name == "in1" for o in task.operands)
    limit = rng.standard_normal(out[1], dtype=np.float32)
    expected = reference(np.abs(x) if fused else x, out, attributes)
    if fused:
        expected = np.maximum(expected, limit.reshape(1, -1, *(1,) * (len(out) - 2)))
    axes = [order(len(out), side) for side in last]
    arrays = {"in0": x.transpose(axes[0]).ravel(), "in1": limit, "out0": np.full(math.prod(out), np.nan, np.float32)}
    kernel = next(k for k in candidates(task) if refusal(k, task, target) is None)
    run_kernel(kernel, task, arrays, workers)
    found = arrays["out0"].reshape([out[k] for k in axes[1]])
    # ONNX Runtime rounds coordinates to float32: some 2e-6 of the distance between neighbours, which differ by up to 8
    np.testing.assert_allclose(found, expected.transpose(axes[1]), rtol=1e-5, atol=2e-5)
    return kernel.name


@st.composite
def cases(draw: st.DrawFn) -> tuple[Shape, Shape, dict[str, Any]]:
    """Source, target and attributes: each axis grows, shrinks or stays."""
    channels = draw(st.sampled_from([1, 3, 16, 21]))
    rows, columns = (draw(st.integers(1, 9)) for _ in range(2))
    target = (draw(st.sampled_from([rows, 4, 7, 19, 33])), draw(st.sampled_from([columns, 5, 16, 35, 50])))
    attributes = {
        "mode": draw(st.sampled_from(["linear", "linear", "cubic"])),
        "coordinate_transformation_mode": draw(st.sampled_from(MODES)),
    }
    batch = draw(st.integers(1, 2))
    return (batch, channels, rows, columns), (batch, channels, *target), attributes


@RELAXED
@given(
    case=cases(), last=st.tuples(st.booleans(), st.booleans()), fused=st.booleans(), workers=st.sampled_from([1, 2, 3])
)
def test_any_size_and_layout(run_kernel, target, case, last, fused, workers):
    source, out, attributes = case
    check(run_kernel, target, resize_task(source, out, attributes, last, fused), attributes, last, workers)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["linear", "cubic"])
@pytest.mark.parametrize("last", [(False, False), (True, False), (True, True)], ids=str)
def test_growing_images_are_resampled_by_rows(run_kernel, target, mode, kind, last):
    attributes = {"mode": kind, "coordinate_transformation_mode": mode}
    task = resize_task((1, 5, 9, 9), (1, 5, 41, 65), attributes, last, fused=True)
    assert check(run_kernel, target, task, attributes, last, 3) == "blend-rows"


def test_many_rows_for_several_workers(run_kernel, target):
    attributes = {"mode": "linear"}
    task = resize_task((2, 21, 33, 17), (2, 21, 129, 130), attributes, (True, False))
    assert check(run_kernel, target, task, attributes, (True, False), 3) == "blend-rows"


def test_volumes(run_kernel, target):
    attributes = {"mode": "linear"}
    task = resize_task((1, 3, 4, 5, 6), (1, 3, 9, 10, 12), attributes)
    assert check(run_kernel, target, task, attributes, (False, False), 2) == "blend-rows"


@pytest.mark.parametrize(
    "source, out, kind, last",
    [
        ((1, 4, 40, 40), (1, 4, 20, 20), "linear", False),  # every row of the source is needed for one row only
        ((1, 4, 20, 40), (1, 4, 40, 40), "linear", False),  # rows are read as they are
        ((1, 4, 20, 20), (1, 4, 40, 40), "nearest", False),
        ((1, 16, 20, 20), (1, 16, 40, 40), "linear", True),  # whole vectors are read, and each row is needed twice only
        ((1, 1, 4, 2), (1, 1, 8, 3), "linear", False),  # a row is shorter than a vector
        ((1, 512, 20, 512), (1, 512, 40, 1024), "linear", True),  # whole vectors, and rows do not fit the cache
    ],
)
def test_refuses_what_gains_nothing(target, source, out, kind, last):
    task = resize_task(source, out, {"mode": kind}, (last, last))
    assert "row by row" in str(refusal(SEPARABLE_RESAMPLING, task, target))


def test_refuses_rows_that_do_not_fit_the_cache(target):
    task = resize_task((1, 5, 9, 9), (1, 5, 41, 65), {"mode": "linear"})
    assert refusal(SEPARABLE_RESAMPLING, task, target) is None
    assert "do not fit" in str(refusal(SEPARABLE_RESAMPLING, task, replace(target, l2_bytes=1024)))


def test_refuses_what_is_not_its_own(target):
    doubled = cast(index("i0"), FLOAT32)
    for _ in range(40):  # a sum of more terms than can be counted
        doubled = binary("add", doubled, doubled)
    sums = Task((4,), (Operand("out0", FLOAT32, (4,), (1,)),), (Store("out0", (index("i0"),), doubled),))
    assert "row by row" in str(refusal(SEPARABLE_RESAMPLING, sums, target))
    anchor = Anchor("Softmax", "softmax", (), (), (), TensorType(FLOAT32, (4,)))
    assert "Softmax" in str(refusal(SEPARABLE_RESAMPLING, replace(sums, anchor=anchor), target))


@pytest.mark.parametrize("generic", TARGETS, ids=lambda t: t.name)
def test_every_target_gets_valid_code(generic):
    for last in ((False, False), (True, False), (True, True)):
        task = resize_task((1, 5, 9, 9), (1, 5, 41, 65), {"mode": "linear"}, last, fused=True)
        text = text_of(way(SEPARABLE_RESAMPLING, task, generic), generic.instructions, "kernel")
        assert "kernel" in compile_assembly(text, generic)
