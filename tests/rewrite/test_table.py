"""One sweep over every rule of every table: sound without rounding and in floats, and stated well."""

from __future__ import annotations

from collections import Counter

import pytest

from fusewise.rewrite.equivalence import problems
from fusewise.rewrite.rule import Rule
from fusewise.rewrite.rules.table import ALGEBRA, SUBSTITUTIONS, rule_named

EVERY = (*ALGEBRA, *SUBSTITUTIONS)


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: rule.name)
def test_rule_is_sound(rule: Rule) -> None:
    assert not problems(rule)


def test_rules_are_stated_well() -> None:
    names = Counter(rule.name for rule in EVERY)
    assert max(names.values()) == 1
    assert {rule.numeric for rule in EVERY} == {"exact", "reassociating", "approximate"}
    assert {rule.law for rule in EVERY} == {"associative", "distributive", "commutative", "recognising"}
    assert all(rule_named(name) is not None for name in names)
    assert rule_named("no-such-rule") is None
    writings = Counter((rule.flat.roots, rule.on) for rule in ALGEBRA)
    assert max(writings.values()) == 1, "no two rules look for the same"


def test_nine_of_the_ten_published_rules_are_rules_and_the_tenth_is_how_operands_are_matched() -> None:
    published = {rule.published for rule in EVERY} - {""}
    assert len(published) == 9
