"""Declared mapping types agree with what ONNX's evaluator does: change one input element, watch which outputs move.

On every sample the declared type is at least as complex as the derived one, and for each declared type of each operand some
sample attains it. What depends on data (the largest of a window) is seen over several new values and two sets of operands.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from fusewise.errors import UnsupportedModel
from fusewise.ops.definition import is_opaque, mappings_of
from fusewise.ops.evaluate import evaluator
from fusewise.ops.interpret import interpret
from fusewise.ops.sampling import call_of_sample, opset_of
from fusewise.ops.spec import Call, Mapping, OpSpec, Sample
from fusewise.ops.table import OPERATORS

Arrays = tuple[np.ndarray | None, ...]
Run = Callable[[Arrays], list[np.ndarray]]

SAMPLES_PER_ROW = 12
ELEMENTS = 24  # of a large operand, chosen at random


def runner(spec: OpSpec, call: Call) -> Run:
    try:
        run = evaluator(call.node, opset_of(spec))
    except UnsupportedModel:
        return lambda arrays: [interpret(spec, call, arrays, k) for k in range(len(call.outputs))]
    return lambda arrays: run(*(a for a in arrays if a is not None))


def other_values(x: np.generic, sample: Sample, rng: np.random.Generator) -> list[object]:
    if x.dtype.kind == "b":
        return [not x]
    if x.dtype.kind in "iu":
        info = np.iinfo(x.dtype)
        low, high = max(int(sample.low), int(info.min)), min(int(sample.high), int(info.max))
        return [v for v in {low, high, int(rng.integers(low, high + 1))} if v != x]
    return [x + 7.25, x - 7.25, rng.uniform(sample.low, sample.high)]


def moved(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    same = before == after
    if before.dtype.kind == "f":
        same |= np.isnan(before) & np.isnan(after)
    return ~same.reshape(-1)


def derived(run: Run, bases: list[Arrays], operand: int, sample: Sample, rng: np.random.Generator) -> Mapping | None:
    """The mapping type along one operand, most complex over outputs and bases; None when nothing ever moved.

    Bases are judged one by one, because which element a Gather reads is fixed while its data changes. A copy must move the
    same places in all of them: a logical And only looks like one while its other operand is true.
    """
    seen = [touched_by(run, base, operand, sample, rng) for base in bases]
    kinds = []
    for k, (first, copied) in enumerate(seen[0]):
        copies = all(other[k][1] and (other[k][0] == first).all() for other in seen) and copied
        for other in seen:
            touched = other[k][0]
            if touched.any():
                output = np.asarray(run(bases[0])[k]).shape
                kinds.append(classify(touched, output, bases[0][operand].shape, copies))
    return max(kinds, default=None)


def touched_by(
    run: Run, base: Arrays, operand: int, sample: Sample, rng: np.random.Generator
) -> list[tuple[np.ndarray, bool]]:
    """For each output: which of its elements (rows) each element of the operand (columns) moves, and were they copies."""
    flat = base[operand].reshape(-1)
    size = flat.size
    places = range(size) if size <= 64 else sorted(rng.choice(size, ELEMENTS, replace=False).tolist())
    plain = [np.asarray(y) for y in run(base)]
    touched = [np.zeros((y.size, size), bool) for y in plain]
    copied = [True] * len(plain)
    for place in places:
        for value in other_values(flat[place], sample, rng):
            changed = base[operand].copy()
            changed.reshape(-1)[place] = value
            found = run((*base[:operand], changed, *base[operand + 1 :]))
            for k, (y, z) in enumerate(zip(plain, map(np.asarray, found), strict=True)):
                hits = moved(y, z)
                touched[k][:, place] |= hits
                copied[k] &= y.dtype == changed.dtype and bool(
                    (z.reshape(-1)[hits] == changed.reshape(-1)[place]).all()
                )
    return list(zip(touched, copied, strict=True))


def classify(touched: np.ndarray, output: tuple[int, ...], operand: tuple[int, ...], copied: bool) -> Mapping:
    if touched.sum(axis=1).max() > 1:
        return Mapping.MANY_TO_MANY
    if touched.sum(axis=0).max() > 1:
        return Mapping.ONE_TO_MANY
    if not copied:
        return Mapping.ONE_TO_ONE
    to, source = np.nonzero(touched)
    whole = len(to) == math.prod(output) == math.prod(operand)
    if len(output) == len(operand):
        places = np.stack(np.unravel_index(to, output), axis=1) if output else np.zeros((1, 0), int)
        sources = np.stack(np.unravel_index(source, operand), axis=1) if operand else np.zeros((1, 0), int)
        steps = [along_axis(places[:, d], sources[:, d]) for d in range(len(output))]
        if all(step is not None for step in steps) and not (whole and -1 in steps):
            return Mapping.ONE_TO_ONE
    if whole and (to == source).all():
        return Mapping.REORGANIZE
    return Mapping.SHUFFLE


def along_axis(place: np.ndarray, source: np.ndarray) -> int | None:
    """1 when `source` is an increasing function of `place`, -1 when decreasing, None when neither."""
    table = dict(zip(place.tolist(), source.tolist(), strict=True))
    if any(table[p] != s for p, s in zip(place.tolist(), source.tolist(), strict=True)):
        return None
    steps = np.diff([table[p] for p in sorted(table)])
    if (steps > 0).all():
        return 1
    return -1 if (steps < 0).all() else None


def chosen(samples: tuple[Sample, ...]) -> list[tuple[int, Sample]]:
    stride = -(-len(samples) // SAMPLES_PER_ROW)
    return list(enumerate(samples))[::stride]


@pytest.mark.parametrize(
    "spec", [row for row in OPERATORS if row.samples and not is_opaque(row)], ids=lambda row: row.name
)
def test_declared_mapping_is_what_the_evaluator_shows(spec: OpSpec) -> None:
    wanted: set[tuple[int, Mapping]] = set()
    attained: set[tuple[int, Mapping]] = set()
    for k, sample in chosen(spec.samples):
        rng = np.random.default_rng(k)
        call, arrays = call_of_sample(spec, sample, rng)
        bases = [arrays, call_of_sample(spec, sample, rng)[1]]
        run = runner(spec, call)
        for i, declared in enumerate(mappings_of(spec, call)):
            if arrays[i] is None or call.constant(i) is not None or arrays[i].size == 0:
                continue
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found = derived(run, bases, i, sample, rng)
            if found is None:
                continue
            several = "several_reads" in spec.flags and declared == Mapping.ONE_TO_MANY
            assert found <= (Mapping.MANY_TO_MANY if several else declared), (k, i, found, declared)
            wanted.add((i, declared))
            attained.add((i, found))
    assert wanted <= attained
