"""The benchmark of `torch.compile` measures what it says it does."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from benchmarks import torch_compile

torch = pytest.importorskip("torch")


@pytest.mark.slow
def test_first_calls_and_runs_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = torch.nn.Linear(8, 8).eval(), torch.randn(2, 8)
    monkeypatch.setattr(torch_compile, "built", lambda name: (module, {"input": x}))
    monkeypatch.setattr(torch_compile, "BACKENDS", ("fusewise",))
    found = torch_compile.measured_here("small", torch.get_num_threads(), 2)
    assert found["difference"]["fusewise"] <= 1e-5
    assert found["first_s"]["fusewise"] * 1e3 > max(found["ms"]["fusewise"])
    assert {way: len(times) for way, times in found["ms"].items()} == {"eager": 2, "fusewise": 2}


def test_the_ratio_says_how_many_times_as_long_the_other_takes() -> None:
    times = {"fusewise": [2.0, 1.0, 3.0], "inductor": [3.0, 4.0, 5.0], "eager": [1.0, 1.0, 1.0]}
    found: dict[str, Any] = {
        "model": "small",
        "ms": times,
        "first_s": {"fusewise": 2.0, "inductor": 9.0},
        "difference": {"fusewise": 1e-7},
    }
    assert torch_compile.ratio(found) == 2
    assert torch_compile.row(found).split(" | ")[4:6] == ["2.00", "3.00"]


def test_the_largest_difference_of_several_outputs_counts() -> None:
    answers = partial(map, torch.tensor)
    assert torch_compile.difference(
        tuple(answers([[1.0, 2.0], [4.0, 0.0]])), tuple(answers([[1.0, 2.0], [4.0, 1.0]]))
    ) == pytest.approx(0.25)
