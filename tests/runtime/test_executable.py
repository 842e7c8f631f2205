"""Programs written by hand, run: memory of every kind, feeds, threads, cache, limits."""

import gc
import os
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest
from tests.runtime.written import F8, W, X, binary, chain, constant, program

from fusewise.errors import ResourceLimit, UsageError
from fusewise.ir.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, INT64, dtype_of
from fusewise.ir.graph import Constant
from fusewise.ir.types import TensorType
from fusewise.lower.program import Buffer, KernelCode, NativeStep, Place, Port
from fusewise.runtime.cache import KernelCache
from fusewise.runtime.executable import build


@pytest.mark.parametrize("threads", [None, 1, 2, 3])
def test_native_chain(threads):
    executable = build(chain(), threads=threads)
    first = executable.run(None, {"x": X})
    second = executable.run(["y"], {"x": 2 * X})
    np.testing.assert_array_equal(first[0], ((X + W) + X) + W)
    np.testing.assert_array_equal(second[0], ((2 * X + W) + 2 * X) + W)
    assert executable.workers <= 3
    assert executable.run([], {"x": X}) == []


def test_figures_and_ports():
    executable = build(chain(), threads=2)
    figures = executable.figures
    assert (figures.kernels, figures.cached, figures.workers) == (1, 0, 2)
    assert (figures.arena_bytes, figures.constant_bytes, figures.host_bytes) == (96, 32, 0)
    (given,) = executable.get_inputs()
    assert (given.name, given.shape, given.type) == ("x", (2, 4), "tensor(float)")
    assert [port.name for port in executable.get_outputs()] == ["y"]


def test_threads_do_not_exceed_what_scratch_was_sized_for():
    assert build(replace(chain(), workers=1), threads=8).workers == 1
    with pytest.raises(UsageError):
        build(chain(), threads=0)


def test_input_is_read_in_place_and_left_alone():
    executable = build(chain(), threads=2)
    frozen = X.copy()
    frozen.flags.writeable = False
    executable.run(None, {"x": frozen})
    np.testing.assert_array_equal(frozen, X)
    offset = np.zeros(9, np.float32)[1:].reshape(2, 4)
    offset[...] = X
    np.testing.assert_array_equal(executable.run(None, {"x": offset})[0], ((X + W) + X) + W)


def test_strided_input():
    wide = np.zeros((2, 8), np.float32)
    wide[:, ::2] = X
    np.testing.assert_array_equal(build(chain()).run(None, {"x": wide[:, ::2]})[0], ((X + W) + X) + W)


def test_not_a_number_passes_through():
    x = X.copy()
    x[0, 0], x[1, 1] = np.nan, np.inf
    (y,) = build(chain()).run(None, {"x": x})
    np.testing.assert_array_equal(y, ((x + W) + x) + W)


def test_wrong_feeds():
    executable = build(chain())
    with pytest.raises(UsageError, match="expected shape 2x4, found 4x2"):
        executable.run(None, {"x": X.T})
    with pytest.raises(UsageError, match="no output 'z'"):
        executable.run(["z"], {"x": X})
    with pytest.raises(UsageError, match="no value was given for input 'x'"):
        executable.run(None, {})


def test_outputs_are_fresh():
    executable = build(chain())
    first = executable.run(None, {"x": X})[0]
    kept = first.copy()
    second = executable.run(None, {"x": -X})[0]
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)


def test_outputs_that_are_inputs_constants_or_arena():
    """Ports may name any memory; what comes out is the caller's to keep."""
    same = chain()
    ports = (Port("y", F8, 1), Port("x2", F8, 0), Port("w", F8, 4), Port("middle", F8, 3), Port("y2", F8, 1))
    executable = build(replace(same, outputs=ports))
    y, x, w, middle, y2 = executable.run(None, {"x": X})
    np.testing.assert_array_equal(y, y2)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(w, W)
    np.testing.assert_array_equal(middle, (X + W) + X)
    assert not np.shares_memory(x, X)
    w[...] = 0
    np.testing.assert_array_equal(executable.run(["w"], {"x": X})[0], W)


