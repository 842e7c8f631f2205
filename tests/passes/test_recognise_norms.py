"""Normalisations written out become one operator, with or without scale and bias."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.passes.recognise_norms import recognise_norms
from fusewise.trace import Trace

HEAD = "input x: float32[2,5,12]\nconstant k: int64[1] = [-1]\nconstant e: float32[] = 1e-05\nconstant two: float32[] = 2.0\n"
WEIGHTS = "constant g: float32[12] = #g\nconstant b: float32[12] = #b\n"
ONE = "constant one: float32[] = 1.0\n"
CENTRE = "m = ReduceMean(x, k)\nd = Sub(x, m)\n"
SQUARES = {"power": "q = Pow(d, two)\n", "product": "q = Mul(d, d)\n"}
ROOT = "v = ReduceMean(q, k)\nw = Add(v, e)\nr = Sqrt(w)\n"
DIVISIONS = {
    "quotient": "n = Div({0}, r)\n",
    "reciprocal": "i = Reciprocal(r)\nn = Mul({0}, i)\n",
    "inverse": "i = Div(one, r)\nn = Mul(i, {0})\n",
}


@pytest.mark.parametrize("division", DIVISIONS)
@pytest.mark.parametrize("square", SQUARES)
def test_layer_normalisation(rewrites: Any, square: str, division: str) -> None:
    after = rewrites(
        recognise_norms,
        f"{HEAD}{WEIGHTS}{ONE}{CENTRE}{SQUARES[square]}{ROOT}{DIVISIONS[division].format('d')}"
        "s = Mul(n, g)\ny = Add(b, s)\nreturn y",
        "constant g = #\nconstant b = #\ny = LayerNormalization(x, g, b) {axis=-1, epsilon=1e-05f}\nreturn y",
        exact=False,
    )
    assert set(after.nodes[0].origin) >= {"n_m", "n_d", "n_q", "n_v", "n_w", "n_r", "n_n", "n_s", "n_y"}


def test_without_scale_and_bias_over_two_axes(rewrites: Any) -> None:
    rewrites(
        recognise_norms,
        f"{HEAD.replace('int64[1] = [-1]', 'int64[2] = [2, 1]')}{CENTRE}{SQUARES['power']}{ROOT}"
        f"{DIVISIONS['quotient'].format('d')}y = Exp(n)\nreturn y",
        "constant n_n_scale = #\nn = LayerNormalization(x, n_n_scale) {axis=-2, epsilon=1e-05f}\ny = Exp(n)\nreturn y",
        exact=False,
    )


@pytest.mark.parametrize("division", DIVISIONS)
def test_rms_normalisation(rewrites: Any, division: str) -> None:
    rewrites(
        recognise_norms,
        f"{HEAD}{WEIGHTS}{ONE}q = Pow(x, two)\n{ROOT}{DIVISIONS[division].format('x')}y = Mul(g, n)\nreturn y",
        "constant g = #\ny = RMSNormalization(x, g) {axis=-1, epsilon=1e-05f}\nreturn y",
        exact=False,
    )


LAYER = f"{CENTRE}{SQUARES['power']}{ROOT}{DIVISIONS['quotient'].format('d')}"


@pytest.mark.parametrize(
    "text",
    [
        HEAD
        + LAYER.replace("ReduceMean(x, k)", "ReduceMean(x, j)")
        + "constant j: int64[1] = [1]\n",  # two kinds of mean
        HEAD.replace("[-1]", "[1]") + LAYER,  # channels are not last
        HEAD + LAYER.replace("ReduceMean(q, k)", "ReduceSum(q, k)"),
        HEAD + LAYER.replace("Pow(d, two)", "Pow(d, e)"),
        HEAD + LAYER.replace("n = Div(d, r)", "n = Div(r, d)"),
        HEAD + LAYER + "z = Exp(d)\n",  # someone else reads the centred value
        HEAD + LAYER + "z = Exp(v)\n",
        HEAD.replace("float32[2", "float64[2").replace("float32[]", "float64[]") + LAYER,
    ],
)
def test_refused(refuses: Any, text: str) -> None:
    lines = sorted(text.splitlines(), key=lambda line: not line.startswith(("input", "constant")))
    refuses(recognise_norms, "\n".join(lines) + ("\nreturn n, z" if "z = " in text else "\nreturn n"), opset=22)


def test_what_is_no_layer_normalisation_may_be_an_rms_one(rewrites: Any) -> None:
    """Someone else reads the centred value: it stays, and what is done to it is an RMS normalisation."""
    rewrites(
        recognise_norms,
        f"{HEAD}{LAYER}z = Exp(d)\nreturn n, z",
        "constant k = [-1]\nconstant n_n_scale = #\nm = ReduceMean(x, k)\nd = Sub(x, m)\n"
        "n = RMSNormalization(d, n_n_scale) {axis=-1, epsilon=1e-05f}\nz = Exp(d)\nreturn n, z",
        exact=False,
    )


def test_scale_of_another_shape_stays_outside(rewrites: Any) -> None:
    rewrites(
        recognise_norms,
        f"{HEAD}constant g: float32[5,1] = [1.0, 2.0, 3.0, 4.0, 5.0]\n{LAYER}y = Mul(n, g)\nreturn y",
        "constant g = [1.0, 2.0, 3.0, 4.0, 5.0]\nconstant n_n_scale = #\n"
        "n = LayerNormalization(x, n_n_scale) {axis=-1, epsilon=1e-05f}\ny = Mul(n, g)\nreturn y",
        exact=False,
    )


def test_operators_an_older_opset_lacks_are_not_written(refuses: Any) -> None:
    refuses(recognise_norms, f"{HEAD}q = Pow(x, two)\n{ROOT}y = Div(x, r)\nreturn y", opset=22)


SCALED_NORM = """
input x: float32[2,3,4]
constant s: float32[4] = #s
constant b: float32[4] = #b
constant axes: int64[1] = [-1]
constant e: float32[] = 0.001
m = ReduceMean(x, axes)
d = Sub(x, m)
q = Mul(d, d)
v = ReduceMean(q, axes)
w = Add(v, e)
r = Sqrt(w)
i = Reciprocal(r)
k = Mul(i, s)
n = Mul(m, k)
o = Sub(b, n)
p = Mul(x, k)
y = Add(p, o)
"""


def test_by_the_formula_of_batch_normalisation(parse: Any, same_answers: Any) -> None:
    graph = parse(SCALED_NORM + "return y")
    after = recognise_norms(graph, Trace())
    assert [node.op for node in after.nodes] == ["LayerNormalization"]
    assert after.nodes[0].inputs == ("x", "s", "b")
    same_answers(graph, after, False)
    assert recognise_norms(graph, Trace(limit=0)) is graph


@pytest.mark.parametrize("inner", ["d", "k", "n"])
def test_the_formula_whose_inner_values_others_read(refuses: Any, inner: str) -> None:
    refuses(recognise_norms, f"{SCALED_NORM}return y, {inner}")
