"""Floats of a byte and less: every code and every boundary between two, by definition and natively, against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from tests.ops.options.case import Case
from tests.ops.options.ways import by_definition

import fusewise
from fusewise.ir.dtypes import dtype_named
from fusewise.ops.narrow import NARROW, POWERS

KINDS = tuple(NARROW)
SOURCES = ("float32", "float64", "float16", "bfloat16", "int32", "int8", "bool")


def codes(name: str) -> np.ndarray:
    """Every number of a kind."""
    return np.arange(2 ** dtype_named(name).bits, dtype=np.uint8).view(dtype_named(name).numpy)


def boundaries(name: str, source: str) -> np.ndarray:
    """Every finite number of a kind, what is halfway between neighbours, the numbers beside that, and what is beyond, in a type."""
    known = np.sort(codes(name).astype(np.float64))
    known = known[np.isfinite(known)]
    middle = (known[1:] + known[:-1]) / 2
    beyond = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 448, 464, 465, 480, 248, 57344, 61440, 65000, 7])
    wide = dtype_named(source).numpy
    with np.errstate(all="ignore"):
        if dtype_named(source).kind != "float":
            return np.nan_to_num(np.concatenate([known, beyond]), posinf=0, neginf=0).clip(-(2**30), 2**30).astype(wide)
        inner = middle.astype(wide)
        up, down = (np.nextafter(inner, inner.dtype.type(to)) for to in (np.inf, -np.inf))
        return np.concatenate([known.astype(wide), inner, up, down, beyond.astype(wide)])


def rounded(x: np.ndarray, name: str, saturate: bool) -> np.ndarray:
    """`x` as a narrow type, rounded once: float64 by way of a float32 rounded to odd."""
    wide = x.astype(np.float64)
    short = wide.astype(np.float32)
    beyond = np.abs(short.astype(np.float64)) > np.abs(wide)
    bits = short.view(np.uint32) - beyond.astype(np.uint32)
    odd = (bits | ((short.astype(np.float64) != wide) & np.isfinite(wide))).astype(np.uint32).view(np.float32)
    kind = dtype_named(name).numpy
    if saturate and name.startswith("float8"):
        limit = float(ml_dtypes.finfo(kind).max)
        odd = np.clip(odd, -limit, limit)
    return odd.astype(kind)


def same(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Equal numbers, zeros of one sign, and NaN for NaN."""
    with np.errstate(invalid="ignore"):
        a, b = found.astype(np.float64), wanted.astype(np.float64)
    zeros = (a == 0) & (b == 0)
    signs = np.signbit(a) == np.signbit(b)
    return bool(np.all(np.where(zeros, signs | np.isnan(b), (a == b) | (np.isnan(a) & np.isnan(b)))))


def casts(name: str) -> list[Case]:
    """Up to every type, and down from every type's boundaries, saturating or not."""
    to = dtype_named(name).onnx
    up = [Case("Cast", (codes(name),), {"to": dtype_named(wide).onnx}) for wide in SOURCES[:4]]
    down = [
        Case("Cast", (boundaries(name, source),), {"to": to, "saturate": saturate})
        for source in SOURCES
        for saturate in (0, 1)
    ]
    return [*up, *down]


def wanted(case: Case, name: str) -> np.ndarray:
    (x,) = case.inputs
    assert isinstance(x, np.ndarray)
    if "saturate" not in case.attributes:
        kinds = {dtype_named(wide).onnx: dtype_named(wide).numpy for wide in SOURCES}
        return x.astype(kinds[case.attributes["to"]])
    found = rounded(x, name, bool(case.attributes["saturate"]))
    if name == "float4_e2m1fn":  # the sign of what stands for NaN is open
        found = np.where(np.isnan(x.astype(np.float64)), np.float32(-0.0), found.astype(np.float32))
    return np.asarray(found)


