"""Models with free dimensions on a GPU, simulated: programs for sizes, which leave and come again; files of several."""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.parser import parse_model
from tests.runtime.gpu.kernels import needs_triton
from tests.runtime.gpu.sharing import compile_nothing, share

import fusewise
from fusewise.benchmarking.accuracy import relative_error
from fusewise.codegen.gpu.program import GpuBuffer
from fusewise.errors import FusewiseError, InvalidModel, ResourceLimit, UsageError
from fusewise.ir.graph import Constant
from fusewise.runtime.gpu.constants import DeviceConstants
from fusewise.runtime.gpu.driver import DeviceMemoryFull
from fusewise.runtime.gpu.fake import FakeDriver
from fusewise.runtime.gpu.memory import device_sizes

WIDTH, WORDS = 8, 20

LAYER = """
<ir_version: 8, opset_import: ["" : 17]>
layer (int64[batch, sequence] ids, float[batch, sequence] mask) => (float[batch, sequence, 8] y)
<int64[4] heads = {0, 0, 2, 4}, int64[3] back = {0, 0, 8}, int64[2] axes = {1, 2}>
{
  e = Gather(table, ids)
  n = LayerNormalization(e, scale, shift)
  q = MatMul(n, wq)  k = MatMul(n, wk)  v = MatMul(n, wv)
  q4 = Reshape(q, heads)  k4 = Reshape(k, heads)  v4 = Reshape(v, heads)
  qt = Transpose<perm = [0, 2, 1, 3]>(q4)
  kt = Transpose<perm = [0, 2, 3, 1]>(k4)
  vt = Transpose<perm = [0, 2, 1, 3]>(v4)
  s = MatMul(qt, kt)
  m = Unsqueeze(mask, axes)
  a = Add(s, m)
  p = Softmax<axis = -1>(a)
  o = MatMul(p, vt)
  ot = Transpose<perm = [0, 2, 1, 3]>(o)
  c = Reshape(ot, back)
  w = MatMul(c, wo)
  r = Add(w, e)
  y = Tanh(r)
}
"""

IMAGES = """
<ir_version: 8, opset_import: ["" : 17]>
images (float[batch, 3, 6, 6] x) => (float[batch, 5] y)
<int64[2] flat = {0, -1}>
{
  c = Conv<pads = [1, 1, 1, 1]>(x, k)
  r = Relu(c)
  p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
  f = Reshape(p, flat)
  y = MatMul(f, g)
}
"""


def model_of(text: str, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    found, rng = parse_model(text), np.random.default_rng(0)
    for name, shape in shapes.items():
        array = rng.standard_normal(shape).astype(np.float32)
        found.graph.initializer.append(numpy_helper.from_array(array, name))
    return found


def layer() -> onnx.ModelProto:
    squares = dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH))
    return model_of(LAYER, table=(WORDS, WIDTH), scale=(WIDTH,), shift=(WIDTH,), **squares)


def images() -> onnx.ModelProto:
    return model_of(IMAGES, k=(4, 3, 3, 3), g=(36, 5))


