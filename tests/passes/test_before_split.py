"""What every part of a Split goes through is done before it."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.passes.before_split import before_split
from fusewise.passes.combine_parallel import combine_products
from fusewise.trace import Trace


def test_biases_and_activations(rewrites: Any) -> None:
    rewrites(
        before_split,
        """
        input x: float32[2,6]
        constant sizes: int64[2] = [4, 2]
        constant v: float32[4] = #v
        constant w: float32[2] = #w
        constant low: float32[] = 0.1
        constant same: float32[] = 0.1
        a, b = Split(x, sizes) {axis=1}
        c = Add(a, v)
        d = Add(b, w)
        e = Clip(c, low)
        f = Clip(d, same)
        return e, f
        """,
        """
        constant sizes = [4, 2]
        constant low = 0.1
        constant v_joined = [-0.79267377, 1.3407547, 0.6663934, -0.4321776, -0.2574077, 0.27615234]
        x_add = Add(x, v_joined)
        x_add_clip = Clip(x_add, low)
        e, f = Split(x_add_clip, sizes) {axis=1}
        return e, f
        """,
    )


def test_another_axis_with_the_constant_first(rewrites: Any) -> None:
    rewrites(
        before_split,
        """
        input x: float32[2,4,3]
        constant v: float32[2,1] = #v
        constant w: float32[2,1] = #w
        a, b = Split(x) {axis=-2, num_outputs=2}
        c = Sub(v, a)
        d = Sub(w, b)
        return c, d
        """,
        """
        constant v_joined = [-0.79267377, 1.3407547, -0.2574077, 0.27615234]
        x_sub = Sub(v_joined, x)
        c, d = Split(x_sub) {axis=-2, num_outputs=2}
        return c, d
        """,
    )


@pytest.mark.parametrize(
    "readers",
    [
        ("Relu(a)", "Neg(b)", "c, d"),
        ("Elu(a) {alpha=0.5}", "Elu(b)", "c, d"),
        ("Relu(a)", "Relu(b)", "c, d, a"),
        ("Relu(a)", "Relu(a)", "c, d, b"),
        ("Sub(a, v)", "Sub(v, b)", "c, d"),
        ("Add(a, v)", "Add(b, y)", "c, d"),
        ("Add(a, v)", "Add(b, one)", "c, d"),
        ("Add(a, two)", "Add(b, one)", "c, d"),
        ("Add(a, tall)", "Add(b, tall)", "c, d"),
        ("Mul(a, a)", "Mul(b, b)", "c, d"),
        ("Softmax(a)", "Softmax(b)", "c, d"),
        ("Add(a, b)", "Relu(b)", "c, d"),
    ],
    ids=lambda readers: " ".join(readers[:2]),
)
def test_what_differs_stays(refuses: Any, readers: tuple[str, str, str]) -> None:
    refuses(
        before_split,
        f"""
        input x: float32[1,6]
        input y: float32[3]
        constant v: float32[3] = #v
        constant one: float32[] = 1.0
        constant two: float32[] = 2.0
        constant tall: float32[2,3] = #tall
        a, b = Split(x) {{axis=1, num_outputs=2}}
        c = {readers[0]}
        d = {readers[1]}
        return {readers[2]}
        """,
    )


PROJECTIONS = """
        input x: float32[2,4]
        constant v: float32[4,3] = #v
        constant w: float32[4,5] = #w
        constant b: float32[3] = #b
        constant c: float32[5] = #c
        p = MatMul(x, v)
        q = MatMul(x, w)
        r = Add(b, p)
        s = Add(c, q)
        """


def test_projections_become_one_product_with_one_bias(rewrites: Any) -> None:
    rewrites(
        lambda graph, trace: before_split(combine_products(graph, trace), trace),
        f"{PROJECTIONS}f = Softmax(r)\ng = Softmax(s)\nreturn f, g\n",
        """
        constant v_combined = #
        constant n_p_combined_widths = [3, 5]
        constant b_joined = [0.7178021, 1.476261, 1.3770623, -1.3867252, -0.892829, 0.11260842, -0.45907924, 0.1806065]
        n_p_combined = MatMul(x, v_combined)
        n_p_combined_add = Add(b_joined, n_p_combined)
        r, s = Split(n_p_combined_add, n_p_combined_widths) {axis=1}
        f = Softmax(r)
        g = Softmax(s)
        return f, g
        """,
    )


@pytest.mark.parametrize(
    "reader",
    [
        "t = Relu(r)\nu = Concat(t, y) {axis=1}",
        "t = Softmax(r)\nu = Concat(r, y, t) {axis=1}",
        "t = Transpose(r)\nu = Reshape(t, flat)",
        "u = Flatten(r) {axis=0}",
        "u = Relu(r)",
        "t = Reshape(r, apart)\nv1 = Transpose(t) {perm=[1,0,2]}\nu = Reshape(v1, flat)",
    ],
)
def test_a_branch_that_would_be_copied_stays(refuses: Any, reader: str) -> None:
    refuses(combine_products, READ.format(projections=PROJECTIONS.strip(), reader=reader))


def test_a_branch_that_the_user_gets_stays(refuses: Any) -> None:
    refuses(combine_products, f"{PROJECTIONS}f = Softmax(s)\nreturn f, r")


@pytest.mark.parametrize(
    "reader",
    ["t = Reshape(r, apart)\nu = Transpose(t) {perm=[1,0,2]}", "t = Transpose(r)\nu = Reshape(t, rows)"],
)
def test_a_branch_whose_part_is_a_view_does_not(parse: Any, reader: str) -> None:
    graph = parse(READ.format(projections=PROJECTIONS.strip(), reader=reader))
    assert [node.op for node in combine_products(graph, Trace()).nodes].count("MatMul") == 1


def test_a_branch_that_the_users_result_is_computed_from_does_not(parse: Any) -> None:
    graph = parse(f"input z: float32[2,3]\n{PROJECTIONS.strip()}\nf = Softmax(s)\ng = Add(r, z)\nreturn f, g")
    assert [node.op for node in combine_products(graph, Trace()).nodes].count("MatMul") == 1


READ = """
        input y: float32[2,1]
        constant flat: int64[1] = [6]
        constant apart: int64[3] = [2, 3, 1]
        constant rows: int64[3] = [3, 2, 1]
        {projections}
        {reader}
        f = Softmax(u)
        g = Softmax(s)
        return f, g
        """
