"""A cache that grows in place gives what the same model gives that takes and returns what is past."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusewise
from fusewise.errors import UsageError

HEADS, SIZE, CAPACITY = 2, 16, 24
LENGTHS = (5, 1, 1, 3, 1, 7, 1)


def decoder(joined: str = "Concat", heads: int = HEADS) -> onnx.ModelProto:
    """x: (batch, tokens, 32) and what is past; y, and what is past then: twice as many heads of queries as of keys.

    `joined`: by what past and new become present; an Attention does it itself.
    """
    rng, wide = np.random.default_rng(0), HEADS * SIZE * 2
    weights = {
        "wq": (wide, 2 * heads * SIZE),
        "wk": (wide, heads * SIZE),
        "wv": (wide, heads * SIZE),
        "wo": (2 * heads * SIZE, wide),
    }
    nodes = []
    for part, count in (("q", 2 * heads), ("k", heads), ("v", heads)):
        nodes += [
            helper.make_node("MatMul", ["x", f"w{part}"], [f"{part}_flat"]),
            helper.make_node("Reshape", [f"{part}_flat", f"{part}_shape"], [f"{part}_split"]),
            helper.make_node("Transpose", [f"{part}_split"], [part], perm=[0, 2, 1, 3]),
        ]
        weights[f"{part}_shape"] = (0, 0, count, SIZE)
    past, present = ["past.k", "past.v"], ["present.k", "present.v"]
    if joined == "Attention":
        nodes.append(helper.make_node("Attention", ["q", "k", "v", "mask", *past], ["a", *present], is_causal=1))
    else:
        for new, before, after in zip("kv", past, present, strict=True):
            nodes.append(helper.make_node("Concat", [before, new], [f"{after}.joined"], axis=2))
            nodes.append(helper.make_node("Identity", [f"{after}.joined"], [after]))
        nodes.append(helper.make_node("Attention", ["q", "present.k.joined", "present.v.joined", "mask"], ["a"]))
    nodes += [
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["b", "flat"], ["c"]),
        helper.make_node("MatMul", ["c", "wo"], ["y"]),
    ]
    tensors = [
        helper.make_tensor(name, TensorProto.INT64, [4], list(shape))
        if name.endswith("shape")
        else onnx.numpy_helper.from_array((rng.standard_normal(shape) / 6).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    tensors.append(helper.make_tensor("flat", TensorProto.INT64, [3], [0, 0, 2 * heads * SIZE]))

    def port(name: str, *dims: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(dims))

    inputs = [port("x", "batch", "tokens", wide), *(port(name, "batch", heads, "past", SIZE) for name in past)]
    inputs.append(port("mask", 1, 1, "tokens", "past + tokens"))
    outputs = [port("y", "batch", "tokens", wide), *(port(name, "batch", heads, "now", SIZE) for name in present)]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def feeds_of(tokens: int, past: int, batch: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Tokens, and a causal mask."""
    rng = np.random.default_rng(seed + past)
    later = np.arange(past + tokens) > past + np.arange(tokens)[:, None]
    mask = np.where(later, np.float32(-1e9), np.float32(0))[None, None]
    return {"x": rng.standard_normal((batch, tokens, 2 * HEADS * SIZE), dtype=np.float32), "mask": mask}


@pytest.mark.parametrize("joined", ["Concat", "Attention"])
@pytest.mark.parametrize("sanitize", [False, True])
def test_step_by_step(joined: str, sanitize: bool) -> None:
    heads = 1 if sanitize else HEADS
    model = fusewise.compile(decoder(joined, heads), cache=False, threads=2)
    cache = fusewise.compile(decoder(joined, heads), cache=False, grow=True, sanitize=sanitize).bind_cache(CAPACITY, 2)
    past = {name: np.zeros((2, heads, 0, SIZE), np.float32) for name in ("past.k", "past.v")}
    for tokens in LENGTHS:
        feeds = feeds_of(tokens, cache.length, 2)
        y, *present = model.run(None, {**feeds, **past})
        (found,) = cache.run(feeds)
        past = dict(zip(past, present, strict=True))
        np.testing.assert_allclose(found, y, rtol=1e-5, atol=1e-6)
    assert cache.length == sum(LENGTHS)


@pytest.fixture(scope="module")
def model() -> fusewise.Model:
    return fusewise.compile(decoder(), cache=False)


