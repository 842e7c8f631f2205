"""Equality saturation: all substitutions at once, then the cheapest of everything that is equal (Y. Yang et al., MLSys 2021).

egglog keeps classes of equal values and finds where rules fit, those of several roots included; what a match becomes is drafted
by the rule itself, as in the other search, and joined to the class it equals. Rules of several roots, which multiply, are
looked for in the first rounds only. In the end an integer program picks nodes (`extract`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field

from fusewise.errors import UsageError
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ir.types import TensorType, ValueType
from fusewise.records import record
from fusewise.rewrite.cost import Cost
from fusewise.rewrite.match import Match
from fusewise.rewrite.pattern import Apply, Term
from fusewise.rewrite.rule import Rule, refusal
from fusewise.rewrite.saturate.extract import NodeCandidate, extracted
from fusewise.rewrite.saturate.language import (
    MOST_OPERANDS,
    PRELUDE,
    Attributes,
    Query,
    operands_of,
    query_of,
    row_rules,
)
from fusewise.rewrite.search.found import Found, SubstitutionStep
from fusewise.rewrite.search.promise import Promises, deferred, kept, recipe_of
from fusewise.rewrite.search.stated import stated
from fusewise.rewrite.substitute import Draft, Refused, draft_of, is_static

__all__ = ["SaturationLimits", "expressible", "saturate"]

_WORD = re.compile(r'"[^"]*"|-?\d+')


@record(frozen=True)
class SaturationLimits:
    """How far to go: rounds, nodes of all classes together, seconds, and rounds in which rules of several roots are used."""

    rounds: int = 8
    nodes: int = 1500
    seconds: float = 60.0
    multiple_rounds: int = 2


def expressible(rules: Sequence[Rule]) -> list[str]:
    """The names of the rules whose left sides can be said."""
    numbers: dict[Attributes, int] = {}
    return [r.name for r in rules if query_of(r, 0, lambda found: numbers.setdefault(found, len(numbers))) is not None]


@record
class _Classes:
    """Values by number, and the e-graph they live in."""

    opset: int
    opsets: tuple[tuple[str, int], ...]
    run: Callable[[str], list[str]]
    types: dict[str, ValueType] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    attributes: dict[Attributes, int] = field(default_factory=dict)
    by_recipe: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    made_by: dict[tuple[str, int, tuple[str, ...]], str] = field(default_factory=dict)
    nodes: int = 0

    def attributes_number(self, attributes: Attributes) -> int:
        return self.attributes.setdefault(attributes, len(self.attributes))

    def new(self, kind: ValueType, term: str) -> str:
        """A value that is this term; its name is its number."""
        number = len(self.numbers) + 1
        name = f"v{number}"
        self.numbers[name] = number
        self.types[name] = kind
        self.waiting.append(f"(let $v{number} {term})\n(set (id $v{number}) {number})\n(set (was {number}) $v{number})")
        return name

    def leaf(self, kind: ValueType) -> str:
        return self.new(kind, f"(Leaf {len(self.numbers) + 1})")

    def constant(self, name: str, constant: Constant) -> str:
        """A constant; what is made in the same way is one."""
        recipe = recipe_of(name, constant)
        found = self.by_recipe.get(recipe)
        if found is None:
            found = self.by_recipe[recipe] = self.leaf(constant.type)
            self.constants[found] = constant
            if recipe == f"given {name}":  # later recipes name it as it is called here
                self.by_recipe[f"given {found}"] = found
        return found

    def node(self, node: Node, names: dict[str, str], types: Callable[[str], ValueType], rule: str = "") -> None:
        """Add a node; `names` says what its operands are called here, and is told what its results are."""
        operands = [names[x] if x else "(Absent)" for x in operands_of(node)]
        texts = " ".join(x if x.startswith("(") else f"${x}" for x in operands)
        key = self.attributes_number(node.attributes)
        term = f'(Op{len(operands)} "{node.op}" {key} {texts})'
        self.nodes += 1
        if rule:
            self.made_by.setdefault((node.op, key, tuple(operands)), rule)
        for k, output in enumerate(node.outputs):
            names[output] = self.new(types(output), term if len(node.outputs) == 1 else f"(Out {k} {term})")

    def join(self, first: str, second: str) -> None:
        self.waiting.append(f"(union ${first} ${second})")

    def flush(self) -> None:
        if self.waiting:
            self.run("\n".join(self.waiting))
            self.waiting.clear()


def saturate(
    graph: Graph,
    rules: Sequence[Rule],
    cost: Cost,
    *,
    bounds: SaturationLimits | None = None,
    progress: Callable[[float], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Found:
    """The cheapest graph among all that the rules make equal within the bounds, and the input.

    Steps name the rules whose nodes are in it; they have no order, so each states the costs of both graphs. `explored` counts
    the nodes of all classes. `UsageError` when egglog or SciPy is not installed.
    """
    bounds = SaturationLimits() if bounds is None else bounds
    begin, before = clock(), cost(graph)
    classes = _Classes(graph.opset, graph.opsets, _engine())
    names = _written(classes, stated(graph))
    queries = [q for k, rule in enumerate(rules) if (q := query_of(rule, k, classes.attributes_number)) is not None]
    classes.run("\n".join(query.text for query in queries))
    ended, duplicates = "searched", 0
    seen: set[tuple[str, ...]] = set()
    promises = Promises()
    try:
        for turn in range(bounds.rounds):
            classes.flush()
            size = classes.nodes
            for query in queries:
                if query.is_multiple and turn >= bounds.multiple_rounds:
                    continue
                for row in _rows(classes, query):
                    if row in seen:
                        duplicates += 1
                    elif classes.nodes < bounds.nodes and clock() - begin < bounds.seconds:
                        seen.add(row)
                        _applied(classes, query, row, promises)
            if progress is not None:
                progress((turn + 1) / bounds.rounds)
            if classes.nodes >= bounds.nodes or clock() - begin >= bounds.seconds:
                ended = "graphs" if classes.nodes >= bounds.nodes else "seconds"
                break
            if classes.nodes == size and not classes.waiting:
                break
        else:
            ended = "graphs"
    except KeyboardInterrupt:
        ended = "interrupted"
    best = _cheapest(graph, classes, names, cost, before)
    return Found((*best, (graph, before, ())), before, classes.nodes, duplicates, clock() - begin, ended)


def _engine() -> Callable[[str], list[str]]:
    try:
        from egglog import bindings
    except ImportError:
        raise UsageError("--search saturate needs egglog: pip install 'fusewise[saturate]'") from None
    engine = bindings.EGraph()

    def run(program: str) -> list[str]:
        return [str(found) for found in engine.run_program(*engine.parse_program(program))]

    run(PRELUDE)
    return run


def _written(classes: _Classes, graph: Graph) -> dict[str, str]:
    """Put the graph in; what each of its values is called there."""
    names = {name: classes.leaf(graph.types[name]) for name in graph.inputs}
    names |= {name: classes.constant(name, constant) for name, constant in graph.constants.items()}
    for node in graph.nodes:
        static = all(
            isinstance(kind := graph.types[x], TensorType) and kind.is_static for x in (*node.reads, *node.writes)
        )
        if node.domain or node.captured or not static or not 1 <= len(operands_of(node)) <= MOST_OPERANDS:
            raise UsageError(
                f"--search saturate cannot say {node.op} at {node.label}; it takes operators of ONNX's own domain with"
                f" one to {MOST_OPERANDS} operands of known shape"
            )
        classes.node(node, names, lambda x: graph.types[x])
    return names


def _rows(classes: _Classes, query: Query) -> Iterator[tuple[str, ...]]:
    number = query.relation.removeprefix("Found")
    classes.run(f"(run-schedule (seq (run commuting) (run look{number})))")
    yield from _table(classes, query.relation)


def _table(classes: _Classes, relation: str) -> Iterator[tuple[str, ...]]:
    (text,) = (found for found in classes.run(f"(print-function {relation} 1000000)") if found.strip())
    for line in text.splitlines():
        if line.strip().startswith(f"({relation} "):
            yield relation, *_WORD.findall(line.partition("->")[0].split(" ", 1)[1].partition(relation)[2])


def _applied(classes: _Classes, query: Query, row: tuple[str, ...], promises: Promises) -> None:
    """Draft the rule at one row and join what comes out; nothing when it is refused."""
    match = _match(classes, query, row[1:])
    if match is None or not is_static(match) or refusal(query.rule, match) is not None:
        return
    with suppress(Refused):
        _joined(classes, deferred(draft_of(query.rule, match, promises)), query.rule.name)


def _match(classes: _Classes, query: Query, row: Sequence[str]) -> Match | None:
    """A row as a match in a graph of its own; None when a value would be made of itself."""
    values = [f"v{number}" if number != "0" else "" for number in row[: len(query.terms) + len(query.variables)]]
    bound: dict[Term, str] = dict(zip((*query.terms, *query.variables), values, strict=True))
    if any(not variable.optional and not bound[variable] for variable in query.variables):
        return None
    tables = list(classes.attributes)
    likes = {like: tables[int(key)] for like, key in zip(query.likes, row[len(values) :], strict=True)}
    nodes: dict[Apply, Node] = {}
    for term in query.terms:
        if term.node not in nodes:
            inputs = tuple(bound[operand] for operand in term.operands)
            while inputs and not inputs[-1]:
                inputs = inputs[:-1]
            outputs = tuple(bound.get(_output(term, k), "") for k in range(term.outputs))
            nodes[term.node] = Node(term.op, inputs, outputs, likes[term.like] if term.like else term.attributes)
    made = [x for node in nodes.values() for x in node.writes]
    given = [bound[variable] for variable in query.variables if bound[variable]]
    if len(set(made)) < len(made) or not set(made).isdisjoint(given):
        return None
    ordered = list(nodes.values())
    known = {x: classes.constants[x] for x in given if x in classes.constants}
    types = {x: classes.types[x] for x in (*made, *given)}
    data = tuple(dict.fromkeys(x for x in given if x not in known))
    graph = Graph(data, (), tuple(ordered), types, known, "match", classes.opset, classes.opsets)
    first = {term.like: ordered[k] for k, term in reversed(list(enumerate(nodes))) if term.like}
    roots = tuple(bound[root] for root in query.rule.before.roots)
    return Match(roots, tuple(range(len(ordered))), bound, first, None, frozenset(), graph)


def _output(term: Apply, index: int) -> Apply:
    return Apply(term.op, term.operands, term.attributes, term.like, term.outputs, index)


def _joined(classes: _Classes, draft: Draft, rule: str) -> None:
    graph = draft.match.graph
    names = {x: x for x in graph.types}
    names |= {x: classes.constant(x, constant) for x, constant in draft.constants.items()}
    for node in draft.nodes:
        made = dict(names)
        classes.node(node, made, lambda x: draft.types.get(x) or graph.types[x], rule)
        for output in node.writes:
            if output in draft.match.roots:
                classes.join(output, made[output])
            else:
                names[output] = made[output]
    for root, value in draft.same.items():
        classes.join(root, names[value])


def _cheapest(
    graph: Graph, classes: _Classes, names: dict[str, str], cost: Cost, before: float
) -> tuple[tuple[Graph, float, tuple[SubstitutionStep, ...]], ...]:
    """The extracted graph when it is cheaper as a whole, with its rules as steps."""
    classes.flush()
    classes.run(row_rules())
    classes.run("(run-schedule (seq (run rows) (run now)))")
    now = {f"v{row[1]}": f"v{row[2]}" for row in _table(classes, "Now")} | {"": "", "(Absent)": ""}
    tables = list(classes.attributes)
    choices: dict[tuple[object, ...], NodeCandidate] = {}
    for n in range(1, MOST_OPERANDS + 1):
        for row in _table(classes, f"Row{n}"):
            number, output, op, key, *operands = row[1:]
            inputs = tuple(f"v{x}" if x != "0" else "" for x in operands)
            label = (op.strip('"'), int(key), inputs)
            choice = choices.setdefault(label, NodeCandidate(op.strip('"'), inputs, tables[int(key)], {}))
            choice.results[max(0, int(output))] = f"v{number}"
    given = {now[names[name]]: name for name in (*graph.inputs, *graph.constants)}
    wanted = {name: now[names[name]] for name in graph.outputs}
    constants = {now[name]: constant for name, constant in classes.constants.items()}
    found = extracted(graph, list(choices.values()), wanted, given, classes.types, constants, cost)
    price = before if found is None else cost(found)
    if found is None or price >= before:
        return ()
    there = {(node.op, tuple(operands_of(node))) for node in found.nodes}
    back = given
    used = sorted(
        {
            rule
            for (op, _, operands), rule in classes.made_by.items()
            if (op, tuple(back.get(now[x], now[x]) for x in operands)) in there
        }
    )
    steps = tuple(SubstitutionStep(k + 1, rule, (), before, price) for k, rule in enumerate(used))
    with suppress(Refused):
        return ((kept(found), price, steps),)
    return ()
