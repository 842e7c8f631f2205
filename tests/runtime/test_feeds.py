"""What may be fed, and what is said when it does not fit."""

from collections import defaultdict

import ml_dtypes
import numpy as np
import pytest

from fusewise import api
from fusewise.errors import UsageError
from fusewise.ir.dtypes import DTYPES, FLOAT32, INT64, STRING, dtype_named
from fusewise.ir.types import OptionalType, SequenceType, TensorType
from fusewise.lower.program import Port
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.feeds import Inputs, chosen_outputs, numbers_by_name, port_info, type_name

X = Port("x", TensorType(FLOAT32, (2, 3)), 0)
N = Port("n", TensorType(INT64, ()), 1)
GOOD = {"x": np.zeros((2, 3), np.float32), "n": np.array(4)}


def test_fitting_arrays_pass_through():
    x, n = Inputs([X, N]).accepted({"n": GOOD["n"], "x": GOOD["x"]})
    assert x is GOOD["x"]
    assert n is GOOD["n"]


def test_arrays_that_may_not_be_written_to_pass_through():
    fixed = GOOD["x"].copy()
    fixed.flags.writeable = False
    assert Inputs([X]).accepted({"x": fixed})[0] is fixed


def test_a_mapping_that_makes_values_up_is_not_asked_to():
    with pytest.raises(UsageError, match="no input 'y'"):
        Inputs([X]).accepted(defaultdict(lambda: GOOD["x"], y=GOOD["x"]))
    with pytest.raises(UsageError, match="no value was given for input 'x'"):
        Inputs([X]).accepted(defaultdict(lambda: GOOD["x"]))


@pytest.mark.parametrize(
    "feeds, words",
    [
        ({"x": GOOD["x"]}, "no value was given for input 'n' (int64[])"),
        ({}, "inputs 'x' (float32[2,3]), 'n' (int64[])"),
        (GOOD | {"y": 1}, "no input 'y'; its inputs are 'x', 'n'"),
        (GOOD | {"x": np.zeros((2, 3))}, "input 'x': expected float32, found float64"),
        (GOOD | {"x": np.zeros((2, 3), ">f4")}, "input 'x': expected float32, found >f4"),
        (GOOD | {"x": np.zeros((3, 2), np.float32)}, "input 'x': expected shape 2x3, found 3x2"),
        (GOOD | {"x": np.zeros(6, np.float32)}, "input 'x': expected shape 2x3, found 6"),
        (GOOD | {"x": np.float32(1)}, "input 'x': expected shape 2x3, found () (a scalar)"),
        (GOOD | {"n": np.zeros(1, np.int64)}, "input 'n': expected shape () (a scalar), found 1"),
        (GOOD | {"n": np.array(["4"])}, "input 'n': expected int64, found string"),
        (GOOD | {"x": [[1.0, 2.0, 3.0], [4.0]]}, "input 'x': expected an array of float32[2,3], found list"),
        (GOOD | {"x": np.zeros((2, 3), ml_dtypes.bfloat16)}, "expected float32, found bfloat16"),
        (GOOD | {"x": np.zeros((2, 3), "M8[s]")}, "expected float32, found datetime64[s]"),
    ],
)
def test_what_does_not_fit(feeds, words):
    with pytest.raises(UsageError) as caught:
        Inputs([X, N]).accepted(feeds)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("feeds", [None, [GOOD["x"]], (GOOD["x"], GOOD["n"]), GOOD["x"], "x", 4])
def test_feeds_that_are_no_mapping(feeds):
    with pytest.raises(UsageError, match="mapping from name to value, not as .*; the model's inputs are 'x', 'n'"):
        Inputs([X, N]).accepted(feeds)


@pytest.mark.parametrize("names", ["x", 3, {"x"}])
def test_output_names_that_are_no_list(names):
    with pytest.raises(UsageError, match="output names are given as a list, or None for all"):
        chosen_outputs(numbers_by_name([X, N]), names)


def test_strides_are_made_contiguous():
    wide = np.arange(12, dtype=np.float32).reshape(2, 6)
    (x,) = Inputs([X]).accepted({"x": wide[:, ::2]})
    assert x.flags.c_contiguous
    np.testing.assert_array_equal(x, wide[:, ::2])
    (x,) = Inputs([X]).accepted({"x": np.asfortranarray(GOOD["x"])})
    assert x.flags.c_contiguous


def test_unaligned_memory_is_copied():
    raw = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    assert not raw.flags.aligned
    (x,) = Inputs([X]).accepted({"x": raw})
    assert x.flags.aligned


