"""What one kernel can compute: the constraint check of a group, beside the table of types.

A group has one index space, that of its hub: the result of its anchor (the operator with kernels of its own), or one of its
outputs. The kernel visits it once and writes every result. So around an anchor

    prologue          hub            aligned                      tails
    Transpose, ... -> MatMul -> Reshape -> Add -> Gelu -> Reshape, Transpose, Split, Concat

what stands before the anchor must be an index change (or cheap to compute where the kernel reads each element once); what
follows must have its elements correspond one to one to the hub's; and after those, index changes whose results are only
strides over what was written, or a Concat that is written in pieces.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from collections.abc import Mapping as Table
from dataclasses import field
from zlib import crc32

from fusewise.fusion.ecg import ExtendedGraph
from fusewise.fusion.verdicts import Reason
from fusewise.ir.size import Size, evaluate, symbols_of
from fusewise.ir.types import TensorType
from fusewise.ops.spec import Mapping
from fusewise.passes.packed_weights import dequantised_rows, dequantised_weights, widened_caches
from fusewise.records import record

__all__ = ["LIMITS", "FusionLimits", "constraint", "depth", "host_constraint"]

ROW_FAMILIES = frozenset("softmax log_softmax layer_norm group_norm instance_norm rms_norm lp_norm".split())
"""Anchors whose kernels evaluate what they read where it stands."""


@record(frozen=True)
class FusionLimits:
    """The empirical limits of the constraint check: operators that compute, inputs and results of a group, rows per reduction
    that is read back, and the bytes up to which a Concat may be computed element by element.

    Others bound the time that planning and compiling take: `members` are all operators of a group, and `depth` the levels of its
    expressions (no group of the zoo has more than 28 members and 15 levels); an operator with more `neighbours` joins nobody, and
    paths between two blocks are looked for among so many others as `searched` says.
    """

    nodes: int = 96
    members: int = 128
    depth: int = 96
    neighbours: int = 256
    searched: int = 1024
    inputs: int = 32
    outputs: int = 24
    rows: int = 16
    inline_bytes: int = 16384


LIMITS = FusionLimits()


def constraint(ecg: ExtendedGraph, nodes: Sequence[int], limits: FusionLimits = LIMITS) -> Reason | None:
    """Why one kernel should not compute these operators (ascending), each of which has a loop nest; None when it can."""
    if len(nodes) > limits.members or sum(not ecg.is_view(n) for n in nodes) > limits.nodes:
        return Reason.SIZE
    if sum(ecg.depth(n) or 0 for n in nodes) > limits.depth and depth(ecg, nodes) > limits.depth:
        return Reason.DEPTH
    shape = _Shape.of(ecg, nodes)
    if len(shape.inputs) > limits.inputs:
        return Reason.INPUTS
    if len(shape.outputs) > limits.outputs and len(shape.sources(shape.outputs)) > limits.outputs:
        return Reason.RESULTS
    anchors = [n for n in nodes if ecg.is_anchor(n)]
    if len(anchors) > 1:
        return Reason.RED
    for n in nodes:
        if ecg.node(n).op == "Concat" and (ecg.result_bytes(n) or 0) > limits.inline_bytes:
            made = [v for v in dict.fromkeys(ecg.node(n).inputs) if v in shape.maker]
            if n not in shape.tails or len(made) > 1:
                return Reason.PIECES
    return _around_anchor(shape, anchors[0]) if anchors else _without_anchor(shape, limits)


def depth(ecg: ExtendedGraph, nodes: Sequence[int]) -> int:
    """Levels of the expressions of operators (ascending) with loop nests as one kernel."""
    below: dict[str, int] = {}
    for n in nodes:
        node = ecg.node(n)
        reached = (ecg.depth(n) or 0) + max((below.get(v, 0) for v in node.reads), default=0)
        below.update(dict.fromkeys(node.writes, reached))
    return max(below.values(), default=0)


def host_constraint(nodes: Sequence[int], limits: FusionLimits = LIMITS) -> Reason | None:
    """Why one host step should not run these operators: it runs any, one after another, but not without an end."""
    return Reason.SIZE if len(nodes) > limits.nodes else None


Probes = tuple[int, ...]
"""Row-major positions of a few elements."""


def moved(ecg: ExtendedGraph, index: int, at: Probes, back: bool = False) -> Probes:
    """Where an operator that renames elements puts the operand's elements `at`; the other way round when `back`."""
    node = ecg.node(index)
    if node.op != "Transpose" or node.domain:
        return at
    dims = [_probed(dim) for dim in ecg.graph.tensor(node.inputs[0]).dims]
    permutation = node.attribute("perm", tuple(range(len(dims)))[::-1])
    steps, turned = _row_steps(dims), _row_steps([dims[axis] for axis in permutation])
    pairs = [(steps[axis], dims[axis], turned[k]) for k, axis in enumerate(permutation)]
    if back:
        pairs = [(turned[k], dims[axis], steps[axis]) for k, axis in enumerate(permutation)]
    return tuple(sum(place // step % max(1, extent) * there for step, extent, there in pairs) for place in at)


def _probed(size: int) -> int:
    """A number for a size, so that what is not alike for all sizes hardly is for these."""
    if not isinstance(size, Size):
        return size
    return evaluate(size, {s.name: _PRIMES[crc32(s.name.encode()) % len(_PRIMES)] for s in symbols_of(size)})


_PRIMES = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197, 199)


def _row_steps(dims: Sequence[int]) -> list[int]:
    steps = [1] * len(dims)
    for d in reversed(range(len(dims) - 1)):
        steps[d] = steps[d + 1] * dims[d + 1]
    return [max(1, step) for step in steps]


@record
class _Shape:
    """A group taken apart: who makes what, what is read outside, and which operators only rearrange results at its end."""

    ecg: ExtendedGraph
    nodes: Sequence[int]
    maker: dict[str, int] = field(default_factory=dict)
    inputs: set[str] = field(default_factory=set)
    outputs: list[str] = field(default_factory=list)
    tails: set[int] = field(default_factory=set)

    @staticmethod
    def of(ecg: ExtendedGraph, nodes: Sequence[int]) -> _Shape:
        shape = _Shape(ecg, nodes)
        shape.maker = {v: n for n in nodes for v in ecg.node(n).writes}
        shape.inputs = {v for n in nodes for v in ecg.node(n).reads if v not in shape.maker and (ecg.size(v) or 0) != 1}
        members = frozenset(nodes)
        shape.outputs = [v for v in shape.maker if not ecg.is_removable(v, members)]
        for n in reversed(nodes):
            if (ecg.is_view(n) or ecg.node(n).op == "Concat") and ecg.readers(n) & members <= shape.tails:
                shape.tails.add(n)
        return shape

    def aligned(self, hub: str) -> dict[str, Probes]:
        """Values whose elements correspond one to one to the hub's, and where in them a few elements of the hub go.

        Two values lie alike when these places are the same ones.
        """
        kind = self.ecg.graph.types.get(hub)
        size = _probed(kind.size) if isinstance(kind, TensorType) and kind.is_static else 0
        found: dict[str, Probes] = {hub: tuple(size * part // 101 for part in (3, 14, 37, 58, 71, 97))}
        onwards, settled = True, 0
        while settled < 2:  # sweeps in turn from either end that found nothing more
            before = len(found)
            for n in self.nodes if onwards else reversed(self.nodes):
                linked = self.ecg.bijective(n)
                output = self.ecg.node(n).outputs[0]
                if output not in found:
                    known = next((v for v in linked if v in found), None)
                    if known is None:
                        continue
                    found[output] = moved(self.ecg, n, found[known])
                for v in linked:
                    if v not in found and v in self.maker:
                        found[v] = moved(self.ecg, n, found[output], back=True)
            onwards, settled = not onwards, 0 if len(found) > before else settled + 1
        return found

    def after(self, start: int) -> set[int]:
        """Operators of the group that depend on `start`."""
        found = {start}
        for n in self.nodes:
            if any(self.maker.get(v) in found for v in self.ecg.node(n).reads):
                found.add(n)
        return found - {start}

    def before(self, start: int) -> set[int]:
        """Operators of the group that `start` depends on."""
        found = {start}
        for n in reversed(self.nodes):
            if not found.isdisjoint(self.ecg.readers(n)):
                found.add(n)
        return found - {start}

    def sources(self, values: Iterable[str]) -> list[str]:
        """What is written so that `values` are in memory: themselves, or what they are views of, or their pieces."""
        written: dict[str, tuple[str, ...]] = {}  # of every value of the group
        for n in self.nodes:
            for value in self.ecg.node(n).writes:
                written[value] = self._written(n, value, written)
        return list(dict.fromkeys(s for value in values for s in sorted(written[value])))

    def _written(self, n: int, value: str, before: Table[str, tuple[str, ...]]) -> tuple[str, ...]:
        node = self.ecg.node(n)
        if n not in self.tails:
            return (value,)
        if node.op == "Concat":
            return tuple(dict.fromkeys(s for v in node.inputs for s in before.get(v, ())))
        shrinks = (self.ecg.size(value) or 0) < (self.ecg.size(node.inputs[0]) or 0)
        if node.inputs[0] not in self.maker or (shrinks and node.op != "Split"):
            return (value,)
        return before[node.inputs[0]]


def _around_anchor(shape: _Shape, anchor: int) -> Reason | None:
    ecg, hub = shape.ecg, shape.ecg.node(anchor).outputs[0]
    aligned = shape.aligned(hub)
    after, before = shape.after(anchor), shape.before(anchor)
    if before and (reason := _prologue(shape, anchor, before)) is not None:
        return reason
    for n in after - shape.tails:
        here = aligned.get(ecg.node(n).outputs[0])
        for v in ecg.node(n).reads:
            if v == hub or shape.maker.get(v) in after:
                lies_alike = v in aligned and v in ecg.bijective(n) and moved(ecg, n, aligned[v]) == here
                if not lies_alike:
                    return Reason.ELSEWHERE
    extents = ecg.graph.tensor(hub).dims
    for value in shape.outputs:
        maker = shape.maker[value]
        if maker in shape.tails and maker in after and not _is_slice_for_user(shape, value, aligned):
            continue
        if value not in aligned and ecg.graph.tensor(value).dims != extents:
            return Reason.OUTPUTS
    return None


def _is_slice_for_user(shape: _Shape, value: str, aligned: Container[str]) -> bool:
    """Must a part of what is written be copied, since the graph's outputs are arrays of their own?"""
    op = shape.ecg.node(shape.maker[value]).op
    return value in shape.ecg.graph.output_set and value not in aligned and op != "Concat"


def _prologue(shape: _Shape, anchor: int, before: Iterable[int]) -> Reason | None:
    """Index changes are strides to every kernel; kernels over rows, and a pointwise convolution, compute what they read; products
    dequantise weights, attention of few queries widens keys and values."""
    ecg, node = shape.ecg, shape.ecg.node(anchor)
    own = (
        *dequantised_weights(ecg.graph, node),
        *dequantised_rows(ecg.graph, node),
        *widened_caches(ecg.graph, node),
    )
    weights = {one.outputs[0] for one in own}
    before = [n for n in before if ecg.node(n).outputs[0] not in weights]
    if all(ecg.is_view(n) for n in before):
        return None
    spec = ecg.spec(anchor)
    assert spec is not None
    if any(not ecg.is_view(n) and ecg.mapping(n) != Mapping.ONE_TO_ONE for n in before):
        return Reason.PROLOGUE
    if spec.family in ROW_FAMILIES:
        return None
    if spec.family != "conv" or not _is_pointwise(ecg, anchor):
        return Reason.PROLOGUE
    return None if node.inputs[1] in ecg.graph.constants else Reason.PROLOGUE


def _is_pointwise(ecg: ExtendedGraph, conv: int) -> bool:
    node = ecg.node(conv)
    kernel = ecg.graph.tensor(node.inputs[1]).dims[2:]
    return all(extent == 1 for extent in kernel) and node.attribute("group", 1) == 1


def _without_anchor(shape: _Shape, limits: FusionLimits) -> Reason | None:
    ecg = shape.ecg
    sources = shape.sources(shape.outputs)
    if not sources:
        return None
    heavy = [n for n in shape.nodes if ecg.mapping(n) == Mapping.MANY_TO_MANY]
    pieces = any(ecg.node(n).op == "Concat" for n in shape.tails)
    if len(sources) > 1 and (heavy or not pieces):
        hub = sources[0]
        aligned, extents = shape.aligned(hub), ecg.graph.tensor(hub).dims
        if any(s not in aligned and ecg.graph.tensor(s).dims != extents for s in sources):
            return Reason.OUTPUTS
    for n in heavy:
        rows = ecg.size(ecg.node(n).outputs[0]) or 0
        wider = any((ecg.size(v) or 0) > rows for r in shape.after(n) for v in ecg.node(r).writes)
        if wider and rows < limits.rows:
            return Reason.ROWS
    return None
