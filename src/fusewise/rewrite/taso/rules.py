"""Substitutions from TASO's file as rules of ours: put into one form, doubles dropped, each verified before it is used.

An activation inside an operator becomes an operator, strides and paddings become those of whatever convolution without groups
is found, a Split that ends a rule cuts where its outputs end. Sums and products are matched as sets, so a rule that only
orders them says nothing. What is refused is named with the reason; a convolution of joined images with weights that see only
one of them holds for grouped convolutions alone (the rule `convolutions-as-groups` states that guard) and is refused as it
stands.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from fusewise.errors import UsageError
from fusewise.records import record
from fusewise.rewrite.equivalence import problems
from fusewise.rewrite.match import Match
from fusewise.rewrite.pattern import Apply, Computed, Pattern, Term, Variable
from fusewise.rewrite.rule import Rule, RuleSample
from fusewise.rewrite.rules.table import SUBSTITUTIONS
from fusewise.rewrite.taso.file import BrokenRule, WrittenOperation, WrittenRule, written_rules

__all__ = ["ImportedRules", "imported_rules", "rule_from", "rules_in"]

_NAMES = {3: "Conv", 8: "Relu", 9: "Sigmoid", 10: "Tanh", 12: "Concat", 13: "Split", 16: "Add", 17: "Mul", 18: "MatMul"}
"""Operators by TASO's number. The weighted product 19 (scalar times tensor) is no ONNX operator."""

_ACTIVATIONS = {1: "Sigmoid", 2: "Relu", 3: "Tanh"}
_ACTIVATION, _AXIS, _RANK = 9, 11, 10  # TASO's numbers of parameters
_ARITY = {"Conv": 2, "Relu": 1, "Sigmoid": 1, "Tanh": 1, "Split": 1, "Add": 2, "Mul": 2, "MatMul": 2}
_MOST_EXAMPLES = 3

Shape = tuple[int, ...]


class _Refused(Exception):
    """A rule cannot be used; the text is the reason."""


@record(frozen=True)
class ImportedRules:
    """The rules that passed, and of the others the name and the reason."""

    rules: tuple[Rule, ...]
    refused: tuple[tuple[str, str], ...]


