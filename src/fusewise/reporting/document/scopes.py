"""Scopes of nodes, from the names that writers give them: "/model/layers.3/attn/MatMul" lies in model, layers, 3, attn."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Path", "node_scopes", "scoped_order", "unit_scope"]

Path = tuple[str, ...]
"""Titles of scopes from the outermost inwards; nothing where a node lies in none."""

DEEPEST = 12
"""Scopes in each other that are told apart: names are the user's, and one may have thousands of dots."""


def node_scopes(nodes: Sequence[Mapping[str, Any]]) -> list[Path]:
    """The scope of every node: of its name or, where that says nothing, of the first node of the written graph that it comes
    from and whose name does; else the one that it stands in, between its neighbours in the order of the graph."""
    names = [_telling(node) for node in nodes]
    known = [None if name is None else _parts(name) for name in names]
    prefixes = {parts[:length] for parts in known if parts for length in range(1, len(parts))}
    found = [None if parts is None else parts if parts in prefixes else parts[:-1] for parts in known]
    ops = [str(node["op"]) for node in nodes]
    stretches = list(_unknown(found))
    tails: dict[Path, tuple[int, list[str]]] = {}
    for begin, end, before, after in stretches:
        kind = _next_of_its_kind(before, after)
        if kind is not None:
            tails.setdefault(kind, (len(_between(before, after)), ops[begin:end]))
    scopes = [path or () for path in found]
    for begin, end, before, after in stretches:
        scopes[begin:end] = [_between(before, after)] * (end - begin)
        if before is not None and _next_of_its_kind(before, after) is None:
            for length in range(len(before)):  # behind the last of its kind stands what stands behind the others
                depth, tail = tails.get((*before[:length], _word(before[length]) or ""), (0, []))
                if tail and ops[begin:end][: len(tail)] == tail:
                    scopes[begin : begin + len(tail)] = [before[:depth]] * len(tail)
                    break
    return scopes


def _unknown(found: Sequence[Path | None]) -> Iterator[tuple[int, int, Path | None, Path | None]]:
    """Stretches of nodes without a scope: the first, behind the last, the scopes before and after."""
    begin = 0
    while begin < len(found):
        end = begin + 1
        if found[begin] is None:
            while end < len(found) and found[end] is None:
                end += 1
            yield begin, end, found[begin - 1] if begin else None, found[end] if end < len(found) else None
        begin = end


def unit_scope(scopes: Sequence[Path], anchor: int | None) -> Path:
    """The scope of nodes that stay together: that of their anchor, else what all of them share, else the first one's."""
    if anchor is not None:
        return scopes[anchor]
    shared = scopes[0]
    for path in scopes[1:]:
        shared = shared[: _common(shared, path)]
    return shared or scopes[0]


def scoped_order(before: Sequence[Sequence[int]], scopes: Sequence[Path]) -> list[int]:
    """A topological order of units that leaves a scope only where nothing in it is ready; the given order otherwise.

    `before` has for every unit the units that it reads from. `ValueError` where these form a cycle.
    """
    waiting = [len(set(units)) for units in before]
    after: list[list[int]] = [[] for _ in before]
    for unit, units in enumerate(before):
        for earlier in set(units):
            after[earlier].append(unit)
    ready: dict[Path, list[int]] = {}

    def offer(unit: int) -> None:
        for length in range(len(scopes[unit]) + 1):
            heapq.heappush(ready.setdefault(scopes[unit][:length], []), unit)

    for unit, count in enumerate(waiting):
        if not count:
            offer(unit)
    order: list[int] = []
    done = [False] * len(before)
    here: Path = ()
    while len(order) < len(before):
        first = _next_in(ready, here, done)
        if first is None:
            raise ValueError("groups read from each other in a circle")
        done[first] = True
        order.append(first)
        here = scopes[first]
        for later in after[first]:
            waiting[later] -= 1
            if not waiting[later]:
                offer(later)
    return order


def _next_in(ready: Mapping[Path, list[int]], here: Path, done: Sequence[bool]) -> int | None:
    """The first unit that is ready in the innermost scope around `here` that has one."""
    for length in range(len(here), -1, -1):
        heap = ready.get(here[:length], [])
        while heap and done[heap[0]]:
            heapq.heappop(heap)
        if heap:
            return heap[0]
    return None


def _telling(node: Mapping[str, Any]) -> str | None:
    """The name that has scopes in it."""
    for name in (node["name"], *node.get("origin", ())):
        if len(_parts(name)) > 1:
            return str(name)
    return None


def _parts(name: str) -> Path:
    """A name as the titles of its scopes and its own. "/layer1/layer1.0/Conv" says layer1 twice and means it once."""
    parts: list[str] = []
    for component in name.split("/"):
        titles = [title for title in component.split(".") if title]
        parts += titles[1:] if len(titles) > 1 and parts[-1:] == titles[:1] else titles
    if len(parts) > DEEPEST:
        parts[DEEPEST - 1 :] = [".".join(parts[DEEPEST - 1 :])]
    return tuple(parts)


def _common(one: Path, other: Path) -> int:
    """How many scopes both lie in."""
    length = 0
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            break
        length += 1
    return length


def _between(before: Path | None, after: Path | None) -> Path:
    """The scope of a node between two others whose scopes are known: what they share. Between one scope and the next of its
    kind it is the former, and the last counted one in that ("layer3.5" before "layer4.0")."""
    if before is None or after is None:
        return ()
    length = _common(before, after)
    if _next_of_its_kind(before, after) is not None:
        length += 1
        if not before[length - 1].isdecimal() and length < len(before) and before[length].isdecimal():
            length += 1
    return before[:length]


def _next_of_its_kind(before: Path | None, after: Path | None) -> Path | None:
    """Where one scope and another of a counted kind meet ("layer.3" and "layer.4", "stage3" and "stage4"), the kind: its scope and
    its title without the number."""
    if before is None or after is None:
        return None
    length = _common(before, after)
    if length == min(len(before), len(after)):
        return None
    word = _word(before[length])
    return None if word is None or word != _word(after[length]) else (*before[:length], word)


def _word(title: str) -> str | None:
    """A counted title without its number: "stage3" is "stage"; None for one without."""
    stripped = title.rstrip("0123456789")
    return None if stripped == title else stripped
