"""The planning problem: a network, a scheme, a buffer; and a memory for what groups cost.

Takes a `Network` (see `accel.network`); gives what every search works on. A plan is a partition of the fuseable operators into
groups that each hang together and fit the buffer, such that groups and excluded operators can be put in an order. Groups are
sets of operators as bits (`accel.bits`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from fusewise.accel.bits import bits_of, component, is_connected, mask_of, union_over
from fusewise.accel.network import Network
from fusewise.accel.schemes.scheme import UNBOUNDED, Scheme, operator_traffic

__all__ = ["GroupCost", "GroupCosts", "Problem"]

GroupCost = Callable[[int], float]
"""What a search minimises the sum of: a number for each group."""


@dataclass(frozen=True)
class Problem:
    """`capacity` is the buffer in bytes. An operator that the scheme cannot run in it even alone is *excluded*: it stays in the
    graph as a barrier, runs through DRAM, and belongs to no group."""

    network: Network
    scheme: Scheme
    capacity: int

    @cached_property
    def excluded(self) -> int:
        """Operators that take part in no group, as bits."""
        nodes = range(len(self.network))
        return mask_of(v for v in nodes if not self.scheme.fuseable(self.network, v, self.capacity))

    @cached_property
    def _likes(self) -> tuple[int, ...]:
        """A number for each operator, the same for operators that nothing but their place in the network tells apart: what
        they are, and how far from them those are that make and read what they read and write."""
        network, excluded, known = self.network, self.excluded, dict[object, int]()

        def seen(node: int, number: int) -> object:
            tensor = network.tensors[number]
            made = tensor.producer >= 0
            maker = (
                (node - tensor.producer, network.operators[tensor.producer].writes.index(number)) if made else number
            )
            readers = tuple((v - node, excluded >> v & 1) for v in bits_of(tensor.consumers))
            barred = made and excluded >> tensor.producer & 1
            return tensor.channels, tensor.height, tensor.width, tensor.is_output, maker, barred, readers

        return tuple(
            known.setdefault(
                (
                    operator.op,
                    operator.form,
                    tuple((read[1:], seen(node, read.tensor)) for read in operator.reads),
                    tuple(seen(node, number) for number in operator.writes),
                ),
                len(known),
            )
            for node, operator in enumerate(network.operators)
        )

    def likeness(self, group: int) -> tuple[int, ...]:
        """What the need and the traffic of a group depend on: equal for groups that are the same but for their place."""
        likes = self._likes
        return group >> (group & -group).bit_length() - 1, *(likes[v] for v in bits_of(group))

    @property
    def room(self) -> int:
        """Elements that the buffer holds: a group fits strictly within the capacity."""
        return (self.capacity - 1) * 8 // self.scheme.bits

    @property
    def fuseable(self) -> int:
        """Operators that a plan must cover, as bits."""
        return self.network.everything & ~self.excluded

    @cached_property
    def excluded_bytes(self) -> int:
        """DRAM traffic of the excluded operators, I + O + W each: what the full metric adds to the headline."""
        return sum(operator_traffic(self.network, v, self.scheme.bits) for v in bits_of(self.excluded))

    def exclusion(self, node: int) -> str:
        """Why an operator is excluded, in words."""
        refused = self.scheme.refusal(self.network, 1 << node)
        if refused is not None:
            return refused
        need = self.scheme.buffer_bytes(self.network, 1 << node)
        return f"alone it needs {need} bytes of buffer, {need - self.capacity + 1} more than would do"

    def is_group(self, group: int) -> bool:
        """Is it a connected, convex set of fuseable operators? (Whether it fits is `GroupCosts.fits`.)"""
        network = self.network
        return not group & self.excluded and is_connected(network.neighbours, group) and network.is_convex(group)

    def runs(self) -> tuple[int, ...]:
        """The connected parts of the fuseable operators, by first member. They may be larger than the buffer, and not convex."""
        rest, found = self.fuseable, []
        while rest:
            part = component(self.network.neighbours, rest, (rest & -rest).bit_length() - 1)
            found.append(part)
            rest ^= part
        return tuple(found)

    def singletons(self) -> tuple[int, ...]:
        """The plan without fusion: every fuseable operator its own group."""
        return tuple(1 << v for v in bits_of(self.fuseable))

    def ordered(self, groups: Iterable[int]) -> tuple[int, ...] | None:
        """Disjoint groups that cover the fuseable operators, so that each reads only from those before it; None when groups
        and excluded operators form a cycle. Quick (a few sweeps over the groups), because searches ask it for every plan."""
        before, excluded = self.network.predecessors, self.excluded
        parts = sorted([*groups, *(1 << v for v in bits_of(excluded))], key=lambda part: part & -part)
        waiting = [(part, union_over(before, part) & ~part) for part in parts]
        order, done = [], 0
        while waiting:
            later = []
            for part, needs in waiting:
                if needs & ~done:
                    later.append((part, needs))
                else:
                    done |= part
                    order.append(part)
            if len(later) == len(waiting):
                return None
            waiting = later
        return tuple(part for part in order if not part & excluded)


class GroupCosts:
    """What the groups of one problem need and cost, each computed once; a memory that whoever searches owns and passes on.

    `objective` is what `cost` gives: a function of a group, by default its DRAM bytes (see `accel.estimate` for energy and
    latency). `buffer_calls` and `dram_calls` count questions, `len(buffer_known)` and `len(dram_known)` the distinct groups.
    """

    __slots__ = ("_alike", "_objective", "buffer_calls", "buffer_known", "dram_calls", "dram_known", "problem")

    def __init__(self, problem: Problem, objective: Callable[[GroupCosts, int], float] | None = None) -> None:
        self.problem = problem
        self.buffer_known: dict[int, int] = {}
        self.dram_known: dict[int, int] = {}
        self._alike: tuple[dict[object, int], dict[object, int]] = {}, {}
        self.buffer_calls = self.dram_calls = 0
        self._objective = objective

    def empty(self) -> GroupCosts:
        """An empty memory for the same problem and objective."""
        return GroupCosts(self.problem, self._objective)

    @property
    def in_bytes(self) -> bool:
        """Is the objective the DRAM bytes themselves?"""
        return self._objective is None

    def buffer_bytes(self, group: int) -> int:
        """F_beta of the group."""
        self.buffer_calls += 1
        known = self.buffer_known.get(group)
        if known is None:
            problem, alike, like = self.problem, self._alike[0], self.problem.likeness(group)
            known = alike.get(like)
            if known is None:
                known = alike[like] = problem.scheme.buffer_bytes(problem.network, group)
            self.buffer_known[group] = known
        return known

    def dram_bytes(self, group: int) -> int:
        """F_D of the group."""
        self.dram_calls += 1
        known = self.dram_known.get(group)
        if known is None:
            problem, alike, like = self.problem, self._alike[1], self.problem.likeness(group)
            known = alike.get(like)
            if known is None:
                known = problem.scheme.dram_bytes(problem.network, group, problem.capacity, problem.excluded)
                alike[like] = known
            self.dram_known[group] = known
        return known

    def fits(self, group: int) -> bool:
        """Does the buffer hold the group? Strict; of fuseable operators, connected or not."""
        need = self.buffer_bytes(group)
        return need < self.problem.capacity or (
            not group & (group - 1) and need < UNBOUNDED and self.problem.scheme.singles_always_fit
        )

    def cost(self, group: int) -> float:
        """The objective of one group; of a plan it is the sum over its groups."""
        return self.dram_bytes(group) if self._objective is None else self._objective(self, group)

    def total(self, groups: Iterable[int]) -> float:
        """The objective of a plan."""
        return sum(map(self.cost, groups))
