"""Grows groups from seeds: DNNFusion's listing 1 on a set of blocks that are merged two at a time.

    seed: the One-to-One operator with the smallest result
    merge its block with a predecessor or a successor as long as one fits, then take the next seed

Predecessors come first, so that an activation joins the convolution that makes its operand and not the one that reads its
result. What the listing leaves open: operators without a One-to-One neighbour are seeds afterwards (Reorganize, Shuffle, the
rest), and in the end blocks are merged along every edge still open, so that each has a reason.

`grow_as_published` is the listing itself: its three steps in their order, and no more than these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from fusewise.fusion.cost import CostSource
from fusewise.fusion.ecg import ExtendedGraph
from fusewise.fusion.legal import FusionLimits, constraint, host_constraint
from fusewise.fusion.verdicts import Reason, Verdict, combine
from fusewise.ir.walk import predecessors, successors
from fusewise.ops.spec import Mapping
from fusewise.passes.packed_weights import dequantised_rows, dequantised_weights, widened_caches
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["FusionBlocks", "Judgement", "grow", "grow_as_published"]

SEED_ORDER = (Mapping.ONE_TO_ONE, Mapping.REORGANIZE, Mapping.SHUFFLE, Mapping.ONE_TO_MANY, Mapping.MANY_TO_MANY)


@record(frozen=True, slots=True)
class Judgement:
    """May two blocks be one? `type` is that of the two together; `before` and `after` are costs in ns where they decided."""

    reason: Reason
    type: Mapping = Mapping.OPAQUE
    verdict: Verdict = Verdict.BREAK
    before: float | None = None
    after: float | None = None

    @property
    def fits(self) -> bool:
        return self.reason in (Reason.GREEN, Reason.PROFITABLE)


@record
class FusionBlocks:
    """Disjoint blocks of operators, at first one each. A block is named by one of its operators.

    `owner` tells an operator's block, `members` a block's operators in ascending order; `alone` are operators found to join
    nobody.
    """

    ecg: ExtendedGraph
    trace: Trace
    costs: CostSource
    limits: FusionLimits
    by_index: bool = True
    owner: list[int] = field(init=False)
    members: dict[int, tuple[int, ...]] = field(init=False)
    types: dict[int, Mapping] = field(default_factory=dict)
    joined: dict[tuple[int, int], Judgement] = field(default_factory=dict)
    refused: set[tuple[int, int]] = field(default_factory=set)
    before: list[tuple[int, ...]] = field(init=False)
    after: list[tuple[int, ...]] = field(init=False)
    apart: dict[tuple[int, int], tuple[tuple[int, int], Judgement]] = field(default_factory=dict)
    deepest: list[int] = field(default_factory=list)
    alone: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        count = len(self.ecg.graph.nodes)
        self.owner = list(range(count))
        self.members = {n: (n,) for n in range(count)}
        self.before = [predecessors(self.ecg.graph, n) for n in range(count)]
        self.after = [successors(self.ecg.graph, n) for n in range(count)]
        for before in self.before:
            self.deepest.append(max((self.deepest[p] + 1 for p in before), default=0))

    def type(self, block: int) -> Mapping:
        if block not in self.types:
            self.types[block] = self.ecg.mapping(block)
        return self.types[block]

    def neighbours(self, block: int) -> Iterator[tuple[int, int]]:
        """Pairs (producer, consumer) of blocks of which one is `block`: predecessors, those at the end of the longest path
        first (the branch that does the work, not the shortcut), then successors."""
        inside = self.members[block]
        before = {self.owner[p] for n in inside for p in self.before[n]} - {block} - self.alone
        after = {self.owner[s] for n in inside for s in self.after[n]} - {block} - self.alone
        yield from ((p, block) for p in sorted(before, key=lambda b: (-self.deepest[b], -self.members[b][-1])))
        yield from ((block, s) for s in sorted(after, key=lambda b: self.members[b][0]))

    def edges(self, first: int, second: int) -> list[tuple[int, int]]:
        """Pairs of operators that join two blocks."""
        return [(p, n) for n in self.members[second] for p in self.before[n] if self.owner[p] == first]

    def judge(self, first: int, second: int) -> Judgement:
        """May the blocks become one, `second` reading results of `first`?

        What keeps two blocks apart keeps them apart until one of them grows, but for a path that others may close.
        """
        sizes = len(self.members[first]), len(self.members[second])
        known = self.apart.get((first, second))
        if known is not None and known[0] == sizes:
            return known[1]
        found = self._judged(first, second)
        if not found.fits and found.reason is not Reason.CYCLE:
            self.apart[first, second] = sizes, found
        return found

    def _judged(self, first: int, second: int) -> Judgement:
        reason = self._refusal(first, second)
        if reason is not None:
            return Judgement(reason)
        on_host = not self.ecg.is_native(self.members[first][0])
        if on_host == self.ecg.is_native(self.members[second][0]):
            return Judgement(Reason.HOST)
        type_, verdict = self._combined(first, second)
        if verdict is Verdict.BREAK:
            return Judgement(Reason.RED, type_, verdict)
        merged = tuple(sorted(self.members[first] + self.members[second]))
        reason = host_constraint(merged, self.limits) if on_host else constraint(self.ecg, merged, self.limits)
        if reason is None and self._returns(first, second, merged):
            reason = Reason.CYCLE
        if reason is not None:
            return Judgement(reason, type_, verdict)
        return self._priced(first, second, merged, type_, verdict)

    def _refusal(self, first: int, second: int) -> Reason | None:
        """What has nothing to do with the pair's types."""
        if self.refused and not self.refused.isdisjoint(self.edges(first, second)):
            return Reason.REFUSED
        for block in (first, second):
            if len(self.members[block]) > 1:
                continue
            reason = self._alone(block)
            if reason is not None:
                self.alone.add(block)
                return reason
        return None

    def _alone(self, node: int) -> Reason | None:
        """Why an operator joins nobody."""
        values = len(self.ecg.node(node).reads) + len(self.ecg.node(node).writes)
        if max(values, len(self.after[node])) > self.limits.neighbours or self._is_one_of_many(node):
            return Reason.NEIGHBOURS
        sized = self.ecg.is_sized(node)
        if self.type(node) == Mapping.OPAQUE or (sized and not self.ecg.is_native(node)):
            return Reason.OPAQUE if sized else Reason.SHAPE
        if not self.by_index and (self.ecg.is_view(node) or self._moves(node)):
            return Reason.MOVEMENT
        return None

    def _is_one_of_many(self, node: int) -> bool:
        """Is it one of very many parts of a value? Kernels that read each as a view are one kernel."""
        ecg = self.ecg
        if ecg.node(node).op not in ("Slice", "Gather") or not ecg.is_view(node):
            return False
        return len(ecg.graph.users[ecg.node(node).inputs[0]]) > self.limits.inputs

    def _moves(self, node: int) -> bool:
        return self.ecg.mapping(node) in (Mapping.REORGANIZE, Mapping.SHUFFLE) or self.ecg.node(node).op == "Concat"

    def _combined(self, first: int, second: int) -> tuple[Mapping, Verdict]:
        """The consumer's type is that along the edges between the two, and of the rest of its block."""
        readers = self.edges(first, second)
        made = {v for p, _ in readers for v in self.ecg.node(p).writes}
        entry = max(self.ecg.edge(v, n) for _, n in readers for v in self.ecg.node(n).reads if v in made)
        whole = self.type(second)
        type_, verdict = combine(self.type(first), max(entry, whole) if len(self.members[second]) > 1 else entry)
        return max(type_, whole), verdict

    def _returns(self, first: int, second: int, merged: tuple[int, ...]) -> bool:
        """Is there a path from one of the two blocks through others to the second, or back to the first?

        One that is not found soon counts as one that is there.
        """
        inside = {first, second}
        lowest = merged[0]
        stack = [self.owner[p] for n in merged for p in self.before[n] if self.owner[p] not in inside]
        seen = set(stack)
        while stack:
            block = stack.pop()
            if self.members[block][-1] < lowest:
                continue
            if len(seen) > self.limits.searched:
                return True
            for n in self.members[block]:
                for p in self.before[n]:
                    owner = self.owner[p]
                    if owner in inside:
                        return True
                    if owner not in seen:
                        seen.add(owner)
                        stack.append(owner)
        return False

    def _priced(self, first: int, second: int, merged: tuple[int, ...], type_: Mapping, verdict: Verdict) -> Judgement:
        """A yellow pair must cost less fused by the best source there is, a green one by the estimate."""
        asked = verdict is Verdict.ASK and self.ecg.is_native(merged[0])
        costs = self.costs if asked else self.costs.estimated
        found = costs.of(self.ecg, merged, self.members[first], self.members[second])
        if found is None:
            return Judgement(Reason.UNMEASURED, type_, verdict)
        fused, *apart = found
        if fused > sum(apart):
            again = verdict is not Verdict.ASK and not costs.prices.full  # of one that has to be full it may be that
            return Judgement(Reason.AGAIN if again else Reason.COSTLY, type_, verdict, sum(apart), fused)
        good = Reason.PROFITABLE if verdict is Verdict.ASK else Reason.GREEN
        return Judgement(good, type_, verdict, sum(apart), fused)

    def widens(self, first: int, second: int) -> bool:
        """Is the second one operator that makes more bytes of a value which is written anyway? Its reader then computes it."""
        ecg, node = self.ecg, self.ecg.node(second)
        if len(self.members[second]) > 1 or len(node.reads) < 1 or len(self.after[second]) != 1:
            return False
        source = node.reads[0]
        made = ecg.result_bytes(second)
        if made is None or made <= ecg.nbytes(source) or ecg.mapping(second) != Mapping.ONE_TO_ONE:
            return False
        readers = ecg.graph.users.get(source, ())
        written = source in ecg.graph.output_set or any(self.owner[n] not in (first, second) for n in readers)
        return written and node.writes[0] not in ecg.graph.output_set

    def merge(self, first: int, second: int, judgement: Judgement) -> bool:
        """Make the two one, if the trace allows it."""
        edges = self.edges(first, second)
        labels = tuple(self.ecg.node(n).label for n in dict.fromkeys((*edges[0], *self.members[first])))[:8]
        if not self.trace.allows("fuse", judgement.verdict.value, labels, judgement.reason.value):
            self.refused.update(edges)
            self.apart.pop((first, second), None)
            return False
        self.joined.update(dict.fromkeys(edges, judgement))
        merged = tuple(sorted(self.members[first] + self.members.pop(second)))
        for n in merged:
            self.owner[n] = first
        self.members[first] = merged
        self.deepest[first] = max(self.deepest[first], self.deepest[second])
        self.types[first] = judgement.type
        return True


