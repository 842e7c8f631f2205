"""What the exact search orders: atoms, and which of them need which others first.

An atom is one operator, or one with what runs in its wake (`wake_of`). Excluded operators are atoms that bar the way. Sets of
atoms are bits, as sets of operators are; atoms are numbered in a topological order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fusewise.accel.bits import bits_of, mask_of, union_over
from fusewise.accel.network import Network, Operator, Read
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF

__all__ = ["Atoms", "atoms_of", "wake_of"]


@dataclass(frozen=True)
class Atoms:
    """`members` has the operators of each atom, as bits, `owner` the atom of each operator, `spare` the elements that those in
    its wake need of the buffer; all other fields are sets of atoms, as bits, per atom: those it reads from (`before`), that read
    from it (`after`), all before and after those. `barred` are the excluded operators."""

    members: tuple[int, ...]
    owner: tuple[int, ...]
    spare: tuple[int, ...]
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

    def numbers(self, operators: int) -> int:
        """The atoms of a set of operators."""
        owner = self.owner
        return mask_of(owner[v] for v in bits_of(operators))

    def wake(self, atoms: int) -> int:
        """Elements that what runs in the wake of the last of these atoms needs."""
        return sum(self.spare[a] for a in bits_of(atoms) if self.spare[a] and not self.after[a] & atoms)

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


def wake_of(costs: GroupCosts) -> dict[int, int]:
    """The operators that may as well run in the group of the one they read, each with that one.

    They take one pixel for one, of a tensor that nobody else reads, and one operator at most reads theirs, which is as large:
    it moves as much to cut behind them as before them. With line buffers the one group needs more by their own pixel alone, the
    other less. With row tiles, as running them takes, both need as much: unless an operator is better off by itself, or what
    follows may not start a group.
    """
    problem = costs.problem
    network, excluded = problem.network, problem.excluded
    found: dict[int, int] = {}
    together: dict[int, int] = {}  # an operator with those in its wake, as bits
    match problem.scheme:
        case LBDF():
            tiles = False
        case BRR(accounting="executed"):
            tiles = True
        case _:
            return found
    for v, operator in enumerate(network.operators):
        if len(operator.reads) != 1 or len(operator.writes) != 1 or not _pixelwise(operator, operator.reads[0]):
            continue
        source, result = network.tensors[operator.reads[0].tensor], network.tensors[operator.writes[0]]
        alone = source.consumers == 1 << v and not source.is_output
        readers = result.consumers.bit_count() + result.is_output
        barred = excluded >> v & 1 or source.producer < 0 or excluded >> source.producer & 1
        if not alone or readers > 1 or barred or source.elements != result.elements:
            continue
        ahead = together.get(source.producer, 1 << source.producer)
        if tiles and (costs.dram_bytes(ahead) != costs.dram_bytes(ahead | 1 << v) or _pools(network, result.consumers)):
            continue
        found[v], together[v] = source.producer, ahead | 1 << v
    return found


def _pools(network: Network, readers: int) -> bool:
    return any(network.operators[v].form.kind in ("pool", "global_pool") for v in bits_of(readers))


def _pixelwise(operator: Operator, read: Read) -> bool:
    waits = (
        read.lag_rows or read.lag_columns or read.back_rows or read.back_columns or read.edge_rows or read.edge_columns
    )
    return operator.form.kind == "pointwise" and not operator.form.weights and not waits and not read.whole


def atoms_of(problem: Problem, wake: Mapping[int, int] = MappingProxyType({})) -> Atoms:
    """Every operator as an atom of its own, but for those in the wake of another (see `wake_of`)."""
    network = problem.network
    leader = list(range(len(network)))
    spare = [0] * len(network)
    for v, source in sorted(wake.items()):
        leader[v] = leader[source]
        spare[leader[v]] += _pixel(problem, network.operators[v])
    groups: dict[int, int] = {}
    for v in bits_of(problem.fuseable):
        groups[leader[v]] = groups.get(leader[v], 0) | 1 << v
    order = problem.ordered(groups.values())
    assert order is not None, "a graph without cycles has an order"
    members = _with_barred(problem, list(order))
    owner = [0] * len(network)
    for number, atom in enumerate(members):
        for v in bits_of(atom):
            owner[v] = number
    spares = tuple(spare[(atom & -atom).bit_length() - 1] for atom in members)
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
    return Atoms(
        tuple(members), tuple(owner), spares, tuple(before), tuple(after), tuple(ancestors), tuple(descendants), barred
    )


def _pixel(problem: Problem, operator: Operator) -> int:
    """Elements that an operator which takes pixels one by one holds of what it reads: none in tiles."""
    network, scheme, read = problem.network, problem.scheme, operator.reads[0]
    if not isinstance(scheme, LBDF):
        return 0
    return scheme.waiting_pixels(network, read, 0, 0) * network.tensors[read.tensor].channels


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
