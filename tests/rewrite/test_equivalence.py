"""The check that guards the tables finds what is wrong with wrong rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.rewrite.equivalence import problems
from fusewise.rewrite.pattern import Computed
from fusewise.rewrite.rule import NUMBERS, RuleSample, rule


def test_the_misprint_of_the_paper_is_found() -> None:
    printed = rule(
        "printed", lambda g, a, b, c: a * c + a * b, lambda g, a, b, c: (a + b) * c, "distributive", "reassociating"
    )
    assert any("exact answers differ" in text for text in problems(printed))


@pytest.mark.parametrize(
    "before, after, fields, complaint",
    [
        (lambda g, a, b, c: a / c + b / c, lambda g, a, b, c: (a + b) / c, {}, "NaN or infinite"),
        (lambda g, a: g.Sqrt(a) * g.Sqrt(a), lambda g, a: a, {}, "NaN or infinite"),
        (lambda g, a: a - a, lambda g, a: a * 0.5 - a * 0.5 + 1, {}, "exact answers differ"),
        (lambda g, a, b: g.Max(a, g.Min(a, b)), lambda g, a, b: a, {}, "NaN or infinite"),
        (lambda g, a: g.Abs(a), lambda g, a: a, {}, "exact answers differ"),
        (lambda g, a, b: (a - b) + b, lambda g, a, b: a, {}, "NaN or infinite"),
        (lambda g, a, b: a * b, lambda g, a, b: g.Sqrt(a) * g.Sqrt(a) * b, {}, "exact answers differ"),
        (lambda g, a: g.Exp(a) * g.Exp(a), lambda g, a: g.Exp(a * a), {}, "exact answers differ"),
        (lambda g, a: g.Floor(a), lambda g, a: g.Ceil(a), {}, "exact answers differ"),
    ],
)
def test_wrong_rules_on_floats_are_found(before: Any, after: Any, fields: Any, complaint: str) -> None:
    found = problems(rule("wrong", before, after, "associative", "reassociating", **fields))
    assert any(complaint in text for text in found), found


def test_integers_wrap_around() -> None:
    """Adding keeps the order of real numbers, not that of integers of few bits."""

    def claimed(on: tuple[str, ...]) -> list[str]:
        return problems(
            rule(
                "term-out",
                lambda g, a, b, c: g.Max(a + c, b + c),
                lambda g, a, b, c: g.Max(a, b) + c,
                "distributive",
                "reassociating",
                on=on,
            )
        )

    assert not claimed(("float",))
    assert any("int" in text for text in claimed(NUMBERS))


def test_a_rule_that_rounds_is_not_exact() -> None:
    exact = rule("exact", lambda g, a, b, c: a * b + a * c, lambda g, a, b, c: a * (b + c), "distributive", "exact")
    found = problems(exact)
    assert any("exact rule differ" in text for text in found)
    assert not any("exact answers differ" in text for text in found)


def test_a_rule_that_never_applies_is_found() -> None:
    never = rule(
        "never", lambda g, a: g.Neg(g.Abs(a)), lambda g, a: -g.Abs(a), "associative", "exact", guard=lambda match: "no"
    )
    assert problems(never) == ["never: no example for float is matched and let pass"]


def test_a_product_does_not_leave_a_sum_along_its_own_axis() -> None:
    """What the guard of the rules in the table is for."""
    axes = {"axes": np.array([1], np.int64)}
    careless = rule(
        "careless",
        lambda g, x, c, axes: g.ReduceSum(x * c, axes, like="r"),
        lambda g, x, c, axes: g.ReduceSum(x, axes, like="r") * g.ReduceMax(c, axes, like="r"),
        "distributive",
        "reassociating",
        samples=(RuleSample({"x": (2, 3), "c": (2, 3)}, axes, {"r": {"keepdims": 1}}),),
    )
    assert any("exact answers differ" in text for text in problems(careless))


def _convolutions(after: Any, **fields: Any) -> list[str]:
    shapes = {"x": (1, 2, 4, 3), "v": (2, 2, 3, 3), "y": (1, 2, 4, 3), "w": (2, 2, 3, 3)}
    return problems(
        rule(
            "concat",
            lambda g, x, v, y, w: g.Concat(g.Conv(x, v, like="c"), g.Conv(y, w, like="c"), axis=1),
            after,
            "distributive",
            "reassociating",
            needs=(("v", "constant"), ("w", "constant")),
            samples=(RuleSample(shapes, {}, {"c": {"pads": (1, 1, 1, 1)}}),),
            **fields,
        )
    )


def test_convolutions_of_two_images_are_one_in_groups_only() -> None:
    """The general law, without groups, is wrong; so are groups with weights the other way round."""
    right = lambda g, x, v, y, w: g.Conv(  # noqa: E731
        g.Concat(x, y, axis=1), g.Concat(v, w, axis=0), like="c", group=2
    )
    turned = lambda g, x, v, y, w: g.Conv(  # noqa: E731
        g.Concat(x, y, axis=1), g.Concat(w, v, axis=0), like="c", group=2
    )
    assert not _convolutions(right)
    assert any("exact answers differ" in text for text in _convolutions(turned))


def test_a_kernel_is_not_enlarged_without_more_padding() -> None:
    enlarged = Computed("zeros around", lambda match: np.pad(match.array("w"), [(0, 0), (0, 0), (1, 1), (1, 1)]))
    found = problems(
        rule(
            "enlarge",
            lambda g, x, w: g.Conv(x, w, like="c"),
            lambda g, x, w: g.Conv(x, enlarged, like="c", kernel_shape=(3, 3)),
            "recognising",
            "reassociating",
            needs=(("w", "constant"),),
            samples=(RuleSample({"x": (1, 2, 4, 4), "w": (2, 2, 1, 1)}),),
        )
    )
    assert found == ["enlarge: no example for float is matched and let pass"], "the shape would change"