def test_foreign_arrays_are_read_in_place():
    class Array:
        def __array__(self, dtype=None, copy=None):
            return GOOD["x"]

    class Capsule:
        def __dlpack__(self, **options):
            return GOOD["x"].__dlpack__(**options)

        def __dlpack_device__(self):
            return GOOD["x"].__dlpack_device__()

    for foreign in (Array(), Capsule()):
        (x,) = Inputs([X]).accepted({"x": foreign})
        assert np.shares_memory(x, GOOD["x"])


def test_unreadable_object():
    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("it lies on another device")

    with pytest.raises(UsageError, match="input 'x'.*Broken.*another device"):
        Inputs([X]).accepted({"x": Broken()})


def test_open_dimensions_and_objects():
    open_port = Port("o", TensorType(FLOAT32, ("n", None, 3)), -1)
    assert Inputs([open_port]).accepted({"o": np.zeros((5, 0, 3), np.float32)})[0].shape == (5, 0, 3)
    with pytest.raises(UsageError, match=r"expected shape nx\?x3, found 5x0x4"):
        Inputs([open_port]).accepted({"o": np.zeros((5, 0, 4), np.float32)})
    unranked = Port("u", TensorType(FLOAT32, None), -1)
    assert Inputs([unranked]).accepted({"u": np.zeros((1, 2), np.float32)})[0].shape == (1, 2)
    words = Port("w", TensorType(STRING, (2,)), -1)
    assert Inputs([words]).accepted({"w": np.array(["a", "b"])})[0].tolist() == ["a", "b"]
    sequence = Port("s", SequenceType(TensorType(FLOAT32, None)), -1)
    value = [np.zeros(2, np.float32)]
    (taken,) = Inputs([sequence]).accepted({"s": value})
    assert taken is not value and taken[0] is value[0]
    with pytest.raises(UsageError, match=r"input 's': expected a list of float32.*, found a value of the type int"):
        Inputs([sequence]).accepted({"s": 4})
    with pytest.raises(UsageError, match="input 's', element 1: expected float32, found int64"):
        Inputs([sequence]).accepted({"s": [value[0], np.zeros(1, np.int64)]})


@pytest.mark.parametrize("dtype", [row for row in DTYPES if row.kind != "string"], ids=lambda row: row.name)
def test_every_element_type(dtype):
    port = Port("x", TensorType(dtype, (3,)), 0)
    array = np.zeros(3, dtype.numpy)
    assert Inputs([port]).accepted({"x": array})[0] is array


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
def test_bits_beyond_a_narrow_element_mean_nothing(name):
    """NumPy keeps such an element in a byte, whose other bits may be anything: kernels read what NumPy reads."""
    x = np.arange(256, dtype=np.uint8).view(dtype_named(name).numpy)
    b = GraphBuilder("narrow", 25)
    plain = b.op("DequantizeLinear", b.input("x", (256,), dtype_named(name)), b.constant(np.array(1, np.float32)))
    graph = b.finish(plain, b.op("Cast", "x", to=FLOAT32.onnx))
    for found in api.compile(graph, threads=1, cache=False, strict=True).run(None, {"x": x}):
        np.testing.assert_array_equal(found, x.astype(np.float32))


def test_chosen_outputs():
    assert chosen_outputs(numbers_by_name([X, N]), None) == [0, 1]
    assert chosen_outputs(numbers_by_name([X, N]), ["n"]) == [1]
    assert chosen_outputs(numbers_by_name([X, N]), ["n", "x", "n"]) == [1, 0, 1]
    assert chosen_outputs(numbers_by_name([X, N]), []) == []
    with pytest.raises(UsageError, match="no output 'z'; its outputs are 'x', 'n'"):
        chosen_outputs(numbers_by_name([X, N]), ["z"])


def test_type_names_are_those_of_onnx_runtime():
    names = {row.name: type_name(TensorType(row, ())) for row in DTYPES}
    assert names["float32"] == "tensor(float)"
    assert names["float64"] == "tensor(double)"
    assert names["bfloat16"] == "tensor(bfloat16)"
    assert names["bool"] == "tensor(bool)"
    assert names["string"] == "tensor(string)"
    assert names["float8_e4m3fn"] == "tensor(float8e4m3fn)"
    assert names["float4_e2m1fn"] == "tensor(float4e2m1)"
    assert type_name(SequenceType(TensorType(INT64, None))) == "seq(tensor(int64))"
    assert type_name(OptionalType(TensorType(dtype_named("uint8"), None))) == "optional(tensor(uint8))"
    assert port_info(X) == port_info(X)
    assert (port_info(X).name, port_info(X).shape, port_info(X).type) == ("x", (2, 3), "tensor(float)")
