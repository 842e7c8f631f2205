"""The page of rules in the documentation, from the table: `python -m fusewise.rewrite.page > docs/rules.md`."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fusewise.rewrite.pattern import Apply, Pattern, Term, renamed
from fusewise.rewrite.printed import PRINTED, counted, rewritten
from fusewise.rewrite.rule import Rule
from fusewise.rewrite.rules.table import ALGEBRA, SUBSTITUTIONS

__all__ = ["page", "spellings"]

_PAPER = {"associative": "45", "distributive": "38", "commutative": "66"}
"""Rules the paper counts in each family (Niu et al., PLDI 2021, section 4.2)."""

_HEAD = """# Rewrite rules

Rules that save arithmetic on elementwise operators and reductions, after DNNFusion (Niu et al., PLDI 2021, section 4.2). They
run after the clean-up passes, as `rewrite_exactly` and `rewrite_algebra`; `--exact` leaves the first only, and
`--disable NAME` any one of them. A rule is applied where it saves operations, or the same operations read fewer elements, or
the same with fewer operators; the largest saving goes first. Every one is checked without rounding, over fractions or
integers that wrap around, and in float32 against ONNX's reference evaluator.

This page is written from the table of rules; do not edit it.

## What it saves

Little arithmetic is left over once normalisation, activations and attention are recognised and weights are folded, and an
elementwise operator that goes was mostly part of a group already. GPT-2 as exporters wrote it loses twelve operators, a
division and a product in each layer becoming one, and keeps its number of groups, where the paper goes from 310 to 254.
`python -m benchmarks.fusion_table` counts the groups of every model with and without rewriting.

## How many

Operands of sums, products, maxima and logical operators are matched as sets, in any order and grouping, so one rule stands
for all the ways its left side can be written down. The paper publishes ten of its 149 rules; its counts are those of rules
as written, where `A * B -> B * A` is one. The families are compared by both counts.

"""

_CLASSES = """
A rule of class `exact` gives the same bits. `reassociating` is the same mathematics: roundings and the sign of a zero may
differ, and so may answers whose way, before or after, leads past the largest or smallest number of the type; a finite answer
within that range stays one, and for finite operands NaN stays NaN. `approximate` rules would leave the range in ordinary use;
they are off. The class is that on floats; on integers and booleans every rule is exact.
"""

_PROPERTIES = """
The table of properties, and the example with a constant C, whose reciprocal is computed before the model runs:

"""

_SEARCHED = """
## For the search

Substitutions on products, convolutions and joined tensors, after MetaFlow (Jia et al., SysML 2019) and TASO (Jia et al., SOSP
2019). They do not run by default: some cost more by themselves and pay only together with others, or on some machines. New
weights, written in braces, are computed from the old ones when a rule is applied.

"""


def spellings(pattern: Pattern) -> int:
    """In how many ways the pattern can be written with operators of two operands, apart from the names of variables."""
    roots = pattern.flat().roots
    return len({renamed(form) for form in itertools.product(*map(_forms, roots))})


def _forms(term: Term) -> list[Term]:
    if not isinstance(term, Apply):
        return [term]
    found: dict[Term, None] = {}
    for operands in itertools.product(*map(_forms, term.operands)):
        orders: Iterable[Sequence[Term]] = (
            itertools.permutations(operands) if term.regroups or term.commutes else (operands,)
        )
        for order in orders:
            for tree in _trees(term, order) if term.regroups else (_applied(term, order),):
                found[tree] = None
    return list(found)


def _applied(term: Apply, operands: Sequence[Term]) -> Apply:
    return Apply(term.op, tuple(operands), term.attributes, term.like, term.outputs, term.index)


def _trees(term: Apply, operands: Sequence[Term]) -> Iterator[Term]:
    """Every grouping of the operands, in this order, into applications to two."""
    if len(operands) == 1:
        yield operands[0]
    for cut in range(1, len(operands)):
        for left in _trees(term, operands[:cut]):
            for right in _trees(term, operands[cut:]):
                yield _applied(term, (left, right))


def _counts(rules: Sequence[Rule]) -> str:
    laws = list(dict.fromkeys(rule.law for rule in rules))
    number = Counter(rule.law for rule in rules)
    written = Counter[str]()
    for rule in rules:
        written[rule.law] += spellings(rule.before)
    rows = [f"| {law} | {number[law]} | {written[law]} | {_PAPER.get(law, '')} |" for law in laws]
    total = f"| all | {len(rules)} | {written.total()} | 149 |"
    return "\n".join(["| family | rules | as written | paper |", "|---|---|---|---|", *rows, total]) + "\n"


def _published(rules: Sequence[Rule]) -> str:
    texts = dict.fromkeys(rule.published for rule in rules if rule.published)
    rows = [f"| `{text}` | {', '.join(f'`{r.name}`' for r in rules if r.published == text)} |" for text in texts]
    rows.append("| `A * B -> B * A` | how operands are matched |")
    return "\n".join(["| published | here |", "|---|---|", *rows]) + "\n"


def _properties() -> str:
    """The equations printed in the table of properties, with the operations of both sides as printed and as counted here."""
    m, n = 6, 10
    rows = []
    for equation in PRINTED:
        found = [counted(equation, graph) for graph in rewritten(equation, m, n)]
        sides = zip((equation.before, equation.after), equation.printed, found, strict=True)
        cells = [f"`{side}` | {printed} | {count}" for side, printed, count in sides]
        rows.append(f"| {equation.law} | {' | '.join(cells)} |")
    head = (
        f"| property | as printed | operations printed | counted for m = {m}, n = {n} | becomes | printed | counted |"
    )
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows]) + "\n"


def _row(rule: Rule) -> str:
    needs = [f"{variable} {fact}" for variable, fact in rule.needs]
    guard = [(rule.guard.__doc__ or "").strip().rstrip(".")] if rule.guard is not None and rule.guard.__doc__ else []
    cells = (
        f"`{rule.name}`",
        f"`{rule.before}`",
        f"`{rule.after}`",
        rule.numeric,
        " ".join(rule.on),
        "; ".join(needs + guard),
    )
    return "| " + " | ".join(cells) + " |"


def _listed(rules: Iterable[Rule]) -> str:
    head = "| rule | before | after | class | element types | where |\n|---|---|---|---|---|---|\n"
    return head + "\n".join(map(_row, rules)) + "\n"


def page(rules: Sequence[Rule] = ALGEBRA, searched: Sequence[Rule] = SUBSTITUTIONS) -> str:
    """The page as Markdown: the rules that always run, then those that a search chooses among."""
    parts = [
        _HEAD,
        _counts(rules),
        "\n## The published ones\n\n",
        _published(rules),
        _PROPERTIES,
        _properties(),
        "\n## All of them\n",
        _CLASSES,
    ]
    for law in dict.fromkeys(rule.law for rule in rules):
        parts.append(f"\n### {law.capitalize()}\n\n{_listed(rule for rule in rules if rule.law == law)}")
    return "".join([*parts, _SEARCHED, _listed(searched)])


if __name__ == "__main__":
    sys.stdout.write(page())
