"""What is refused before time and memory are gone: by count, before anything is expanded or allocated."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

import fusewise
from fusewise.errors import ResourceLimit
from fusewise.frontend.limits import ModelLimits
from fusewise.frontend.onnx_import import load

OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
FLOAT = TensorProto.FLOAT


def chain(op: str, count: int, domain: str = "") -> list:
    names = ["a", *(f"t{k}" for k in range(count - 1)), "b"]
    return [helper.make_node(op, [x], [y], domain=domain) for x, y in itertools.pairwise(names)]


def function(name: str, nodes: list):
    return helper.make_function("own", name, ["a"], ["b"], nodes, OPSETS)


def model(nodes: list, functions: list, constants: list | None = None, shape: tuple[int, ...] = (1,)):
    ends = [helper.make_tensor_value_info(name, FLOAT, shape if name == "x" else None) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants or [])
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10, functions=functions)


def call(name: str = "F0") -> list:
    return [helper.make_node(name, ["x"], ["y"], domain="own")]


def in_branch(depth: int) -> list:
    """A call in a branch of a branch of a branch."""
    nodes, name = [helper.make_node("F", ["x"], ["q"], domain="own")], "q"
    for level in range(depth):
        body = helper.make_graph(nodes, f"b{level}", [], [helper.make_tensor_value_info(name, FLOAT, None)])
        name = "y" if level == depth - 1 else f"q{level}"
        nodes = [helper.make_node("If", ["t"], [name], then_branch=body, else_branch=body)]
    return nodes


BOMBS = {
    "each calls the next ten times": (
        call(),
        [function(f"F{k}", chain(f"F{k + 1}", 10, "own")) for k in range(20)] + [function("F20", chain("Relu", 10))],
        "1,111,111,111,111,111,111,111 nodes",
    ),
    "wide": (
        call(),
        [function("F0", chain("F1", 1000, "own")), function("F1", chain("Relu", 1000))],
        "1,001,001 nodes",
    ),
    "of nothing but calls": (
        call(),
        [function(f"F{k}", chain(f"F{k + 1}", 100, "own")) for k in range(5)]
        + [function("F5", [helper.make_node("Identity", ["a"], ["b"])])],
        "nodes after its functions are inlined",
    ),
    "in bodies": (in_branch(6), [function("F", chain("Relu", 5000))], "320,127 nodes after its functions are inlined"),
    "itself": (call(), [function("F0", chain("F0", 2, "own"))], "nests deeper than 32 calls, or calls itself"),
    "each other": (
        call(),
        [function("F0", chain("F1", 1, "own")), function("F1", chain("F0", 1, "own"))],
        "or calls itself",
    ),
    "a long way down": (
        call(),
        [function(f"F{k}", chain(f"F{k + 1}", 1, "own")) for k in range(40)] + [function("F40", chain("Relu", 1))],
        "nests deeper than 32 calls",
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_functions_are_counted_before_they_are_expanded(bomb: str) -> None:
    nodes, functions, words = BOMBS[bomb]
    flag = [helper.make_tensor("t", TensorProto.BOOL, [], [True])]
    begin = time.process_time()
    with pytest.raises(ResourceLimit, match=words):
        load(model(nodes, functions, flag))
    assert time.process_time() - begin < 5


def test_what_is_within_the_limit_is_expanded() -> None:
    functions = [function("F0", chain("F1", 10, "own")), function("F1", chain("Relu", 9))]
    assert len(load(model(call(), functions), ModelLimits(nodes=101)).nodes) == 90
    with pytest.raises(ResourceLimit, match="101 nodes after its functions are inlined; the limit is 100"):
        load(model(call(), functions), ModelLimits(nodes=100))


@pytest.mark.parametrize(
    "op, operands, attributes, words",
    [
        (
            "AveragePool",
            ["x"],
            {"kernel_shape": [1 << 20] * 2, "pads": [1 << 19] * 4},
            "takes .* operations; the limit is",
        ),
        ("LpPool", ["x"], {"kernel_shape": [1 << 20] * 2, "pads": [1 << 19] * 4}, "takes .* operations; the limit is"),
        ("RoiAlign", ["x", "r", "i"], {"sampling_ratio": 1 << 30}, "takes .* operations; the limit is"),
        (
            "ConvTranspose",
            ["x", "w"],
            {"strides": [1 << 20, 1]},
            "a stride or dilation of 1,048,576; the limit is 65,536",
        ),
        ("ConvTranspose", ["x", "w"], {"dilations": [1, 1 << 20]}, "a stride or dilation of 1,048,576; the limit"),
        ("Conv", ["x", "w"], {"pads": [1 << 28] * 4}, "which is more than 1,099,511,627,776 elements"),
    ],
)
def test_windows_that_never_end_are_refused(op: str, operands: list, attributes: dict, words: str) -> None:
    constants = [
        helper.make_tensor("w", FLOAT, [2, 2, 2, 2], [1.0] * 16),
        helper.make_tensor("r", FLOAT, [1, 4], [0.0, 0.0, 3.0, 3.0]),
        helper.make_tensor("i", TensorProto.INT64, [1], [0]),
    ]
    node = helper.make_node(op, operands, ["y"], name="n", **attributes)
    with pytest.raises(ResourceLimit, match=f"node 'n' .*{words}|'n'.*{words}"):
        load(model([node], [], constants, (1, 2, 4, 4)))


def test_a_window_wider_than_all_channels_is_as_wide_as_they_are() -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 3, 3)).astype(np.float32)
    for size in (9, 11, 10**6 + 1, 2**40 + 1):
        node = helper.make_node("LRN", ["x"], ["y"], size=size, alpha=float(size), beta=0.5, bias=1.0)
        (found,) = fusewise.compile(model([node], [], shape=x.shape), cache=False).run(None, {"x": x})
        np.testing.assert_allclose(found, x / np.sqrt(1 + np.square(x).sum(1, keepdims=True)), rtol=1e-5)


def test_random_inputs_are_counted_before_they_are_made() -> None:
    wide = model(
        [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Cast", ["s"], ["y"], to=FLOAT)], [], [], (1 << 33,)
    )
    compiled = fusewise.compile(wide, cache=False)
    with pytest.raises(ResourceLimit, match="random inputs would take 128.0 GiB"):
        compiled.random_inputs()
