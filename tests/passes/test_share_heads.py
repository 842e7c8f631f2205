"""Keys and values repeated for heads that share them are read as they are."""

from __future__ import annotations

from typing import Any

import pytest

from fusewise.passes.recognise_attention import recognise_attention

HEAD = "input q: float32[1,4,3,8]\ninput k: float32[1,2,5,8]\ninput v: float32[1,2,5,6]\n"
AXIS = "constant a: int64[1] = [2]\nconstant c: float32[] = 0.5\n"
VALUES = (
    "constant e: int64[5] = [1, 2, 2, 5, 6]\nconstant r: int64[4] = [1, 4, 5, 6]\n"
    "vu = Unsqueeze(v, a)\nve = Expand(vu, e)\nvs = Reshape(ve, r)\n"
)
KEYS = (
    "constant f: int64[5] = [1, 2, 2, 5, 8]\nconstant s: int64[4] = [1, 4, 5, 8]\n"
    "ku = Unsqueeze(k, a)\nke = Expand(ku, f)\nks = Reshape(ke, s)\n"
)
TURNED = "constant t: int64[3] = [4, 5, 8]\nconstant w: int64[4] = [1, 4, 8, 5]\n"
THREE_AXES = (
    KEYS.replace("ks = Reshape(ke, s)", "kf = Reshape(ke, t)") + "kt = Transpose(kf) {perm=[0, 2, 1]}\n"
    "kr = Reshape(kt, w)\nkm = Mul(kr, c)\nks = Transpose(km) {perm=[0, 1, 3, 2]}\n"
)
END = "y = Attention({}, ks, vs) {{scale=0.25}}\nreturn y"
SHARED = "y = Attention(q, k, v) {{scale={}}}\nreturn y"


def test_repeated_heads(rewrites: Any) -> None:
    rewrites(recognise_attention, HEAD + AXIS + KEYS + VALUES + END.format("q"), SHARED.format(0.25), exact=False)


def test_factors_go_into_the_scale(rewrites: Any) -> None:
    text = HEAD + AXIS + TURNED + THREE_AXES + VALUES + "qm = Mul(q, c)\n" + END.format("qm")
    rewrites(recognise_attention, text, SHARED.format(0.0625), exact=False)


def test_one_head_for_all(rewrites: Any) -> None:
    text = (
        "input q: float32[2,4,3,8]\ninput k: float32[2,1,5,8]\ninput v: float32[2,1,5,8]\n"
        "constant e: int64[4] = [2, 4, 5, 8]\nks = Expand(k, e)\nvs = Expand(v, e)\n"
    )
    rewrites(recognise_attention, text + END.format("q"), SHARED.format(0.25), exact=False)


BEFORE = KEYS.replace("(k, a)", "(k, b)") + VALUES.replace("(v, a)", "(v, b)")
ACROSS = KEYS.replace("[1, 4, 5, 8]", "[1, 4, 8, 5]").replace("ks =", "kx =")
REFUSED = {
    "heads in another order": BEFORE,
    "values of all heads": f"{KEYS}constant r: int64[4] = [1, 4, 5, 6]\nvs = ConstantOfShape(r)\n",
    "keys that fall apart": f"{ACROSS}ks = Transpose(kx) {{perm=[0, 1, 3, 2]}}\n{VALUES}",
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(refuses: Any, why: str) -> None:
    other = "constant b: int64[1] = [1]\n"
    refuses(recognise_attention, HEAD + AXIS + other + REFUSED[why] + END.format("q"))