def grow(blocks: FusionBlocks) -> None:
    """Merge products with their quantised weights, blocks from seeds, and then along every edge that is still open."""
    _join_weights(blocks)
    for seed in _seeds(blocks.ecg):
        while _one_merge(blocks, blocks.owner[seed]):
            pass
    for late in (False, True):
        changed = True
        while changed:
            changed = False
            for n in range(len(blocks.owner)):
                while blocks.owner[n] == n or n == blocks.members[blocks.owner[n]][0]:
                    if not _one_merge(blocks, blocks.owner[n], ahead=True, late=late):
                        break
                    changed = True


def _join_weights(blocks: FusionBlocks) -> None:
    """Merge every product with what dequantises its operands for nobody else, attention with what widens its keys and values."""
    graph = blocks.ecg.graph
    weights = Judgement(Reason.WEIGHTS, Mapping.MANY_TO_MANY, Verdict.FUSE)
    for n, node in enumerate(graph.nodes):
        for before in (dequantised_weights(graph, node), dequantised_rows(graph, node), widened_caches(graph, node)):
            if not all(graph.is_inner(one.outputs[0]) for one in before):
                break
            for one in reversed(before):
                if not blocks.merge(blocks.owner[graph.producer[one.outputs[0]]], blocks.owner[n], weights):
                    break


