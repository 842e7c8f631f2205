"""Movement that is none goes, pairs merge; near misses stay."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.conftest import assert_same_answers, graph_of

from fusewise.ir.verify import verify
from fusewise.passes.simplify_movement import simplify_movement
from fusewise.trace import Trace

X = "input x: float32[2,3,4]\n"

NOTHING = [
    "y = Identity(x)",
    "y = Cast(x) {to=1}",
    "y = CastLike(x, x)",
    "y = Transpose(x) {perm=[0, 1, 2]}",
    (
        "constant s: int64[5] = [1, 1, 2, 3, 4]\na = Reshape(x, s)\nb = Transpose(a) {perm=[1, 0, 2, 3, 4]}\n"
        "constant t: int64[3] = [2, 3, 4]\ny = Reshape(b, t)"
    ),
    "y = Concat(x) {axis=1}",
    "y = Split(x) {axis=1, num_outputs=1}",
    "y = Dropout(x)",
    "constant s: int64[3] = [2, 3, 4]\ny = Reshape(x, s)",
    "constant s: int64[3] = [0, -1, 4]\ny = Reshape(x, s)",
    "constant s: int64[1] = [4]\ny = Expand(x, s)",
    "constant s: int64[3] = [1, 1, 1]\ny = Tile(x, s)",
    'constant s: int64[6] = [0, 0, 0, 0, 0, 0]\ny = Pad(x, s) {mode="reflect"}',
    "constant a: int64[1] = [0]\nconstant b: int64[1] = [99]\ny = Slice(x, a, b)",
    'constant s: float32[3] = [1.0, 1.0, 1.0]\ny = Resize(x, _, s) {mode="linear"}',
    'constant s: int64[3] = [2, 3, 4]\ny = Resize(x, _, _, s) {mode="nearest"}',
    "constant c: bool[4] = [true, true, true, true]\ninput z: float32[2,3,4]\ny = Where(c, x, z)",
    "constant c: bool[] = false\ninput z: float32[2,3,4]\ny = Where(c, z, x)",
    "a = Cast(x) {to=11}\ny = Cast(a) {to=1}",
    "a = Transpose(x) {perm=[1, 2, 0]}\ny = Transpose(a) {perm=[2, 0, 1]}",
    "a = Flatten(x) {axis=1}\nconstant s: int64[3] = [2, 3, 4]\ny = Reshape(a, s)",
    "constant s: int64[1] = [1]\na = Unsqueeze(x, s)\ny = Squeeze(a, s)",
    "a, b = Split(x) {axis=-1, num_outputs=2}\ny = Concat(a, b) {axis=2}",
    "constant n: int64[1] = [0]\na = Unsqueeze(x, n)\ny = ReduceMean(a, n) {keepdims=0}",
    "y = ReduceSum(x) {noop_with_empty_axes=1}",
    (
        "constant n: int64[1] = [0]\na = Unsqueeze(x, n)\nconstant e: int64[1] = [-9]\nconstant s: int64[1] = [-1]\n"
        "b = Slice(a, s, e, n, s)\ny = Squeeze(b, n)"
    ),
    "y = AveragePool(x) {kernel_shape=[1]}",
    "y = MaxPool(x) {kernel_shape=[1], strides=[1], pads=[0, 0]}",
]


@pytest.mark.parametrize("body", NOTHING)
def test_no_movement(rewrites: Any, body: str) -> None:
    rewrites(simplify_movement, f"{X}{body}\nw = Relu(y)\nreturn w", "w = Relu(x)\nreturn w")


@pytest.mark.parametrize(
    "body, expected",
    [
        ("a = Transpose(x) {perm=[1, 2, 0]}\ny = Transpose(a) {perm=[1, 0, 2]}", "y = Transpose(x) {perm=[2, 1, 0]}"),
        (
            "input z: float32[1,8,1,1]\nconstant n: int64[2] = [2, 3]\ny = ReduceMean(z, n) {keepdims=0}",
            "constant n_y_shape = [1, 8]\ny = Reshape(z, n_y_shape)",
        ),
        ("a = Transpose(x)\ny = Transpose(a) {perm=[1, 0, 2]}", "y = Transpose(x) {perm=[1, 2, 0]}"),
        (
            "a = Flatten(x) {axis=2}\nconstant s: int64[2] = [3, 8]\ny = Reshape(a, s)",
            "constant n_y_shape = [3, 8]\ny = Reshape(x, n_y_shape)",
        ),
        ("a = Cast(x) {to=11}\ny = Cast(a) {to=6}", "y = Cast(x) {to=6}"),
        (
            "input z: float32[2,3,4]\na = Concat(x, z) {axis=-1}\ny = Concat(z, a, x) {axis=2}",
            "y = Concat(z, x, z, x) {axis=2}",
        ),
    ],
)
def test_two_become_one(rewrites: Any, body: str, expected: str) -> None:
    rewrites(simplify_movement, f"{X}{body}\nreturn y", f"{expected}\nreturn y")


def test_a_split_of_what_was_joined(rewrites: Any) -> None:
    rewrites(
        simplify_movement,
        """
        input x: float32[2,3]
        input z: float32[2,1]
        constant s: int64[2] = [3, 1]
        a = Concat(x, z) {axis=1}
        p, q = Split(a, s) {axis=-1}
        u = Relu(p)
        v = Exp(q)
        return u, v
        """,
        "u = Relu(x)\nv = Exp(z)\nreturn u, v",
    )


def test_a_chain_collapses_in_one_sweep(rewrites: Any) -> None:
    rewrites(
        simplify_movement,
        f"""{X}
        constant s: int64[2] = [6, 4]
        constant t: int64[3] = [2, 3, 4]
        a = Identity(x)
        b = Reshape(a, s)
        c = Cast(b) {{to=1}}
        d = Reshape(c, t)
        e = Transpose(d) {{perm=[2, 1, 0]}}
        y = Transpose(e) {{perm=[2, 1, 0]}}
        w = Relu(y)
        return w
        """.replace("        ", ""),
        "w = Relu(x)\nreturn w",
    )


HEADS = """input q: float32[2,3,4,5]
input k: float32[{k}]
constant s: int64[3] = [6, 4, 5]
constant t: int64[3] = [6, 5, 7]
constant u: int64[4] = [2, 3, 4, 7]
a = Reshape(q, s)
b = Reshape(k, t)
c = MatMul(a, b)
y = Reshape(c, u)
"""


def test_a_product_of_merged_samples(rewrites: Any) -> None:
    """PyTorch's `bmm` between reshapes, whose right operand may have been counted in yet another way."""
    rewrites(simplify_movement, HEADS.format(k="2,3,5,7") + "return y", "y = MatMul(q, k)\nreturn y")
    rewrites(
        simplify_movement,
        HEADS.format(k="1,2,3,5,7") + "return y",
        "constant b_apart_shape = [2, 3, 5, 7]\nb_apart = Reshape(k, b_apart_shape) from n_b, n_a, n_c, n_y\n"
        "y = MatMul(q, b_apart)\nreturn y",
    )


