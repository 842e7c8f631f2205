"""Aligned memory."""

import ml_dtypes
import numpy as np
import pytest

from fusewise.runtime.arena import (
    ALIGNMENT_BYTES,
    LEAST_KEPT_BYTES,
    Outputs,
    address_of,
    aligned_block,
    settled,
)


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 100_003])
def test_blocks_are_aligned(nbytes):
    block = aligned_block(nbytes)
    assert address_of(block) % ALIGNMENT_BYTES == 0
    assert block.nbytes == max(1, nbytes)
    block.fill(7)


def test_settled_keeps_or_copies():
    block = aligned_block(48).view(np.float32)
    block[:] = np.arange(12)
    assert np.shares_memory(settled(block.reshape(3, 4)), block)
    for strange in (block[1:], block.reshape(3, 4).T, block[::2], np.float32(3), np.zeros((0, 3), np.float32)):
        array = np.asarray(strange)
        bytes_of = settled(array)
        assert not np.shares_memory(bytes_of, block)
        assert address_of(bytes_of) % ALIGNMENT_BYTES == 0
        np.testing.assert_array_equal(bytes_of[: array.nbytes].view(np.float32), array.ravel())


HELD = {
    "itself": lambda array: array,
    "a part": lambda array: array[1:],
    "a part in another shape": lambda array: array.reshape(-1)[5:],
    "a buffer": memoryview,
    "its bytes": lambda array: memoryview(array).cast("B"),
    "a wrapper": lambda array: np.asarray(memoryview(array)),
    "a list": lambda array: [array],
}


@pytest.mark.parametrize("held", HELD)
def test_large_outputs_are_given_out_again_once_nobody_has_them(held):
    outputs = Outputs((2, LEAST_KEPT_BYTES // 8), np.dtype(np.float32))
    first = outputs.array()
    place, kept = address_of(first), HELD[held](first)
    del first
    second = outputs.array()
    assert address_of(second) != place  # somebody has `kept`
    other = address_of(second)
    del second
    third = outputs.array()
    assert address_of(third) == other
    assert third.shape == (2, LEAST_KEPT_BYTES // 8)
    assert third.dtype == np.float32
    assert third.flags.writeable
    del kept


def test_small_outputs_are_their_own():
    outputs = Outputs((3, 4), np.dtype(np.int64))
    assert outputs.array().flags.owndata


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0),
        np.arange(6.0)[2:],
        np.arange(12.0).reshape(3, 4)[:, ::2],
        np.broadcast_to(np.float32(1), (2, 3)),
        np.zeros((0, 3)),
        np.array(1, np.int64),
        np.zeros(3, ml_dtypes.bfloat16),
        np.array(["a", "b"], object),
    ],
    ids=["whole", "part", "strided", "read-only", "empty", "scalar", "bfloat16", "objects"],
)
def test_where_an_array_begins(array):
    assert address_of(array) == array.ctypes.data
