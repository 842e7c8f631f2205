"""Write LSTM, GRU and RNN out, step by step, as products and element-wise operators. Numeric class reassociating.

Inputs of all steps are multiplied by their weights at once; each step then multiplies its state by the weights of the recurrence.
All steps are alike but for where they read and write, so their kernels are compiled once, and the weights of the recurrence
stay in the caches of the cores that have the same columns of them in every step. A sequence must have a known length.

That is for a shorter precision, which products have and the kernel of a recurrence has not: in bfloat16 an LSTM or a GRU of 256 to
1024 hidden numbers took 1.3 to 2.2 times less so than by that kernel in float32, on a core of a Zen 4. In float32 the kernel takes
0.9 to 1.1 times as long as the products, and compiles at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

import numpy as np

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["MOST_STEPS", "unroll_recurrences"]

MOST_STEPS = 100
"""Steps of both directions together, beyond which the program would take too long to plan: 22 ms for each of an LSTM."""

_NAMES = ("Sigmoid", "Tanh", "Relu")
"""Activations that have no parameters."""


def unroll_recurrences(graph: Graph, trace: Trace) -> Graph:
    """An LSTM, GRU or RNN over a sequence of known length becomes products, activations and sums.

    y = RNN(x, w, r)   ->   p = MatMul(x, w'); y1 = Tanh(p1); y2 = Tanh(Add(p2, MatMul(y1, r'))); ...; y = Concat(y1, y2, ...)

    Refused: sequences of several lengths, weights that are not constant, peepholes, coupled gates, clipping, samples as the first
    axis, activations with parameters, and more than `MOST_STEPS` steps.
    """
    return sweep(graph, trace, (LocalRule("unroll_recurrences", tuple(_CELLS), _unrolled),))


@record(frozen=True)
class _Weights:
    """Of one direction, as products take them: [inputs, gates], [hidden, gates]; biases of both, [gates]."""

    inputs: np.ndarray
    states: np.ndarray
    input_bias: np.ndarray
    state_bias: np.ndarray
    activations: tuple[str, ...]
    is_backward: bool
    resets_after: bool


State = tuple[str, ...]
"""The hidden state, and for an LSTM the cell, [samples, hidden] each; an empty name is zero."""


def _unrolled(edit: Edit, node: Node) -> Change | None:
    kind, directions = edit.static(node.inputs[0]), _directions(edit, node)
    given = (*node.inputs, *("",) * (8 - len(node.inputs)))
    if kind is None or kind.dtype != FLOAT32 or kind.rank != 3 or 0 in kind.dims or directions is None:
        return None
    if any(node.attribute(name) for name in ("clip", "input_forget", "layout")) or given[4] or given[7]:
        return None
    if kind.dims[0] * len(directions) > MOST_STEPS:
        return None
    writer = _Writer(edit, node, kind.dims[1], directions[0].states.shape[0])
    initial = given[5:7] if node.op == "LSTM" else given[5:6]
    writer.write(kind.dims[0], directions, initial)
    return Change((node,), f"{kind.dims[0]} steps", tuple(writer.nodes))


def _directions(edit: Edit, node: Node) -> list[_Weights] | None:
    """The weights of each direction; None when they are not constant, or activations not known."""
    inputs, states, biases = (edit.operand(node, k) for k in (1, 2, 3))
    if inputs is None or states is None or (biases is None and len(node.inputs) > 3 and node.inputs[3]):
        return None
    if biases is None:
        biases = np.zeros((len(inputs), 2 * inputs.shape[1]), np.float32)
    way, defaults = str(node.attribute("direction", "forward")), _CELLS[node.op].activations
    names = tuple(str(name) for name in node.attribute("activations") or defaults * len(inputs))
    if len(names) != len(defaults) * len(inputs) or any(name not in _NAMES for name in names):
        return None
    return [
        _Weights(
            np.ascontiguousarray(inputs[d].T),
            np.ascontiguousarray(states[d].T),
            biases[d, : inputs.shape[1]],
            biases[d, inputs.shape[1] :],
            names[d * len(defaults) : (d + 1) * len(defaults)],
            way == "reverse" or d == 1,
            bool(node.attribute("linear_before_reset", 0)),
        )
        for d in range(len(inputs))
    ]


@record
class _Writer:
    """Writes the nodes of one recurrence over `samples` sequences, with a state of `hidden` numbers each."""

    edit: Edit
    node: Node
    samples: int
    hidden: int
    nodes: list[Node] = field(default_factory=list)

    def op(self, op: str, inputs: Sequence[str], shape: Sequence[int], **attributes: int) -> str:
        """The value of a new node."""
        value = self.edit.value(f"{self.node.label}_{op}", TensorType(FLOAT32, tuple(shape)))
        self.nodes.append(Node(op, tuple(inputs), (value,), attributes_of(**attributes), name=value))
        return value

    def each(self, op: str, *inputs: str) -> str:
        """An operator on states, element by element."""
        return self.op(op, inputs, (self.samples, self.hidden))

    def parts(self, value: str, shape: Sequence[int], axis: int, count: int) -> list[str]:
        """A value cut into equal parts of this shape along an axis."""
        if count == 1:
            return [value]
        kind = TensorType(FLOAT32, tuple(shape))
        values = tuple(self.edit.value(f"{self.node.label}_part", kind) for _ in range(count))
        self.nodes.append(Node("Split", (value,), values, attributes_of(axis=axis, num_outputs=count), name=values[0]))
        return list(values)

    def gates(self, value: str, count: int) -> list[str]:
        return self.parts(value, (self.samples, self.hidden), 1, count)

    def array(self, contents: np.ndarray, stem: str = "weights") -> str:
        return self.edit.constant(contents, f"{self.node.label}_{stem}")

    def shaped(self, value: str, *shape: int) -> str:
        return self.op("Reshape", (value, self.array(np.array(shape, np.int64), "shape")), shape)

    def sum(self, first: str, second: str, count: int) -> str:
        """Of `count` gates; either may be zero."""
        present = [value for value in (first, second) if value]
        return present[0] if len(present) == 1 else self.op("Add", present, (self.samples, count * self.hidden))

    def product(self, state: str, weights: str, count: int) -> str:
        """A state times weights, for `count` gates; zero for a state that is."""
        return self.op("MatMul", (state, weights), (self.samples, count * self.hidden)) if state else ""

    def write(self, steps: int, directions: Sequence[_Weights], initial: Sequence[str]) -> None:
        """All nodes, the last of them with the outputs of the recurrence."""
        shape = (len(directions), self.samples, self.hidden)
        every: list[str] = []
        last: list[State] = []
        starts = [self.initial(value, len(directions)) for value in initial]
        for d, weights in enumerate(directions):
            states = self.direction(steps, weights, tuple(start[d] for start in starts))
            rows = [self.shaped(state[0], 1, 1, *shape[1:]) for state in states]
            in_time = rows[::-1] if weights.is_backward else rows
            every.append(self.op("Concat", in_time, (steps, 1, *shape[1:]), axis=0))
            last.append(tuple(self.shaped(value, 1, *shape[1:]) for value in states[-1]))
        for output, values, axis in zip(self.node.outputs, (every, *zip(*last, strict=True)), (1, 0, 0), strict=False):
            if output:
                self.nodes.append(Node("Concat", tuple(values), (output,), attributes_of(axis=axis), name=output))

    def initial(self, value: str, directions: int) -> list[str]:
        """The states that directions begin with."""
        known = self.edit.array(value) if value else None
        if not value or (known is not None and not np.any(known)):
            return [""] * directions
        parts = self.parts(value, (1, self.samples, self.hidden), 0, directions)
        return [self.shaped(part, self.samples, self.hidden) for part in parts]

    def direction(self, steps: int, weights: _Weights, state: State) -> list[State]:
        """The states after each step, in the order in which they are computed."""
        width = weights.inputs.shape[1]
        cell = _CELLS[self.node.op]
        bias = self.array(cell.bias(weights), "bias")
        size = (steps, self.samples, width)
        products = self.op("MatMul", (self.node.inputs[0], self.array(weights.inputs)), size)
        rows = self.parts(self.op("Add", (products, bias), size), (1, self.samples, width), 0, steps)
        step = cell.step(self, weights)
        found: list[State] = []
        for row in rows[::-1] if weights.is_backward else rows:
            state = step(self.shaped(row, self.samples, width), state)
            found.append(state)
        return found


Step = Callable[[str, State], State]
"""The state after a step, given what inputs and biases add to its gates and the state before."""


def _lstm(w: _Writer, weights: _Weights) -> Step:
    recurrent = w.array(weights.states)
    gate, inner, outer = weights.activations

    def step(given: str, state: State) -> State:
        hidden, cell = state
        i, o, f, c = w.gates(w.sum(w.product(hidden, recurrent, 4), given, 4), 4)
        new = w.each("Mul", w.each(gate, i), w.each(inner, c))
        if cell:
            new = w.each("Add", w.each("Mul", w.each(gate, f), cell), new)
        return w.each("Mul", w.each(gate, o), w.each(outer, new)), new

    return step


def _gru(w: _Writer, weights: _Weights) -> Step:
    """With `linear_before_reset` the reset gate acts behind the product with the state, else before it."""
    gate, inner = weights.activations
    columns = 2 * w.hidden
    recurrent = w.array(weights.states if weights.resets_after else np.ascontiguousarray(weights.states[:, :columns]))
    last = "" if weights.resets_after else w.array(np.ascontiguousarray(weights.states[:, columns:]))
    bias = w.array(weights.state_bias[columns:], "bias")

    def after(parts: Sequence[str], hidden: str) -> tuple[str, str]:
        """The update gate and the candidate."""
        products = w.gates(w.product(hidden, recurrent, 3), 3) if hidden else ["", "", ""]
        update, reset = (w.each(gate, w.sum(parts[k], products[k], 1)) for k in (0, 1))
        own = w.each("Add", products[2], bias) if hidden else bias
        return update, w.each(inner, w.each("Add", parts[2], w.each("Mul", reset, own)))

    def before(parts: Sequence[str], hidden: str) -> tuple[str, str]:
        if not hidden:
            return w.each(gate, parts[0]), w.each(inner, parts[2])
        products = w.gates(w.product(hidden, recurrent, 2), 2)
        update, reset = (w.each(gate, w.sum(parts[k], products[k], 1)) for k in (0, 1))
        return update, w.each(inner, w.each("Add", parts[2], w.product(w.each("Mul", reset, hidden), last, 1)))

    def step(given: str, state: State) -> State:
        (hidden,) = state
        update, candidate = (after if weights.resets_after else before)(w.gates(given, 3), hidden)
        if not hidden:
            return (w.each("Sub", candidate, w.each("Mul", update, candidate)),)
        return (w.each("Add", candidate, w.each("Mul", update, w.each("Sub", hidden, candidate))),)

    return step


def _rnn(w: _Writer, weights: _Weights) -> Step:
    recurrent = w.array(weights.states)
    (activation,) = weights.activations
    return lambda given, state: (w.each(activation, w.sum(w.product(state[0], recurrent, 1), given, 1)),)


def _sum_of_biases(weights: _Weights) -> np.ndarray:
    return np.asarray(weights.input_bias + weights.state_bias)


def _gru_bias(weights: _Weights) -> np.ndarray:
    """What is added whatever the reset gate says."""
    if not weights.resets_after:
        return _sum_of_biases(weights)
    kept = weights.state_bias.copy()
    kept[2 * len(kept) // 3 :] = 0
    return np.asarray(weights.input_bias + kept)


@record(frozen=True)
class _Cell:
    """`bias` is what is added to the inputs' product, `activations` the defaults of one direction."""

    activations: tuple[str, ...]
    bias: Callable[[_Weights], np.ndarray]
    step: Callable[[_Writer, _Weights], Step]


_CELLS: Mapping[str, _Cell] = MappingProxyType(
    {
        "LSTM": _Cell(("Sigmoid", "Tanh", "Tanh"), _sum_of_biases, _lstm),
        "GRU": _Cell(("Sigmoid", "Tanh"), _gru_bias, _gru),
        "RNN": _Cell(("Tanh",), _sum_of_biases, _rnn),
    }
)
