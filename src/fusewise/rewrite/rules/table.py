"""The rules that run by default, in one table."""

from __future__ import annotations

from fusewise.rewrite.rule import Rule
from fusewise.rewrite.rules.arithmetic import ARITHMETIC
from fusewise.rewrite.rules.compositions import COMPOSITIONS
from fusewise.rewrite.rules.logic import LOGIC
from fusewise.rewrite.rules.order import ORDER
from fusewise.rewrite.rules.reductions import REDUCTION

__all__ = ["ALGEBRA", "rule_named"]

ALGEBRA: tuple[Rule, ...] = (*ARITHMETIC, *COMPOSITIONS, *REDUCTION, *ORDER, *LOGIC)
"""Rules on elementwise operators and reductions: DNNFusion's mathematical properties (Niu et al., PLDI 2021, 4.2)."""


def rule_named(name: str, rules: tuple[Rule, ...] = ALGEBRA) -> Rule | None:
    """The rule called `name`, or None."""
    return next((rule for rule in rules if rule.name == name), None)
