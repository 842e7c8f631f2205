"""The left sides of rules as queries of egglog (Y. Zhang et al., "Better Together", PLDI 2023), written as its text.

A value is a leaf with a number, an operator on values with its name and the number of its attributes, or an output of an
operator that has several; all equal values are one class, called by the least number of any of them. A query finds classes
and tells their numbers; guards, new weights and what comes in the place of a match stay with the rule.
"""

from __future__ import annotations

from collections.abc import Callable

from fusewise.ir.graph import Attribute, Node
from fusewise.records import record
from fusewise.rewrite.pattern import Apply, Literal, Pattern, Term, Variable
from fusewise.rewrite.rule import Rule

__all__ = ["MOST_OPERANDS", "PRELUDE", "Query", "operands_of", "query_of", "row_rules"]

MOST_OPERANDS = 12
"""Operators with more are leaves."""

_OPTIONAL = {"Conv": 3, "Gemm": 3, "Split": 2}
"""Operators whose last operands may be absent: they are always written with all."""

_COMMUTING = ("Add", "Mul", "Max", "Min")

Attributes = tuple[tuple[str, Attribute], ...]

PRELUDE = "\n".join(
    [
        "(sort V)",
        "(constructor Leaf (i64) V)",
        "(constructor Absent () V)",
        "(constructor Out (i64 V) V)",
        *(f"(constructor Op{n} (String i64 {' '.join(['V'] * n)}) V)" for n in range(1, MOST_OPERANDS + 1)),
        "(function id (V) i64 :merge (min old new))",
        "(function was (i64) V :no-merge)",
        "(relation Now (i64 i64))",
        "(ruleset now)",
        "(rule ((= v (was n)) (= i (id v))) ((Now n i)) :ruleset now)",
        "(ruleset commuting)",
        *(f'(rewrite (Op2 "{op}" k x y) (Op2 "{op}" k y x) :ruleset commuting)' for op in _COMMUTING),
        "(set (id (Absent)) 0)",
    ]
)


def operands_of(node: Node) -> tuple[str, ...]:
    """A node's operands, the empty string for one that is absent."""
    missing = _OPTIONAL.get(node.op, 0) - len(node.inputs)
    return node.inputs + ("",) * max(0, missing)


@record(frozen=True)
class Query:
    """A rule's left side as text, and what the numbers of a row mean, in this order: the classes of `terms`, those of
    `variables`, the attributes of each `like`."""

    rule: Rule
    relation: str
    text: str
    terms: tuple[Apply, ...]
    variables: tuple[Variable, ...]
    likes: tuple[str, ...]

    @property
    def is_multiple(self) -> bool:
        """Are there roots that no inner node holds together? There may be as many places as there are pairs of values."""
        inner = [{term.node for term in Pattern((root,), ()).terms() if isinstance(term, Apply)} for root in self.roots]
        return len(inner) > 1 and not set.intersection(*inner)

    @property
    def roots(self) -> tuple[Term, ...]:
        return self.rule.before.roots


def query_of(rule: Rule, number: int, attributes_number: Callable[[Attributes], int]) -> Query | None:
    """The query of a rule; None when its left side cannot be said, such as one with literals or sums of many terms."""
    pattern = rule.before
    if not _is_sayable(pattern):
        return None
    terms = tuple(dict.fromkeys(term for term in pattern.terms() if isinstance(term, Apply)))
    variables = tuple(dict.fromkeys(term for term in pattern.terms() if isinstance(term, Variable)))
    likes = tuple(dict.fromkeys(term.like for term in terms if term.like))
    names: dict[Term, str] = {variable: f"x_{variable.name}" for variable in variables}
    names |= {term: f"t{k}" for k, term in enumerate(terms)}
    nodes = {node: f"u{k}" for k, node in enumerate(dict.fromkeys(term.node for term in terms))}
    facts = []
    for term in terms:
        if term.outputs > 1:
            facts.append(f"(= {names[term]} (Out {term.index} {nodes[term.node]}))")
    for node, name in nodes.items():
        key = f"a_{node.like}" if node.like else str(attributes_number(node.attributes))
        operands = " ".join(names[operand] for operand in node.operands)
        head = name if node.outputs > 1 else next(names[term] for term in terms if term.node == node)
        facts.append(f'(= {head} (Op{len(node.operands)} "{node.op}" {key} {operands}))')
    found = [*(names[term] for term in terms), *(names[variable] for variable in variables)]
    facts += [f"(= n{k} (id {name}))" for k, name in enumerate(found)]
    row = " ".join([*(f"n{k}" for k in range(len(found))), *(f"a_{like}" for like in likes)])
    relation = f"Found{number}"
    text = (
        f"(relation {relation} ({' '.join(['i64'] * (len(found) + len(likes)))}))\n(ruleset look{number})\n"
        f"(rule ({' '.join(facts)}) (({relation} {row})) :ruleset look{number})"
    )
    return Query(rule, relation, text, terms, variables, likes)


def _is_sayable(pattern: Pattern) -> bool:
    for term in pattern.terms():
        if isinstance(term, Literal):
            return False
        if isinstance(term, Apply):
            nested = any(isinstance(x, Apply) and x.op == term.op and term.regroups for x in term.operands)
            if (term.like and term.attributes) or nested or not 1 <= len(term.operands) <= MOST_OPERANDS:
                return False
    return all(isinstance(root, Apply) for root in pattern.roots)


def row_rules() -> str:
    """Rules that write every term as a row of numbers: class, output (-1 for the only one), operator, attributes, operands."""
    lines = ["(ruleset rows)"]
    for n in range(1, MOST_OPERANDS + 1):
        operands = [f"x{k}" for k in range(n)]
        numbers = [f"m{k}" for k in range(n)]
        facts = " ".join(f"(= {number} (id {x}))" for number, x in zip(numbers, operands, strict=True))
        term = f"(Op{n} op key {' '.join(operands)})"
        lines.append(f"(relation Row{n} (i64 i64 String i64 {' '.join(['i64'] * n)}))")
        row = f"op key {' '.join(numbers)}"
        lines.append(f"(rule ((= e {term}) (= i (id e)) {facts}) ((Row{n} i -1 {row})) :ruleset rows)")
        lines.append(f"(rule ((= e (Out k u)) (= u {term}) (= i (id e)) {facts}) ((Row{n} i k {row})) :ruleset rows)")
    return "\n".join(lines)
