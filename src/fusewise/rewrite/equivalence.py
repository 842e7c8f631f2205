"""Is a rule sound? It is applied, with the matcher and all guards, to examples, and both graphs are compared.

First without rounding (`exact`): floats as fractions, integers of few bits that wrap around, over all combinations of a few
telling values and over broadcasts, sizes zero and one among them. Then in float32 on ONNX's reference evaluator, with
zeros, negative numbers and NaN among the operands. A rule with a problem must not enter a table.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from fusewise.errors import FusewiseError
from fusewise.ir.dtypes import BOOL, FLOAT32, INT8, DType, dtype_named
from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.ops.build import GraphBuilder
from fusewise.ops.evaluate import evaluate
from fusewise.rewrite.exact import UNDEFINED, run_exactly
from fusewise.rewrite.match import Match, matches
from fusewise.rewrite.pattern import Apply, Literal, Term, Variable
from fusewise.rewrite.rule import Rule, RuleSample, numeric_class, refusal
from fusewise.rewrite.substitute import Refused, carried_out, draft_of, folded

__all__ = ["TOLERANCE", "example_graphs", "examples", "problems"]

TOLERANCE = 1e-5
"""Largest difference in float32 over the largest magnitude, for rules that are not exact."""

TELLING = tuple(Fraction(x) for x in ("-2", "-1", "-1/2", "0", "1/2", "1", "3/2", "2", "7/2", "4"))
_MOST_COMBINATIONS = 400
_MOST_MATCHES = 4
_COMPARISONS = frozenset("Less LessOrEqual Greater GreaterOrEqual".split())
_GIVEN = {"nonzero": -2.0, "whole": 3.0}
"""Contents of variables that must be constants of some kind; any constant is filled with small whole numbers."""

Pair = tuple[Graph, Graph, str]
"""A graph before and after one application, and the numeric class of that application."""


def problems(rule: Rule) -> list[str]:
    """What is wrong with `rule`, a sentence each; empty when it passed on every example and was applied at least once."""
    found: list[str] = []
    for kind in rule.on:
        applied = 0
        for sample in _samples(rule):
            try:
                graph = _written(rule, sample, kind)
            except FusewiseError as error:
                found.append(f"{rule.name}: an example for {kind} cannot be written: {error}")
                continue
            for pair in examples(rule, graph):
                applied += 1
                wrong = _differences(pair, kind, rule.spreads)
                found.extend(f"{rule.name} on {kind}, {sample.shapes}: {text}" for text in wrong)
        if not applied:
            found.append(f"{rule.name}: no example for {kind} is matched and let pass")
    return found


def example_graphs(rule: Rule, kind: str = "float") -> Iterator[Graph]:
    """The rule's pattern, on the shapes of each of its samples, as a graph whose inputs are the variables."""
    for sample in _samples(rule):
        yield _written(rule, sample, kind)


def examples(rule: Rule, graph: Graph) -> Iterator[Pair]:
    """The graph before and after each of the first applications of `rule` at its last node."""
    for match in itertools.islice(_found(rule, graph), _MOST_MATCHES):
        if refusal(rule, match) is None:
            try:
                after = carried_out(graph, [folded(draft_of(rule, match))])
            except Refused:
                continue
            verify(after)
            yield graph, after, numeric_class(rule, match)


def _found(rule: Rule, graph: Graph) -> Iterator[Match]:
    first = rule.flat.roots[0]
    for index in reversed(range(len(graph.nodes))):
        if isinstance(first, Apply) and graph.nodes[index].op == first.op:
            yield from matches(rule.flat, graph, index, rule.only)


# -- examples -----------------------------------------------------------------------------------------------------------------

Shapes = dict[str, tuple[int, ...]]
_CYCLE: tuple[tuple[int, ...], ...] = ((2, 3), (3,), (2, 1), ())


def _samples(rule: Rule) -> tuple[RuleSample, ...]:
    """The rule's own; or all combinations in one row, broadcasts in every order, and empty tensors."""
    if rule.samples:
        return rule.samples
    names = rule.before.variables
    row: Shapes = {name: (len(_combinations(len(names))),) for name in names}
    turned: list[Shapes] = [{name: _CYCLE[(k + turn) % 4] for k, name in enumerate(names)} for turn in range(4)]
    same: Shapes = dict.fromkeys(names, (2, 2))
    empty: Shapes = {name: (0, 3) if k % 2 == 0 else (1, 3) for k, name in enumerate(names)}
    return tuple(map(RuleSample, (row, same, *turned, empty)))


