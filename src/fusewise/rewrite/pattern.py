"""Patterns: what a rule looks for and what it puts there, as frozen terms.

A rule is written with plain functions over terms, and read off once:

    lambda g, a, b, c: a * b + a * c          lambda g, x, axes: g.ReduceSum(-x, axes, like="r")

`+ - * /` and unary `-` are ONNX's Add, Sub, Mul, Div and Neg, numbers are constants, and `g.Name(...)` is any operator.
The parameters are the pattern's variables: the same variable twice is the same value twice. What is only looked for may say more:
`|` is one term or another, `...` any operands that are left, `g.one_of` any of several operators and `g.monomial` a product
with a constant coefficient, however it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from types import FunctionType
from typing import Any, cast

from fusewise.ir.graph import Attribute, attributes_of
from fusewise.ops.table import spec_of
from fusewise.records import record

__all__ = [
    "MONOMIALS",
    "Apply",
    "Computed",
    "Either",
    "Literal",
    "Monomial",
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
    """A variable, a literal, an application or what is made of them; all of them take the signs of arithmetic."""

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

    def __or__(self, other: Operand) -> Either:
        return Either(tuple(way for x in (self, _term(other)) for way in (x.terms if isinstance(x, Either) else (x,))))


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
    One that is `open` may have more operands than these. In a pattern that is closed, a `shared` one may have other readers.
    """

    op: str
    operands: tuple[Term, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    like: str = ""
    outputs: int = 1
    index: int = 0
    open: bool = False
    shared: bool = False

    @cached_property
    def regroups(self) -> bool:
        return regroups(self.op)

    @cached_property
    def commutes(self) -> bool:
        return _commutes(self.op)

    @cached_property
    def node(self) -> Apply:
        """The same application, whichever output is meant."""
        return replace(self, index=0)

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


@record(frozen=True)
class Either(Term):
    """One of several terms; they are tried in this order."""

    terms: tuple[Term, ...]

    def __str__(self) -> str:
        return f"({' | '.join(map(str, self.terms))})"


@record(frozen=True)
class Monomial(Term):
    """A constant coefficient, up to float32's rounding, times factors: through Mul, Div by a number, and Pow with 2 or 3.

    `shared`: as of an `Apply`, for the last of its nodes.
    """

    coefficient: float
    factors: tuple[Term, ...]
    shared: bool = False

    def __str__(self) -> str:
        return " * ".join([f"{self.coefficient:g}", *(_inside(factor, "Mul", True) for factor in self.factors)])


MONOMIALS = ("Mul", "Div", "Pow")
"""The operators a monomial is written with; one at the root of a pattern ends in one of the first two."""

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


def _below(term: Term) -> tuple[Term, ...]:
    """The terms a term is made of."""
    if isinstance(term, Apply):
        return term.operands
    return term.terms if isinstance(term, Either) else term.factors if isinstance(term, Monomial) else ()


class _Operators:
    """`g` in the functions of a rule: every other attribute is an ONNX operator."""

    def one_of(self, operators: Iterable[str], *operands: Any, **stated: Any) -> Term:
        """Any of several operators on these operands."""
        return Either(tuple(getattr(self, op)(*operands, **stated) for op in operators))

    def monomial(self, coefficient: float, *factors: Operand, shared: bool = False) -> Term:
        """A constant coefficient times factors, see `Monomial`."""
        return Monomial(coefficient, tuple(map(_term, factors)), shared)

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)

        def apply(*operands: Any, like: str = "", outputs: int = 1, shared: bool = False, **attributes: Any) -> Any:
            terms = tuple(_term(x) for x in operands if x is not ...)
            stated, more = attributes_of(**attributes), ... in operands
            found = tuple(Apply(op, terms, stated, like, outputs, k, more, shared) for k in range(outputs))
            return found[0] if outputs == 1 else found

        return apply


operators = _Operators()


@record(frozen=True)
class Pattern:
    """One term for each value that is looked for, over named variables.

    One that `regroups` takes a tree of an associative and commutative operator for one operator on a set of operands; without,
    only the two operands of a commutative one may change places. Nobody else reads an inner value of one that is `closed`.
    """

    roots: tuple[Term, ...]
    variables: tuple[str, ...]
    regroups: bool = False
    closed: bool = False

    def terms(self) -> Iterator[Term]:
        """Every term in it, operands first, each once."""
        seen: set[Term] = set()

        def walk(term: Term) -> Iterator[Term]:
            if term not in seen:
                seen.add(term)
                for operand in _below(term):
                    yield from walk(operand)
                yield term

        for root in self.roots:
            yield from walk(root)

    def occurrences(self, variable: str) -> int:
        """How many operands the variable is."""

        def count(term: Term) -> int:
            return sum(map(count, _below(term))) + (isinstance(term, Variable) and term.name == variable)

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

    @cached_property
    def starts(self) -> Mapping[str, tuple[tuple[frozenset[str], ...], ...]]:
        """The operators of nodes that may be the first root; of each, for every way to write it, what must have made operands."""
        found: dict[str, list[tuple[frozenset[str], ...]]] = {}
        root = self.roots[0]
        for way in root.terms if isinstance(root, Either) else (root,):
            inside = frozenset(MONOMIALS) if isinstance(way, Monomial) else frozenset()
            makers = tuple(made | inside for x in _below(way) if (made := _makers(x)))
            for op in (way.op,) if isinstance(way, Apply) else MONOMIALS[:2]:
                found.setdefault(op, []).append(makers)
        return {op: tuple(ways) for op, ways in found.items()}

    def may_end(self, op: str, made: set[str]) -> bool:
        """May a node of operator `op`, whose operands are made by operators `made`, be the first root?"""
        for makers in self.starts.get(op, ()):
            for needed in makers:
                if needed.isdisjoint(made):
                    break
            else:
                return True
        return False

    def flat(self) -> Pattern:
        """Trees of one associative and commutative operator as one application to all their operands."""
        return Pattern(tuple(map(_flat, self.roots)), self.variables, True, self.closed)

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
    return replace(term, operands=tuple(operands))


def _makers(term: Term) -> frozenset[str]:
    """The operators one of which must have made what the term stands for; none when it may be no result at all."""
    if isinstance(term, Apply):
        return frozenset((term.op,))
    if isinstance(term, Monomial):
        return frozenset(MONOMIALS)
    ways = list(map(_makers, term.terms)) if isinstance(term, Either) else []
    return frozenset().union(*ways) if all(ways) else frozenset()


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


def pattern_of(function: Callable[..., Any], *, closed: bool = False) -> Pattern:
    """The pattern that a function over terms writes; a parameter that defaults to None may be an absent operand."""
    plain = cast(FunctionType, function)  # `inspect.signature` takes 19 ms for all rules, this 3
    names = plain.__code__.co_varnames[1 : plain.__code__.co_argcount]
    required = len(names) - len(plain.__defaults__ or ())
    written = function(operators, *(Variable(name, number >= required) for number, name in enumerate(names)))
    roots = written if isinstance(written, tuple) else (written,)
    return Pattern(tuple(map(_term, roots)), names, closed=closed)
