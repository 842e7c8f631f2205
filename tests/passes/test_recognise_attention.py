"""Attention written out, as exporters do it, becomes one operator with the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.passes.recognise_attention import recognise_attention
from fusewise.trace import Trace
from fusewise.zoo.catalogue import build

HEAD = "input q: float32[1,2,3,4]\ninput t: float32[1,5,2,4]\ninput v: float32[1,2,5,6]\n"
KEYS = "k = Transpose(t) {perm=[0, 2, 3, 1]}\ns = MatMul(q, k)\n"
TAKEN = "t_keys = Transpose(t) {perm=[0, 2, 1, 3]}\n"
END = "w = Softmax({}) {{axis=-1}}\ny = MatMul(w, v)\nreturn y"


def test_divided_and_masked_by_a_sum(rewrites: Any) -> None:
    after = rewrites(
        recognise_attention,
        f"{HEAD}input m: float32[1,1,1,5]\nconstant c: float32[] = 2.0\n{KEYS}d = Div(s, c)\na = Add(d, m)\n"
        + END.format("a"),
        f"{TAKEN}y = Attention(q, t_keys, v, m) {{scale=0.5}}\nreturn y",
        exact=False,
    )
    assert set(after.nodes[-1].origin) >= {"n_s", "n_d", "n_a", "n_w", "n_y"}


@pytest.mark.parametrize("factor", ["d = Mul(s, c)\n", "d = Mul(c, s)\n"])
def test_scaled_by_a_factor(rewrites: Any, factor: str) -> None:
    rewrites(
        recognise_attention,
        f"{HEAD}constant c: float32[] = 0.25\n{KEYS}{factor}" + END.format("d"),
        f"{TAKEN}y = Attention(q, t_keys, v) {{scale=0.25}}\nreturn y",
        exact=False,
    )


def test_keys_that_lie_ready(rewrites: Any) -> None:
    rewrites(
        recognise_attention,
        f"{HEAD}input k: float32[1,2,4,5]\ns = MatMul(q, k)\n" + END.format("s"),
        "k_keys = Transpose(k) {perm=[0, 1, 3, 2]}\ny = Attention(q, k_keys, v) {scale=1.0}\nreturn y",
        exact=False,
    )


@pytest.mark.parametrize("where", ["Where(m, l, s)", "Where(e, l, s)"])
def test_scores_replaced_where_a_mask_says_so(rewrites: Any, where: str) -> None:
    expand = "constant g: int64[4] = [1, 2, 3, 5]\ne = Expand(m, g)\n" if "e" in where[6] else ""
    rewrites(
        recognise_attention,
        f"{HEAD}input m: bool[1,1,1,5]\nconstant l: float32[] = -3.4028235e+38\n{expand}{KEYS}a = {where}\n"
        + END.format("a"),
        "constant n_a_kept = 0.0\nconstant n_a_dropped = -3.4028235e+38\na_mask = Where(m, n_a_dropped, n_a_kept)\n"
        f"{TAKEN}y = Attention(q, t_keys, v, a_mask) {{scale=1.0}}\nreturn y",
        exact=False,
    )


def test_a_lower_triangle_is_causal(rewrites: Any) -> None:
    triangle = "constant m: bool[1,1,2,2] = [true, false, true, true]\nconstant l: float32[] = -1e+32\n"
    rewrites(
        recognise_attention,
        f"input q: float32[1,1,2,4]\ninput t: float32[1,2,1,4]\ninput v: float32[1,1,2,6]\n{triangle}{KEYS}"
        "a = Where(m, s, l)\n" + END.format("a"),
        f"{TAKEN}y = Attention(q, t_keys, v) {{is_causal=1, scale=1.0}}\nreturn y",
        exact=False,
    )


def test_batches_of_products_get_an_axis(rewrites: Any) -> None:
    rewrites(
        recognise_attention,
        "input q: float32[2,3,4]\ninput k: float32[2,4,5]\ninput v: float32[2,5,6]\ns = MatMul(q, k)\n"
        + END.format("s"),
        "constant n_y_axis = [0]\nk_keys = Transpose(k) {perm=[0, 2, 1]}\nq_heads = Unsqueeze(q, n_y_axis)\n"
        "k_keys_heads = Unsqueeze(k_keys, n_y_axis)\nv_heads = Unsqueeze(v, n_y_axis)\n"
        "y_heads = Attention(q_heads, k_keys_heads, v_heads) {scale=1.0}\ny = Squeeze(y_heads, n_y_axis)\nreturn y",
        exact=False,
    )


def test_weights_guarded_against_empty_rows(rewrites: Any) -> None:
    rewrites(
        recognise_attention,
        f"{HEAD}constant o: float32[] = 0.0\n{KEYS}w = Softmax(s) {{axis=-1}}\nn = IsNaN(w)\nz = Where(n, o, w)\n"
        "y = MatMul(z, v)\nreturn y",
        f"{TAKEN}y = Attention(q, t_keys, v) {{scale=1.0}}\nreturn y",
        exact=False,
    )


REFUSED = {
    "a guard with another number": f"constant o: float32[] = 1.0\n{KEYS}w = Softmax(s) {{axis=-1}}\nn = IsNaN(w)\n"
    "z = Where(n, o, w)\ny = MatMul(z, v)\nreturn y",
    "scores are read twice": f"{KEYS}w = Softmax(s) {{axis=-1}}\nz = MatMul(w, v)\nu = Relu(s)\nreturn z, u",
    "another axis": f"{KEYS}w = Softmax(s) {{axis=-2}}\nz = MatMul(w, v)\nreturn z",
    "a mask before the scale": f"constant c: float32[] = 2.0\n{KEYS}a = Add(s, m)\nd = Div(a, c)\n" + END.format("d"),
    "a number that is not low": f"constant c: float32[] = -10000.0\n{KEYS}a = Where(b, s, c)\n" + END.format("a"),
    "two masks": f"{KEYS}a = Add(s, m)\nd = Add(a, m)\n" + END.format("d"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_left_alone(refuses: Any, why: str) -> None:
    refuses(recognise_attention, f"{HEAD}input m: float32[1,1,1,5]\ninput b: bool[1,1,1,5]\n{REFUSED[why]}")


def test_older_opsets_have_no_such_operator(refuses: Any) -> None:
    refuses(recognise_attention, f"{HEAD}{KEYS}" + END.format("s"), opset=22)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name, layers, size",
    [
        ("tinybert", 4, 26),
        pytest.param("distilbert", 6, 1, marks=SLOW),
        pytest.param("gpt2", 12, 64, marks=SLOW),
        pytest.param("vit_b_16", 12, 64, marks=SLOW),
        pytest.param("mobilebert", 24, 32, marks=SLOW),
    ],
)
def test_every_layer_of_a_transformer(name: str, layers: int, size: int) -> None:
    after = recognise_attention(build(name), Trace())
    found = [node for node in after.nodes if node.op == "Attention"]
    assert len(found) == layers
    assert not any(node.op == "Softmax" for node in after.nodes)
    assert all(bool(node.attribute("is_causal", 0)) == (name == "gpt2") for node in found)
    assert np.allclose([node.attribute("scale") for node in found], size**-0.5)