@pytest.mark.parametrize(
    "dtype, element, operation",
    [
        (FLOAT16, "half", "fadd"),
        (BFLOAT16, "bfloat", "fadd"),
        (INT64, "i64", "add"),
        (BOOL, "i8", "and"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_element_types(dtype, element, operation):
    kind = TensorType(dtype, (5,))
    a = np.array([0, 1, 1, 0, 1], dtype.numpy)
    b = np.array([1, 1, 0, 0, 1], dtype.numpy)
    made = program(
        [Buffer("input", kind.nbytes), Buffer("output", kind.nbytes), constant(b)],
        [binary("k", 5, element, operation)],
        [NativeStep(0, (Place(0), Place(2), Place(1)))],
        inputs=(Port("x", kind, 0),),
        outputs=(Port("y", kind, 1),),
    )
    (y,) = build(made).run(None, {"x": a})
    assert dtype_of(y) is dtype
    np.testing.assert_array_equal(y, (a & b) if dtype is BOOL else a + b)


def test_scalars_and_nothing_at_all():
    scalar, empty = TensorType(FLOAT32, ()), TensorType(FLOAT32, (0, 3))
    made = program(
        [Buffer("input", 4), Buffer("output", 4), Buffer("input", 0), Buffer("output", 0), constant(np.float32(2))],
        [binary("one", 1), binary("none", 0)],
        [NativeStep(0, (Place(0), Place(4), Place(1))), NativeStep(1, (Place(2), Place(2), Place(3)))],
        inputs=(Port("s", scalar, 0), Port("e", empty, 2)),
        outputs=(Port("s2", scalar, 1), Port("e2", empty, 3)),
    )
    s, e = build(made).run(None, {"s": np.array(1.5, np.float32), "e": np.zeros((0, 3), np.float32)})
    assert s.shape == ()
    assert s == 3.5
    assert (e.shape, e.dtype) == ((0, 3), np.float32)


def test_program_without_steps():
    made = program([Buffer("input", 32)], [], [], outputs=(Port("x", F8, 0),))
    np.testing.assert_array_equal(build(made).run(None, {"x": X})[0], X)


# --- host steps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_concurrent_runs(threads):
    executables = [build(chain(), threads=threads) for _ in range(2)]
    wrong = []

    def work(number):
        for k in range(100):
            x = X * (number + 1) - k
            (y,) = executables[number % 2].run(None, {"x": x})
            if not np.array_equal(y, ((x + W) + x) + W):
                wrong.append((number, k))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_run_in_a_forked_child():
    executable = build(chain(), threads=2)
    expected = executable.run(None, {"x": X})[0]
    stop = threading.Event()

    def hammer():
        while not stop.is_set():
            executable.run(None, {"x": X})

    thread = threading.Thread(target=hammer)
    thread.start()
    statuses = []
    try:
        for _ in range(3):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    status = 0 if np.array_equal(executable.run(None, {"x": X})[0], expected) else 2
                finally:
                    os._exit(status)
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    finally:
        stop.set()
        thread.join()
    assert statuses == [0, 0, 0]


# --- building ---------------------------------------------------------------------------------------------------------


def test_cache_saves_building(tmp_path):
    built = []

    def watched(kernel):
        return replace(kernel, build=lambda: built.append(kernel.symbol) or kernel.build())

    made = chain()
    made = replace(made, kernels=tuple(watched(k) for k in (*made.kernels, binary("spare", 3))))
    assert build(made, cache=tmp_path).figures.cached == 0
    assert sorted(built) == ["add", "spare"]
    again = build(made, cache=KernelCache(tmp_path))
    assert again.figures.cached == 2
    assert sorted(built) == ["add", "spare"]
    np.testing.assert_array_equal(again.run(None, {"x": X})[0], ((X + W) + X) + W)
    larger = replace(made, kernels=(*made.kernels, watched(binary("third", 4))))
    assert build(larger, cache=tmp_path).figures.cached == 2
    assert built.count("third") == 1


def test_unusable_cache_is_told_once(tmp_path):
    (tmp_path / "file").write_text("in the way")
    told = []
    executable = build(chain(), cache=KernelCache(tmp_path / "file", told.append))
    np.testing.assert_array_equal(executable.run(None, {"x": X})[0], ((X + W) + X) + W)
    assert len(told) == 1


def test_damaged_cache_is_compiled_again(tmp_path):
    build(chain(), cache=tmp_path)
    for path in KernelCache(tmp_path).folder.iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    executable = build(chain(), cache=tmp_path)
    assert executable.figures.cached == 0
    np.testing.assert_array_equal(executable.run(None, {"x": X})[0], ((X + W) + X) + W)
    assert build(chain(), cache=tmp_path).figures.cached == 1


def test_progress():
    told = []
    build(chain(), progress=lambda what, share: told.append((what, share)))
    assert told == [("compiling", 0.0), ("compiling", 1.0), ("linking", 0.0), ("packing", 0.0)]


def test_arena_larger_than_memory():
    with pytest.raises(ResourceLimit, match="intermediate results would take"):
        build(replace(chain(), arena_bytes=1 << 50))


def test_originals_are_let_go():
    """An executable keeps neither the constants it copied nor what the kernels were built from."""

    class Held:
        pass

    weights, task = np.empty(9, np.float32)[1:], Held()  # not on a boundary, so it is copied
    weights[...], task.kernel = W.reshape(-1), binary("add", 8)
    made = chain()
    buffers = (*made.buffers[:-1], Buffer("constant", 32, data=Constant(weights)))
    kernels = (KernelCode("add", "key", lambda held=task: held.kernel.build()),)
    alive = [weakref.ref(weights), weakref.ref(task)]
    executable = build(replace(made, buffers=buffers, kernels=kernels))
    del made, buffers, kernels, weights, task
    gc.collect()
    assert [reference() for reference in alive] == [None, None]
    np.testing.assert_array_equal(executable.run(None, {"x": X})[0], ((X + W) + X) + W)


def test_outputs_of_one_stretch_are_given_as_asked_for_and_each_is_its_own():
    steps = [NativeStep(0, (Place(0), Place(0), Place(1)), "", 0), NativeStep(0, (Place(1), Place(0), Place(2)), "", 1)]
    buffers = [Buffer("input", 32, value="x"), Buffer("output", 32, value="y"), Buffer("output", 32, value="z")]
    executable = build(program(buffers, [binary("add", 8)], steps, outputs=(Port("y", F8, 1), Port("z", F8, 2))))
    expected = {"y": X + X, "z": X + X + X}
    for names in (None, ["z", "y"], ["z"], ["z", "z", "y"], []):
        found = executable.run(names, {"x": X})
        for name, one in zip(["y", "z"] if names is None else names, found, strict=True):
            np.testing.assert_array_equal(one, expected[name])
            one.fill(0)  # nobody else's
    later = executable.run(None, {"x": X})
    executable.run(None, {"x": 2 * X})
    np.testing.assert_array_equal(later, [X + X, X + X + X])
