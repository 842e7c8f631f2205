"""The equations of DNNFusion's table of properties with the arithmetic printed beside them, and what the rules make of them.

An equation counts as it is written: what stands in it twice is computed twice, as the authors count.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.records import record
from fusewise.rewrite.engine import rewrite
from fusewise.rewrite.rules.table import ALGEBRA
from fusewise.rewrite.work import work_of
from fusewise.trace import Trace

__all__ = ["PRINTED", "PrintedEquation", "counted", "rewritten"]


@record(frozen=True)
class PrintedEquation:
    """One equation on matrices of m by n elements: its property, both sides as printed, and the operations printed for either,
    empty where none are.

    `write` puts the left side down and gives its value; `given` are operators that only make the operands, and count for no side.
    """

    law: str
    before: str
    after: str
    printed: tuple[str, str]
    write: Callable[[GraphBuilder, int, int], str]
    given: tuple[str, ...] = ()


def _roots(build: GraphBuilder, m: int, n: int) -> str:
    a, b, c = (build.input(name, (m, n)) for name in "abc")
    root = build.op("Sqrt", build.op("Abs", b))
    return str(build.op("Mul", build.op("Mul", a, root), build.op("Mul", root, c)))


def _factor(build: GraphBuilder, m: int, n: int) -> str:
    a, b, c = (build.input(name, (m, n)) for name in "abc")
    return str(build.op("Add", build.op("Mul", a, c), build.op("Mul", a, b)))


def _exponentials(build: GraphBuilder, m: int, n: int) -> str:
    rows = build.constant(np.array([1], np.int64), "axes")
    return str(build.op("ReduceProd", build.op("Exp", build.input("a", (m, n))), rows, keepdims=0))


def _reciprocals(build: GraphBuilder, m: int, n: int) -> str:
    product = build.op("MatMul", build.input("a", (m, n)), build.input("b", (n, n)))
    c = build.constant(np.random.default_rng(0).uniform(1, 2, (m, n)).astype(np.float32), "c")
    scaled = build.op("Reciprocal", build.op("Mul", product, c))
    return str(build.op("Mul", build.op("Reciprocal", product), scaled))


PRINTED: tuple[PrintedEquation, ...] = (
    PrintedEquation(
        "associative",
        "(A * Sqrt(B)) * (Sqrt(B) * C)",
        "A * B * C",
        ("5 * m * n", "2 * m * n"),
        _roots,
        ("Abs",),
    ),
    PrintedEquation(
        "distributive",
        "A * C + A * B",
        "(A + B) * C, a misprint for A * (B + C)",
        ("3 * m * n", "2 * m * n"),
        _factor,
    ),
    PrintedEquation(
        "commutative",
        "ReduceProd(Exp(A))",
        "Exp(ReduceSum(A))",
        ("2 * m * n", "m * n + m"),
        _exponentials,
    ),
    PrintedEquation(
        "associative",
        "Recip(A . B) * Recip((A . B) * C), C constant",
        "Square(Recip(A . B)) * Recip(C), Recip(C) computed before",
        ("", ""),
        _reciprocals,
        ("MatMul",),
    ),
)


@cache
def rewritten(equation: PrintedEquation, m: int, n: int) -> tuple[Graph, Graph]:
    """The left side as a graph, and what the rules make of it."""
    build = GraphBuilder("equation")
    graph = build.finish(equation.write(build, m, n))
    return graph, rewrite(graph, ALGEBRA, Trace())


def counted(equation: PrintedEquation, graph: Graph) -> int:
    """Arithmetic operations of the graph's output as an expression: those of a value once for each time it is written."""

    def of(value: str) -> int:
        node = graph.producer_of(value)
        if node is None or node.op in equation.given:
            return 0
        return work_of(node, graph.types, {x: graph.array(x) for x in node.reads}).flops + sum(map(of, node.inputs))

    return of(graph.outputs[0])
