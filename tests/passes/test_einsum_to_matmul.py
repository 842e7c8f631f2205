"""An Einsum that multiplies matrices becomes transpositions and a MatMul."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusewise.passes.einsum_to_matmul import einsum_to_matmul
from fusewise.trace import Trace

TURNED = "n_y_right_turned"

MERGED = """constant n_y_left_shape = [2, 3, 20]
constant n_y_right_shape = [20, 6]
n_y_left_merged = Reshape(a, n_y_left_shape) from n_y
n_y_right_merged = Reshape(b, n_y_right_shape) from n_y
y = MatMul(n_y_left_merged, n_y_right_merged)"""


@pytest.mark.parametrize(
    "a, b, equation, expected",
    [
        ("3,4", "4,5", "ij,jk", "y = MatMul(a, b)"),
        ("3,4", "4,5", "ij, jk -> ik", "y = MatMul(a, b)"),
        (
            "2,3,4,5",
            "2,3,6,5",
            "bhlk,bhtk->bhlt",
            f"{TURNED} = Transpose(b) {{perm=[0, 1, 3, 2]}} from n_y\ny = MatMul(a, {TURNED})",
        ),
        ("2,3,4", "5,4", "abc,dc->abd", f"{TURNED} = Transpose(b) {{perm=[1, 0]}} from n_y\ny = MatMul(a, {TURNED})"),
        ("3,4", "4,5", "ij,jk->ki", "n_y_product = MatMul(a, b) from n_y\ny = Transpose(n_y_product) {perm=[1, 0]}"),
        ("4,5", "3,4", "jk,ij->ik", "y = MatMul(b, a)"),
        ("2,3,4", "2,4,5", "...ij,...jk->...ik", "y = MatMul(a, b)"),
        (
            "2,3,4,5",
            "4,5,6",
            "abcd,cde->abe",
            MERGED,
        ),
    ],
)
def test_products(rewrites: Any, a: str, b: str, equation: str, expected: str) -> None:
    before = f'input a: float32[{a}]\ninput b: float32[{b}]\ny = Einsum(a, b) {{equation="{equation}"}}\nreturn y'
    rewrites(einsum_to_matmul, before, f"{expected}\nreturn y", exact=False)


@pytest.mark.parametrize(
    "shapes, equation",
    [
        (("3,4",), "ij->ji"),
        (("3,4", "4,5", "5,6"), "ij,jk,kl->il"),
        (("3,3", "3,5"), "ii,ij->ij"),
        (("3,4", "5,6"), "ij,kl->ijkl"),
        (("3,4", "3,4"), "ij,ij->i"),
        (("3,4", "5,6"), "ij,kl->il"),
        (("3,1", "4,5"), "ij,jk->ik"),
        (("3,0", "0,5"), "ij,jk->ik"),
    ],
)
def test_refused(refuses: Any, shapes: tuple[str, ...], equation: str) -> None:
    inputs = "".join(f"input x{k}: float32[{shape}]\n" for k, shape in enumerate(shapes))
    names = ", ".join(f"x{k}" for k in range(len(shapes)))
    refuses(einsum_to_matmul, f'{inputs}y = Einsum({names}) {{equation="{equation}"}}\nreturn y')


def test_unknown_sizes_are_left_alone(refuses: Any) -> None:
    refuses(
        einsum_to_matmul,
        'input a: float32[n,4]\ninput b: float32[4,5]\ny = Einsum(a, b) {equation="ij,jk->ik"}\nreturn y',
    )


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kinds=st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.integers(1, 2)),
    order=st.randoms(use_true_random=False),
)
def test_any_order_of_labels(parse: Any, same_answers: Any, kinds: tuple[int, int, int, int], order: Any) -> None:
    letters = iter("abcdefgh")
    batch, rows, columns, summed = ([next(letters) for _ in range(count)] for count in kinds)
    terms = [batch + rows + summed, batch + summed + columns, batch + rows + columns]
    for term in terms:
        order.shuffle(term)
    size = dict(zip("abcdefgh", np.random.default_rng(order.randrange(99)).integers(2, 5, 8).tolist(), strict=True))
    inputs = "".join(
        f"input {name}: float32[{','.join(str(size[c]) for c in term)}]\n"
        for name, term in zip("xy", terms, strict=False)
    )
    equation = f"{''.join(terms[0])},{''.join(terms[1])}->{''.join(terms[2])}"
    before = parse(f'{inputs}z = Einsum(x, y) {{equation="{equation}"}}\nreturn z')
    after = einsum_to_matmul(before, Trace())
    assert [node.op for node in after.nodes].count("MatMul") == bool(rows or columns)
    same_answers(before, after, False)