def imported_rules(path: Path, verify: bool = True) -> ImportedRules:
    """The rules of a file of TASO's format, `graph_subst.pb`. `UsageError` when the file cannot be read or holds none.

    Only who knows which rules have passed may ask for them without `verify`.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"the rules in {path} cannot be read: {error.strerror}") from None
    found = rules_in(data, path.stem, verify)
    if not found.rules and not found.refused:
        raise UsageError(f"{path} holds no rules; it should be a file of substitutions as TASO writes them")
    return found


def rules_in(data: bytes, name: str, verify: bool = True) -> ImportedRules:
    """The rules of a message, called `name` and their number."""
    known = {_canonical(rule.before, rule.after): rule.name for rule in SUBSTITUTIONS}
    accepted: list[Rule] = []
    refused: list[tuple[str, str]] = []
    for number, written in enumerate(written_rules(data)):
        label = f"{name}-{number}"
        if isinstance(written, BrokenRule):
            refused.append((label, str(written)))
            continue
        try:
            rule = rule_from(written, label)
            key = _canonical(rule.before, rule.after)
            if key in known:
                raise _Refused(f"it says the same as {known[key]}")
            wrong = problems(rule) if verify else []
            if wrong:
                raise _Refused(wrong[0].removeprefix(f"{label}: ").removeprefix(f"{label} on "))
        except _Refused as reason:
            refused.append((label, str(reason)))
            continue
        known[key] = label
        accepted.append(rule)
    return ImportedRules(tuple(accepted), tuple(refused))


def rule_from(written: WrittenRule, name: str) -> Rule:
    """One rule, not verified. Raises an exception whose text is the reason when it cannot be written as a rule of ours."""
    reading = _Reading(written)
    before = Pattern(tuple(reading.term("source", *place) for place, _ in written.outputs), reading.variables)
    after = Pattern(tuple(reading.term("target", *place) for _, place in written.outputs), reading.variables)
    if not before.roots:
        raise _Refused("it has no outputs")
    if any(isinstance(root, Variable) for root in before.roots):
        raise _Refused("it looks for an operand alone")
    if not set(_variables(after)) <= set(_variables(before)):
        raise _Refused("it puts in place an operand that it does not look for")
    if len(before.roots) > 1 and not _share(before.roots):
        raise _Refused("what it looks for hangs together by nothing")
    if _canonical(before, after)[0] == _canonical(before, after)[1]:
        raise _Refused("it only puts operands in another order")
    samples = tuple(itertools.islice(_examples(written, reading), _MOST_EXAMPLES))
    if not samples:
        raise _Refused(
            "no shapes fit both sides; a convolution of joined images needs groups"
            if any(op.type == 3 for op in written.target)
            else "no shapes fit both sides"
        )
    guard = _ungrouped if "Conv" in before.operators else None
    return Rule(name, before, after, "distributive", "reassociating", guard=guard, samples=samples)


def _ungrouped(match: Match) -> str | None:
    """There are no groups."""
    return None if match.like["c"].attribute("group", 1) == 1 else "the convolution has groups"


class _Reading:
    """The terms of one rule."""

    def __init__(self, written: WrittenRule) -> None:
        self.written = written
        ids = dict.fromkeys(k for op in (*written.source, *written.target) for k, _ in op.inputs if k < 0)
        self.names = {k: f"x{n}" for n, k in enumerate(ids)}
        self.variables = tuple(self.names.values())
        self.sizes: dict[int, Computed] = {}
        self.outputs = {place: root for root, (_, place) in enumerate(written.outputs)}

    def term(self, side: str, index: int, output: int) -> Term:
        if index < 0:
            return Variable(self.names[index])
        operations = self.written.source if side == "source" else self.written.target
        if index >= len(operations):
            raise _Refused(f"it reads operation {index}, which it does not have")
        op = operations[index]
        name = _named(op)
        if any(k >= index for k, _ in op.inputs):
            raise _Refused("an operation reads one that comes later")
        operands = tuple(self.term(side, *place) for place in op.inputs)
        if name == "Split":
            return self._split(side, index, output, op, operands)
        if output:
            raise _Refused(f"{name} has one output")
        if name == "Concat":
            return Apply(name, operands, (("axis", op.parameters[_AXIS]),))
        made = Apply(name, operands, like="c" if name == "Conv" else "")
        activation = op.parameters.get(_ACTIVATION, 0)
        if activation and activation not in _ACTIVATIONS:
            raise _Refused(f"there is no activation {activation}")
        return Apply(_ACTIVATIONS[activation], (made,)) if activation else made

    def _split(self, side: str, index: int, output: int, op: WrittenOperation, operands: tuple[Term, ...]) -> Term:
        count, axis = op.parameters.get(2, 2), op.parameters[_AXIS]
        places = [self.outputs.get((index, k)) for k in range(count)]
        roots = [root for root in places if root is not None]
        if side == "source" or len(roots) < count:
            raise _Refused("a Split of unknown sizes")
        sizes = Computed("sizes", lambda m: np.array([m.graph.tensor(m.roots[r]).dims[axis] for r in roots], np.int64))
        shared = self.sizes.setdefault(index, sizes)  # one term for all outputs
        return Apply("Split", (*operands, shared), (("axis", axis),), outputs=count, index=output)


def _named(op: WrittenOperation) -> str:
    name = _NAMES.get(op.type)
    if name is None:
        raise _Refused(f"there is no operator of number {op.type} here")
    if len(op.inputs) != _ARITY.get(name, len(op.inputs)) or not op.inputs:
        raise _Refused(f"{name} with {len(op.inputs)} operands")
    if name in ("Concat", "Split") and op.parameters.get(_AXIS, -1) < 0:
        raise _Refused(f"{name} without an axis")
    return name


def _variables(pattern: Pattern) -> Iterator[str]:
    return (term.name for term in pattern.terms() if isinstance(term, Variable))


def _share(roots: Sequence[Term]) -> bool:
    """Does every root have an operand that an earlier one has too?"""
    seen = set(Pattern(roots[:1], ()).terms())  # type: ignore[arg-type]
    for root in roots[1:]:
        terms = set(Pattern((root,), ()).terms())
        if seen.isdisjoint(terms):
            return False
        seen |= terms
    return True


def _canonical(before: Pattern, after: Pattern) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Both sides as text in which only structure counts: sums and products as sets, variables by whatever name comes first."""
    roots = (*before.flat().roots, *after.flat().roots)
    variables = sorted(set(_variables(before)) | set(_variables(after)))
    texts = min(
        tuple(_text(root, dict(zip(variables, names, strict=True))) for root in roots)
        for names in itertools.permutations(range(len(variables)))
    )
    return texts[: len(before.roots)], texts[len(before.roots) :]


