"""Constants in memory: native panels against the same arrangement in NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codegen.instructions.test_pair_products import DIRECT, convolution
from tests.emulated.graphs import CASES
from tests.guarded import guarded

from fusewise.codegen.assemble import generate
from fusewise.codegen.llvm.pack import CHUNK, PACK_PANELS, PACK_SHORT_PANELS
from fusewise.codegen.packing import packed, panels, panels_of
from fusewise.codegen.target import TARGETS
from fusewise.codegen.view import OperandView
from fusewise.fusion.plan import partition
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType, dtype_of
from fusewise.ir.graph import Constant, Graph
from fusewise.lower.program import Buffer, Packing
from fusewise.lower.task import Operand
from fusewise.runtime.arena import address_of
from fusewise.runtime.compile import compile_many
from fusewise.runtime.constants import alike, arranged, filled, packers_for
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import Library, load
from fusewise.trace import Trace


@pytest.fixture(scope="module")
def library() -> Library:
    codes = [PACK_PANELS, PACK_SHORT_PANELS]
    return load(compile_many(codes, host_target()), [code.symbol for code in codes])


def view(array: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> OperandView:
    return OperandView(Operand("w", dtype_of(array), shape, strides, constant=True), shape, strides, offset)


def natively(array: np.ndarray, packing: Packing, library: Library, workers: int) -> np.ndarray:
    """What `filled` gives, which must have gone through the native code."""
    buffer = Buffer(
        "constant", array.nbytes, data=Constant(array), packing=replace(packing, pack=lambda _: pytest.fail("NumPy"))
    )
    assert packers_for((buffer,))
    found = filled((buffer,), library.addresses, workers)[0]
    assert not arranged((buffer,))
    assert address_of(found) % 64 == 0
    return found.view(array.dtype)


@settings(max_examples=60, deadline=None)
@given(
    outer=st.integers(1, 3),
    depth=st.integers(1, 700),
    columns=st.integers(4, 70),
    lanes=st.sampled_from((4, 8, 16)),
    vectors=st.integers(1, 3),
    transposed=st.booleans(),
    skip=st.integers(0, 5),
    factors=st.sampled_from(((1.0,), (0.7,), (1.0, 2.0**0.5, 1.0), (3.0, -1.0, 0.1, 0.3))),
    workers=st.integers(1, 5),
    flush=st.sampled_from(("before", "behind")),
)
def test_matrices(
    outer: int,
    depth: int,
    columns: int,
    lanes: int,
    vectors: int,
    transposed: bool,
    skip: int,
    factors: tuple[float, ...],
    workers: int,
    flush: str,
    library: Library,
) -> None:
    columns = max(columns, lanes)
    array = np.random.default_rng(depth * columns).random(skip + outer * depth * columns, np.float32)
    array = guarded(array, flush).array
    inner = (1, depth) if transposed else (columns, 1)
    seen = view(array, (outer, depth, columns), (depth * columns, *inner), skip)
    axes = ((outer, depth * columns),), ((depth, inner[0]),), (columns, inner[1])
    data = panels_of(seen, axes, lanes, vectors, factors)
    scales = np.resize(np.array(factors, np.float32), (depth, 1))
    packing = packed(seen, "test", lambda matrix: panels(matrix * scales, lanes, vectors), data)
    np.testing.assert_array_equal(natively(array, packing, library, workers), packing.pack(array).reshape(-1))


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16, FLOAT32], ids=str)
@pytest.mark.parametrize("is_turned", [False, True], ids=["", "turned"])
@pytest.mark.parametrize("shape", [(1, 16), (300, 40), (513, 33)])
def test_matrices_of_16_bits_and_matrices_that_were_turned(
    shape: tuple[int, int], is_turned: bool, dtype: DType, library: Library
) -> None:
    """One that was turned is no copy; its elements are read where they lie."""
    array = np.random.default_rng(1).standard_normal(shape).astype(dtype.numpy)
    given = np.ascontiguousarray(array.T).T if is_turned else array
    (depth, columns), seen = shape, view(array, shape, (shape[1], 1))
    data = panels_of(seen, ((), ((depth, columns),), (columns, 1)), 8, 2, kept=dtype)
    packing = packed(seen, "test", lambda matrix: panels(matrix, 8, 2), data)
    np.testing.assert_array_equal(natively(given, packing, library, 3), packing.pack(array).reshape(-1))


def test_a_file_that_aligns_nothing(library: Library) -> None:
    raw = np.random.default_rng(0).random(16 * 8 + 1, np.float32).tobytes()
    array = np.frombuffer(raw, np.float32, 16 * 8, offset=3)
    seen = view(array, (16, 8), (8, 1))
    packing = packed(seen, "test", lambda m: panels(m, 8, 1), panels_of(seen, ((), ((16, 8),), (8, 1)), 8, 1))
    np.testing.assert_array_equal(natively(array, packing, library, 2), array.reshape(-1))


@pytest.mark.parametrize("dtype, columns, lanes", [(np.float64, 16, 8), (np.float32, 5, 8), (np.float32, 16, 2)])
def test_the_rest_is_left_to_numpy(dtype: type, columns: int, lanes: int) -> None:
    array = np.arange(7 * columns, dtype=dtype)
    seen = view(array, (7, columns), (columns, 1))
    data = panels_of(seen, ((), ((7, columns),), (columns, 1)), lanes, 1)
    packing = packed(seen, "test", lambda matrix: panels(matrix, lanes, 1), data)
    buffer = Buffer("constant", array.nbytes, data=Constant(array), packing=packing)
    assert lanes % CHUNK or columns < lanes or dtype is np.float64
    assert packers_for((buffer,)) == ()
    assert not filled((buffer,), {}, 1)
    np.testing.assert_array_equal(arranged((buffer,))[0].view(dtype), packing.pack(array).reshape(-1))


def test_constants_that_are_byte_for_byte_known_are_shared(library: Library) -> None:
    """Be they packed or not; those that differ in one byte, at either end, are not."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((300, 64)).astype(np.float32)
    seen = view(weights, (300, 64), (64, 1))
    packing = packed(seen, "panels", lambda m: panels(m, 8, 2), panels_of(seen, ((), ((300, 64),), (64, 1)), 8, 2))
    plain, packed_too = (
        Buffer("constant", weights.nbytes, data=Constant(weights), packing=how) for how in (None, packing)
    )
    alone = alike((plain, packed_too, plain), library.addresses, (), lambda: None)
    assert alone[0] is alone[2]
    np.testing.assert_array_equal(alone[0].view(np.float32), weights.reshape(-1))
    np.testing.assert_array_equal(alone[1].view(np.float32), packing.pack(weights).reshape(-1))
    known = [block.copy() for block in (alone[0], alone[1])]
    shared = alike((plain, packed_too, plain), library.addresses, known, lambda: None)
    assert [id(shared[k]) for k in range(3)] == [id(known[0]), id(known[1]), id(known[0])]
    for at in (0, -1):
        other = [known[0].copy(), known[1].copy()]
        for block in other:
            block[at] ^= 1
        apart = alike((plain, packed_too), library.addresses, other, lambda: None)
        assert not {id(block) for block in apart.values()} & {id(block) for block in other}
    assert alike((), library.addresses, known, lambda: None) == {}


def test_packing_one_after_the_other_can_be_given_up(library: Library) -> None:
    buffer = Buffer("constant", 4, data=Constant(np.zeros(1, np.float32)))
    asked: list[int] = []

    def go_on() -> None:
        asked.append(1)
        if len(asked) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        alike((buffer,) * 3, library.addresses, (), go_on)


GRAPHS = {name: case.graph for name, case in CASES.items()} | {
    "odd channels of bfloat16": lambda: convolution((1, 7, 2, 2), (17, 7, 1, 1))
}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_kernel_has_the_panels_that_numpy_packs(name: str, library: Library) -> None:
    """For a machine without instructions for pairs, which widens shorter floats."""
    graph: Graph = GRAPHS[name]()
    trace = Trace(disabled=DIRECT)
    buffers = generate(partition(graph, trace), next(one for one in TARGETS if one.name == "avx2"), trace).buffers
    constants = {k: one for k, one in enumerate(buffers) if one.packing is not None and one.packing.panels is not None}
    expected = {k: one.packing.pack(one.data.array) for k, one in constants.items() if one.packing and one.data}
    for number, block in filled(buffers, library.addresses, 1, None).items():
        assert block.tobytes() == expected[number].tobytes()
