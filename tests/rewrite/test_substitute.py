"""Single substitutions on graphs: what a search does step by step, with the new weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.ops.build import GraphBuilder
from fusewise.rewrite.engine import around, drafts_at, drafts_of
from fusewise.rewrite.rule import refusal, rule
from fusewise.rewrite.rules.table import SUBSTITUTIONS, rule_named
from fusewise.rewrite.substitute import Draft, Refused, carried_out, folded


def places(graph: Graph, name: str) -> list[Draft]:
    """Every place where the rule may be applied."""
    found = rule_named(name)
    assert found is not None
    return list(drafts_of(graph, [found]))


def after(graph: Graph, name: str, place: int = 0) -> Graph:
    result = carried_out(graph, [folded(places(graph, name)[place])])
    verify(result)
    return result


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def residual() -> Graph:
    """A 3x3 convolution beside a 1x1, added: the module of MetaFlow's first figure."""
    rng = np.random.default_rng(0)
    build = GraphBuilder("residual")
    x = build.input("x", (1, 4, 5, 5))
    wide, narrow = (rng.standard_normal((4, 4, k, k), dtype=np.float32) for k in (3, 1))
    left = build.op("Conv", x, build.constant(wide, "wide"), pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    right = build.op("Conv", x, build.constant(narrow, "narrow"), pads=[0, 0, 0, 0], kernel_shape=[1, 1])
    return build.finish(build.op("Relu", build.op("Add", left, right)))


@pytest.mark.parametrize(
    "path",
    [
        ("enlarge-kernel", "sum-of-convolutions-of-one-image"),
        ("enlarge-kernel", "merge-parallel-convolutions", "sum-of-halves-into-convolution"),
        ("enlarge-kernel", "sum-of-convolutions"),
    ],
)
def test_a_module_becomes_one_convolution(referred: Any, path: tuple[str, ...]) -> None:
    """Enlarging costs more by itself and opens the way; without it nothing fits."""
    graph = residual()
    assert not places(graph, path[1])
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 4, 5, 5), dtype=np.float32)}
    (expected,) = referred(graph, feeds)
    for name in path:
        graph = after(graph, name)
        (found,) = referred(graph, feeds)
        assert np.max(np.abs(found - expected)) <= 1e-5 * np.max(np.abs(expected))
    assert ops(graph)[-2:] == ["Conv", "Relu"]


def test_query_key_and_value_are_one_product(referred: Any) -> None:
    rng = np.random.default_rng(0)
    build = GraphBuilder()
    x = build.input("x", (2, 3, 4))
    parts = [build.op("MatMul", x, build.constant(rng.standard_normal((4, n), dtype=np.float32))) for n in (4, 4, 2)]
    graph = build.finish(build.op("Concat", *map(str, parts), axis=-1))
    assert len(places(graph, "merge-parallel-products")) == 3
    feeds = {"x": rng.standard_normal((2, 3, 4), dtype=np.float32)}
    merged = after(graph, "merge-parallel-products")
    assert ops(merged).count("MatMul") == 2
    np.testing.assert_allclose(referred(merged, feeds)[0], referred(graph, feeds)[0], rtol=1e-5, atol=1e-5)


def test_merging_what_depends_on_each_other_would_be_a_cycle() -> None:
    build = GraphBuilder()
    x = build.input("x", (3, 3))
    weights = [build.constant(np.eye(3, dtype=np.float32) * k) for k in (1, 2)]
    first = build.op("MatMul", x, weights[0])
    second = build.op("MatMul", first, weights[1])
    graph = build.finish(build.op("Add", second, x))
    assert not places(graph, "merge-parallel-products")
    crossed = rule(
        "crossed", lambda g, a, b: (g.Exp(a), g.Neg(b)), lambda g, a, b: (g.Exp(a + b), g.Neg(a + b)), "", "exact"
    )
    chain = GraphBuilder()
    x = chain.input("x", (2,))
    graph = chain.finish(chain.op("Neg", chain.op("Exp", x)))
    (draft,) = drafts_at(graph, 0, [crossed])
    with pytest.raises(Refused, match="cycle"):
        carried_out(graph, [folded(draft)])


def test_outputs_and_readers_elsewhere_keep_their_values(referred: Any) -> None:
    build = GraphBuilder()
    x = build.input("x", (2, 4))
    first, second = build.op("Split", x, outputs=2, axis=1, num_outputs=2)
    joined = build.op("Concat", first, second, axis=1)
    graph = build.finish(joined, build.op("Relu", joined), first)
    result = after(graph, "concat-of-split")
    assert result.outputs == graph.outputs
    assert ops(result) == ["Split", "Identity", "Relu"]
    feeds = {"x": np.arange(8, dtype=np.float32).reshape(2, 4) - 4}
    for a, b in zip(referred(graph, feeds), referred(result, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_new_after_a_step_is_around_it() -> None:
    """Incremental matching: drafts rooted elsewhere stay as they were."""
    graph = residual()
    (draft,) = (folded(draft) for draft in places(graph, "enlarge-kernel"))
    result = carried_out(graph, [draft])

    def keys(drafts: Any) -> set[tuple[str, tuple[str, ...]]]:
        return {(each.rule.name, each.match.roots) for each in drafts}

    near = set(around(result, [draft]))
    everywhere = range(len(result.nodes))
    assert keys(drafts_of(result, SUBSTITUTIONS)) == keys(drafts_of(result, SUBSTITUTIONS, near)) | keys(
        drafts_of(result, SUBSTITUTIONS, [i for i in everywhere if i not in near])
    )
    new = keys(drafts_of(result, SUBSTITUTIONS)) - keys(drafts_of(graph, SUBSTITUTIONS))
    assert new
    assert new <= keys(drafts_of(result, SUBSTITUTIONS, near))


def test_refusals_say_why() -> None:
    build = GraphBuilder()
    x = build.input("x", (1, 4, 5, 5))
    grouped = [build.constant(np.ones((4, 2, 3, 3), np.float32)) for _ in range(2)]
    left, right = (build.op("Conv", x, w, group=2, kernel_shape=[3, 3]) for w in grouped)
    graph = build.finish(build.op("Mul", left, right))
    merge = rule_named("merge-parallel-convolutions")
    assert merge is not None
    reasons = {refusal(merge, draft.match) for draft in drafts_at(graph, 0, [merge], refused=True)}
    assert reasons == {"the convolution has groups"}


def test_no_substitution_runs_by_default() -> None:
    from fusewise.passes.pipeline import run

    graph = residual()
    assert ops(run(graph)) == ops(graph)
    assert {rule.law for rule in SUBSTITUTIONS} <= {"associative", "distributive", "commutative", "recognising"}
