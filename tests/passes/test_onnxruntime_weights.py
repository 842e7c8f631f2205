"""Packed weights written for ONNX Runtime: the bytes of the file that was read, its answers there, and ours when it is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from tests.frontend.domains.one_node import Case
from tests.frontend.domains.test_four_bits import in_blocks, of_table

import fusewise
from fusewise.benchmarking.accuracy import relative_error

RNG = np.random.default_rng(8)
FREE = {0: {0: "batch", 1: "length"}}


def in_bits(n: int, k: int, block: int, zeros: bool = False, bits: int = 4) -> Case:
    blocks = -(-k // block)
    codes = RNG.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8)
    if k % block:  # what lies behind a row is zero, so that files can be compared
        codes.reshape(n, -1)[:, -(-k * bits // 8) :] = 0
        codes.reshape(n, -1)[:, k // 2] &= 15 if k % 2 and bits == 4 else 255
    points = RNG.integers(0, 256, (n, -(-blocks * bits // 8)), dtype=np.uint8)
    points[:, -1] &= 15 if blocks % 2 and bits == 4 else 255
    operands = (
        RNG.standard_normal((2, 3, k)).astype(np.float32),
        codes,
        RNG.uniform(0.1, 1, (n, blocks)).astype(np.float32),
        *([points] if zeros else []),
    )
    return Case(
        "MatMulNBits", operands, {"N": n, "K": k, "bits": bits, "block_size": block}, constant=(1, 2, 3)[: 2 + zeros]
    )


def written(model: onnx.ModelProto) -> onnx.ModelProto:
    return fusewise.to_onnx(fusewise.optimize(model), target="onnxruntime")


def as_it_is(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same without any pass before."""
    return fusewise.to_onnx(fusewise.load(model, symbols={"batch": 2, "length": 3}), target="onnxruntime")


def arrays(model: onnx.ModelProto) -> list[np.ndarray]:
    """The constants that the one node reads, flat."""
    found = {one.name: numpy_helper.to_array(one).reshape(-1) for one in model.graph.initializer}
    return [found[name] for name in model.graph.node[0].input if name in found]


def answers(model: onnx.ModelProto, feeds: dict[str, Any]) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, feeds)[0]
    return found


@given(
    st.integers(1, 9), st.integers(1, 70), st.sampled_from([16, 32, 64]), st.booleans(), st.sampled_from([None, 0, 1])
)
def test_the_bytes_of_the_file_come_back(n: int, k: int, block: int, zeros: bool, table: int | None) -> None:
    case = in_bits(n, k, block, zeros) if table is None else of_table(table, n, block * (1 + k % 3), block)
    model = case.model(FREE)
    found = as_it_is(model)
    assert [one.op_type for one in found.graph.node] == [case.op]
    for own, expected in zip(arrays(found), arrays(model), strict=True):
        assert own.dtype == expected.dtype and np.array_equal(own, expected)


CASES = {
    "NF4": of_table(1, 264, 64, 32),
    "FP4": of_table(0, 264, 64, 32),
    "symmetric": in_bits(264, 96, 32),
    "zero points": in_bits(264, 96, 32, zeros=True),
    "blocks in part": in_bits(265, 70, 32, zeros=True),
    "blocks with scales": in_blocks(264, 96),
    "symmetric blocks with scales": in_blocks(264, 96, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_both_directions(name: str) -> None:
    case = CASES[name]
    found = written(case.model(FREE))
    assert [one.op_type for one in found.graph.node] == ["MatMulBnb4" if name.endswith("4") else "MatMulNBits"]
    wanted = answers(case.model(FREE), case.feeds)
    assert relative_error(answers(found, case.feeds), wanted) < 1e-5
    assert relative_error(fusewise.compile(found, cache=False).run(None, case.feeds)[0], wanted) < 1e-5


def two_readers(second: str) -> onnx.ModelProto:
    """Weights that two products read, or a product and the user."""
    plain = fusewise.to_onnx(fusewise.optimize(of_table(1, 256, 256, 32).model(FREE)))
    assert [one.op_type for one in plain.graph.node[-2:]] == ["Transpose", "MatMul"]
    turned = plain.graph.node[-2].output[0]
    output = plain.graph.output[0].name
    if second == "MatMul":
        plain.graph.node.append(helper.make_node("MatMul", [output, turned], ["z"]))
    else:
        plain.graph.node.append(helper.make_node("Identity", [turned], ["z"]))
    plain.graph.output.append(helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None))
    return plain


@pytest.mark.parametrize("second, left", [("MatMul", False), ("Identity", True)])
def test_weights_that_others_read(second: str, left: bool) -> None:
    model = two_readers(second)
    found = as_it_is(model)
    names = [one.op_type for one in found.graph.node]
    assert names.count("MatMulBnb4") == (2 if second == "MatMul" else 1)
    assert ("DequantizeLinear" in names) == left
    feeds = {model.graph.input[0].name: RNG.standard_normal((2, 3, 256)).astype(np.float32)}
    assert relative_error(answers(found, feeds), answers(model, feeds)) < 1e-5


@pytest.mark.parametrize("bits", [2, 8])
def test_other_widths_stay(bits: int) -> None:
    assert "DequantizeLinear" in [
        one.op_type for one in written(in_bits(264, 64, 32, bits=bits).model(FREE)).graph.node
    ]


@pytest.mark.parametrize("change, count", [(0, 2), (1, 0)])
def test_another_table_stays(change: int, count: int) -> None:
    model = two_readers("MatMul")
    for one in model.graph.initializer:
        table = numpy_helper.to_array(one)
        if table.shape == (16,) and table.dtype == np.int32:
            changed = table + np.int32(change) * (np.arange(16, dtype=np.int32) == 3)
            one.CopyFrom(numpy_helper.from_array(changed, one.name))
    assert [one.op_type for one in as_it_is(model).graph.node].count("MatMulBnb4") == count


def test_float16_is_cast() -> None:
    case = of_table(1, 264, 64, 32)
    narrow = replace(case, operands=(case.operands[0].astype(np.float16), *case.operands[1:]))
    found = written(narrow.model(FREE))
    assert [one.op_type for one in found.graph.node] == ["Cast", "MatMulBnb4", "Cast"]
    wanted = answers(case.model(FREE), case.feeds)
    assert relative_error(answers(found, narrow.feeds).astype(np.float32), wanted) < 5e-3
