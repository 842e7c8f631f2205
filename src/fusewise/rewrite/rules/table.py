"""All rules, in two tables: those that run by default, and those that a search chooses among."""

from __future__ import annotations

from fusewise.rewrite.rule import Rule
from fusewise.rewrite.rules.arithmetic import ARITHMETIC
from fusewise.rewrite.rules.compositions import COMPOSITIONS
from fusewise.rewrite.rules.convolutions import CONVOLUTIONS
from fusewise.rewrite.rules.itself import ITSELF
from fusewise.rewrite.rules.logic import LOGIC
from fusewise.rewrite.rules.order import ORDER
from fusewise.rewrite.rules.parts import PARTS
from fusewise.rewrite.rules.pooling import POOLING
from fusewise.rewrite.rules.products import PRODUCTS
from fusewise.rewrite.rules.reductions import REDUCTION
from fusewise.rewrite.rules.structure import STRUCTURE

__all__ = ["ALGEBRA", "SUBSTITUTIONS", "rule_named"]

ALGEBRA: tuple[Rule, ...] = (*ARITHMETIC, *ITSELF, *COMPOSITIONS, *REDUCTION, *ORDER, *LOGIC)
"""Rules on elementwise operators and reductions: DNNFusion's mathematical properties (Niu et al., PLDI 2021, 4.2)."""

SUBSTITUTIONS: tuple[Rule, ...] = (*PRODUCTS, *CONVOLUTIONS, *PARTS, *POOLING, *STRUCTURE)
"""Rules on products, convolutions and joined tensors, which may cost more before they save (Jia et al., SysML and SOSP 2019)."""


def rule_named(name: str) -> Rule | None:
    """The rule called `name`, or None."""
    return next((rule for rule in (*ALGEBRA, *SUBSTITUTIONS) if rule.name == name), None)
