"""Proof, while a model is compiled, that every node reads its operands where they have elements.

A definition says at which index each operand is read. With the ranges of loop variables, and what the conditions on the way
there say, every such index lies within the operand, or the operand is not as large as the operator needs it to be: the model is
broken. What nodes of a group read of one another is then within bounds too, however they are put together.
"""

from __future__ import annotations

from dataclasses import field

from fusewise.errors import InvalidModel
from fusewise.ir.deciding import known_below
from fusewise.ir.dtypes import INT64
from fusewise.ir.graph import Graph, Node
from fusewise.ir.size import Size, greatest, least
from fusewise.ir.types import TensorType
from fusewise.lower.extents import Positive, exact
from fusewise.lower.index import Linear, Simplifier, is_divisor
from fusewise.ops.expr import Expr, walk
from fusewise.records import record

__all__ = ["Proofs"]

Terms = frozenset[tuple[Expr, int]]
"""A linear form without its constant."""

Facts = dict[Terms, tuple[int, int]]
"""What conditions say: the least and the largest value that forms can have."""

_FAR = 2**62

_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


@record
class Proofs:
    """Nodes that read within bounds; what was proved is remembered by definition and shapes, so that equal nodes cost once."""

    _good: set[tuple[Expr, tuple[int, ...], tuple[tuple[int, ...] | None, ...]]] = field(default_factory=set)

    def require(self, graph: Graph, node: Node, value: str, body: Expr) -> str:
        """Raise `InvalidModel`, with node and operand, unless `body`, over i0, i1, ..., is made of elements that there are.

        Where that depends on sizes that are not known yet, a phrase says what is not proved; it is empty where all is well."""
        extents = graph.tensor(value).dims
        shapes = tuple(_shape(graph, name) for name in node.inputs)
        key = body, extents, shapes
        if 0 in extents or key in self._good:
            return ""
        asked = tuple(one.condition.size for one in graph.checks if one.condition.relation == "nonnegative")
        found = _outside(body, extents, shapes, asked)
        if found is not None:
            operand, what = found
            if not all(type(n) is int for shape in (extents, *shapes) for n in shape or ()):
                return f"{what} of its operand {node.inputs[operand]!r} of shape {list(shapes[operand] or ())}"
            raise InvalidModel(
                f"node {node.label!r} ({node.op}) {what} of its operand {node.inputs[operand]!r}, whose shape is "
                f"{list(shapes[operand] or ())}, to make its result {value!r} of shape {list(extents)}"
            )
        self._good.add(key)
        return ""


def _shape(graph: Graph, name: str) -> tuple[int, ...] | None:
    kind = graph.types.get(name) if name else None
    return kind.dims if isinstance(kind, TensorType) and kind.is_static else None


def _outside(
    body: Expr, extents: tuple[int, ...], shapes: tuple[tuple[int, ...] | None, ...], asked: tuple[int, ...]
) -> tuple[int, str] | None:
    """An operand that is not known to have all elements that are read, and a phrase about these; None when all is well. None of
    the sizes `asked` is negative."""
    ranges = {f"i{d}": extent for d, extent in enumerate(extents)}
    for node in walk(body):
        ranges.update(node.value[1] if node.op == "reduce" else ())
    simplifier = Simplifier(ranges, extents)
    root, nothing = simplifier.simplify(body), Facts()
    doubtful: set[Expr] = set()  # what is not within bounds whatever conditions say, and what it is a part of
    for node in walk(root):  # children first
        own = node.op in ("load", "bounded") and _found(node, simplifier, nothing, shapes, asked) is not None
        if own or not doubtful.isdisjoint(node.args):
            doubtful.add(node)
    stack: list[tuple[Expr, Facts]] = [(root, nothing)]
    seen: dict[tuple[int, int], Facts] = {}
    while stack:
        node, facts = stack.pop()
        if node not in doubtful or (id(node), id(facts)) in seen:
            continue
        seen[id(node), id(facts)] = facts
        if node.op in ("load", "bounded") and (found := _found(node, simplifier, facts, shapes, asked)) is not None:
            return found
        if node.op == "select":
            condition, then, otherwise = node.args
            stack.append((condition, facts))
            stack.append((then, _with(facts, simplifier, condition, True)))
            stack.append((otherwise, _with(facts, simplifier, condition, False)))
        else:
            stack.extend((argument, facts) for argument in node.args)
    return None


