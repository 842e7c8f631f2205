"""Constants whose contents are computed when they are first read."""

from __future__ import annotations

import pickle

import numpy as np

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, LazyConstant
from fusewise.ir.key import structural_key
from fusewise.ir.types import TensorType
from fusewise.ops.build import GraphBuilder
from fusewise.passes.fold_batch_norm import fold_batch_norm
from fusewise.passes.merge_equal import merge_equal
from fusewise.trace import Trace
from fusewise.zoo.scaled import scaled

KIND = TensorType(FLOAT32, (2, 3))


class Maker:
    """Says how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> np.ndarray:
        self.asked += 1
        return np.ones((2, 3), np.float32)


def test_contents_are_computed_once_and_only_when_read() -> None:
    maker = Maker()
    later = LazyConstant(KIND, maker, "recipe")
    assert (later.type, later.dtype, maker.asked) == (KIND, FLOAT32, 0)
    assert not later.array.flags.writeable
    np.testing.assert_array_equal(later.array, np.ones((2, 3)))
    assert maker.asked == 1


def test_equal_recipes_are_equal_without_contents_and_others_by_contents() -> None:
    maker = Maker()
    first, second = (LazyConstant(KIND, maker, "recipe") for _ in range(2))
    assert first == second
    assert maker.asked == 0
    assert first == LazyConstant(KIND, maker, "another") == Constant(np.ones((2, 3), np.float32))
    assert first != Constant(np.zeros((2, 3), np.float32))
    assert first.recipe is None, "contents tell, once they are there"


def test_it_travels_as_what_it_holds() -> None:
    found = pickle.loads(pickle.dumps(LazyConstant(KIND, lambda: np.ones((2, 3), np.float32), "recipe")))
    assert type(found) is Constant
    assert found == Constant(np.ones((2, 3), np.float32))


def test_folding_and_merging_read_no_weights() -> None:
    graph = merge_equal(fold_batch_norm(scaled("resnet"), Trace()), Trace())
    structural_key(graph, with_weights=False)
    folded = [constant for constant in graph.constants.values() if isinstance(constant, LazyConstant)]
    assert folded
    assert all(constant.recipe is not None for constant in folded)


def test_weights_folded_alike_are_stored_once() -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("twins")
    x = b.input("x", (1, 3, 4, 4))
    w = b.constant(rng.standard_normal((4, 3, 1, 1)).astype(np.float32))
    norm = [b.constant(np.full(4, value, np.float32)) for value in (2, 1, 0, 1)]
    graph = b.finish(*(b.op("BatchNormalization", b.op("Conv", x, w), *norm) for _ in range(2)))
    after = merge_equal(fold_batch_norm(graph, Trace()), Trace())
    assert [node.op for node in after.nodes] == ["Conv", "Identity"], "both are outputs: the second is a copy"
    strided = b.finish(*(b.op("BatchNormalization", b.op("Conv", x, w, strides=[k, k]), *norm) for k in (1, 2)))
    apart = merge_equal(fold_batch_norm(strided, Trace()), Trace())
    assert len({node.inputs[1] for node in apart.nodes if node.op == "Conv"}) == 1


def test_a_trial_is_recorded_as_if_asked_for() -> None:
    trial, trace = Trace(), Trace()
    trace.allows("rewrite", "first", ())
    trial.allows("rewrite", "second", ("a",), "why")
    trace.adopt(trial)
    assert [(event.serial, event.what) for event in trace] == [(0, "first"), (1, "second")]
    assert trace.gates == 2
    assert not trace.refuses
    assert Trace(limit=3).refuses and Trace(disabled=frozenset({"x"})).refuses


def test_what_was_refused_by_name_or_by_a_title_is_not_idle() -> None:
    asked = ("first@a", "first@Conv+Relu", "first@nobody", "second", "second@a")
    trace = Trace(disabled=frozenset(asked))
    assert not trace.allows("kernel", "first", ("a", "b"), titles=("Conv",))
    assert not trace.allows("kernel", "first", ("c",), titles=("Conv+Relu",))
    assert trace.allows("kernel", "first", ("b",), titles=("Conv",))
    assert not trace.allows("kernel", "second", ("b",))
    assert trace.idle(asked) == ("first@nobody", "second@a")
    assert [event.where for event in trace] == [("a", "b"), ("c",), ("b",), ("b",)]


def test_rows_are_made_by_themselves_or_taken_from_what_is_there() -> None:
    whole = Maker()
    some = LazyConstant(
        KIND, whole, None, again=True, make_rows=lambda first, last: np.ones((last - first, 3), np.float32)
    )
    assert some.rows(1, 2).shape == (1, 3) and whole.asked == 0
    assert some.array[1:].tolist() == some.rows(1, 2).tolist() and whole.asked == 1
    some.forget()
    assert some.rows(0, 2).shape == (2, 3) and whole.asked == 1
    assert LazyConstant(KIND, whole, None).rows(0, 1).shape == (1, 3) and whole.asked == 2
