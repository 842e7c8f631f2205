"""Which groups move less than the sum of their operators' prices: the cheapest paths through the layers of a problem.

Reduced cost: what a group moves, less the prices of its operators. A path may need only so much of the buffer, which makes it a
shortest path with a resource. Back from the end, for several prices of room in the buffer (shadows), what the rest of a group
costs at least is found for every state; forward, labels (reduced cost, need) go from state to state, and end where another label of
the same state has less of both, or where some shadow says that the rest cannot make them pay (Irnich and Desaulniers 2005).

Each group has one first operator, its root, and a plan has at most one group for each root. So whatever the prices, a plan moves at
least the sum of all prices and, for each root, of the least reduced cost if that is negative (Lagrange).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fusewise.accel.search.exact_layers import Layer

__all__ = ["PricedGroups", "Pricing", "Saving"]

_SHADOWS = 2.0 ** np.arange(-3, 4)
"""Shadows, besides none: multiples of the one that decided last time for most roots."""

_ENOUGH = 1e-4
"""Reduced costs above minus so many elements are not looked at; whole numbers of elements are what matters."""


class Saving(NamedTuple):
    """A group (operators as bits), what it moves less than its prices come to (negative), and its first operator."""

    reduced: float
    group: int
    root: int


class PricedGroups(NamedTuple):
    """`bound`: elements that every plan moves at least; `savings`: groups that pay, of each root the best first; `labels`: how many
    it took."""

    bound: float
    savings: list[Saving]
    labels: int


class _Labels(NamedTuple):
    """Groups that are under way, as columns: state, need, reduced cost, root, and the label's number among those of all layers."""

    state: np.ndarray
    need: np.ndarray
    reduced: np.ndarray
    root: np.ndarray
    number: np.ndarray


class Pricing:
    """The layers of a problem, and `room`, elements that its buffer holds. `shadow` is elements moved for each element of room."""

    def __init__(self, layers: Sequence[Layer], room: int, shadow: float) -> None:
        self._layers, self._room, self._shadow = layers, room, shadow

    def priced(self, prices: np.ndarray, each: int, share: float) -> PricedGroups:
        """Groups that pay at these prices (operators,; 0 for those that no group may have), so many of each root at most: those
        that save at least this share of what the shadows promise for their root."""
        shadows = np.concatenate([[0.0], self._shadow * _SHADOWS])
        rests = self._rests(prices, shadows)
        least = np.minimum(-_ENOUGH, share * self._least(prices, shadows, rests))
        savings, labels = self._savings(prices, shadows, rests, least, each)
        for saving in savings:
            least[saving.root] = min(least[saving.root], saving.reduced)
        return PricedGroups(float(prices.sum() + least.sum()), savings, labels)

    def near(self, prices: np.ndarray, slack: float, each: int) -> list[Saving]:
        """Groups that cost at most `slack` beyond their prices, so many of each root at most; not all that there are."""
        shadows = np.concatenate([[0.0], self._shadow * _SHADOWS])
        return self._savings(prices, shadows, self._rests(prices, shadows), np.full(len(prices), slack), each)[0]

    def _rests(self, prices: np.ndarray, shadows: np.ndarray) -> list[np.ndarray]:
        """Per layer, and behind the last, (states, shadows): what the rest of a group costs at least, its need at the shadow."""
        rest = np.full((self._layers[-1].following + 1, len(shadows)), np.inf)
        rest[0] = 0
        found = [rest]
        for layer, price in zip(reversed(self._layers), prices[::-1], strict=True):
            out = rest[layer.to[0]] + layer.moved[0][:, None] + layer.need[0][:, None] * shadows
            taken = rest[layer.to[1]] + (layer.moved[1] - price)[:, None] + layer.need[1][:, None] * shadows
            rest = np.concatenate([np.minimum(out, taken), np.full((1, len(shadows)), np.inf)])
            found.append(rest)
        return found[::-1]

    def _least(self, prices: np.ndarray, shadows: np.ndarray, rests: list[np.ndarray]) -> np.ndarray:
        """(operators,): a lower bound of the reduced costs of all groups with this root. Remembers which shadow decided."""
        found, decided = np.zeros(len(self._layers)), []
        for node, layer in enumerate(self._layers):
            if layer.root is not None:
                to, need, moved = layer.root
                costs = moved - prices[node] + (need - self._room) * shadows + rests[node + 1][to]
                found[node] = costs.max()
                if found[node] < 0:
                    decided.append(shadows[int(costs.argmax())])
        if any(decided):
            self._shadow = float(np.median([shadow for shadow in decided if shadow]))
        return found

    def _savings(
        self, prices: np.ndarray, shadows: np.ndarray, rests: list[np.ndarray], enough: np.ndarray, each: int
    ) -> tuple[list[Saving], int]:
        """Groups whose reduced cost is less than `enough` (operators,) for their root; and how many labels there were."""
        labels = _Labels(*(np.zeros(0, kind) for kind in (np.int64, np.int64, float, np.int64, np.int64)))
        # per layer: from which label each label came, and whether the operator was taken in
        steps: list[tuple[np.ndarray, np.ndarray]] = []
        ends: list[tuple[int, float, int, int]] = []
        count = 0
        for node, layer in enumerate(self._layers):
            grown, before, taken = _grown(labels, layer, node, float(prices[node]), self._room)
            promise = self._promises(grown, shadows, rests[node + 1])
            kept = np.flatnonzero(promise < enough[grown.root])
            kept = kept[_undominated(*(column[kept] for column in grown[:4]))]
            grown, before, taken = _Labels(*(column[kept] for column in grown)), before[kept], taken[kept]
            grown = grown._replace(number=count + np.arange(len(kept)))
            steps.append((before, taken))
            count += len(kept)
            done = grown.state == 0
            ends += zip(
                grown.root[done].tolist(),
                grown.reduced[done].tolist(),
                [node] * int(done.sum()),
                grown.number[done].tolist(),
                strict=True,
            )
            labels = _Labels(*(column[~done] for column in grown))
        return _traced(ends, steps, each), count

    def _promises(self, labels: _Labels, shadows: np.ndarray, rest: np.ndarray) -> np.ndarray:
        """(labels,): what the groups that come of a label save at most, by the shadow that knows best."""
        over = (labels.need - self._room)[:, None] * shadows
        found: np.ndarray = labels.reduced + (over + rest[labels.state]).max(axis=1)
        return found