@pytest.mark.parametrize(
    "body",
    [
        HEADS.format(k="2,3,5,7") + "return y, c",  # somebody else reads the product
        HEADS.format(k="2,3,5,7").replace("[2, 3, 4, 7]", "[3, 2, 4, 7]") + "return y",  # others than before
        HEADS.format(k="2,3,5,7").replace("int64[4] = [2, 3, 4, 7]", "int64[3] = [6, 7, 4]") + "return y",
        (
            "input a: float32[4,5]\ninput b: float32[5,7]\nconstant u: int64[3] = [1, 4, 7]\n"
            "c = MatMul(a, b)\ny = Reshape(c, u)\nreturn y"
        ),  # of matrices
    ],
)
def test_a_product_that_stays(refuses: Any, body: str) -> None:
    refuses(simplify_movement, body)


COUNTS = st.lists(st.sampled_from((0, 1, 2, 3)), min_size=0, max_size=3)


@settings(max_examples=60, deadline=None)
@given(COUNTS, COUNTS, st.tuples(*[st.sampled_from((0, 1, 2, 3))] * 3), st.booleans(), st.booleans())
def test_products_of_any_samples(samples: list[int], others: list[int], sizes: Any, left: bool, right: bool) -> None:
    """Samples counted in any way before and after, none and empty ones too: as many numbers as before, wherever they are."""
    rows, terms, columns = sizes
    count = math.prod(samples)
    after = others if math.prod(others) == count or rows * columns == 0 else samples

    def operand(name: str, *size: int, is_merged: bool) -> tuple[str, str]:
        before = after if is_merged and (math.prod(after) == count or 0 in size) else [count]
        constant = f"constant {name}s: int64[3] = {[count, *size]}\n"
        return (
            f"input {name}: float32{[*before, *size]}\n{constant}",
            f"{name}m = Reshape({name}, {name}s) {{allowzero=1}}\n",
        )

    a, merged_a = operand("a", rows, terms, is_merged=left)
    b, merged_b = operand("b", terms, columns, is_merged=right)
    shape = [*after, rows, columns]
    graph = graph_of(
        f"{a}{b}constant t: int64[{len(shape)}] = {shape}\n{merged_a}{merged_b}"
        "c = MatMul(am, bm)\ny = Reshape(c, t) {allowzero=1}\nreturn y"
    )
    simple = simplify_movement(graph, Trace())
    verify(simple)
    assert_same_answers(graph, simple, exact=False)