def _text(term: Term, names: Mapping[str, int]) -> str:
    if isinstance(term, Variable):
        return f"v{names[term.name]}"
    if not isinstance(term, Apply):
        return str(term)
    operands = [_text(operand, names) for operand in term.operands]
    if term.regroups or term.commutes:
        operands.sort()
    return f"{term.op}({', '.join(operands)}){term.attributes}{term.like}[{term.index}]"


# -- shapes to verify on ------------------------------------------------------------------------------------------------------

_MATRICES: tuple[Shape, ...] = ((2, 3), (3, 2), (2, 2), (1, 3), (3, 1), (3, 3))
_IMAGES: tuple[Shape, ...] = ((1, 2, 3, 3), (2, 2, 3, 3), (1, 1, 3, 3))
_WEIGHTS: tuple[Shape, ...] = ((2, 2, 3, 3), (1, 2, 3, 3), (3, 1, 3, 3), (2, 1, 3, 3))


def _examples(written: WrittenRule, reading: _Reading) -> Iterator[RuleSample]:
    """Shapes of the operands that fit both sides, with "same" padding and a stride of one."""
    ranks = {op.parameters[_RANK] for op in (*written.source, *written.target) if _RANK in op.parameters}
    images = 4 in ranks or any(op.type == 3 for op in written.source)
    weights = {op.inputs[1][0] for op in (*written.source, *written.target) if op.type == 3}
    choices = [_WEIGHTS if k in weights else (*_IMAGES, *_WEIGHTS) if images else _MATRICES for k in reading.names]
    attributes = {
        "c": {"pads": (1, 1, 1, 1), "kernel_shape": (3, 3), "strides": (1, 1), "dilations": (1, 1), "group": 1}
    }
    for shapes in itertools.product(*choices):
        given = dict(zip(reading.names, shapes, strict=True))
        if _fits(written.source, given) and _fits(written.target, given):
            yield RuleSample(dict(zip(reading.variables, shapes, strict=True)), {}, attributes)


def _fits(operations: Sequence[WrittenOperation], given: Mapping[int, Shape]) -> bool:
    known: dict[tuple[int, int], Shape] = {}
    for index, op in enumerate(operations):
        operands = [given[k] if k < 0 else known.get((k, output), ()) for k, output in op.inputs]
        if _NAMES[op.type] == "Split":
            return True  # it ends a rule
        shape = _shape(_NAMES[op.type], op, operands)
        if shape is None:
            return False
        known[index, 0] = shape
    return True


def _shape(name: str, op: WrittenOperation, operands: list[Shape]) -> Shape | None:
    """The shape of the result; None when the operands do not fit."""
    first = operands[0]
    if name == "MatMul":
        second = operands[1]
        return (first[0], second[1]) if len(first) == len(second) == 2 and first[1] == second[0] else None
    if name == "Conv":
        second = operands[1]
        return (first[0], second[0], *first[2:]) if len(first) == 4 and first[1] == second[1] else None
    if name == "Concat":
        axis = op.parameters[_AXIS]
        rests = {(*shape[:axis], *shape[axis + 1 :]) for shape in operands if axis < len(shape)}
        fits = len(rests) == 1 and all(len(shape) == len(first) > axis for shape in operands)
        return (*first[:axis], sum(shape[axis] for shape in operands), *first[axis + 1 :]) if fits else None
    return first if all(shape == first for shape in operands) else None
