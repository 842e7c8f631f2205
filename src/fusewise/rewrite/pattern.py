"""Patterns: what a rule looks for and what it puts there, as frozen terms.

A rule is written with plain functions over terms, and read off once:

    lambda g, a, b, c: a * b + a * c          lambda g, x, axes: g.ReduceSum(-x, axes, like="r")

`+ - * /` and unary `-` are ONNX's Add, Sub, Mul, Div and Neg, numbers are constants, and `g.Name(...)` is any operator.
The parameters are the pattern's variables: the same variable twice is the same value twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from types import FunctionType
from typing import Any, cast

from fusewise.ir.graph import Attribute, attributes_of
from fusewise.ops.table import spec_of
from fusewise.records import record

__all__ = [
    "Apply",
    "Computed",
    "Literal",
    "Pattern",
    "Term",
    "Variable",
    "operators",
    "pattern_of",
    "regroups",
    "renamed",
]


def regroups(op: str) -> bool:
    """Is a tree of this operator a set of operands, in any order and any grouping?"""
    spec = spec_of(op)
    return spec is not None and {"associative", "commutative"} <= spec.flags


def _commutes(op: str) -> bool:
    spec = spec_of(op)
    return spec is not None and "commutative" in spec.flags


class Term:
    """A variable, a literal or an application; all of them take the signs of arithmetic."""

    __slots__ = ()

    def __add__(self, other: Operand) -> Apply:
        return Apply("Add", (self, _term(other)))

    def __radd__(self, other: Operand) -> Apply:
        return Apply("Add", (_term(other), self))

    def __sub__(self, other: Operand) -> Apply:
        return Apply("Sub", (self, _term(other)))

    def __rsub__(self, other: Operand) -> Apply:
        return Apply("Sub", (_term(other), self))

    def __mul__(self, other: Operand) -> Apply:
        return Apply("Mul", (self, _term(other)))

    def __rmul__(self, other: Operand) -> Apply:
        return Apply("Mul", (_term(other), self))

    def __truediv__(self, other: Operand) -> Apply:
        return Apply("Div", (self, _term(other)))

    def __rtruediv__(self, other: Operand) -> Apply:
        return Apply("Div", (_term(other), self))

    def __neg__(self) -> Apply:
        return Apply("Neg", (self,))


@record(frozen=True, slots=True)
class Variable(Term):
    """Any value. An `optional` one may also be an operand that is absent."""

    name: str
    optional: bool = False

    def __str__(self) -> str:
        return self.name


@record(frozen=True, slots=True)
class Literal(Term):
    """A constant whose every element is `value`; where it is put, a scalar of the dtype of the operands beside it."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:g}"


@record(frozen=True, eq=False)
class Computed(Term):
    """What a function of the match gives: a constant array where it is an operand, a value where it is an attribute.

    Only in what a rule puts in place: new weights, sizes, paddings.
    """

    name: str
    function: Callable[[Any], Any]

    def __str__(self) -> str:
        return f"{{{self.name}}}"

    def __repr__(self) -> str:
        return str(self)


@record(frozen=True)
class Apply(Term):
    """Output number `index` of one operator on terms.

    `attributes` must be there with these values. Without `like` there may be no others; with it all attributes go by that
    name: nodes of one name have equal attributes, and what the rule puts in place carries them on.
    """

    op: str
    operands: tuple[Term, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    like: str = ""
    outputs: int = 1
    index: int = 0

    @cached_property
    def regroups(self) -> bool:
        return regroups(self.op)

    @cached_property
    def commutes(self) -> bool:
        return _commutes(self.op)

    @cached_property
    def node(self) -> Apply:
        """The same application, whichever output is meant."""
        return Apply(self.op, self.operands, self.attributes, self.like, self.outputs)

    @cached_property
    def _hash(self) -> int:
        return hash((self.op, self.operands, self.like, self.index))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        sign = _SIGNS.get(self.op)
        if sign is not None and len(self.operands) >= 2:
            left, *others = self.operands
            return f" {sign} ".join([_inside(left, self.op, False), *(_inside(x, self.op, True) for x in others)])
        if self.op == "Neg":
            return f"-{_inside(self.operands[0], 'Neg', True)}"
        stated = [f"{name}={value!r}" for name, value in self.attributes]
        arguments = ", ".join([*map(str, self.operands), *stated])
        return f"{self.op}({arguments})" + (f"[{self.index}]" if self.outputs > 1 else "")


Operand = Term | float
_SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/"}
_RANK = {"Add": 1, "Sub": 1, "Mul": 2, "Div": 2, "Neg": 3}


def _inside(term: Term, parent: str, right: bool) -> str:
    """A term as an operand of a sign, in brackets where it needs them."""
    if not isinstance(term, Apply) or term.op not in _RANK:
        return str(term)
    mine, outer = _RANK[term.op], _RANK[parent]
    bare = mine > outer or (mine == outer and not right)
    return str(term) if bare else f"({term})"


def _term(value: Any) -> Term:
    return value if isinstance(value, Term) else Literal(float(value))


class _Operators:
    """`g` in the functions of a rule: every attribute is an ONNX operator."""

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)

        def apply(*operands: Operand, like: str = "", outputs: int = 1, **attributes: Any) -> Any:
            terms = tuple(_term(x) for x in operands)
            stated = attributes_of(**attributes)
            found = tuple(Apply(op, terms, stated, like, outputs, k) for k in range(outputs))
            return found[0] if outputs == 1 else found

        return apply


