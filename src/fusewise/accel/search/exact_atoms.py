"""What the exact search orders: atoms, and which of them need which others first.

An atom is one operator. Excluded operators are atoms that bar the way. Sets of atoms are bits, as sets of operators are; atoms
are numbered in a topological order.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusewise.accel.bits import bits_of, mask_of, union_over
from fusewise.accel.problem import Problem

__all__ = ["Atoms", "atoms_of"]


@dataclass(frozen=True)
class Atoms:
    """`members` has the operator of each atom, as a bit; all other fields are sets of atoms, as bits, per atom: those it reads
    from (`before`), that read from it (`after`), all before and after those. `barred` are the excluded operators."""

    members: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    ancestors: tuple[int, ...]
    descendants: tuple[int, ...]
    barred: int

    def __len__(self) -> int:
        return len(self.members)

    @property
    def everything(self) -> int:
        """All atoms."""
        return (1 << len(self.members)) - 1

    def operators(self, atoms: int) -> int:
        """The operators of a set of atoms."""
        return union_over(self.members, atoms)

    def ready(self, done: int) -> int:
        """Atoms that can run once those in `done` have."""
        before, missing = self.before, ~done
        return mask_of(v for v in bits_of(self.everything & missing) if not before[v] & missing)

    def closed(self, done: int, pending: int) -> int:
        """`done` and all barred atoms that can run after it, of those in `pending` and what follows them: running a barred
        atom at once costs nothing and never harms."""
        pending &= self.barred & ~done
        while pending:
            low = pending & -pending
            pending ^= low
            v = low.bit_length() - 1
            if not self.before[v] & ~done:
                done |= low
                pending |= self.after[v] & self.barred & ~done
        return done


def atoms_of(problem: Problem) -> Atoms:
    """Every operator as an atom of its own."""
    network = problem.network
    order = problem.ordered(problem.singletons())
    assert order is not None, "a graph without cycles has an order"
    members = _with_barred(problem, list(order))
    owner = [0] * len(network)
    for number, atom in enumerate(members):
        for v in bits_of(atom):
            owner[v] = number
    before, after = [0] * len(members), [0] * len(members)
    for producer, consumer in network.edges:
        a, b = owner[producer], owner[consumer]
        if a != b:
            before[b] |= 1 << a
            after[a] |= 1 << b
    ancestors: list[int] = []
    for sources in before:
        ancestors.append(sources | union_over(ancestors, sources))
    descendants = [0] * len(members)
    for v in reversed(range(len(members))):
        descendants[v] = after[v] | union_over(descendants, after[v])
    barred = mask_of(v for v, atom in enumerate(members) if atom & problem.excluded)
    return Atoms(tuple(members), tuple(before), tuple(after), tuple(ancestors), tuple(descendants), barred)


def _with_barred(problem: Problem, order: list[int]) -> list[int]:
    """The parts in their order, each preceded by the excluded operators it needs; the other excluded ones come last."""
    ancestors, excluded, done, found = problem.network.ancestors, problem.excluded, 0, []
    for part in [*order, excluded]:
        needed = union_over(ancestors, part) & excluded & ~done if part != excluded else excluded & ~done
        found += [1 << v for v in bits_of(needed)]
        if part != excluded:
            found.append(part)
        done |= part | needed
    return found