def test_only_what_is_new_is_written(model: fusewise.Model) -> None:
    cache = model.bind_cache(CAPACITY)
    cache.run(feeds_of(3, 0, 1))
    for buffer in cache._buffers.values():
        assert buffer[:, :, :3].all() and not buffer[:, :, 3:].any()
        buffer[:, :, :3] += 1.0
    before = {name: buffer.copy() for name, buffer in cache._buffers.items()}
    cache.run(feeds_of(1, 3, 1))
    for name, buffer in cache._buffers.items():
        np.testing.assert_array_equal(buffer[:, :, :3], before[name][:, :, :3])
        assert buffer[:, :, 3].all() and not buffer[:, :, 4:].any()


def test_it_is_on_the_same_weights(model: fusewise.Model) -> None:
    used = model.bind_cache(CAPACITY)._executable.contents.constants.values()
    known = [id(block) for block in model.executable.contents.constants.values()]
    assert sum(block.nbytes for block in used if id(block) not in known) == 0


def test_cut_and_forgotten(model: fusewise.Model) -> None:
    cache = model.bind_cache(CAPACITY)
    cache.run(feeds_of(4, 0, 1))
    (first,) = cache.run(feeds_of(2, 4, 1))
    cache.truncate(4)
    (again,) = cache.run(feeds_of(2, 4, 1), ["y"])
    np.testing.assert_array_equal(again, first)
    cache.reset()
    assert cache.length == 0
    with pytest.raises(UsageError, match="holds 0 tokens cannot be cut to 1"):
        cache.truncate(1)


def test_caches_of_several_threads_are_independent(model: fusewise.Model) -> None:
    found: dict[int, list[np.ndarray]] = {}

    def steps(seed: int) -> list[np.ndarray]:
        cache = model.bind_cache(CAPACITY, 2)
        return [cache.run(feeds_of(tokens, cache.length, 2, seed))[0] for tokens in LENGTHS]

    threads = [Thread(target=lambda seed=seed: found.update({seed: steps(seed)})) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, ys in found.items():
        for y, wanted in zip(ys, steps(seed), strict=True):
            np.testing.assert_array_equal(y, wanted)
    assert len(found) == 3


def test_a_file_that_grows(tmp_path: Path) -> None:
    model = fusewise.compile(decoder(), cache=False, grow=True)
    model.save(tmp_path / "decoder.fw")
    cache = fusewise.open_compiled(tmp_path / "decoder.fw").bind_cache(CAPACITY)
    np.testing.assert_array_equal(cache.run(feeds_of(3, 0, 1))[0], model.bind_cache(5).run(feeds_of(3, 0, 1))[0])


def test_what_does_not_fit(model: fusewise.Model, tmp_path: Path) -> None:
    cache = model.bind_cache(CAPACITY)
    cache.run(feeds_of(20, 0, 1))
    with pytest.raises(UsageError, match="holds 20 of 24 tokens, and 5 more do not fit"):
        cache.run(feeds_of(5, 20, 1))
    with pytest.raises(UsageError, match=r"holds what is past: leave out input 'past\.k'"):
        cache.run({**feeds_of(1, 20, 1), "past.k": np.zeros((1, HEADS, 20, SIZE), np.float32)})
    with pytest.raises(UsageError, match="'batch' is 2 in .* and 1 in"):
        cache.run(feeds_of(1, 20, 2))
    with pytest.raises(UsageError, match="names of inputs, which come first, not a list"):
        cache.run(["y"], {})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no value was given for input 'mask'"):
        cache.run({"x": feeds_of(1, 20, 1)["x"]})
    assert cache.length == 20
    for capacity, batch, what in ((0, 1, "capacity"), (1, True, "batch"), ("3", 1, "capacity")):
        with pytest.raises(UsageError, match=f"the {what} of a cache must be a whole number from 1 on"):
            model.bind_cache(capacity, batch)  # type: ignore[arg-type]
    model.save(tmp_path / "plain.fw")
    with pytest.raises(UsageError, match="not compiled to grow"):
        fusewise.open_compiled(tmp_path / "plain.fw").bind_cache(CAPACITY)


def test_more_than_there_is_room_for_is_never_written(model: fusewise.Model) -> None:
    cache = model.bind_cache(4)
    feeds = {**feeds_of(3, 2, 1), **cache._buffers, cache._growth.counts: np.array([2, 2])}
    with pytest.raises(UsageError, match="the cache has no room for what is new"):
        cache._executable.run(None, feeds)
    for counts in ([-1, 5], [5, -1], [2, 3]):
        with pytest.raises(UsageError):
            cache._executable.run(None, {**feeds, cache._growth.counts: np.array(counts)})