def _grown(labels: _Labels, layer: Layer, node: int, price: float, room: int) -> tuple[_Labels, np.ndarray, np.ndarray]:
    """The labels of the next layer; and of each the label that it came from, -1 for a root, and whether the operator was taken
    in."""
    state, grown = labels.state, list[tuple[np.ndarray, ...]]()
    for taken in (0, 1):
        to, need = layer.to[taken, state], labels.need + layer.need[taken, state]
        reduced = labels.reduced + layer.moved[taken, state] - taken * price
        able = np.flatnonzero((to < layer.following) & (need <= room))
        came, taken_in = labels.number[able], np.full(len(able), taken)
        grown.append((to[able], need[able], reduced[able], labels.root[able], came, taken_in))
    if layer.root is not None and layer.root.need <= room:
        root = layer.root
        grown.append(tuple(np.array([x]) for x in (root.to, root.need, root.moved - price, node, -1, 1)))
    to, need, reduced, roots, before, taken_in = (np.concatenate(column) for column in zip(*grown, strict=True))
    return _Labels(to, need, reduced, roots, before), before, taken_in


def _undominated(state: np.ndarray, need: np.ndarray, reduced: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Which labels stay, by state: of the same state and root those with less need, or less reduced cost, than every other one.
    Finished groups all stay."""
    order = np.lexsort((reduced, need, root, state))
    if not len(order):
        return order
    state, root = state[order], root[order]
    fresh = np.concatenate([[True], (state[1:] != state[:-1]) | (root[1:] != root[:-1])])
    # Ranks of reduced costs, as whole numbers, fall by more than all of them from one state and root to the next.
    rank = np.empty(len(order), np.int64)
    rank[np.argsort(reduced[order], kind="stable")] = np.arange(len(order))
    rank -= np.cumsum(fresh) * len(order)
    least = np.minimum.accumulate(rank)
    stays = np.concatenate([[True], rank[1:] < least[:-1]]) | (state == 0)
    kept: np.ndarray = order[stays]
    return kept


def _traced(
    ends: list[tuple[int, float, int, int]], steps: list[tuple[np.ndarray, np.ndarray]], each: int
) -> list[Saving]:
    """The best groups of each root, put together from the steps that led to them."""
    starts = np.concatenate([[0], np.cumsum([len(before) for before, _ in steps])])
    found: list[Saving] = []
    number, last = 0, -1
    for root, reduced, node, label in sorted(ends):
        number = number + 1 if root == last else 1
        last = root
        if number > each:
            continue
        group = 0
        while label >= 0:
            before, taken = steps[node]
            at = label - starts[node]
            group |= int(taken[at]) << node
            label, node = int(before[at]), node - 1
        found.append(Saving(reduced, group, root))
    return found