def words(batch: int, sequence: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    mask = np.where(rng.random((batch, sequence)) < 0.2, -1e4, 0).astype(np.float32)
    return {"ids": rng.integers(0, WORDS, (batch, sequence)), "mask": mask}


def pixels(batch: int, seed: int = 0) -> dict[str, Any]:
    return {"x": np.random.default_rng(seed).standard_normal((batch, 3, 6, 6)).astype(np.float32)}


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.fixture
def here(device: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A GPU, and nothing is compiled for it; what is allocated in a test is given back by its end."""
    share(monkeypatch, device)
    compile_nothing(monkeypatch)
    gc.collect()
    before = device.allocations, device.pinned_bytes
    yield device
    gc.collect()
    assert (device.allocations, device.pinned_bytes) == before


@needs_triton
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_answers_are_those_of_fixed_sizes_bit_by_bit(here, precision):
    how = {"device": "cuda", "cache": False, "precision": precision}
    for model, sizes, feeds in (
        (layer(), {"batch": 2, "sequence": 5}, words(2, 5)),
        (images(), {"batch": 3}, pixels(3)),
    ):
        with fusewise.compile(model, **how) as free, fusewise.compile(model, symbols=sizes, **how) as fixed:
            (found,), (wanted,) = free.run(None, feeds), fixed.run(None, feeds)
            np.testing.assert_array_equal(found, wanted)
            assert free.summary["symbols"] == list(sizes) and not fixed.summary["symbols"]
            assert free.specialized["made"] == 1, "beside that for the sizes to plan for"


@needs_triton
def test_any_sequence_of_sizes(here):
    """Against ONNX Runtime; two programs are kept, so that most sizes are made again."""
    model, rng = layer(), np.random.default_rng(1)
    peer = session(model)
    with fusewise.compile(model, device="cuda", cache=False, specialize=2) as found:
        recent = [(1, 128)]
        for seed in range(8):
            sizes = tuple(int(n) for n in rng.integers(0, 4, 2)) if seed else (1, 1)
            feeds = words(*sizes, seed)
            (y,) = found.run(None, feeds)
            (wanted,) = peer.run(None, feeds)
            assert y.shape == wanted.shape and (not y.size or relative_error(y, wanted) < 1e-5)
            recent = [*(one for one in recent if one != sizes), sizes][-2:]
            assert found.specialized["loaded"] == [{"batch": b, "sequence": s} for b, s in recent]


@needs_triton
def test_programs_that_leave_give_their_memory_back(here):
    before = here.allocated_bytes
    with fusewise.compile(images(), device="cuda", cache=False, specialize=2) as found:
        counts = []
        for batch in (2, 3, 2, 4, 5):
            found.run(None, pixels(batch))
            figures = found.specialized
            assert here.allocated_bytes - before == figures["bytes"] + figures["shared_bytes"]
            counts.append(here.allocations)
        assert len(set(counts)) == 1, "as many as for the first two"
        contents = found.runs.contents
        blocks = {id(b.data): b.nbytes for one in contents.values() for b in one.program.buffers if b.data is not None}
        each = [sum(b.nbytes for b in one.program.buffers if b.data is not None) for one in contents.values()]
        assert sum(blocks.values()) < sum(each), "weights that are packed alike are there once"
        assert found.specialized["shared_bytes"] < sum(device_sizes(one.program)[0] for one in contents.values())


@needs_triton
def test_what_somebody_still_has_of_a_program_that_left_is_not_overwritten(here):
    with fusewise.compile(images(), device="cuda", cache=False, specialize=1) as found:
        (there,) = found.run_on_device(None, pixels(2))
        wanted = there.numpy()
        found.run(None, pixels(3))
        found.run(None, pixels(4))
        np.testing.assert_array_equal(there.numpy(), wanted)
        (again,) = found.run_on_device(["y"], {"x": pixels(2)["x"]})
        np.testing.assert_array_equal(again.numpy(), wanted)
        target = np.zeros((2, 5), np.float32)
        assert found.run_into(pixels(2), {"y": target}) == [target]
        np.testing.assert_array_equal(target, wanted)
        with pytest.raises(UsageError, match="has the shape"):
            found.run_into(pixels(3), {"y": target})
    with pytest.raises(UsageError, match="closed"):
        there.numpy()
    with pytest.raises(UsageError, match="closed"):
        found.run(None, pixels(2))


@needs_triton
def test_what_was_left_on_the_device_is_forgotten_with_it(here):
    """Nothing is kept for each run."""
    with fusewise.compile(images(), device="cuda", cache=False) as found:
        kept = [found.run_on_device(None, pixels(2)) for _ in range(3)]
        (loaded,) = (one for sizes, one in found.runs._loaded.items() if sizes == (2,))
        assert len(loaded.outputs) == 3
        kept.clear()
        gc.collect()
        assert len(loaded.outputs) == 0


@needs_triton
def test_arrays_on_the_device_have_sizes_too(here):
    chain = model_of(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 8] x) => (float[n, 8] y) { y = MatMul(x, w) }', w=(8, 8)
    )
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    with fusewise.compile(chain, device="cuda", cache=False) as found:
        (there,) = found.run_on_device(None, {"x": x})
        (once,) = found.run(None, {"x": x})
        np.testing.assert_array_equal(found.run(None, {"x": there})[0], found.run(None, {"x": once})[0])
        made = found.specialized["made"]
        there.dtype = Constant(np.zeros(1)).dtype
        with pytest.raises(UsageError, match="input 'x': expected float32, found float64"):
            found.run(None, {"x": there})
        assert found.specialized["made"] == made == 1


@needs_triton
def test_threads_have_sizes_of_their_own(here):
    faults: list[BaseException] = []
    model = images()
    with fusewise.compile(model, device="cuda", cache=False, specialize=2) as found:
        wanted = {batch: session(model).run(None, pixels(batch))[0] for batch in range(1, 5)}

        def runs(first: int) -> None:
            try:
                for step in range(4):
                    batch = 1 + (first + step) % 4
                    assert relative_error(found.run(None, pixels(batch))[0], wanted[batch]) < 1e-5
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=runs, args=(first,)) for first in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert not faults
        assert len(found.specialized["loaded"]) == 2


CHAINED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] a, float[n, 4] b, float[m, 4] c) => (float[n, 4] y, float[k, 4] z)
<int64[1] zero = {0}, int64[1] less = {-3}>
{ y = Add(a, b)  z = Slice(c, zero, less, zero) }
"""


@needs_triton
def test_hostile_feeds_are_refused_as_on_a_cpu(here):
    """By the same sentences, and nothing is made for them."""
    limit = onnx.StringStringEntryProto(key="symbol_ranges", value="n=2..16")
    model = parse_model(CHAINED)
    model.metadata_props.append(limit)
    how = {"cache": False, "symbols": {"m": "4,5"}}

    def f(n: int, width: int = 4, kind: Any = np.float32) -> np.ndarray:
        return np.zeros((n, width), kind)

    with fusewise.compile(model, **how) as cpu, fusewise.compile(model, device="cuda", **how) as gpu:
        assert [one["m"] for one in gpu.specialized["sizes"]] == [4, 5]
        for feeds in (
            {"a": f(2), "b": f(3), "c": f(4)},
            {"a": f(1), "b": f(1), "c": f(4)},
            {"a": f(17), "b": f(17), "c": f(4)},
            {"a": f(2), "b": f(2, 5), "c": f(4)},
            {"a": f(2), "b": np.zeros(2, np.float32), "c": f(4)},
            {"a": f(2), "b": f(2, kind=np.float64), "c": f(4)},
            {"a": f(2), "b": f(2)},
            {"a": f(2), "b": f(2), "c": "x"},
            [1, 2],
        ):
            said = []
            for found in (cpu, gpu):
                with pytest.raises(FusewiseError) as told:
                    found.run(None, feeds)
                said.append((type(told.value), str(told.value)))
            assert said[0] == said[1]
        with pytest.raises(UsageError, match="no output 'q'"):
            gpu.run(["q"], {"a": f(9), "b": f(9), "c": f(9)})
        assert gpu.specialized["made"] == 0
        good = {"a": f(3), "b": f(3) + 1, "c": f(1)}
        for ours, theirs in zip(gpu.run(None, good), cpu.run(None, good), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@needs_triton
def test_sizes_to_plan_for(here):
    for symbols, words_said in (
        ({"batch": "1,x"}, "give a number, or a range"),
        ({"batch": "0,4"}, "cannot be '0,4': 0 is no size to plan for"),
        ({"batch": "2..4,2,8"}, "cannot be '2..4,2,8': 8 is not in the range"),
        ({"batch": "4..2"}, "cannot be '4..2': the range ends at 2"),
        ({"batch": "1,99999999999"}, "99999999999 is more than 2,147,483,647"),
        ({"rows": "1,2"}, "the model's free dimensions are"),
    ):
        with pytest.raises(UsageError, match=words_said):
            fusewise.compile(images(), device="cuda:sm_90", cache=False, symbols=symbols)
    how = {"device": "cuda:sm_90", "cache": False}
    with fusewise.compile(layer(), symbols={"batch": "1..8,1,8", "sequence": "4,6"}, **how) as found:
        sizes = [(one["batch"], one["sequence"]) for one in found.specialized["sizes"]]
        assert sizes == [(1, 4), (1, 6), (8, 4), (8, 6)]
        assert not found.specialized["loaded"], "only the GPU that is here is loaded at once"
        assert found.random_inputs()["ids"].shape == (1, 4)
        assert [port.shape for port in found.get_inputs()] == [("batch", "sequence")] * 2
        assert "batch=1, sequence=4; batch=1, sequence=6" in repr(found)
        with pytest.raises(UsageError, match="dimension 'batch' is 9 in .*, and must be 1 to 8"):
            found.run(None, words(9, 4))
    fixed = fusewise.compile(images(), symbols={"batch": "1,2"}, cache=False)
    assert fixed.run(None, pixels(3))[0].shape == (3, 5), "a CPU has one program for all"


@needs_triton
def test_a_file_has_the_programs_and_their_weights_once(here, tmp_path, monkeypatch):
    path, how = tmp_path / "m.fw", {"device": "cuda:sm_90", "cache": False}
    with fusewise.compile(images(), symbols={"batch": "2,4"}, **how) as found:
        found.save(path)
        wanted = found.run(None, pixels(4))[0]
    alone = tmp_path / "alone.fw"
    with fusewise.compile(images(), symbols={"batch": 2}, **how) as one:
        one.save(alone)
    with fusewise.open_compiled(path) as opened:
        assert opened.summary["symbols"] == ["batch"] and opened.random_inputs()["x"].shape[0] == 2
        assert opened.specialized["sizes"] == [{"batch": 2}, {"batch": 4}]
        np.testing.assert_array_equal(opened.run(None, pixels(4))[0], wanted)
        with pytest.raises(
            UsageError, match="has programs for batch=2; batch=4, not for batch=3: compile it for these sizes too"
        ):
            opened.run(None, pixels(3))
        again = pickle.loads(pickle.dumps(opened))
        np.testing.assert_array_equal(again.run(None, pixels(4))[0], wanted)
        again.close()
        ids = [{id(b.data) for b in one.program.buffers if b.data is not None} for one in opened.runs.contents.values()]
        assert ids[0] & ids[1], "what was packed alike is one constant again"
    share(monkeypatch, None)
    with fusewise.open_compiled(path) as without, pytest.raises(FusewiseError, match="no driver"):
        without.run(None, pixels(2))


@needs_triton
def test_a_model_that_is_kept_makes_other_sizes_still(here, tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(images(), path)
    how = {"device": "cuda", "cache": tmp_path / "cache", "symbols": {"batch": "2,3"}}
    fusewise.compile(path, **how).close()
    with fusewise.compile(path, **how) as found:
        assert [stage["name"] for stage in found.summary["stages"]] == ["opening"]
        assert found.run(None, pixels(5))[0].shape == (5, 5)
        path.write_bytes(path.read_bytes() + b"\0")
        assert found.run(None, pixels(6))[0].shape == (6, 5), "its graph had been read"
    onnx.save(images(), path)
    with fusewise.compile(path, **how) as found:
        onnx.save(layer(), path)
        with pytest.raises(UsageError, match="has changed since it was compiled"):
            found.run(None, pixels(7))


@needs_triton
def test_too_little_memory_for_a_size(here, monkeypatch):
    with fusewise.compile(images(), device="cuda", cache=False) as plain:
        one = plain.specialized["bytes"] + plain.specialized["shared_bytes"]
    with fusewise.compile(images(), device="cuda", cache=False, memory_limit=2 * one) as found:
        with pytest.raises(ResourceLimit, match="of the device's memory, more than the"):
            found.run(None, pixels(64))
        assert found.run(None, pixels(1))[0].shape == (1, 5)
    with pytest.raises(ResourceLimit, match="more than the 100 allowed"):
        fusewise.compile(images(), device="cuda", cache=False, memory_limit=100)
    small = FakeDriver("sm_90", 1 << 15)
    share(monkeypatch, small)
    with fusewise.compile(images(), device="cuda", cache=False) as found:
        for batch in (2, 3, 4):
            found.run(None, pixels(batch))
        assert len(found.specialized["loaded"]) < 4, "others left to make room"
        with pytest.raises(DeviceMemoryFull, match="use smaller input shapes"):
            found.run(None, pixels(40))
        found.run(None, pixels(1))
    assert small.allocations == 0
    small.close()


def test_constants_lie_there_as_long_as_somebody_has_them():
    driver = FakeDriver("sm_90", 1 << 20)
    shared = DeviceConstants(driver)
    a, b, c = (GpuBuffer("constant", 16, data=Constant(np.full(16, k, np.uint8))) for k in range(3))
    first = shared.take([a, b])
    assert shared.missing([b, c, c]) == 256
    second = shared.take([b, c])
    assert second.addresses[0] == first.addresses[1] and shared.nbytes == 768
    assert all(map(shared.owns, (*first.addresses, *second.addresses)))
    shared.give_back(first)
    assert shared.nbytes == 768, "the second has one of that block"
    shared.give_back(second)
    assert shared.nbytes == 0 and driver.allocations == 0
    driver.close()


# --- what a file states ---------------------------------------------------------------------------------------------------


@needs_triton
@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda gpu: gpu["programs"][0].update(sizes=[3]), "has other inputs than the model"),
        (lambda gpu: gpu["programs"][0].update(sizes=[-2]), "has a program for"),
        (lambda gpu: gpu["programs"][0].update(sizes=[2, 2]), "sizes that cannot be"),
        (lambda gpu: gpu["programs"].append(gpu["programs"][0]), "has a program for"),
        (lambda gpu: gpu["programs"].clear(), "it has no program"),
        (lambda gpu: gpu["programs"][0]["cubins"].__setitem__(0, 99), "a cubin that the file has not"),
        (lambda gpu: gpu["programs"][0]["constants"][0].__setitem__(1, 0), "a constant that the file has not"),
        (lambda gpu: gpu["programs"][0]["constants"].append(gpu["programs"][0]["constants"][0]), "a constant twice"),
        (lambda gpu: gpu.update(most=0), "no place for its programs"),
        (lambda gpu: gpu["free"]["symbols"].clear(), "is no size"),
        (lambda gpu: gpu["free"]["symbols"][0].__setitem__(2, -1), "cannot be 0 to -1"),
        (lambda gpu: gpu["free"]["inputs"].clear(), "is that of no input"),
        (lambda gpu: gpu["free"]["outputs"].clear(), "has other outputs than the model"),
        (
            lambda gpu: gpu["free"]["inputs"][0].update(type={"dtype": "float32", "shape": [0, 1]}),
            "is that of no input",
        ),
    ],
)
def test_what_does_not_fit_is_told(kept, change, sentence):
    import copy

    from fusewise.runtime.container import understood
    from fusewise.runtime.gpu.sized_artefact import sized_from

    stated, figures, blocks = kept
    sized_from(copy.deepcopy(stated), figures, blocks, lambda own: FakeDriver)
    broken = copy.deepcopy(stated)
    change(broken)
    with pytest.raises(InvalidModel, match=sentence), understood(Path("m.fw")):
        sized_from(broken, figures, blocks, lambda own: FakeDriver)


@pytest.fixture(scope="module")
def kept() -> Any:
    from fusewise.runtime.gpu.sized_artefact import sized_stated

    with pytest.MonkeyPatch.context() as patch:
        compile_nothing(patch)
        found = fusewise.compile(images(), symbols={"batch": "2,4"}, device="cuda:sm_90", cache=False)
        return sized_stated(found.runs)
