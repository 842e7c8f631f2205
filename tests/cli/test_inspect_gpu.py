"""`inspect --device`: figures of kernels for a GPU that is not there, their text, and wrong words."""

from __future__ import annotations

import json

import pytest
from tests.runtime.gpu.kernels import needs_triton

STEP = set(
    "step group label kernel family way grid warps stages registers shared_bytes stack_bytes tensor_instructions blocks_per_sm "
    "occupancy occupancy_limit waves bytes operations memory_us arithmetic_us wait_us estimate_us limit".split()
)


@needs_triton
def test_steps_and_their_figures(fusewise, tiny_path):
    ended = fusewise("inspect", tiny_path, "--device", "cuda:sm_80", "--refused", "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    (step,) = found["steps"]
    assert set(step) == STEP | {"refused"}
    assert step["label"] == "MatMul+Relu" and step["registers"] > 0 and step["operations"] >= 48
    assert any(reason.startswith("rows: ") for reason in step["refused"])
    assert found["device"]["architecture"] == "sm_80" and found["host"] == []
    totals = found["totals"]
    assert (totals["launches"], totals["kernels"], totals["edges"], totals["graphs"]) == (1, 1, 0, 1)
    assert totals["estimate_us"] == step["estimate_us"] > found["device"]["launch_us"]
    shown = fusewise("inspect", tiny_path, "--device", "cuda:sm_80")  # from the cache
    assert shown.status == 0, shown.err
    assert "MatMul+Relu" in shown.out and "1 of 1 kernels, in 1 graph" in shown.out and "not measured" in shown.out


@needs_triton
def test_the_text_of_a_kernel_and_its_ptx(fusewise, tiny_path):
    ended = fusewise("inspect", tiny_path, "--device", "cuda:sm_90", "--tree", "0", "--nest", "--ptx")
    assert ended.status == 0, ended.err
    assert "@triton.jit" in ended.out and ".target sm_90" in ended.out
    assert "operand 0 of MatMul" in ended.out, "what is computed stands beside how"


@pytest.mark.parametrize(
    "words, sentence",
    [
        (("--device", "cuda:sm_70"), "no GPU architecture 'sm_70': choose one of sm_80"),
        (("--device", "gpu"), "no device 'gpu'"),
        (("--ptx", "--tree", "0"), "--ptx is about kernels for a GPU"),
        (("--device", "cuda:sm_90", "--ptx"), "give --tree GROUP"),
        (("--device", "cuda:sm_90", "--form", "a-normal"), "leave out --device"),
        (("--device", "cuda:sm_90", "--precision", "float8"), "no precision 'float8'"),
        (("--precision", "tf32"), "give --device"),
    ],
)
def test_wrong_words(fusewise, tiny_path, words, sentence):
    ended = fusewise("inspect", tiny_path, *words)
    assert ended.status == 2
    assert sentence in ended.sentence


def test_without_a_gpu_an_architecture_is_wanted(fusewise, tiny_path, monkeypatch):
    from fusewise.runtime.gpu import drivers
    from fusewise.runtime.gpu.driver import NoDriver

    def none(choice):
        raise NoDriver("there is no driver")

    monkeypatch.setattr(drivers, "opened", none)
    ended = fusewise("inspect", tiny_path, "--device", "cuda")
    assert ended.status == 2
    assert (
        ended.sentence
        == "there is no driver; to look at kernels without a GPU name an architecture, such as cuda:sm_90"
    )
