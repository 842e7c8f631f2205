"""Group normalisation written out as instance normalisation between reshapes."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.ir.graph import Graph, Node
from fusewise.passes.recognise_group_norm import recognise_group_norm
from fusewise.trace import Trace

SCALE = "constant s: float32[6,1,1] = [1.5, -2.0, 0.5, 3.0, 1.0, 0.25]\n"
BIAS = "constant c: float32[1,6,1,1] = [0.5, 1.0, -1.0, 0.0, 2.0, -3.0]\n"


def written_out(groups: int = 3, shape: str = "2,6,4,5", grouped: str = "", back: str = "", behind: str = "y") -> str:
    """A group normalisation of `groups` runs of channels whose last value is named `behind`."""
    ones, zeros = ", ".join(["2.0"] * groups), ", ".join(["0.5"] * groups)
    return (
        f"input x: float32[{shape}]\n"
        f"constant ones: float32[{groups}] = [{ones}]\nconstant zeros: float32[{groups}] = [{zeros}]\n"
        f"constant grouped: int64[3] = [{grouped or f'0, {groups}, -1'}]\n"
        f"constant back: int64[{len((back or shape).split(','))}] = [{back or shape}]\n"
        "r = Reshape(x, grouped)\nn = InstanceNormalization(r, ones, zeros) {epsilon=0.001}\n"
        f"{behind} = Reshape(n, back)\n"
    )


def recognised(parse: Any, same_answers: Any, text: str) -> tuple[Graph, Node]:
    """The graph behind the pass, with the answers of the one in front, and its only node."""
    before = parse(text)
    graph = recognise_group_norm(before, Trace())
    (node,) = graph.nodes
    assert node.op == "GroupNormalization"
    same_answers(before, graph, False)
    return graph, node


def test_one_node_is_left(rewrites: Any) -> None:
    rewrites(
        recognise_group_norm,
        f"{written_out(groups=2, shape='2,4,3,5')}return y",
        "constant n_n_scale = [2.0, 2.0, 2.0, 2.0]\nconstant n_n_bias = [0.5, 0.5, 0.5, 0.5]\n"
        "y = GroupNormalization(x, n_n_scale, n_n_bias) {epsilon=0.001, num_groups=2}\nreturn y",
        exact=False,
    )


@pytest.mark.parametrize(
    ("tail", "scale", "bias"),
    [
        (f"{SCALE}y = Mul(g, s)", [3.0, -4.0, 1.0, 6.0, 2.0, 0.5], [0.75, -1.0, 0.25, 1.5, 0.5, 0.125]),
        (f"{BIAS}y = Add(c, g)", [2.0] * 6, [1.0, 1.5, -0.5, 0.5, 2.5, -2.5]),
        (
            f"{SCALE}{BIAS}m = Mul(s, g)\ny = Add(m, c)",
            [3.0, -4.0, 1.0, 6.0, 2.0, 0.5],
            [1.25, 0.0, -0.75, 1.5, 2.5, -2.875],
        ),
    ],
    ids=("scale", "bias", "both"),
)
def test_takes_what_is_per_channel(
    parse: Any, same_answers: Any, tail: str, scale: list[float], bias: list[float]
) -> None:
    graph, node = recognised(parse, same_answers, f"{written_out(behind='g')}{tail}\nreturn y")
    assert graph.constants[node.inputs[1]].array.tolist() == scale
    assert graph.constants[node.inputs[2]].array.tolist() == bias


@pytest.mark.parametrize("shape", ["1,6,9", "3,6,4,5", "2,6,2,3,4"])
def test_any_number_of_axes(parse: Any, same_answers: Any, shape: str) -> None:
    graph, node = recognised(parse, same_answers, f"{written_out(shape=shape)}return y")
    assert node.attribute("num_groups") == 3 and len(graph.constants[node.inputs[1]].array) == 6


@pytest.mark.parametrize(
    "text",
    [
        f"{written_out(back='2,4,6,5')}return y",  # another shape behind
        f"{written_out(grouped='1, 3, -1')}return y",  # samples together
        f"{written_out(groups=4)}return y",  # groups are not whole channels
        f"{written_out()}z = Relu(n)\nreturn y, z",  # the inner value has another reader
        f"{written_out()}return y, n",
        written_out().replace("constant ones: float32[3] = [2.0, 2.0, 2.0]", "input ones: float32[3]") + "return y",
        f"{written_out(shape='2,6', back='2,6')}return y",  # nothing but channels
    ],
)
def test_refused(refuses: Any, text: str) -> None:
    refuses(recognise_group_norm, text)


@pytest.mark.parametrize(
    "tail",
    [
        "constant w: float32[5] = [1.0, 2.0, 3.0, 4.0, 5.0]\ny = Mul(g, w)",  # per column
        "input w: float32[6,1,1]\ny = Mul(g, w)",
        "constant w: float32[2,1,1,1,1] = [1.0, 2.0]\ny = Mul(g, w)",  # the product is larger
    ],
)
def test_what_stays_behind(parse: Any, tail: str) -> None:
    graph = parse(f"{written_out(behind='g')}{tail}\nreturn y")
    assert [node.op for node in recognise_group_norm(graph, Trace()).nodes] == ["GroupNormalization", "Mul"]


def test_not_before_scales_were_per_channel(refuses: Any) -> None:
    refuses(recognise_group_norm, f"{written_out()}return y", 20)
