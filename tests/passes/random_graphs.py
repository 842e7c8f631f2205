"""Random graphs of what passes and rules look for: neutral elements, moves that cancel, parts, constants beside products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder

ONE = ("Identity", "Relu", "Neg", "Abs", "Exp", "Sigmoid", "Sqrt", "Reciprocal", "Softplus", "Floor", "Dropout", "Log")
TWO = ("Add", "Sub", "Mul", "Div", "Max", "Min")
MILD = ("Identity", "Relu", "Neg", "Abs", "Sigmoid", "Dropout"), ("Add", "Sub", "Max", "Min")
"""Functions and operators that neither leave the range of a type nor make much of a rounding."""

NUMBERS = (0.0, 1.0, -1.0, 2.0, 0.5)


@dataclass
class Choices:
    """Numbers as choices, zeros once they are used up, and the functions and operators to choose from."""

    numbers: Iterator[int]
    functions: tuple[str, ...]
    operators: tuple[str, ...]

    def __call__(self, below: int) -> int:
        return next(self.numbers, 0) % below

    def function(self) -> str:
        return self.functions[self(len(self.functions))]

    def operator(self) -> str:
        return self.operators[self(len(self.operators))]


Make = Callable[[GraphBuilder, str, Choices], str | tuple[str, ...]]
"""A node on a value of four axes."""


def dims(build: GraphBuilder, x: str) -> tuple[int, ...]:
    kind: Any = build.types[x]
    return tuple(kind.dims)


def constant(build: GraphBuilder, shape: tuple[int, ...], draw: Choices) -> str:
    return build.constant(np.random.default_rng(draw(9)).normal(size=shape).astype(np.float32))


def sizes(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def unary(build: GraphBuilder, x: str, draw: Choices) -> str:
    return build.op(draw.function(), x)


def with_number(build: GraphBuilder, x: str, draw: Choices) -> str:
    number = build.constant(np.array(NUMBERS[draw(len(NUMBERS))], np.float32))
    operands = (x, number) if draw(2) else (number, x)
    return build.op(draw.operator(), *operands)


def with_channels(build: GraphBuilder, x: str, draw: Choices) -> str:
    return build.op(("Add", "Mul")[draw(2)], x, constant(build, (dims(build, x)[1], 1, 1), draw))


def with_itself(build: GraphBuilder, x: str, draw: Choices) -> str:
    return build.op(draw.operator(), x, x)


def turned(build: GraphBuilder, x: str, draw: Choices) -> str:
    return build.op("Transpose", x, perm=((0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2), (1, 0, 2, 3))[draw(4)])


def reshaped(build: GraphBuilder, x: str, draw: Choices) -> str:
    a, b, c, d = dims(build, x)
    shapes = ((a, b, c * d, 1), (a, c, b, d), (a, b, c, d), (1, a * b, c, d))
    return build.op("Reshape", x, build.constant(sizes(*shapes[draw(4)])))


def there_and_back(build: GraphBuilder, x: str, draw: Choices) -> str:
    if draw(2):
        return build.op("Cast", build.op("Cast", x, to=11), to=1)
    axes = build.constant(sizes(draw(3)))
    return build.op("Squeeze", build.op("Unsqueeze", x, axes), axes)


def cut(build: GraphBuilder, x: str, draw: Choices) -> str:
    axis = draw(4)
    extent = dims(build, x)[axis]
    begin = draw(extent)
    end = begin + 1 + draw(extent - begin)
    return build.op("Slice", x, *(build.constant(sizes(n)) for n in (begin, end, axis)))


def joined(build: GraphBuilder, x: str, draw: Choices) -> str:
    axis = draw(4)
    parts = [x, build.op(draw.function(), x)]
    return build.op("Concat", *parts, *(parts[:1] * draw(2)), axis=axis)


def split(build: GraphBuilder, x: str, draw: Choices) -> tuple[str, ...]:
    axis = draw(4)
    extent = dims(build, x)[axis]
    if extent < 2:
        return (build.op("Identity", x),)
    first = 1 + draw(extent - 1)
    made = build.op("Split", x, build.constant(sizes(first, extent - first)), outputs=2, axis=axis)
    return tuple(made)


def rejoined(build: GraphBuilder, x: str, draw: Choices) -> str:
    """One operator on each part of a Split, and the parts joined again."""
    parts, op = split(build, x, draw), draw.function()
    apart = [axis for axis in range(4) if len({dims(build, part)[axis] for part in parts}) > 1]
    return build.op("Concat", *(build.op(op, part) for part in parts), axis=apart[0] if apart else draw(4))


def convolved(build: GraphBuilder, x: str, draw: Choices) -> str:
    channels, kernel = dims(build, x)[1], (1, 3)[draw(2)]
    w = constant(build, (channels, channels, kernel, kernel), draw)
    return build.op("Conv", x, w, *([constant(build, (channels,), draw)] * draw(2)), pads=(kernel // 2,) * 4)


def normalised(build: GraphBuilder, x: str, draw: Choices) -> str:
    channels = dims(build, x)[1]
    statistics = [constant(build, (channels,), draw) for _ in range(3)]
    variance = build.constant(np.full(channels, 0.5, np.float32))
    return build.op("BatchNormalization", x, *statistics, variance)


def pooled(build: GraphBuilder, x: str, draw: Choices) -> str:
    window = min(3, *dims(build, x)[2:])
    return build.op(("MaxPool", "AveragePool")[draw(2)], x, kernel_shape=(window,) * 2, strides=(1 + draw(2),) * 2)


def reduced(build: GraphBuilder, x: str, draw: Choices) -> str:
    op = ("ReduceMean", "ReduceSum", "ReduceMax")[draw(3)]
    return build.op(op, x, build.constant(sizes(draw(4))), keepdims=1)


def softened(build: GraphBuilder, x: str, draw: Choices) -> str:
    return build.op("Softmax", x, axis=draw(4))


def bounded(build: GraphBuilder, x: str, draw: Choices) -> str:
    low, high = (build.constant(np.array(n, np.float32)) for n in ((0, 6), (-1, 1), (0, np.inf))[draw(3)])
    return build.op("Clip", x, low, high)


def multiplied(build: GraphBuilder, x: str, draw: Choices) -> str:
    width = dims(build, x)[3]
    return build.op("MatMul", x, constant(build, (width, width), draw))


MAKERS: tuple[Make, ...] = (
    *(unary, with_number, with_channels, with_itself, turned, reshaped, there_and_back, cut, joined, split, rejoined),
    *(convolved, normalised, pooled, reduced, softened, bounded, multiplied),
)


def random_graph(choices: Sequence[int], mild: bool = False) -> Graph:
    """A graph that follows from the numbers: each draws a node, its operand, and what else there is to choose."""
    draw = Choices(iter(choices), *(MILD if mild else (ONE, TWO)))
    build = GraphBuilder("random")
    values = [build.input("x", (2, 3, 4, 4))]
    for _ in range(3 + draw(8)):
        made = MAKERS[draw(len(MAKERS))](build, values[-1 - draw(min(2, len(values)))], draw)
        values.extend(made if isinstance(made, tuple) else (made,))
    read = {x for node in build.nodes for x in node.inputs}
    return build.finish(*(x for node in build.nodes for x in node.outputs if x not in read))
