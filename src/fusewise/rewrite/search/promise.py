"""Weights that are promised and not yet computed, so that graphs can be priced by the thousand.

A search looks at the types of weights only. A `Promise` is a constant with a type and a way to its contents; the graph that
wins has its promises kept, all others never pay for theirs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from fusewise.ir.graph import Constant, Graph, LazyConstant, Node
from fusewise.ir.types import TensorType
from fusewise.rewrite.match import Match
from fusewise.rewrite.pattern import Computed
from fusewise.rewrite.substitute import LARGEST_FOLDED, Draft, Refused, computed

__all__ = ["Promise", "Promises", "deferred", "kept"]

_SMALL = 256
"""Constants of so few elements are computed at once, and so are all that are not floats: shapes may depend on them."""


class Promise(LazyConstant):
    """A constant of known type whose contents are computed when somebody asks for `array`, which may raise `Refused`.

    `recipe` says what it is made of: promises of one recipe are one constant, also once the contents are there.
    """

    __slots__ = ()

    def __init__(self, kind: TensorType, recipe: str, make: Callable[[], np.ndarray]) -> None:
        super().__init__(kind, make, recipe)

    @property
    def recipe(self) -> str:
        return str(self._recipe)

    @property
    def digest(self) -> str:
        return self.recipe


class Promises:
    """Makes promises for the computed terms of rules; remembers which types came out, so that each is found once."""

    def __init__(self) -> None:
        self._types: dict[tuple[object, ...], TensorType] = {}

    def __call__(self, term: Computed, match: Match) -> Constant:
        values = tuple(dict.fromkeys(x for bound in match.bound.values() for x in _named(bound)))
        known = {x: match.graph.constants[x] for x in values if x in match.graph.constants}
        attributes = tuple(sorted((name, node.attributes) for name, node in match.like.items()))
        kinds = tuple(match.graph.types[x] for x in values)
        key = (term, kinds, attributes)
        kind = self._types.get(key)
        if kind is None:
            stand_in = match.graph.replace(constants={x: _stand_in(constant) for x, constant in known.items()})
            kind = self._types[key] = Constant(np.asarray(term.function(replace(match, graph=stand_in)))).type
        if not _is_large(kind):
            return Constant(np.asarray(term.function(match)))
        made_of = (f"{x in known and recipe_of(x, known[x])}" for x in values)
        recipe = _digest(repr((id(term), term.name, attributes, kinds)), *made_of)
        return Promise(kind, recipe, lambda: np.asarray(term.function(match)))


def _named(bound: object) -> tuple[str, ...]:
    if isinstance(bound, str):
        return (bound,) if bound else ()
    return tuple(getattr(bound, "values", ()))


def _is_large(kind: TensorType) -> bool:
    return kind.dtype.is_float and kind.size > _SMALL


def _stand_in(constant: Constant) -> Constant:
    """Zeros that take no room, for weights; what shapes may depend on as it is."""
    if not _is_large(constant.type):
        return constant
    return Constant(np.broadcast_to(np.zeros((), constant.dtype.numpy), constant.type.dims))


def recipe_of(name: str, constant: Constant) -> str:
    """What tells a constant from others: its recipe, its contents if they are few, else its name in the first graph."""
    if isinstance(constant, Promise):
        return constant.recipe
    return f"given {name}" if _is_large(constant.type) else constant.digest


def _digest(*parts: str) -> str:
    return hashlib.blake2b("|".join(parts).encode(), digest_size=16).hexdigest()


def deferred(draft: Draft) -> Draft:
    """The draft with its constant parts promised, the small ones computed. Raises `Refused` when they would grow.

    The counterpart of `substitute.folded`, which computes everything.
    """
    graph, constants, nodes = draft.match.graph, dict(draft.constants), []
    types = dict(draft.types)
    for node in draft.nodes:
        known = {x: found for x in node.reads if (found := constants.get(x) or graph.constants.get(x)) is not None}
        if len(known) < len(set(node.reads)):
            nodes.append(node)
            continue
        kinds = [kind for x in node.writes if isinstance(kind := types[x], TensorType)]
        if sum(kind.size for kind in kinds) > max(LARGEST_FOLDED, sum(c.type.size for c in known.values())):
            raise Refused("a constant would grow")
        recipe = _digest(node.op, repr(node.attributes), *(recipe_of(x, known[x]) for x in node.reads))
        for k, (name, kind) in enumerate(zip(node.outputs, kinds, strict=True)):
            promise = Promise(kind, f"{recipe}[{k}]", _maker(node, known, graph, k))
            constants[name] = promise if _is_large(kind) else Constant(promise.array)
    return replace(draft, nodes=tuple(nodes), constants=constants, types=types)


def _maker(node: Node, known: Mapping[str, Constant], graph: Graph, k: int) -> Callable[[], np.ndarray]:
    return lambda: np.array(computed(node, [known[x].array for x in node.reads], graph)[k])


def kept(graph: Graph) -> Graph:
    """The graph with every promise kept. Raises `Refused` when a weight overflows, vanishes or cannot be computed."""
    return graph.replace(
        constants={x: Constant(c.array) if isinstance(c, Promise) else c for x, c in graph.constants.items()}
    )
