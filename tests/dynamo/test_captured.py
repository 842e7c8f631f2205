"""Tensors go in where they lie, and come out as eager PyTorch lays them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewise.dynamo.captured import Returned, _lying
from fusewise.dynamo.running import _given
from fusewise.tensors import array_of, tensor_of

torch = pytest.importorskip("torch")


@st.composite
def laid(draw: st.DrawFn) -> Any:
    """A tensor as views and permutations of one that is computed lie: some dimensions broadcast, rows with gaps between."""
    sizes = draw(st.lists(st.integers(0, 4), max_size=4))
    gaps = draw(st.lists(st.integers(1, 3), min_size=len(sizes), max_size=len(sizes)))
    whole = torch.arange(int(np.prod([size * gap for size, gap in zip(sizes, gaps, strict=True)]))).float()
    whole = whole.reshape([size * gap for size, gap in zip(sizes, gaps, strict=True)])
    view = whole[tuple(slice(None, None, gap) for gap in gaps)]
    view = view.permute(draw(st.permutations(range(len(sizes)))))
    for dim, size in enumerate(view.shape):
        if size and draw(st.booleans()):
            view = view.narrow(dim, 0, 1).expand([-1] * dim + [draw(st.integers(1, 3))] + [-1] * (len(sizes) - dim - 1))
    return view


@given(laid())
def test_what_is_computed_row_by_row_comes_out_as_it_is_to_lie(wanted: Any) -> None:
    order, strides = _lying(wanted)
    rows = np.array(array_of(wanted if order is None else wanted.permute(order)), order="C")
    found = _given(Returned(computed=0, order=order, strides=strides), [rows], [])
    assert found.shape == wanted.shape and torch.equal(found, wanted)
    if wanted.numel():
        assert found.stride() == wanted.stride()


@pytest.mark.parametrize(
    "name", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "uint8", "bool"]
)
def test_tensors_and_arrays_share_memory(name: str) -> None:
    tensor = torch.zeros(3, 4, dtype=getattr(torch, name)).t()
    array = array_of(tensor)
    assert array.dtype.name == name and array.shape == (4, 3)
    tensor[1, 2] = 1
    assert array[1, 2] == 1
    again = tensor_of(array)
    assert again.dtype is tensor.dtype and again.data_ptr() == tensor.data_ptr() and again.stride() == tensor.stride()


def test_what_only_looks_negated_or_needs_gradients_is_read_as_it_looks() -> None:
    looks = torch.tensor([1 + 2j]).conj().imag
    assert looks.is_neg() and array_of(looks) == [-2]
    assert array_of(torch.ones(1, requires_grad=True)) == [1]
    fixed = np.ones(2, np.float32)
    fixed.flags.writeable = False
    tensor_of(fixed)[0] = 2
    assert fixed[0] == 1