def native(cases: list[Case]) -> list[np.ndarray]:
    nodes, inputs, feeds = [], [], {}
    for k, case in enumerate(cases):
        (x,) = case.inputs
        assert isinstance(x, np.ndarray)
        nodes.append(helper.make_node(case.op, [f"x{k}"], [f"y{k}"], **case.attributes))
        kind = next(d.onnx for d in map(dtype_named, (*KINDS, POWERS, *SOURCES)) if d.numpy == x.dtype)
        inputs.append(helper.make_tensor_value_info(f"x{k}", kind, x.shape))
        feeds[f"x{k}"] = x
    outputs = [onnx.ValueInfoProto(name=f"y{k}") for k in range(len(cases))]
    graph = helper.make_graph(nodes, "casts", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    compiled = fusewise.compile(model, cache=False, threads=1, strict=True)
    return [np.asarray(y) for y in compiled.run(None, feeds)]


@pytest.mark.parametrize("name", KINDS)
def test_every_boundary_is_rounded_once(name: str) -> None:
    for case in casts(name):
        found = by_definition(case)
        assert not isinstance(found, str), found
        assert same(found[0], wanted(case, name)), case.label


@pytest.mark.parametrize("name", KINDS)
def test_native_code_gives_the_same(name: str) -> None:
    cases = casts(name)
    for case, found in zip(cases, native(cases), strict=True):
        assert same(found, wanted(case, name)), case.label


POWER_ROWS = (
    # x, and the exponent byte for: up, down, nearest, each saturating; then the same not saturating
    (0.0, (0, 0, 0), (255, 255, 255)),
    (1e-40, (0, 0, 0), (255, 255, 255)),
    (2.0**-127, (0, 0, 0), (0, 0, 0)),
    (1.4 * 2.0**-127, (1, 0, 0), (1, 0, 0)),
    (1.5 * 2.0**-127, (1, 0, 1), (1, 0, 1)),
    (2.0**-126, (1, 1, 1), (1, 1, 1)),
    (1.0, (127, 127, 127), (127, 127, 127)),
    (1.25, (128, 127, 127), (128, 127, 127)),
    (1.5, (128, 127, 128), (128, 127, 128)),
    (-3.0, (129, 128, 129), (129, 128, 129)),
    (2.0**127, (254, 254, 254), (254, 254, 254)),
    (1.9 * 2.0**127, (254, 254, 254), (255, 254, 255)),
    (np.inf, (254, 254, 254), (255, 255, 255)),
    (np.nan, (255, 255, 255), (255, 255, 255)),
)


@pytest.mark.parametrize("source", ["float32", "float64"])
def test_powers_of_two_are_rounded_as_the_table_of_cast_has_it(source: str) -> None:
    x = np.array([row[0] for row in POWER_ROWS], dtype_named(source).numpy)
    cases, rows = [], []
    for which, saturate in enumerate((1, 0)):
        for k, mode in enumerate(("up", "down", "nearest")):
            cases.append(Case("Cast", (x,), {"to": 24, "saturate": saturate, "round_mode": mode}, opset=25))
            rows.append([row[1 + which][k] for row in POWER_ROWS])
    for case, found, row in zip(cases, native(cases), rows, strict=True):
        assert found.view(np.uint8).tolist() == row, case.label
        own = by_definition(case)
        assert not isinstance(own, str), own
        assert own[0].view(np.uint8).tolist() == row, case.label


def test_every_power_of_two_is_widened() -> None:
    (found,) = native([Case("Cast", (codes(POWERS),), {"to": 1}, opset=25)])
    assert same(found, codes(POWERS).astype(np.float32))


@given(st.floats(width=32), st.sampled_from(KINDS), st.booleans())
def test_numbers_by_chance(number: float, name: str, saturate: bool) -> None:
    x = np.array([number], np.float32)
    case = Case("Cast", (x,), {"to": dtype_named(name).onnx, "saturate": int(saturate)})
    found = by_definition(case)
    assert not isinstance(found, str), found
    assert same(found[0], wanted(case, name))


@pytest.mark.parametrize("name", [*KINDS, POWERS, "int4", "uint2"])
def test_movement_and_quantisation_take_narrow_types(name: str) -> None:
    rng = np.random.default_rng(1)
    kind = dtype_named(name)
    data = rng.integers(0, 2 ** min(kind.bits, 7), (3, 4)).astype(np.uint8).view(np.uint8)
    x = data.view(kind.numpy) if kind.is_float else data.astype(np.int64).astype(kind.numpy)
    given = helper.make_tensor_value_info("x", kind.onnx, x.shape)
    scale = helper.make_tensor("s", 1, [4], [0.5, 2.0, 1.0, 0.25])
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "n"], ["b"]),
        helper.make_node("Identity", ["x"], ["c"]),
    ]
    wanted = [x.T.reshape(6, 2), x]
    sizes = helper.make_tensor("n", 7, [2], [6, 2])
    if name != POWERS:
        nodes.append(helper.make_node("DequantizeLinear", ["x", "s"], ["d"], axis=1))
        nodes.append(helper.make_node("QuantizeLinear", ["d", "s"], ["e"], axis=1, output_dtype=kind.onnx))
        wanted += [x.astype(np.float32) * np.array([0.5, 2.0, 1.0, 0.25], np.float32), x]
    outputs = [onnx.ValueInfoProto(name=n) for n in "bcde"[: len(wanted)]]
    graph = helper.make_graph(nodes, "narrow", [given], outputs, [scale, sizes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    found = fusewise.compile(model, cache=False, threads=1, strict=True).run(None, {"x": x})
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        assert same(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize(("source", "to"), [("float32", "int32"), ("float16", "bfloat16"), ("int8", "bool")])
def test_bits_are_read_as_another_type(source: str, to: str) -> None:
    x = np.arange(-3, 4).astype(dtype_named(source).numpy) if to != "bool" else np.array([0, 1, 1], np.int8)
    (found,) = native_bits(x, dtype_named(source).onnx, dtype_named(to).onnx)
    assert found.dtype == dtype_named(to).numpy
    assert found.tobytes() == x.tobytes()


def native_bits(x: np.ndarray, source: int, to: int) -> list[np.ndarray]:
    node = helper.make_node("BitCast", ["x"], ["y"], to=to)
    given = helper.make_tensor_value_info("x", source, x.shape)
    graph = helper.make_graph([node], "bits", [given], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=13)
    return [np.asarray(y) for y in fusewise.compile(model, cache=False, threads=1, strict=True).run(None, {"x": x})]


@pytest.mark.parametrize("source", ["float32", "float16", "int32"])
@pytest.mark.parametrize("scale", ["float32", "float16", "bfloat16", POWERS])
def test_quantisation_divides_in_the_type_of_the_scale(source: str, scale: str) -> None:
    rng = np.random.default_rng(2)
    x = (rng.standard_normal((4, 5)) * 20).astype(dtype_named(source).numpy)
    by = np.array([0.25, 0.5, 2.0, 1.0, 4.0]).astype(dtype_named(scale).numpy)
    found = by_definition(Case("QuantizeLinear", (x, by), {"axis": 1, "output_dtype": 3}, opset=25))
    assert not isinstance(found, str), found
    precision = np.float32 if scale in ("float32", POWERS) else dtype_named(scale).numpy
    ratio = x.astype(precision).astype(np.float32) / by.astype(np.float32)
    wanted = np.clip(np.rint(ratio.astype(precision).astype(np.float32)), -128, 127).astype(np.int8)
    assert np.array_equal(found[0], wanted)
