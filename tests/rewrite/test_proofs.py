"""Rules of linear algebra proved over the reals with Z3, on the shapes of their samples.

Both sides are run without rounding on variables instead of numbers, which gives polynomials; that they differ anywhere must be
refutable. Operands that a rule wants constant are small whole numbers, all others stand for every real number.
"""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.rewrite.equivalence import example_graphs, examples
from fusewise.rewrite.exact import run_exactly
from fusewise.rewrite.pattern import Computed
from fusewise.rewrite.rule import Rule, RuleSample, rule
from fusewise.rewrite.rules.table import SUBSTITUTIONS

z3 = pytest.importorskip("z3")

LINEAR = frozenset(
    "MatMul Gemm Conv AveragePool GlobalAveragePool Concat Split Transpose Add Sub Mul Neg Identity".split()
)
PROVABLE = [rule for rule in SUBSTITUTIONS if rule.before.operators | rule.after.operators <= LINEAR]
MILLISECONDS = 20_000


def variables(name: str, shape: tuple[int, ...]) -> np.ndarray:
    flat = np.empty(int(np.prod(shape)), dtype=object)
    flat[:] = [z3.Real(f"{name}_{k}") for k in range(flat.size)]
    return flat.reshape(shape)


def counterexamples(rule: Rule) -> list[str]:
    """For each application whether it can differ: `unsat` is a proof that it cannot."""
    found = []
    for graph in example_graphs(rule):
        feeds = {name: variables(name, graph.tensor(name).dims) for name in graph.inputs}
        for before, after, _ in examples(rule, graph):
            pairs = [
                pair
                for a, b in zip(run_exactly(before, feeds), run_exactly(after, feeds), strict=True)
                for pair in zip(a.reshape(-1), b.reshape(-1), strict=True)
            ]
            solver = z3.Solver()
            solver.set("timeout", MILLISECONDS)
            # polynomials as sums of monomials: most differences are then zero at sight
            solver.add(z3.Or(*(z3.simplify(a - b, som=True) != 0 for a, b in pairs)))
            found.append(str(solver.check()))
    return found


def test_most_rules_on_products_and_convolutions_are_linear() -> None:
    assert len(PROVABLE) >= 35


@pytest.mark.parametrize("rule", PROVABLE, ids=lambda rule: rule.name)
def test_rule_is_proved(rule: Rule) -> None:
    found = counterexamples(rule)
    assert found
    assert set(found) == {"unsat"}


def test_a_wrong_rule_is_refuted() -> None:
    wrong = rule(
        "wrong",
        lambda g, a, b: g.MatMul(a, b),
        lambda g, a, b: g.MatMul(b, a),
        "commutative",
        "reassociating",
        samples=(RuleSample({"a": (2, 2), "b": (2, 2)}),),
    )
    assert set(counterexamples(wrong)) == {"sat"}


def test_a_wrong_weight_is_refuted() -> None:
    wrong = rule(
        "wrong",
        lambda g, x, w: g.Conv(x, w, like="c"),
        lambda g, x, w: g.Conv(x, Computed("w and one", lambda m: m.array("w") + np.float32(1)), like="c"),
        "distributive",
        "reassociating",
        needs=(("w", "constant"),),
        samples=(RuleSample({"x": (1, 2, 3, 3), "w": (1, 2, 2, 2)}),),
    )
    assert set(counterexamples(wrong)) == {"sat"}