def _found(
    node: Expr,
    simplifier: Simplifier,
    facts: Facts,
    shapes: tuple[tuple[int, ...] | None, ...],
    asked: tuple[int, ...],
) -> tuple[int, str] | None:
    """What is wrong with a load, or a position that is known already: the operand, and a phrase; None when it is within bounds."""
    if node.op == "bounded":
        low, high, (operand, wraps) = node.value
        if node.args[0].op != "const" or isinstance(node.args[0].value, Size):  # where the kernel looks
            return None
        given = node.args[0].value
        return operand, f"finds {given - (high + 1) * (wraps and given < 0)}, an index out of bounds, as an element"
    operand = int(node.value[1:])
    shape = shapes[operand]
    if shape is None or 0 in shape:  # what is empty is not read
        return None
    for axis, (index, extent) in enumerate(zip(node.args, shape, strict=True)):
        low, high = _range(simplifier, facts, simplifier.linear(index))
        inside = simplifier.at_most(0, low) and simplifier.at_most(high, extent - 1)
        inside = inside or _inside_if_read(simplifier, shape, low, high, extent)
        if not inside and not (simplifier.at_most(0, low) and any(known_below(high + one, extent) for one in asked)):
            return operand, f"reads {_places(low, high)} along axis {axis}"
    return None


def _inside_if_read(simplifier: Simplifier, shape: tuple[int, ...], low: int, high: int, extent: int) -> bool:
    """Of sizes: do places lie within an axis of what has elements at all?"""
    if all(type(n) is int for n in (low, high, extent)):
        return False
    positive = Positive((*(simplifier.space or ()), *shape))
    return positive.at_most(0, low) and positive.at_most(high, extent - 1)


def _places(low: int, high: int) -> str:
    return "anywhere" if known_below(low, 1 - _FAR) or known_below(_FAR - 1, high) else f"elements {low} to {high}"


def _range(simplifier: Simplifier, facts: Facts, form: Linear) -> tuple[int, int]:
    """The least and the largest value of a form where the facts hold."""
    low, high = simplifier.range_of(form)
    if not facts:
        return low, high
    least = most = form.constant
    for atom, coefficient in form.terms:
        first, last = _bounds(simplifier, facts, atom)
        ends = first * coefficient, last * coefficient
        least, most = least + simplifier.least(*ends), most + simplifier.greatest(*ends)
    low, high = simplifier.greatest(low, least), simplifier.least(high, most)
    if (known := facts.get(frozenset(form.terms))) is not None:
        low = simplifier.greatest(low, known[0] + form.constant)
        high = simplifier.least(high, known[1] + form.constant)
    for terms, (first, last) in facts.items():  # a multiple of what is known, and what is left
        times = _times(dict(form.terms).get(next(iter(terms))[0], 0), next(iter(terms))[1]) if len(terms) > 1 else 0
        part = Linear(0, tuple(terms))
        if times and len(terms) < len(form.terms) and form.contains(part, times):
            least, most = _range(simplifier, facts, form.plus(part, -times))
            low = simplifier.greatest(low, least + simplifier.least(first * times, last * times))
            high = simplifier.least(high, most + simplifier.greatest(first * times, last * times))
    return low, high


def _times(whole: int, by: int) -> int:
    """How often a coefficient holds another; of sizes only what is known to be divided."""
    return whole // by if type(whole) is type(by) is int else exact(whole, by) or 0


def _bounds(simplifier: Simplifier, facts: Facts, atom: Expr) -> tuple[int, int]:
    """The same of what is no linear form."""
    first, last = simplifier.bounds(atom)
    if (known := facts.get(frozenset(((atom, 1),)))) is not None:
        first, last = simplifier.greatest(first, known[0]), simplifier.least(last, known[1])
    if atom.op == "floordiv" and is_divisor(atom.args[1]):
        low, high = _range(simplifier, facts, simplifier.linear(atom.args[0]))
        first = simplifier.greatest(first, low // atom.args[1].value)
        last = simplifier.least(last, high // atom.args[1].value)
    return first, last


def _with(facts: Facts, simplifier: Simplifier, condition: Expr, holds: bool) -> Facts:
    """The facts, and those that follow from a condition that holds, or does not."""
    found = dict(facts)
    stack = [(condition, holds)]
    while stack:
        node, holds = stack.pop()
        if node.op == "not":
            stack.append((node.args[0], not holds))
        elif node.op == ("and" if holds else "or"):
            stack.extend((argument, holds) for argument in node.args)
        elif node.op in _OPPOSITE and node.args[0].dtype == INT64:
            form = simplifier.linear(node.args[0]).plus(simplifier.linear(node.args[1]), -1)
            low, high = _SIGNS[node.op if holds else _OPPOSITE[node.op]]
            _note(found, form, low, high)
            _note(found, form.scaled(-1), -high, -low)
    return found


_SIGNS = {
    "lt": (-_FAR, -1),
    "le": (-_FAR, 0),
    "eq": (0, 0),
    "ne": (-_FAR, _FAR),
    "ge": (0, _FAR),
    "gt": (1, _FAR),
}
"""The least and the largest difference of two numbers that compare so."""


def _note(facts: Facts, form: Linear, low: int, high: int) -> None:
    terms = frozenset(form.terms)
    before = facts.get(terms, (-_FAR, _FAR))
    facts[terms] = greatest(before[0], low - form.constant), least(before[1], high - form.constant)
