"""The scanner finds every big blob, and survives anything."""

from __future__ import annotations

import contextlib

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.errors import FusewiseError, InvalidModel, ResourceLimit
from fusewise.frontend.onnx_import import load
from fusewise.frontend.wire import cut


def _model(sizes: list[int]) -> onnx.ModelProto:
    """A sum of as many one-dimensional weights of the given lengths."""
    names = [f"w{i}" for i in range(len(sizes))]
    nodes = [onnx.helper.make_node("ReduceSum", [name], [f"s{i}"], keepdims=0) for i, name in enumerate(names)]
    nodes.append(onnx.helper.make_node("Sum", ["x", *(f"s{i}" for i in range(len(sizes)))], ["y"]))
    scalar = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, []) for name in "xy"]
    weights = [onnx.numpy_helper.from_array(np.full(n, i + 1, np.float32), f"w{i}") for i, n in enumerate(sizes)]
    graph = onnx.helper.make_graph(nodes, "g", scalar[:1], scalar[1:], weights)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


SMALL = _model([5, 3000, 1024]).SerializeToString()


@given(st.lists(st.sampled_from([0, 1, 1000, 1023, 1024, 5000, 40000]), max_size=6))
def test_blobs_and_the_rest_make_up_the_model(sizes: list[int]) -> None:
    model = _model(sizes)
    data = model.SerializeToString()
    rest, blobs = cut(memoryview(data), "m")
    parsed = onnx.ModelProto.FromString(rest)
    assert set(blobs) == {i for i, n in enumerate(sizes) if 4 * n >= 4096}
    for i, blob in blobs.items():
        assert not parsed.graph.initializer[i].HasField("raw_data")
        parsed.graph.initializer[i].raw_data = data[blob.offset : blob.offset + blob.length]
    assert parsed == model


def test_weights_are_views_of_the_bytes() -> None:
    graph = load(SMALL)
    weight = graph.constants["w1"].array
    assert np.shares_memory(weight, np.frombuffer(SMALL, np.uint8))
    assert not weight.flags.writeable
    np.testing.assert_array_equal(weight, np.full(3000, 2, np.float32))


def test_a_graph_in_two_pieces_is_one_graph() -> None:
    """Protobuf joins the pieces of a message field that occurs twice."""
    first, second = _model([2000]), onnx.ModelProto()
    second.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(3000, dtype=np.float32), "late"))
    second.graph.node.append(onnx.helper.make_node("ReduceSum", ["late"], ["z"], keepdims=0))
    second.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, []))
    graph = load(first.SerializeToString() + second.SerializeToString())
    np.testing.assert_array_equal(graph.constants["late"].array, np.arange(3000, dtype=np.float32))
    assert graph.constants["w0"].array[0] == 1


def test_a_blob_that_occurs_twice_is_left_to_protobuf() -> None:
    """The last of two values of a field counts."""
    tensor = onnx.numpy_helper.from_array(np.zeros(2000, np.float32), "w0").SerializeToString()
    again = onnx.TensorProto(raw_data=np.ones(2000, np.float32).tobytes()).SerializeToString()
    merged = onnx.TensorProto.FromString(tensor + again)
    model = _model([])
    empty = model.SerializeToString()
    graph_field = b"\x2a" + _varint(len(tensor + again)) + tensor + again
    data = empty + b"\x3a" + _varint(len(graph_field)) + graph_field
    rest, blobs = cut(memoryview(data), "m")
    assert not blobs
    assert onnx.ModelProto.FromString(rest).graph.initializer[0] == merged


def _varint(value: int) -> bytes:
    digits = []
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_refused_in_one_sentence(data: bytes) -> None:
    with pytest.raises(FusewiseError) as caught:
        load(data)
    assert "\n" not in str(caught.value)


@given(st.integers(0, len(SMALL) - 1))
@settings(max_examples=200, deadline=None)
def test_every_truncation_is_refused(length: int) -> None:
    with pytest.raises(InvalidModel):
        load(SMALL[:length] if length < SMALL.rindex(b"\x42") else SMALL[:50])


@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=8))
@settings(max_examples=500, deadline=None)
def test_changed_bytes_give_a_graph_or_an_error_of_ours(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SMALL)
    for position, value in changes:
        data[position] = value
    with contextlib.suppress(FusewiseError):
        graph = load(bytes(data))
        assert set(graph.types) >= set(graph.outputs)


@pytest.mark.parametrize(
    "data, part",
    [
        (b"", "no graph"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not an ONNX model"),
        (b"this is not a model at all, only text", "not an ONNX model"),
        (b"\x08\x08", "no graph"),
        (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "bytes too late"),
        (b"\x3a" + b"\xff" * 12, "bad number"),
        (b"\x3a\x80", "ends inside a number"),
        (b"\x00\x00", "bad tag"),
        (b"\x0b\x0c", "bad tag"),
    ],
)
def test_the_reason_is_named(data: bytes, part: str) -> None:
    with pytest.raises(InvalidModel, match=part):
        load(data)


def test_a_bomb_of_empty_fields_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusewise.frontend.wire._MAX_FIELDS", 1000)
    fields = b"\x2a\x00" * 2000
    with pytest.raises(ResourceLimit, match="entries"):
        cut(memoryview(b"\x3a" + _varint(len(fields)) + fields), "m")