def grow_as_published(blocks: FusionBlocks) -> None:
    """Merge operators that are in no block yet with a seed, in the order of the listing.

    Step I takes the One-to-One operator with the smallest result for a seed, step II goes along its successors and theirs as far
    as they fit, step III along its predecessors and theirs. Nobody is asked again, and what no seed reaches stays alone. Only
    products have what dequantises their weights before.
    """
    _join_weights(blocks)
    ecg = blocks.ecg
    unfused = set(range(len(ecg.graph.nodes)))
    for seed in _seeds(ecg):
        if seed in unfused and ecg.mapping(seed) == Mapping.ONE_TO_ONE:
            _propagate(blocks, seed, unfused, blocks.after)
            _propagate(blocks, seed, unfused, blocks.before)
            unfused.difference_update(blocks.members[blocks.owner[seed]])


def _propagate(blocks: FusionBlocks, seed: int, unfused: set[int], onwards: Sequence[tuple[int, ...]]) -> None:
    """Merge `seed` with what lies `onwards`, the successors or the predecessors of every operator; a refusal ends a branch."""
    waiting = list(reversed(onwards[seed]))
    while waiting:
        n, block = waiting.pop(), blocks.owner[seed]
        if n not in unfused or blocks.owner[n] == block:
            continue
        other = blocks.owner[n]
        first, second = (block, other) if onwards is blocks.after else (other, block)
        judgement = blocks.judge(first, second)
        if judgement.fits and blocks.merge(first, second, judgement):
            waiting.extend(reversed(onwards[n]))


def _seeds(ecg: ExtendedGraph) -> list[int]:
    """One-to-One operators by rising size of their result, then the other types; unknown sizes and Opaque never."""
    found = []
    for n in range(len(ecg.graph.nodes)):
        size = ecg.result_bytes(n)
        if size is not None and ecg.mapping(n) != Mapping.OPAQUE:
            last = ecg.node(n).op == "Concat"  # its operands belong to those who compute them
            found.append((len(SEED_ORDER) if last else SEED_ORDER.index(ecg.mapping(n)), size, n))
    return [n for _, _, n in sorted(found)]


def _one_merge(blocks: FusionBlocks, block: int, ahead: bool = False, late: bool = False) -> bool:
    """Merge a block with the first neighbour that fits: a single operator while growing, any block `ahead` afterwards.

    What a heavy operator reads joins it only afterwards, when its own producer has had its turn; what only makes more bytes of
    a written value joins its producer only at the end (`late`), when its reader has not taken it.
    """
    for first, second in blocks.neighbours(block):
        other = second if first == block else first
        if ahead and first != block:
            continue
        if not ahead and (len(blocks.members[other]) > 1 or blocks.type(second) == Mapping.MANY_TO_MANY):
            continue
        if not late and blocks.widens(first, second):
            continue
        judgement = blocks.judge(first, second)
        if judgement.fits and blocks.merge(first, second, judgement):
            return True
    return False