operators = _Operators()


@record(frozen=True)
class Pattern:
    """One term for each value that is looked for, over named variables."""

    roots: tuple[Term, ...]
    variables: tuple[str, ...]

    def terms(self) -> Iterator[Term]:
        """Every term in it, operands first, each once."""
        seen: set[Term] = set()

        def walk(term: Term) -> Iterator[Term]:
            if term not in seen:
                seen.add(term)
                if isinstance(term, Apply):
                    for operand in term.operands:
                        yield from walk(operand)
                yield term

        for root in self.roots:
            yield from walk(root)

    def occurrences(self, variable: str) -> int:
        """How many operands the variable is."""

        def count(term: Term) -> int:
            if isinstance(term, Apply):
                return sum(map(count, term.operands))
            return isinstance(term, Variable) and term.name == variable

        return sum(map(count, self.roots))

    @cached_property
    def once(self) -> frozenset[str]:
        """The variables that are one operand only."""
        return frozenset(name for name in self.variables if self.occurrences(name) == 1)

    @cached_property
    def is_symmetric(self) -> bool:
        """Are there several roots that may change places, up to the names of variables?"""
        return len(self.roots) > 1 and renamed(self.roots) == renamed(self.roots[::-1])

    @cached_property
    def operators(self) -> frozenset[str]:
        """The names of the operators in it."""
        return frozenset(term.op for term in self.terms() if isinstance(term, Apply))

    def flat(self) -> Pattern:
        """Trees of one associative and commutative operator as one application to all their operands."""
        return Pattern(tuple(map(_flat, self.roots)), self.variables)

    def __str__(self) -> str:
        return ", ".join(map(str, self.roots))


def _flat(term: Term) -> Term:
    if not isinstance(term, Apply):
        return term
    operands: list[Term] = []
    for operand in map(_flat, term.operands):
        if term.regroups and isinstance(operand, Apply) and operand.op == term.op and not operand.attributes:
            operands.extend(operand.operands)
        else:
            operands.append(operand)
    return Apply(term.op, tuple(operands), term.attributes, term.like, term.outputs, term.index)


def renamed(roots: Iterable[Term]) -> tuple[str, ...]:
    """Terms as text with variables numbered as they come, so that what differs only in names is equal."""
    names: dict[str, str] = {}

    def text(term: Term) -> str:
        if isinstance(term, Variable):
            return names.setdefault(term.name, f"v{len(names)}")
        if isinstance(term, Apply):
            return f"{term.op}({', '.join(map(text, term.operands))}){term.attributes}{term.like}[{term.index}]"
        return str(term)

    return tuple(map(text, roots))


def pattern_of(function: Callable[..., Any]) -> Pattern:
    """The pattern that a function over terms writes; a parameter that defaults to None may be an absent operand."""
    plain = cast(FunctionType, function)  # `inspect.signature` takes 19 ms for all rules, this 3
    names = plain.__code__.co_varnames[1 : plain.__code__.co_argcount]
    required = len(names) - len(plain.__defaults__ or ())
    written = function(operators, *(Variable(name, number >= required) for number, name in enumerate(names)))
    roots = written if isinstance(written, tuple) else (written,)
    return Pattern(tuple(map(_term, roots)), names)