def _combinations(count: int) -> list[tuple[Fraction, ...]]:
    """All combinations of telling values for so many variables, thinned out evenly where they are too many."""
    every = list(itertools.islice(itertools.product(TELLING, repeat=count), 200_000))
    step = max(1, len(every) // _MOST_COMBINATIONS)
    while step > 1 and (step % 2 == 0 or step % 5 == 0):  # a step prime to ten meets every digit
        step += 1
    return every[::step]


def _element_types(rule: Rule, kind: str) -> dict[str, DType]:
    """The dtype of each variable, when the pattern's result is of `kind`."""
    reduces = any(op.startswith("Reduce") for op in rule.before.operators | rule.after.operators)
    whole = (
        dtype_named({"int": "int32", "uint": "uint32"}.get(kind, "") if reduces else f"{kind}8")
        if "int" in kind
        else None
    )
    usual = FLOAT32 if kind == "float" else BOOL if kind == "bool" else whole
    assert usual is not None
    found = dict.fromkeys(rule.before.variables, usual)
    for term in rule.before.terms():
        for k, operand in enumerate(term.operands if isinstance(term, Apply) else ()):
            if isinstance(operand, Variable) and isinstance(term, Apply):
                if term.op == "Where" and k == 0:
                    found[operand.name] = BOOL
                elif term.op in _COMPARISONS:
                    found[operand.name] = INT8
    return found


def _written(rule: Rule, sample: RuleSample, kind: str) -> Graph:
    """The rule's pattern as a graph whose inputs are the variables; facts the rule needs hold by what makes them."""
    build = GraphBuilder(rule.name)
    dtypes = _element_types(rule, kind)
    facts = dict(rule.needs)
    values: dict[Term, str] = {}
    for name in rule.before.variables:
        optional = any(isinstance(t, Variable) and t.name == name and t.optional for t in rule.before.terms())
        variable = Variable(name, optional)
        if name in sample.values:
            array = sample.values[name]
            values[variable] = "" if array is None else build.constant(array, name)
        else:
            values[variable] = _operand(build, name, sample.shapes[name], dtypes[name], facts.get(name, ""))
    roots = [_put(build, root, values, sample) for root in rule.before.roots]
    return build.finish(*roots)


def _operand(build: GraphBuilder, name: str, shape: tuple[int, ...], dtype: DType, fact: str) -> str:
    if fact in _GIVEN:
        return build.constant(np.full(shape, _GIVEN[fact]).astype(dtype.numpy), name)
    if fact == "constant":
        numbers = np.random.default_rng(zlib.crc32(name.encode())).integers(-3, 4, shape)
        return build.constant(numbers.astype(dtype.numpy), name)
    if fact == "finite":
        whole = build.input(name, shape, INT8 if dtype.is_float else dtype)
        return build.op("Cast", whole, to=dtype.onnx) if dtype.is_float else whole
    value = build.input(name, shape, dtype)
    if fact and dtype.kind != "uint":
        value = build.op("Abs", value)
        if fact == "positive":
            value = build.op("Add", value, build.constant(np.array(0.5, dtype.numpy)))
    return value


def _put(build: GraphBuilder, term: Term, values: dict[Term, str], sample: RuleSample) -> str:
    if term in values:
        return values[term]
    assert isinstance(term, Apply)
    dtype: DType | None = None
    for operand in term.operands:
        if not isinstance(operand, Literal):
            value = _put(build, operand, values, sample)
            kind = build.types[value] if value else None
            dtype = getattr(kind, "dtype", None) if dtype is None else dtype
    assert dtype is not None
    inputs = [
        build.constant(np.array(x.value).astype(dtype.numpy)) if isinstance(x, Literal) else values[x] or None
        for x in term.operands
    ]
    attributes = dict(sample.attributes.get(term.like, {})) if term.like else {}
    if term.op == "BitShift" and term.like:
        attributes = {"direction": "RIGHT"} | attributes
    made = build.op(term.op, *inputs, outputs=term.outputs, **(attributes | dict(term.attributes)))
    for k, value in enumerate((made,) if term.outputs == 1 else made):
        values[Apply(term.op, term.operands, term.attributes, term.like, term.outputs, k)] = value
    return values[term]


# -- comparisons --------------------------------------------------------------------------------------------------------------


def _differences(pair: Pair, kind: str, spreads: bool) -> Iterator[str]:
    before, after, numeric = pair
    if (before.inputs, before.outputs) != (after.inputs, after.outputs):
        yield "inputs or outputs are lost"
        return
    if kind == "float":
        yield from _compared(pair, _fractions(before), _same_fractions)
        for seed in range(2):
            yield from _compared_in_floats(before, after, numeric, _telling_floats(before, seed, finite=spreads))
    else:
        for seed in range(2):
            yield from _compared(pair, _integers(before, seed), np.array_equal)


def _compared(
    pair: Pair, feeds: Mapping[str, np.ndarray], same: Callable[[np.ndarray, np.ndarray], bool]
) -> Iterator[str]:
    before, after, _ = pair
    for a, b in zip(run_exactly(before, feeds), run_exactly(after, feeds), strict=True):
        if a.shape != b.shape or not same(a, b):
            yield "exact answers differ"


def _same_fractions(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal wherever the answer before was defined."""
    pairs = list(zip(a.reshape(-1), b.reshape(-1), strict=True))
    return all(x is UNDEFINED or (y is not UNDEFINED and x == y) for x, y in pairs)


def _fractions(graph: Graph) -> dict[str, np.ndarray]:
    """Combination number k at position k of every row; on other shapes, values in turn."""
    count = len(graph.inputs)
    rows = _combinations(count)
    feeds: dict[str, np.ndarray] = {}
    for k, name in enumerate(graph.inputs):
        kind = graph.tensor(name)
        flat: list[Any]
        if kind.size == len(rows) and kind.rank == 1:
            flat = [row[k] for row in rows]
        else:
            flat = [TELLING[(3 * i + 7 * k + 1) % len(TELLING)] for i in range(kind.size)]
        if kind.dtype == BOOL:
            feeds[name] = np.array([x > 0 for x in flat], dtype=bool).reshape(kind.dims)
        else:
            feeds[name] = np.array([*flat, None], dtype=object)[:-1].reshape(kind.dims)
    return feeds


def _integers(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """Numbers from the whole range of the dtype, its ends among them; small ones for the second seed."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for name in graph.inputs:
        kind = graph.tensor(name)
        if kind.dtype == BOOL:
            feeds[name] = rng.integers(0, 2, kind.dims).astype(bool)
            continue
        least, most = (0, 2**kind.dtype.bits - 1) if kind.dtype.kind == "uint" else _signed_range(kind.dtype.bits)
        low, high = (least, most) if seed == 0 else (max(least, -3), 9)
        found = rng.integers(low, high, kind.dims, dtype=np.int64, endpoint=True).astype(kind.dtype.numpy)
        ends = rng.random(kind.dims) < 0.2
        feeds[name] = np.where(ends, rng.choice(np.array([low, high], kind.dtype.numpy), kind.dims), found)
    return feeds


def _signed_range(bits: int) -> tuple[int, int]:
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _telling_floats(graph: Graph, seed: int, finite: bool) -> dict[str, np.ndarray]:
    """Random numbers of both signs, a quarter of them zero, one or NaN."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, np.ndarray] = {}
    for name in graph.inputs:
        kind = graph.tensor(name)
        if kind.dtype == BOOL:
            feeds[name] = rng.integers(0, 2, kind.dims).astype(bool)
            continue
        if not kind.dtype.is_float:
            feeds[name] = rng.integers(-3, 4, kind.dims).astype(kind.dtype.numpy)
            continue
        found = rng.normal(scale=2, size=kind.dims)
        special = rng.choice(np.array([0.0, 1.0, -1.0, 0.0 if finite else np.nan]), kind.dims)
        feeds[name] = np.where(rng.random(kind.dims) < 0.25, special, found).astype(np.float32)
    return feeds


def _compared_in_floats(before: Graph, after: Graph, numeric: str, feeds: Mapping[str, np.ndarray]) -> Iterator[str]:
    for a, b in zip(_referred(before, feeds), _referred(after, feeds), strict=True):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            yield "dtype or shape differs in floats"
        elif not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(np.isinf(a), np.isinf(b)):
            yield "floats differ in what is NaN or infinite"
        elif numeric == "exact" and not np.array_equal(a, b, equal_nan=True):
            yield "floats of an exact rule differ"
        elif not _close(a, b):
            yield "floats differ by more than rounding"


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    largest = np.max(np.abs(a[finite]), initial=0.0)
    return bool(np.all(np.abs(a[finite].astype(np.float64) - b[finite]) <= TOLERANCE * largest))


def _referred(graph: Graph, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    values: dict[str, Any] = {**{x: c.array for x, c in graph.constants.items()}, **feeds}
    for node in graph.nodes:
        with np.errstate(all="ignore"):
            values.update(zip(node.outputs, evaluate(node, values, graph.opset), strict=True))
    return [np.asarray(values[x]) for x in graph.outputs]
