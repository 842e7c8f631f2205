"""Products of 8-bit integers, four to a 32-bit lane: what the fastest integer convolutions reduce with.

A lane holds four neighbours of the reduction, as unsigned bytes. A step multiplies them by the four signed weights in the same
lane of another vector and adds everything up. Where the machine has no instruction that does all of it (VNNI's), x86 adds
products two by two in 16 bits, where 255 * (v + w) need not fit. It does fit unless v and w have the same sign and |v| + |w| is
beyond 128; and then the complement helps, 255 * w being a constant:

    x * v + y * w  =  255 * w + x * v + (255 - y) * -w

so such a step takes the bytes through an exclusive or with a mask first, and every sum stays exact. One mask for all lanes is one
more instruction for each row; lanes that differ cost one for each product.
"""

from __future__ import annotations

import numpy as np

from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Value, vector
from fusewise.codegen.target import InstructionSet
from fusewise.records import record

__all__ = [
    "HEADER",
    "SplitWeights",
    "add_quads",
    "add_quads_by_pairs",
    "bytes_of",
    "has_quads",
    "split",
    "stream",
    "sums_in_one",
]

_PRODUCTS = {
    4: ("llvm.x86.ssse3.pmadd.ub.sw.128", "llvm.x86.sse2.pmadd.wd"),
    8: ("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
    16: ("llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
}

MOST = 128
"""Sum of two weights of one sign up to which 255 times it is a 16-bit number."""

HEADER = 5
"""Numbers in front of the panels for each of them: where it and its weights begin, and how many steps there are until those
with a mask begin, until those with a mask for each lane begin, and in all."""


STEP_CYCLES = (1.0, 1.06, 1.18)
"""Cycles of a product without a mask, with one mask for all lanes, and with one for each lane; measured."""

LOOP_CYCLES = 20
"""Cycles that ending one loop and beginning another takes, since nobody foresees it."""


def has_quads(instructions: InstructionSet, lanes: int) -> bool:
    """Does the machine multiply so many quads of unsigned by signed bytes?"""
    fits = lanes in _PRODUCTS and instructions.vector_bits in (256, 512)
    return instructions.triple.startswith("x86_64") and fits


def sums_in_one(instructions: InstructionSet, lanes: int) -> bool:
    """Does one instruction add four products up in 32 bits?"""
    wanted = ("+avxvnni", "+avx512vnni") if instructions.vector_bits == 256 else ("+avx512vnni",)
    return has_quads(instructions, lanes) and any(name in instructions.features.split(",") for name in wanted)


def add_quads(f: Function, instructions: InstructionSet, a: Value, w: Value, total: Value) -> Value:
    """total + the four products of the unsigned bytes of `a` and the signed ones of `w`, in every i32 lane."""
    name = f"llvm.x86.avx512.vpdpbusd.{32 * a.lanes}"
    return f.call_intrinsic(name, total.type, total, a, w)


def add_quads_by_pairs(f: Function, instructions: InstructionSet, a: Value, w: Value, total: Value) -> Value:
    """The same two by two, where sums of two products fit 16 bits."""
    by_bytes, by_pairs = _PRODUCTS[a.lanes]
    quarters, halves = vector("i8", 4 * a.lanes), vector("i16", 2 * a.lanes)
    x, y = (f.bitcast(value, quarters) for value in (a, w))
    pairs = f.call_intrinsic(by_bytes, halves, x, y)
    return f.binary("add", total, f.call_intrinsic(by_pairs, total.type, pairs, f.constant(1, halves)))


@record(frozen=True)
class SplitWeights:
    """Weights [..., step, lane, 4], int8, as what is reduced: `main` with `mask` over the bytes, and `rest` besides, all of that
    shape. They stand for the weights but for 255 * `taken` [..., lane]; `rest` is zero but for pairs of two -128."""

    main: np.ndarray
    mask: np.ndarray
    rest: np.ndarray
    taken: np.ndarray


def split(weights: np.ndarray) -> SplitWeights:
    """Weights whose sums of two products fit 16 bits. Masks are the same in all lanes where that is enough."""
    pairs = weights.astype(np.int16)
    first, second = pairs[..., ::2], pairs[..., 1::2]
    rest = np.zeros_like(weights)
    lowest = (first == -MOST) & (second == -MOST)
    if lowest.any():
        rest[...] = np.where(lowest.repeat(2, -1), -MOST // 2, 0)
        pairs -= rest
    far, alike = np.abs(first) + np.abs(second) > MOST, (first < 0) == (second < 0)
    needed, hurt = (far & alike).any(-2, keepdims=True), ((far & ~alike) | (second == -MOST)).any(-2, keepdims=True)
    # a pair turned in all lanes is one where that helps every lane that needs it, and hurts none
    turned = np.zeros(weights.shape, bool)
    each = far & alike & ~(needed & ~hurt)
    # -128 has no opposite among bytes, but not both of a pair are -128
    turned[..., ::2], turned[..., 1::2] = each & (second == -MOST), (each & (second != -MOST)) | (needed & ~hurt)
    taken = _by_lane(np.where(turned, pairs, 0))
    return SplitWeights(np.where(turned, -pairs, pairs).astype(np.int8), -turned.view(np.int8), rest, taken)


def bytes_of(weights: np.ndarray) -> list[np.ndarray]:
    """Whole numbers as sums of signed bytes: as much as fits, and as often as it takes what is left, which is mostly zeros."""
    if weights.dtype == np.int8:
        return [weights]
    parts, rest = list[np.ndarray](), weights.astype(np.int16)
    while not parts or rest.any():
        parts.append(np.clip(rest, -MOST, MOST - 1).astype(np.int8))
        rest = rest - parts[-1]
    return parts


def _by_lane(quads: np.ndarray) -> np.ndarray:
    """The sums of [..., step, lane, 4] for each lane."""
    return np.asarray(quads.sum(-3, dtype=np.int32).sum(-1, dtype=np.int32))


def stream(panels: np.ndarray, places: np.ndarray, lanes: int, products: int, whole: bool) -> np.ndarray:
    """Everything a kernel reads of its weights, as int32: `HEADER` numbers for each panel, and the panels.

    `panels` [..., panel, step, vectors * lanes] are quads, `places` [step] says where the left operand has them. A panel is the
    sum of the weights and the constant of each lane, the place of each step, and the weights in their order: first steps without
    a mask, then those with one vector of masks in front of their weights, then those with as many as there are weights. Steps
    whose weights are all zero are left out. Where the machine sums in one, `whole`, no step has a mask. `products` is how many
    vectors a step multiplies.
    """
    every = panels.reshape(-1, *panels.shape[-2:])
    quads = np.ascontiguousarray(every).view(np.int8).reshape(*every.shape, 4)
    nothing, totals = np.zeros_like(quads), _by_lane(quads)
    found = SplitWeights(quads, nothing, nothing, np.zeros_like(totals)) if whole else split(quads)
    header = np.zeros((len(every), HEADER), np.int32)
    parts, at = [header.reshape(-1), np.zeros(-header.size % 16, np.int32)], -(-header.size // 16) * 16
    arrays = (_lanes(array) for array in (found.main, found.mask, found.rest))
    for number, (total, taken, main, mask, rest) in enumerate(zip(totals, found.taken, *arrays, strict=True)):
        some, more = main.any(1), rest.any(1)
        rows, masks = np.concatenate([main[some], rest[more]]), np.concatenate([mask[some], np.zeros_like(rest[more])])
        kinds = _kinds(masks, products)
        order = np.argsort(kinds, kind="stable")
        front = np.concatenate([total, 255 * taken, np.concatenate([places[some], places[more]])[order]])
        spare, wide = -front.size % 16, (0, lanes, rows.shape[1])
        weights = [np.concatenate([masks[kinds == k, : wide[k]], rows[kinds == k]], 1).reshape(-1) for k in range(3)]
        ends = (int((kinds <= kind).sum()) for kind in range(3))
        header[number] = at, at + front.size + spare, *ends
        parts += [front, np.zeros(spare, np.int32), *weights]
        at += front.size + spare + sum(row.size for row in weights)
    return np.concatenate([header.reshape(-1), *parts[1:]])


def _lanes(quads: np.ndarray) -> np.ndarray:
    """Bytes [..., 4] as one int32 each."""
    return np.asarray(np.ascontiguousarray(quads).view(np.int32)[..., 0])


def _kinds(masks: np.ndarray, products: int) -> np.ndarray:
    """How many masks a step is done with, 0, 1 or 2 for one in each lane: what it needs, or more to have fewer loops."""
    needed = np.where((masks != masks[:, :1]).any(1), 2, np.where(masks.any(1), 1, 0))
    ways = [np.array(way)[needed] for way in ((0, 1, 2), (0, 2, 2), (1, 1, 2), (2, 2, 2))]
    costs = []
    for way in ways:
        steps = np.bincount(way, minlength=3)
        costs.append(products * float(steps @ np.array(STEP_CYCLES)) + LOOP_CYCLES * np.count_nonzero(steps))
    return ways[int(np.argmin(costs))] if needed.any() else needed
