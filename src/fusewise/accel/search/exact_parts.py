"""What groups of a wide network are made of: hubs, and chains of operators between them.

A *hub* reads from or is read by several others; a *chain* is a run of operators, each with one before and one behind it, from one
hub to another. A group that spans hubs holds every chain between two of them whole, since it may not be left and entered again;
of a chain with one end in the group it holds a piece: none, some, or all of its links at that end. So groups are sets of hubs, and
a piece for each chain at their border.

What a group needs (a lower bound) and moves adds up over tensors, and depends for each on whether its producer and which of its
readers are in the group: of all paths from one operator of the group to another none leaves it, so how long a tensor waits at
least for a reader is known beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fusewise.accel.bits import bits_of, lowest
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.exact_atoms import Atoms, atoms_of, wake_of
from fusewise.accel.search.exact_lines import own_of

__all__ = ["Chain", "Parts", "Piece", "Skeleton", "skeleton_of"]


class Parts:
    """What convex sets of operators need at least, and move exactly, in elements. For line buffers; every answer for a tensor is
    kept."""

    def __init__(self, problem: Problem, scheme: LBDF) -> None:
        self._problem, self._scheme = problem, scheme
        network = problem.network
        others = network.everything if scheme.excluded_traffic else ~problem.excluded
        self._counted = tuple(tensor.consumers & others for tensor in network.tensors)
        self._touched = tuple(
            sum({1 << t for t in (*operator.writes, *(read.tensor for read in operator.reads))})
            for operator in network.operators
        )
        self._known: list[dict[int, tuple[int, int]]] = [{} for _ in network.tensors]
        self.weights = tuple(operator.form.weights for operator in network.operators)
        self.own = own_of(network)

    def of(self, group: int) -> tuple[int, int]:
        """Elements that a convex set of operators needs at least, and that it moves."""
        return self.more(0, group)

    def more(self, group: int, added: int) -> tuple[int, int]:
        """The same for what `added` makes more; both with and without it the set must be convex."""
        need = moved = touched = 0
        own, weights, touches, tensors = self.own, self.weights, self._touched, self._problem.network.tensors
        for v in bits_of(added):
            need += own[v]
            moved += weights[v]
            touched |= touches[v]
        larger = group | added
        for t in bits_of(touched):
            tensor = tensors[t]
            found = self._of_tensor(
                t, tensor.consumers & larger, tensor.producer >= 0 and larger >> tensor.producer & 1
            )
            need += found[0]
            moved += found[1]
            if group:
                found = self._of_tensor(
                    t, tensor.consumers & group, tensor.producer >= 0 and group >> tensor.producer & 1
                )
                need -= found[0]
                moved -= found[1]
        return need, moved

    def _of_tensor(self, number: int, readers: int, inside: int) -> tuple[int, int]:
        known, key = self._known[number], readers << 1 | inside
        found = known.get(key)
        if found is None:
            found = known[key] = self.held(number, readers), self.moved(number, readers, bool(inside))
        return found

    def held(self, number: int, readers: int) -> int:
        """Elements held of a tensor for these readers, which wait for each other and for what is between them."""
        network = self._problem.network
        tensor, found = network.tensors[number], 0
        farthest = self._behind(number, readers)
        for v in bits_of(readers):
            rows, columns = farthest[v]
            read = next(read for read in network.operators[v].reads if read.tensor == number)
            found = max(found, self._scheme.waiting_pixels(network, read, rows, columns))
        return found * tensor.channels

    def _behind(self, number: int, readers: int) -> dict[int, tuple[int, int]]:
        """By how many units of height and width each operator that these readers reach trails the tensor at least."""
        network = self._problem.network
        found: dict[int, tuple[int, int]] = {}
        last = readers.bit_length()
        for v in range(lowest(readers) if readers else last, last):
            rows = columns = None
            for read in network.operators[v].reads:
                before = network.tensors[read.tensor].producer
                if read.tensor == number:
                    down, right = (0, 0) if readers >> v & 1 else (None, None)
                else:
                    down, right = found.get(before, (None, None))
                if down is not None and right is not None:
                    down, right = down + read.lag_rows, right + read.lag_columns
                    rows = down if rows is None else max(rows, down)
                    columns = right if columns is None else max(columns, right)
            if rows is not None and columns is not None:
                found[v] = rows, columns
        return found

    def moved(self, number: int, readers: int, inside: bool) -> int:
        """Elements of a tensor that a group with these readers, and its producer or not, reads or writes."""
        problem, scheme = self._problem, self._scheme
        tensor = problem.network.tensors[number]
        if inside:
            kept = tensor.is_output and scheme.network_io
            return tensor.elements if kept or self._counted[number] & ~readers else 0
        if tensor.producer < 0:
            counts = scheme.network_io
        else:
            counts = scheme.excluded_traffic or not problem.excluded >> tensor.producer & 1
        return tensor.elements if readers and counts else 0


@dataclass(frozen=True)
class Piece:
    """Links that a group takes of a chain at one end: elements they need more, and move more or less, as against none; the
    atoms. `whole`: at the last hub's end, all links, which then read what the first hub gives: that is not counted in `moved`."""

    need: int
    moved: int
    atoms: int
    whole: bool = False


@dataclass(frozen=True)
class Chain:
    """The atoms between the hubs `first` and `last`, the tensor that `first` gives, and the pieces, shortest first."""

    first: int
    last: int
    links: tuple[int, ...]
    tensor: int
    behind_first: tuple[Piece, ...]
    before_last: tuple[Piece, ...]


