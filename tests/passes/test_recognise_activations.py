"""Activations written out in any order become one operator; other formulas stay."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fusewise.passes.recognise_activations import recognise_activations

HEAD = "input x: float32[2,3,64]\n"
ROOT, HALF_ROOT = f"{math.sqrt(2):.8}", f"{math.sqrt(0.5):.8}"

ERF = {
    "divided": f"constant r: float32[] = {ROOT}\nc = Div(x, r)",
    "multiplied": f"constant r: float32[] = {HALF_ROOT}\nc = Mul(r, x)",
}
PRODUCT = {
    "half last": "p = Mul(x, l)\ny = Mul(p, h)",
    "half first": "p = Mul(x, h)\ny = Mul(l, p)",
    "half of the curve": "p = Mul(h, l)\ny = Mul(x, p)",
    "divided by two": "constant two: float32[] = 2.0\np = Mul(l, x)\ny = Div(p, two)",
}


@pytest.mark.parametrize("argument", ERF)
@pytest.mark.parametrize("product", PRODUCT)
def test_gelu_by_erf(rewrites: Any, argument: str, product: str) -> None:
    rewrites(
        recognise_activations,
        f"{HEAD}constant h: float32[] = 0.5\nconstant o: float32[] = 1.0\n"
        f"{ERF[argument]}\ne = Erf(c)\nl = Add(o, e)\n{PRODUCT[product]}\nreturn y",
        "y = Gelu(x)\nreturn y",
        exact=False,
    )


CUBIC = {
    "power": "constant t: float32[] = 3.0\nq = Pow(x, t)\nc = Mul(q, a)\ni = Add(x, c)\nj = Mul(i, r)",
    "products": "s = Mul(x, x)\nq = Mul(s, x)\nc = Mul(a, q)\ni = Add(c, x)\nj = Mul(r, i)",
    "factored": "s = Mul(x, x)\nc = Mul(s, a)\ni = Add(c, o)\nj0 = Mul(x, i)\nj = Mul(r, j0)",
}


@pytest.mark.parametrize("cubic", CUBIC)
@pytest.mark.parametrize("product", PRODUCT)
def test_gelu_by_tanh(rewrites: Any, cubic: str, product: str) -> None:
    rewrites(
        recognise_activations,
        f"{HEAD}constant h: float32[] = 0.5\nconstant o: float32[] = 1.0\nconstant a: float32[] = 0.044715\n"
        f"constant r: float32[] = {math.sqrt(2 / math.pi):.9}\n{CUBIC[cubic]}\ne = Tanh(j)\nl = Add(e, o)\n"
        f"{PRODUCT[product]}\nreturn y",
        'y = Gelu(x) {approximate="tanh"}\nreturn y',
        exact=False,
    )


SIX = "constant z: float32[] = 0.0\nconstant t: float32[] = 3.0\nconstant s: float32[] = 6.0\n"
SIXTH = f"constant u: float32[] = {1 / 6:.9}\n"


@pytest.mark.parametrize(
    "body, expected",
    [
        ("p = Softplus(x)\nq = Tanh(p)\ny = Mul(x, q)", "Mish(x)"),
        ("a = Add(x, t)\nc = Clip(a, z, s)\ny = Div(c, s)", "HardSigmoid(x) {alpha=0.16666666666666666, beta=0.5}"),
        ("a = Add(t, x)\nc = Clip(a, z, s)\ny = Mul(c, u)", "HardSigmoid(x) {alpha=0.16666666666666666, beta=0.5}"),
        ("a = Add(x, t)\nc = Clip(a, z, s)\nd = Div(c, s)\ny = Mul(x, d)", "HardSwish(x)"),
        ("a = Add(x, t)\nc = Clip(a, z, s)\nd = Mul(c, x)\ny = Div(d, s)", "HardSwish(x)"),
        ("d = HardSigmoid(x) {alpha=0.16666667f}\ny = Mul(d, x)", "HardSwish(x)"),
    ],
)
def test_others(rewrites: Any, body: str, expected: str) -> None:
    rewrites(recognise_activations, f"{HEAD}{SIX}{SIXTH}{body}\nreturn y", f"y = {expected}\nreturn y", exact=False)


GELU = "constant h: float32[] = 0.5\nconstant o: float32[] = 1.0\nconstant r: float32[] = 1.4142135\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{GELU}c = Div(x, h)\ne = Erf(c)\nl = Add(e, o)\np = Mul(x, l)\ny = Mul(p, h)\nreturn y",  # another divisor
        f"{GELU}c = Div(x, r)\ne = Erf(c)\nl = Add(e, h)\np = Mul(x, l)\ny = Mul(p, h)\nreturn y",  # another summand
        f"{GELU}c = Div(x, r)\ne = Erf(c)\nl = Add(e, o)\np = Mul(x, l)\ny = Mul(p, o)\nreturn y",  # another factor
        f"{GELU}c = Div(x, r)\ne = Erf(c)\nl = Add(e, o)\np = Mul(x, l)\ny = Mul(p, h)\nreturn y, l",  # read elsewhere
        f"{GELU}input v: float32[2,3,64]\nc = Div(v, r)\ne = Erf(c)\nl = Add(e, o)\np = Mul(x, l)\ny = Mul(p, h)\nreturn y",
        (
            f"{GELU}constant w: float32[1,1,1,1] = [0.5]\nc = Div(x, r)\ne = Erf(c)\nl = Add(e, o)\np = Mul(x, l)\n"
            "y = Mul(p, w)\nreturn y"
        ),  # adds a dimension
        "p = Softplus(x)\nq = Tanh(p)\ny = Mul(q, q)\nreturn y",
        "d = HardSigmoid(x)\ny = Mul(d, x)\nreturn y",  # slope 0.2
        f"{SIX}a = Add(x, s)\nc = Clip(a, z, s)\ny = Div(c, s)\nreturn y",
        f"{SIX}a = Add(x, t)\nc = Clip(a, z, t)\ny = Div(c, s)\nreturn y",
        f"{SIX}c = Clip(x, z, s)\ny = Div(c, s)\nreturn y",
    ],
)
def test_refused(refuses: Any, text: str) -> None:
    refuses(recognise_activations, HEAD + text)


def test_operators_an_older_opset_lacks_are_not_written(refuses: Any) -> None:
    text = f"{HEAD}{GELU}c = Div(x, r)\ne = Erf(c)\nl = Add(e, o)\np = Mul(x, l)\ny = Mul(p, h)\nreturn y"
    refuses(recognise_activations, text, opset=19)
