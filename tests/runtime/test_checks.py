"""A checked build: right models run as they did, and whatever leaves its operands is an error that says where."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

import fusewise
from fusewise.codegen.llvm.checked import checked
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Module
from fusewise.errors import AccessOutside
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.types import TensorType
from fusewise.lower.program import Buffer, Extent, KernelCode, NativeStep, Place, Port, Program
from fusewise.runtime.executable import build
from fusewise.runtime.guarded import guarded_block

ELEMENTS = 20
NBYTES = 4 * ELEMENTS


def program(body):
    """A program of one kernel from `x` to `y`, 20 floats each, whose code `body(f, out, source)` writes."""

    def text():
        module = Module()
        outside = module.function("k", ("ptr", *["i64"] * 5))
        array, *share = outside.arguments
        pointers = [outside.load("ptr", outside.at(array, k, "ptr")) for k in range(2)]
        f = module.function(
            "k_body", ("ptr noalias", "ptr noalias", *["i64"] * 5), "void", "noinline nounwind", "internal"
        )
        outside.call(f.name, "void", *pointers, *share)
        outside.give_back()
        body(f, *f.arguments[:2])
        f.give_back()
        return checked(llvm_text(module), "k")

    kind = TensorType(FLOAT32, (ELEMENTS,))
    extents = (Extent("out0", "y", 0, NBYTES, True), Extent("in0", "x", 0, NBYTES, False))
    step = NativeStep(0, (Place(1), Place(0)), "Copy", extents=extents)
    buffers = (Buffer("input", NBYTES, value="x"), Buffer("output", NBYTES, value="y"))
    ports = (Port("x", kind, 0),), (Port("y", kind, 1),)
    return Program(*ports, buffers, (KernelCode("k", repr(body), text),), (step,), 0, 1, is_checked=True)


def run(body):
    x = np.arange(ELEMENTS, dtype=np.float32)
    return x, build(program(body), threads=1).run(None, {"x": x})[0]


def each(f, out, source, count, shift=0):
    f.loop(0, count, 1, lambda i, _: f.store(f.load("float", f.at(source, f.add(i, shift))), f.at(out, i)))


def masked(f, out, source, count):
    for start in (0, 16):
        mask = f.mask(f.sub(f.i64(count), start), 16)
        f.masked_store(f.masked_load("<16 x float>", f.at(source, start), mask), f.at(out, start), mask)


GOOD = {
    "scalars": lambda f, out, source: each(f, out, source, ELEMENTS),
    "masked": lambda f, out, source: masked(f, out, source, ELEMENTS),
    "a copy": lambda f, out, source: f.copy(out, source, NBYTES),
}
BAD = {
    "an element too many": (
        lambda f, out, source: each(f, out, source, ELEMENTS + 1),
        "reads 4 bytes at byte 80 .*in0",
    ),
    "an element too early": (lambda f, out, source: each(f, out, source, 3, -1), "reads 4 bytes at byte -4 .*in0"),
    "a lane too many": (lambda f, out, source: masked(f, out, source, ELEMENTS + 1), "reads 20 bytes at byte 64 .*in0"),
    "a vector that ends behind": (
        lambda f, out, source: f.store(f.constant(0.0, "<16 x float>"), f.at(out, 16)),
        "writes 64 bytes at byte 64 .*out0 .'y'., which has 80",
    ),
    "a byte too many": (lambda f, out, source: f.clear(out, NBYTES + 1), "writes 81 bytes at byte 0 .*out0"),
    "a copy too long": (lambda f, out, source: f.copy(out, source, NBYTES + 4), "84 bytes at byte 0"),
    "what is only to be read": (
        lambda f, out, source: f.store(f.constant(0.0, "float"), source),
        "in0.*not to be written",
    ),
    "far away": (lambda f, out, source: f.store(f.constant(0.0, "float"), f.at(out, 1 << 40)), "out0"),
}


@pytest.mark.parametrize("case", GOOD)
def test_what_is_inside_is_left_alone(case):
    x, y = run(GOOD[case])
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("case", BAD)
def test_what_is_outside_is_found_and_goes_nowhere(case):
    body, sentence = BAD[case]
    with pytest.raises(AccessOutside, match=f"node 'Copy'.*{sentence}"):
        run(body)


def test_what_nobody_wrote_is_no_number():
    _, y = run(lambda f, out, source: each(f, out, source, ELEMENTS - 2))
    assert np.isnan(y[-2:]).all()
    assert not np.isnan(y[:-2]).any()


def test_a_pointer_may_be_a_table_of_the_module():
    def body(f, out, source):
        zeros = f.module.table("zeros", "i8", bytes(64))
        f.store(f.load("float", f.select(f.constant(True, "i1"), zeros, source)), out)

    assert run(body)[1][0] == 0


def test_a_model_gives_the_same_answers_and_is_checked():
    rng = np.random.default_rng(0)
    weight, x = (rng.standard_normal(shape, np.float32) for shape in ((9, 5, 3, 3), (2, 5, 11, 7)))
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("GlobalAveragePool", ["r"], ["y"]),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 9, 1, 1))],
        [helper.make_tensor("w", TensorProto.FLOAT, weight.shape, weight.reshape(-1))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    plain, safe = (fusewise.compile(model, cache=False, threads=2, sanitize=flag) for flag in (False, True))
    assert safe.executable.contents.program.is_checked
    np.testing.assert_array_equal(plain.run(None, {"x": x})[0], safe.run(None, {"x": x})[0])


@pytest.mark.skipif(sys.platform == "win32", reason="pages are guarded by POSIX calls")
@pytest.mark.parametrize(("place", "allowed"), [(256, False), (255, True), (0, True), (-mmap.PAGESIZE, False)])
def test_guarded_blocks(place, allowed):
    """The byte behind a block, its last, its first, and one a page before: the system tells whether it can be read."""
    block = guarded_block(256)
    block.fill(7)
    process = ctypes.CDLL(None)
    reading, writing = os.pipe()
    given = process.write(writing, ctypes.c_void_p(block.ctypes.data + place), ctypes.c_size_t(1))
    assert given == (1 if allowed else -1)
    assert not allowed or os.read(reading, 1) == b"\7"
    os.close(reading)
    os.close(writing)