@dataclass(frozen=True)
class Skeleton:
    """Hubs and chains of a problem, as atoms (see `exact_atoms`); `near` has, per hub, the hubs next to it or behind a chain."""

    problem: Problem
    atoms: Atoms
    parts: Parts
    hubs: tuple[int, ...]
    near: tuple[int, ...]
    chains: tuple[Chain, ...]

    def of(self, atoms: int) -> tuple[int, int]:
        """Elements that a convex set of atoms needs at least, but for what runs in a wake, and moves."""
        return self.more(0, atoms)

    def more(self, atoms: int, added: int) -> tuple[int, int]:
        """The same for what `added` makes more."""
        need, moved = self.parts.more(self.atoms.operators(atoms), self.atoms.operators(added))
        spare = self.atoms.spare
        return need - sum(spare[a] for a in bits_of(added)), moved

    def outside(self, chain: Chain) -> tuple[int, bool]:
        """Who else reads the tensor of the chain's first hub, beside links of chains; and is it written for others in any case?"""
        tensor = self.problem.network.tensors[chain.tensor]
        readers = 0
        for v in bits_of(tensor.consumers):
            readers |= 1 << self.atoms.owner[v]
        links = 0
        for other in self.chains:
            if other.tensor == chain.tensor:
                links |= 1 << other.links[0]
        others = readers & ~links & ~(1 << chain.first)
        written = self.parts.moved(chain.tensor, tensor.consumers & self.problem.fuseable, True)
        return others & ~self.atoms.barred, bool(written)


def skeleton_of(problem: Problem) -> Skeleton | None:
    """Hubs and chains; None for schemes in which groups do not add up like this, without any chain, and where one hub gives
    several tensors to chains."""
    if not isinstance(problem.scheme, LBDF):
        return None
    atoms, parts = atoms_of(problem, wake_of(problem)), Parts(problem, problem.scheme)
    links = {a: ends for a in range(len(atoms)) if (ends := _ends(problem, atoms, a)) is not None}
    hubs = tuple(a for a in range(len(atoms)) if a not in links and not atoms.barred >> a & 1)
    near = [0] * len(atoms)
    chains = []
    for hub in hubs:
        for reader in bits_of(atoms.after[hub] & ~atoms.barred):
            run: list[int] = []
            while reader in links:
                run.append(reader)
                reader = lowest(atoms.after[reader])
            near[hub] |= 1 << reader
            near[reader] |= 1 << hub
            if run:
                chains.append(_chain(problem, atoms, parts, hub, reader, [(a, *links[a]) for a in run]))
    if len({chain.first for chain in chains}) < len({chain.tensor for chain in chains}) or not chains:
        return None
    return Skeleton(problem, atoms, parts, hubs, tuple(near), tuple(chains))


def _ends(problem: Problem, atoms: Atoms, atom: int) -> tuple[int, int] | None:
    """The tensors that an atom reads and writes, if it is a link: one of each, from and for one atom each that is not barred."""
    before, after = atoms.before[atom], atoms.after[atom]
    if before.bit_count() != 1 or after.bit_count() != 1 or (before | after | 1 << atom) & atoms.barred:
        return None
    network, members = problem.network, atoms.members[atom]
    reads = {read.tensor for v in bits_of(members) for read in network.operators[v].reads}
    writes = {t for v in bits_of(members) for t in network.operators[v].writes}
    given, made = reads - writes, {t for t in writes if network.tensors[t].consumers & ~members}
    if len(given) != 1 or len(made) != 1 or any(network.tensors[t].is_output for t in writes):
        return None
    return given.pop(), made.pop()


def _chain(
    problem: Problem, atoms: Atoms, parts: Parts, first: int, last: int, links: list[tuple[int, int, int]]
) -> Chain:
    """A chain with its pieces."""
    tensors, room = problem.network.tensors, problem.room
    end = tensors[links[-1][2]].elements
    steps = [(_alone(problem, atoms, parts, atom), _weights(atoms, parts, atom)) for atom, _, _ in links]
    behind = [
        Piece(need, moved + tensors[links[size - 1][2]].elements, taken)
        for size, need, moved, taken in _sums(links, steps)
        if need <= room
    ]
    before = []
    for size, need, moved, taken in _sums(links[::-1], steps[::-1]):
        whole = size == len(links)
        given = 0 if whole else tensors[links[-size][1]].elements
        if need <= room:
            before.append(Piece(need, moved + given - end, taken, whole))
    return Chain(first, last, tuple(atom for atom, _, _ in links), links[0][1], tuple(behind), tuple(before))


def _sums(links: list[tuple[int, int, int]], steps: list[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """How many links, what they need and weigh, and which they are, for one, two and so on."""
    need = weights = taken = 0
    for size, ((atom, _, _), (more, weight)) in enumerate(zip(links, steps, strict=True), 1):
        need, weights, taken = need + more, weights + weight, taken | 1 << atom
        yield size, need, weights, taken


def _alone(problem: Problem, atoms: Atoms, parts: Parts, atom: int) -> int:
    """Elements that a link needs in whatever group: windows on what others read as well are left to those."""
    need = -atoms.spare[atom]
    for v in bits_of(atoms.members[atom]):
        need += parts.own[v]
        for read in problem.network.operators[v].reads:
            if problem.network.tensors[read.tensor].consumers == 1 << v:
                need += parts.held(read.tensor, 1 << v)
    return need


def _weights(atoms: Atoms, parts: Parts, atom: int) -> int:
    return sum(parts.weights[v] for v in bits_of(atoms.members[atom]))