def test_outputs_keep_their_names(rewrites: Any) -> None:
    """The value before takes the output's name, once; inputs and second names stay copies."""
    rewrites(
        simplify_movement,
        X + "a = Relu(x)\ny = Identity(a)\nz = Identity(a)\nw = Exp(y)\nreturn y, z, w",
        "y = Relu(x)\nz = Identity(y)\nw = Exp(y)\nreturn y, z, w",
    )


@pytest.mark.parametrize(
    "body",
    [
        "y = Identity(x)",  # an output that would have to be an input
        "y = Transpose(x) {perm=[0, 2, 1]}",
        "y, m = Dropout(x)\nreturn m, y",
        "constant r: float32[] = 0.5\nconstant t: bool[] = true\ny = Dropout(x, r, t)",
        (
            "constant a: int64[1] = [-1]\nconstant b: int64[1] = [-99]\nconstant k: int64[1] = [0]\n"
            "constant s: int64[1] = [-1]\nw = Slice(x, a, b, k, s)\ny = Relu(w)"
        ),
        "constant s: int64[6] = [0, 0, 1, 0, 0, -1]\nw = Pad(x, s)\ny = Relu(w)",
        'constant s: float32[3] = [1.0, 1.0, 1.01]\nw = Resize(x, _, s) {mode="linear"}\ny = Relu(w)',
        "a = Cast(x) {to=10}\ny = Cast(a) {to=1}",  # float16 loses digits
        "a = Transpose(x) {perm=[1, 2, 0]}\nb = Relu(a)\ny = Transpose(b) {perm=[2, 0, 1]}",
        "a, b = Split(x) {axis=2, num_outputs=2}\ny = Concat(b, a) {axis=2}",
        "a, b = Split(x) {axis=2, num_outputs=2}\ny = Concat(a, b) {axis=1}",
        "input z: float32[2,1,4]\na = Concat(x, z) {axis=1}\nu, y = Split(a) {axis=1, num_outputs=2}\nreturn u, y",
        "constant c: bool[4] = [true, false, true, true]\ninput z: float32[2,3,4]\ny = Where(c, x, z)",
        "constant n: int64[1] = [1]\ny = ReduceMean(x, n)",
        "w = AveragePool(x) {kernel_shape=[3], pads=[1, 1]}\ny = Relu(w)",
        "w = MaxPool(x) {kernel_shape=[1], strides=[2]}\ny = Relu(w)",
        "y, places = MaxPool(x) {kernel_shape=[1]}\nreturn y, places",
        "input z: float32[1,8,1]\nconstant n: int64[1] = [2]\ny = ReduceL1(z, n)",
        "constant s: int64[2] = [6, 4]\na = Reshape(x, s)\ny = Flatten(a) {axis=0}\nreturn y, a",
    ],
)
def test_refused(refuses: Any, body: str) -> None:
    refuses(simplify_movement, X + body + ("" if "return" in body else "\nreturn y"))
