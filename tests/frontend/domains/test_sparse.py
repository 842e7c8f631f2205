"""Attention to blocks of keys against ONNX Runtime, which has past and present in one memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case

import fusewise
from fusewise.errors import InvalidModel
from fusewise.frontend.onnx_import import load

RNG = np.random.default_rng(0)
HEADS, SHARED, SIZE, BLOCK, ROOM = 4, 2, 16, 16, 64
ROWS = np.array([[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]], np.int32)
COLUMNS = np.array([[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]], np.int32)
TABLES = tuple(f(np.outer(np.arange(ROOM), 0.7 ** np.arange(SIZE // 2))).astype(np.float32) for f in (np.cos, np.sin))


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def case(batch: int, tokens: int, lengths: list[int]) -> Case:
    new = (
        floats(batch, tokens, HEADS * SIZE),
        floats(batch, tokens, SHARED * SIZE),
        floats(batch, tokens, SHARED * SIZE),
    )
    cache = floats(batch, SHARED, ROOM, SIZE), floats(batch, SHARED, ROOM, SIZE)
    counts = np.array([max(lengths)], np.int32), np.array(lengths, np.int32)
    attributes = {"num_heads": HEADS, "kv_num_heads": SHARED, "sparse_block_size": BLOCK, "do_rotary": 1}
    return Case("SparseAttention", (*new, *cache, ROWS, COLUMNS, *counts, *TABLES), attributes, (5, 6, 9, 10), 3)


def expected(given: Case) -> list[Any]:
    """As `one_node.expected`, with each present in the memory of its past."""
    import onnxruntime

    session = onnxruntime.InferenceSession(given.model().SerializeToString(), providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    arrays = {name: x.copy() for name, x in given.feeds.items()}  # whose memory the values are
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in arrays.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y0")
    for past, present in (("x3", "y1"), ("x4", "y2")):
        binding.bind_ortvalue_output(present, values[past])
    session.run_with_iobinding(binding)
    return [value.numpy().copy() for value in binding.get_outputs()]


TOKENS, ONE = {0: "batch", 1: "sequence"}, {0: "batch"}
FREE = {0: TOKENS, 1: TOKENS, 2: TOKENS, 3: ONE, 4: ONE, 8: ONE}


def test_prompts_and_steps() -> None:
    """Of samples of several lengths ONNX Runtime reads what nobody wrote; here they are as in GroupQueryAttention."""
    compiled = fusewise.compile(case(1, 50, [50]).model(FREE), strict=True, cache=False)
    for given in (case(1, 50, [50]), case(2, 1, [61, 61]), case(2, 1, [33, 33])):
        for found, wanted in zip(compiled.run(None, given.feeds), expected(given), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=3e-6)


def test_a_block_that_does_not_exist() -> None:
    given = case(1, 1, [4])
    columns = COLUMNS.copy()
    columns[1, 4] = 7
    operands = (*given.operands[:6], columns, *given.operands[7:])
    with pytest.raises(InvalidModel, match=r"block_col_indices have \[0, 7, 2\] for block 2; there are 4 blocks"):
        load(Case("SparseAttention", operands, given.attributes, given.constant, 3).model())
