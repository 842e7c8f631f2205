"""Linear attention on a GPU: every rule and option, wherever operands lie, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from tests.codegen.families.test_attention_linear import NAMES, Feeds, near, uses
from tests.codegen.gpu.interpreting import compare, expected, launch
from tests.codegen.gpu.lying import contents_of, lying, task_of
from tests.runtime.gpu.kernels import needs_triton

from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.codegen.gpu.linear_attention import linear_attention

SM_90 = device_named("sm_90")


def model_of(rule: str, steps: int, heads: int, shared: int, size: int, width: int, kind: int = 1) -> onnx.ModelProto:
    """A node of one sample, with a past and both results."""
    shapes = {"q": (1, steps, heads * size), "k": (1, steps, shared * size), "v": (1, steps, shared * width)}
    shapes |= {"past": (1, shared, size, width)}
    if rule.startswith("gated"):
        shapes["decay"] = (1, steps, shared)
    if rule.endswith("delta"):
        shapes["beta"] = (1, steps, shared)
    names = [name if name in shapes else "" for name in NAMES]
    sizes = {"q_num_heads": heads, "kv_num_heads": shared, "update_rule": rule}
    node = helper.make_node("LinearAttention", names, ["y", "state"], **sizes)
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
    graph = helper.make_graph([node], "linear", inputs, [onnx.ValueInfoProto(name=name) for name in ("y", "state")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)], ir_version=13)


@needs_triton
@settings(max_examples=10, deadline=None)
@given(use=uses(("float32", "float16", "bfloat16")), seed=st.integers(0, 99), states=st.booleans())
def test_any_linear_attention(use: tuple[onnx.ModelProto, Feeds], seed: int, states: bool) -> None:
    model, feeds = use
    task = lying(task_of(model), np.random.default_rng(seed))
    if not states:
        task = replace(task, stores=task.stores[:1], operands=tuple(o for o in task.operands if o.name != "out1"))
    contents = contents_of(task, [feeds.get(name) for name in NAMES])
    found, _ = launch(linear_attention(task, SM_90, "float32"), task, contents)
    for name, right in expected(task, contents).items():
        assert near(found[name], right)


@needs_triton
def test_many_query_heads_of_a_state_and_what_is_no_number() -> None:
    """Six heads of queries a state; a NaN in a value is in no other."""
    task = task_of(model_of("gated_delta", 3, 6, 1, 5, 9))
    rng = np.random.default_rng(0)
    given = {o.name: rng.standard_normal(o.shape, dtype=np.float32) / 2 for o in task.operands if o.name[0] == "i"}
    given["in2"][0, 1, 4] = np.nan
    found, _ = launch(linear_attention(task, SM_90, "float32"), task, given)
    for name, right in expected(task, given).items():
        assert np.isnan(right).any() and not np.isnan(right).all()
        compare(found[name], right, times=5)


@needs_triton
@pytest.mark.parametrize("rule", ["linear", "gated"])
def test_what_is_infinite_stays_so(rule: str) -> None:
    """Of five numbers of a key, where a block has eight."""
    task = task_of(model_of(rule, 3, 2, 1, 5, 9))
    rng = np.random.default_rng(0)
    given = {o.name: rng.random(o.shape, np.float32) / 2 for o in task.operands if o.name[0] == "i"}
    given["in2"][0, 1, 4] = np.inf
    if rule == "gated":
        given["in4"][0, 2] = 200  # whose power is infinite
    found, _ = launch(linear_attention(task, SM_90, "float32"), task, given)
    for name, right in expected(task, given).items():
        assert np.isinf(right).any()
        assert np.array_equal(np.isnan(found[name]), np.isnan(right))
        assert np.array_equal(np.isinf(found[name]), np.isinf(right))


def test_what_is_no_linear_attention_is_refused() -> None:
    task = task_of(model_of("linear", 2, 1, 1, 4, 4))
    with pytest.raises(NoKernel, match="no linear attention"):
        linear_attention(replace(task, anchor=None), SM_90, "float32")
    with pytest.raises(NoKernel, match="more than 2048"):
        linear_attention(task_of(model_of("linear", 2, 1, 1, 2049, 1)), SM_90, "float32")
