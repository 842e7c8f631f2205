"""Scatters in Triton's interpreter, with every option and positions that meet, against NumPy's, one update after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codegen.gpu.interpreting import launch
from tests.runtime.gpu.kernels import needs_triton
from tests.whole import KINDS, REDUCTIONS, Case, alike, max_unpool, numbers, scattered, task_and_arrays, tensor_scatter

from fusewise.codegen.gpu import scatters
from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.codegen.gpu.scatters import scatter

pytestmark = needs_triton

SM_90 = device_named("sm_90")
DTYPES = st.sampled_from(KINDS)


@st.composite
def elements(draw: st.DrawFn) -> Case:
    """ScatterElements, mostly with many updates of one element."""
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 5, 9)), min_size=1, max_size=3)))
    axis, kind = draw(st.integers(0, len(shape) - 1)), draw(DTYPES)
    reduction = draw(st.sampled_from(sorted(REDUCTIONS) if kind != "bool" else ["none"]))
    size = tuple(draw(st.integers(1, 40 if d == axis else n)) for d, n in enumerate(shape))
    places = rng.integers(-shape[axis], shape[axis], size).astype(draw(st.sampled_from(("int32", "int64"))))
    data, updates = numbers(rng, shape, kind), numbers(rng, size, kind, 3)

    def where(k: tuple[int, ...]) -> tuple[int, ...]:
        return (*k[:axis], int(places[k]) % shape[axis], *k[axis + 1 :])

    wanted = scattered(data, updates, where, reduction, len(shape))
    return Case("ScatterElements", (data, places, updates), (wanted,), {"axis": axis, "reduction": reduction})


@st.composite
def tuples(draw: st.DrawFn) -> Case:
    """ScatterND."""
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 5, 40)), min_size=1, max_size=3)))
    depth, kind = draw(st.integers(1, len(shape))), draw(DTYPES)
    reduction = draw(st.sampled_from(sorted(REDUCTIONS) if kind != "bool" else ["none"]))
    many = tuple(draw(st.lists(st.sampled_from((1, 3, 7)), max_size=2)))
    places = np.stack([rng.integers(-n, n, many) for n in shape[:depth]], -1)
    data, updates = numbers(rng, shape, kind), numbers(rng, (*many, *shape[depth:]), kind, 3)

    def where(at: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(int(p) % n for p, n in zip(places[at], shape, strict=False))

    wanted = scattered(data, updates, where, reduction, len(many))
    return Case("ScatterND", (data, places, updates), (wanted,), {"reduction": reduction})


@settings(max_examples=30, deadline=None)
@given(one=st.one_of(elements(), tuples(), tuples(), tensor_scatter(), max_unpool()), marks=st.booleans())
def test_any_scatter(one: Case, marks: bool) -> None:
    task, arrays = task_and_arrays(one)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scatters, "_MARKED", 0 if marks else 1 << 26)
        kernel = scatter(task, SM_90, "float32")
    found, fault = launch(kernel, task, arrays)
    assert not fault.any()
    assert alike([found["out0"].reshape(one.wanted[0].shape)], one.wanted)


@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements"])
@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize("updates", [3, 9])
@pytest.mark.parametrize("marks", [False, True])
def test_positions_that_are_not_there(
    op: str, reduction: str, updates: int, marks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing outside is touched, and what was found is reported."""
    monkeypatch.setattr(scatters, "_MARKED", 0 if marks else 1 << 26)
    data, places = np.zeros((5,), np.float32), np.arange(updates) % 4
    shaped = places if op == "ScatterElements" else places[:, None]
    values = np.ones(updates, np.float32)
    for wrong in (5, -6, 2**40, -(2**62)):
        places[1] = wrong
        one = Case(op, (data, shaped, values), (data,), {"reduction": reduction})
        task, arrays = task_and_arrays(one)
        _, fault = launch(scatter(task, SM_90, "float32"), task, arrays)
        assert fault[0] == 1
        assert fault[1] in (wrong, wrong + 5)  # as it is counted from the end


@pytest.mark.parametrize("reduction", sorted(REDUCTIONS))
@pytest.mark.parametrize("updates", [3, 9])
def test_what_no_update_is_for_stays_as_it_is(reduction: str, updates: int) -> None:
    """To the last bit: a zero keeps its sign."""
    data, places = np.array([-0.0, 0.0, -0.0, np.inf, -0.0], np.float32), np.zeros(updates, np.int64)
    one = Case("ScatterElements", (data, places, np.ones(updates, np.float32)), (data,), {"reduction": reduction})
    task, arrays = task_and_arrays(one)
    found, _ = launch(scatter(task, SM_90, "float32"), task, arrays)
    assert found["out0"][1:].tobytes() == data[1:].tobytes()


def test_too_many_comparisons_are_the_hosts() -> None:
    many = 1 << 17
    one = Case(
        "ScatterElements",
        (np.zeros(many, np.float32), np.zeros(many, np.int64), np.zeros(many, np.float32)),
        (np.zeros(many, np.float32),),
        {"reduction": "add"},
    )
    with pytest.raises(NoKernel, match="131072 updates, each to be compared with 131072 places"):
        scatter(task_and_arrays(one)[0], SM_90, "float32")
