"""Guards that several rules share: what must hold of a place beyond the facts about single variables."""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.ir.types import TensorType
from fusewise.ops.reduce import reduced_axes
from fusewise.ops.spec import Call
from fusewise.rewrite.facts import FACTS
from fusewise.rewrite.match import Match
from fusewise.rewrite.rule import Guard

__all__ = [
    "all_of",
    "constant_weights",
    "is_constant",
    "is_finite",
    "narrow",
    "one_number",
    "reduces",
    "same_shape",
    "uniform",
    "wide_divisor",
]


def all_of(*guards: Guard) -> Guard:
    """The first reason any of them has."""

    def check(match: Match) -> str | None:
        return next((reason for guard in guards if (reason := guard(match)) is not None), None)

    check.__doc__ = "; ".join((guard.__doc__ or "").rstrip(".") for guard in guards)
    return check


def _axes(match: Match, like: str = "r") -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The shape of what the reduction called `like` reads, and the axes it combines; None when they are not known."""
    node, graph = match.like[like], match.graph
    if any(x and graph.array(x) is None for x in node.inputs[1:]):
        return None
    kinds = tuple(graph.types[x] if x else None for x in node.inputs)
    known = tuple(graph.array(x) if x else None for x in node.inputs)
    call = Call(node, kinds, tuple(graph.types[x] for x in node.outputs), known)
    return call.input(0).dims, reduced_axes(call)


def reduces(match: Match) -> str | None:
    """The axes are known, and something is reduced."""
    found = _axes(match)
    if found is None:
        return "the axes are not known"
    shape, axes = found
    return None if axes and all(shape[axis] for axis in axes) else "nothing is reduced"


def uniform(variable: str) -> Guard:
    """The variable does not vary along the reduced axes, and still lines up with the result."""

    def check(match: Match) -> str | None:
        found = _axes(match)
        if found is None:
            return "the axes are not known"
        shape, axes = found
        kind = match.type(variable).dims
        offset = len(shape) - len(kind)
        if any(axis >= offset and kind[axis - offset] != 1 for axis in axes):
            return f"{variable} varies along a reduced axis"
        kept = bool(match.like["r"].attribute("keepdims", 1))
        if not kept and any(axis >= offset for axis in axes) and match.type(variable).size != 1:
            return f"{variable} would line up with other axes"
        return None

    check.__doc__ = f"{variable} does not vary along them"
    return check


def is_constant(match: Match, variable: str) -> bool:
    """Is the variable one constant, or absent? Does not look at its contents, which may not be computed yet."""
    values = match.values(variable)
    return len(values) < 2 and all(value in match.graph.constants for value in values)


def constant_weights(*variables: str) -> Guard:
    """The variables are constants."""

    def check(match: Match) -> str | None:
        name = next((name for name in variables if not match.values(name) or not is_constant(match, name)), None)
        return None if name is None else f"{name} is not constant"

    check.__doc__ = f"{' and '.join(variables)} are constant"
    return check


def one_number(variable: str) -> Guard:
    """The variable is a constant of one element."""

    def check(match: Match) -> str | None:
        if not match.values(variable) or not is_constant(match, variable):
            return f"{variable} is not constant"
        return None if match.type(variable).size == 1 else f"{variable} is not one number"

    check.__doc__ = f"{variable} is one constant number"
    return check


def same_shape(*variables: str) -> Guard:
    """The variables have one shape."""

    def check(match: Match) -> str | None:
        return None if len({match.type(name).dims for name in variables}) == 1 else "shapes differ"

    check.__doc__ = f"{' and '.join(variables)} have one shape"
    return check


def is_finite(variable: str) -> Guard:
    """No element of the variable is infinite or NaN."""

    def check(match: Match) -> str | None:
        known = all(FACTS["finite"](match.graph, value) for value in match.values(variable))
        return None if known else f"{variable} is not known to be finite"

    check.__doc__ = f"{variable} finite"
    return check


def narrow(graph: Graph, value: str, root: str) -> bool:
    """Is the value constant, or smaller than what it is a part of?"""
    mine, whole = graph.types.get(value), graph.types.get(root)
    if value in graph.constants or not (isinstance(mine, TensorType) and isinstance(whole, TensorType)):
        return True
    return mine.shape != whole.shape


def wide_divisor(match: Match) -> str | None:
    """A division for every element costs more than one reciprocal for a whole row."""
    whole = match.graph.tensor(match.roots[0]).size
    return None if match.type("b").size == whole else "the reciprocal is shared by a whole row"
