"""Versions of steps whose sizes are not known: which there are, where they hold, and what they share."""

from dataclasses import replace

import numpy as np
import pytest

from fusewise.codegen import versions as module
from fusewise.codegen.families.product.matrix import PRODUCT
from fusewise.codegen.target import TARGETS
from fusewise.codegen.versions import Versions, hints_for
from fusewise.fusion.plan import partition
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node, attributes_of
from fusewise.ir.size import SizeNeeded, Symbol, size_of
from fusewise.ir.types import TensorType
from fusewise.lower.work import TaskWork, lower_partition
from fusewise.trace import Trace

BATCH, SEQUENCE = Symbol("batch", hint=2), Symbol("sequence", hint=128)
B, S = size_of(BATCH), size_of(SEQUENCE)


def _floats(*dims):
    return TensorType(FLOAT32, dims)


def _graph(*nodes, types, weights=()):
    rng = np.random.default_rng(0)
    constants = {name: Constant(rng.standard_normal(shape).astype(np.float32)) for name, shape in weights}
    kinds = {**types, **{name: constant.type for name, constant in constants.items()}}
    return Graph(("x",), (nodes[-1].outputs[0],), nodes, kinds, constants)


def _product(height=(B, S)):
    types = {"x": _floats(*height, 64), "y": _floats(*height, 96)}
    return _graph(Node("MatMul", ("x", "w"), ("y",)), types=types, weights=[("w", (64, 96))])


def _drafts(graph, target, disabled=()):
    trace = Trace(disabled=frozenset(disabled))
    found = Versions(replace(target, workers=2), trace, hints_for([BATCH, SEQUENCE]))
    work = lower_partition(partition(graph, trace), trace).work
    return [found.of(one) for one in work if isinstance(one, TaskWork)]


@pytest.fixture(params=TARGETS, ids=lambda one: one.name)
def target(request):
    return request.param


def test_products_have_tiles_for_many_rows_and_for_one_and_read_one_packing(target):
    (draft,) = _drafts(_product(), target)
    assert draft.others
    recipes = {argument.packing.recipe for one in draft.versions for argument in one.weights}
    assert len(recipes) == 1
    first, *_, last = draft.versions
    assert [str(one) for one in first.code.conditions] == [
        f"batch*sequence - {first.way.schedule.product.tile.rows} >= 0"
    ]
    assert last.code.conditions == ()
    assert last.way.schedule.product.tile.rows == 1


def test_what_needs_no_condition_has_one_version(target):
    types = {"x": _floats(B, S, 768), "y": _floats(B, S, 768)}
    (draft,) = _drafts(_graph(Node("Relu", ("x",), ("y",)), types=types), target)
    assert draft.versions == (draft,)
    assert draft.code.conditions == ()
    assert draft.code.sizes


def test_the_last_version_of_any_step_holds_everywhere(target):
    nodes = [
        Node("Softmax", ("x",), ("s",), attributes_of(axis=-1)),
        Node("ReduceSum", ("s",), ("r",), attributes_of(keepdims=1)),
        Node("Div", ("x", "r"), ("y",)),
    ]
    types = {"x": _floats(B, S, S + 3), "s": _floats(B, S, S + 3), "r": _floats(1, 1, 1), "y": _floats(B, S, S + 3)}
    for draft in _drafts(_graph(*nodes, types=types), target):
        assert draft.versions[-1].code.conditions == ()
        reached = [set(one.code.conditions) for one in draft.versions]
        assert not any(earlier <= later for k, later in enumerate(reached) for earlier in reached[:k])


def test_equal_tasks_are_built_once(target, monkeypatch):
    nodes = [Node("MatMul", (a, w), (b,)) for a, w, b in ("xum", "mvn", "nwy")]
    types = {name: _floats(B, S, 64) for name in "xmny"}
    graph = _graph(*nodes, types=types, weights=[(name, (64, 64)) for name in "uvw"])
    built = []
    by = Versions._by
    monkeypatch.setattr(
        Versions, "_by", lambda self, kernel, *rest: (built.append(kernel.name), by(self, kernel, *rest))[1]
    )
    _, first, second = _drafts(graph, target)
    assert first.code == second.code
    assert built.count("product") <= 2 * len(hints_for([BATCH, SEQUENCE]))


def test_each_of_equal_tasks_is_asked_for(target):
    nodes = [Node("MatMul", (a, w), (b,), name=f"n{b}") for a, w, b in ("xum", "mvn", "nwo", "ozy")]
    types = {name: _floats(B, S, 64) for name in "xmnoy"}
    graph = _graph(*nodes, types=types, weights=[(name, (64, 64)) for name in "uvwz"])
    usual, (first, *refused, last) = _drafts(graph, target), _drafts(graph, target, ["product@nn"])
    assert first.code == usual[0].code and last.code == refused[1].code == usual[2].code
    assert not {one.way.kernel.name for one in refused[0].versions} & {"product"}
    (other,) = {one.way.kernel.name for one in usual[1].versions}
    assert other == "product"


def test_a_kernel_that_needs_a_number_is_refused_and_leaves_no_condition(monkeypatch):
    def needs(understood, *rest):
        asked = understood.product.height >= 40  # and so a condition, before it is refused
        raise SizeNeeded(f"a number, and not whether {asked}")

    broken = replace(PRODUCT, name="broken", build=needs)
    candidates = module.candidates
    monkeypatch.setattr(module, "candidates", lambda task: (broken, *candidates(task)))
    (draft,) = _drafts(_product(), TARGETS[0])
    assert all(one.way.kernel.name == "product" for one in draft.versions)
    assert "40" not in "".join(str(c) for one in draft.versions for c in one.code.conditions)


def test_tasks_whose_sizes_are_numbers_take_none(target):
    graph = _product((2, 128))
    (work,) = lower_partition(partition(graph, Trace()), Trace()).work
    assert work.bound.task.is_fixed
    assert all(argument.name != "sizes" for argument in PRODUCT.arguments(*_way(work.bound.task, target)))


def _way(task, target):
    way = next(iter(PRODUCT.implementations(task, target)))
    return way.understood, task, way.schedule
