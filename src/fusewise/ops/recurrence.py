"""LSTM, GRU and RNN as ONNX's text defines them, with every option, in NumPy.

ONNX's reference evaluator knows neither sequence lengths nor clipping, activations or coupled gates; this is what host steps and
constant folding use instead, and what native code is held against. Where the text is silent it does as ONNX Runtime: what clipping
bounds are the sums that gates and candidates are made of, not the cell that an LSTM's output is; coupled gates forget what they do
not take in; and rows without a step have zero for their last state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.records import record

__all__ = ["ACTIVATIONS", "GATES", "Activation", "Recurrence", "recurrence", "recurrence_of", "recurrent_operators"]

GATES: Mapping[str, int] = MappingProxyType({"LSTM": 4, "GRU": 3, "RNN": 1})
"""Gates and candidates of each operator, in ONNX's order: input, output, forget, cell; update, reset, hidden; hidden."""

_DEFAULTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
)
"""Activations of one direction."""

ACTIVATIONS: Mapping[str, tuple[float | None, float | None]] = MappingProxyType(
    {
        "affine": (1.0, 0.0),
        "elu": (1.0, None),
        "hardsigmoid": (0.2, 0.5),
        "leakyrelu": (0.01, None),
        "relu": (None, None),
        "scaledtanh": (1.0, 1.0),
        "sigmoid": (None, None),
        "softplus": (None, None),
        "softsign": (None, None),
        "tanh": (None, None),
        "thresholdedrelu": (1.0, None),
    }
)
"""Names in lower case, with what alpha and beta are unless given: those of ONNX's operators. None where there is no such number."""


@record(frozen=True)
class Activation:
    """`name` is one of `ACTIVATIONS`; numbers that it does not have are 0."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


@record(frozen=True)
class Recurrence:
    """What the attributes of a node say.

    - `backward`: of each direction, does it go from the last step to the first?
    - `activations`: of each direction, in ONNX's order (f, g, h).
    - `clip`: what bounds the activations' arguments; 0 for nothing.
    - `coupled`: does an LSTM forget what it does not take in?
    - `batch_first`: are samples the first axis of X, Y and the states?
    - `resets_after`: does a GRU's reset gate act behind the product with the state?
    """

    op: str
    backward: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    clip: float = 0.0
    coupled: bool = False
    batch_first: bool = False
    resets_after: bool = False

    @property
    def gates(self) -> int:
        return GATES[self.op]


def recurrence_of(op: str, attributes: Mapping[str, Any]) -> Recurrence:
    """What a node's attributes by name say; absent ones may be missing or None. `ValueError` where ONNX does not allow them."""
    way = str(attributes.get("direction") or "forward")
    backward = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(way)
    if backward is None:
        raise ValueError(f"direction {way!r} is not one of forward, reverse and bidirectional")
    return Recurrence(
        op,
        backward,
        tuple(_activations(op, len(backward), attributes)),
        clip=float(attributes.get("clip") or 0.0),
        coupled=op == "LSTM" and bool(attributes.get("input_forget")),
        batch_first=bool(attributes.get("layout")),
        resets_after=op == "GRU" and bool(attributes.get("linear_before_reset")),
    )


def _activations(op: str, directions: int, attributes: Mapping[str, Any]) -> Iterator[tuple[Activation, ...]]:
    """Of each direction. Alphas and betas are used up by the activations that have such a number, in their order."""
    usual = _DEFAULTS[op]
    names = [str(name).lower() for name in attributes.get("activations") or usual * directions]
    if op == "RNN":  # whose default has two for either number of directions
        names = names[:directions]
    if len(names) != len(usual) * directions:
        raise ValueError(f"{len(names)} activations for {directions} directions of an {op}")
    alphas, betas = (iter(attributes.get(name) or ()) for name in ("activation_alpha", "activation_beta"))

    def number(default: float | None, given: Iterator[float]) -> float:
        return 0.0 if default is None else float(next(given, default))

    found = []
    for name in names:
        if name not in ACTIVATIONS:
            raise ValueError(f"activation {name!r} is not one of {', '.join(ACTIVATIONS)}")
        alpha, beta = ACTIVATIONS[name]
        found.append(Activation(name, number(alpha, alphas), number(beta, betas)))
    for d in range(directions):
        yield tuple(found[d * len(usual) : (d + 1) * len(usual)])


def recurrence(settings: Recurrence, *operands: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """Y, Y_h and, of an LSTM, Y_c from ONNX's operands in order, None for absent ones; types and shapes are ONNX's.

    Types narrower than float32 are computed in float32 and rounded at the end. A sequence length below 0 or beyond the number of
    steps is an `IndexError`.
    """
    given = list(operands) + [None] * (8 - len(operands))
    x, w, r, b, lengths, h, c, p = given
    if x is None or w is None or r is None:
        raise ValueError(f"{settings.op} lacks X, W or R")
    if settings.batch_first:
        x, h, c = (None if one is None else one.transpose(1, 0, 2) for one in (x, h, c))
        assert x is not None
    steps, samples, _ = x.shape
    kind = np.result_type(x.dtype, np.float32)
    ends = np.full(samples, steps) if lengths is None else lengths.astype(np.int64)
    if np.any((ends < 0) | (ends > steps)):
        raise IndexError(f"a sequence length of {settings.op} is not between 0 and its {steps} steps")
    shape = (len(settings.backward), samples, r.shape[2])
    first = [np.zeros(shape, kind) if one is None else one.astype(kind) for one in (h, c)]
    results = []
    for d in range(len(settings.backward)):
        of_direction = [None if one is None else one[d].astype(kind) for one in (w, r, b, p)]
        direction = _Direction(settings, d, *of_direction)  # type: ignore[arg-type]  # weights are present
        results.append(_run(direction, x.astype(kind), ends, (first[0][d], first[1][d])))
    y, *last = (np.stack(one, axis) for one, axis in zip(zip(*results, strict=True), (1, 0, 0), strict=True))
    if settings.batch_first:
        y, last = y.transpose(2, 0, 1, 3), [one.transpose(1, 0, 2) for one in last]
    found = (y, *last) if settings.op == "LSTM" else (y, last[0])
    with np.errstate(over="ignore"):
        return tuple(np.ascontiguousarray(one.astype(x.dtype)) for one in found)


@record(frozen=True)
class _Direction:
    """One direction's weights: [gates * hidden, inputs], [gates * hidden, hidden], biases of both, peepholes [3 * hidden]."""

    settings: Recurrence
    number: int
    inputs: np.ndarray
    states: np.ndarray
    biases: np.ndarray | None
    peepholes: np.ndarray | None

    @property
    def of_inputs(self) -> np.ndarray:
        """What is added to the inputs' product."""
        if self.biases is None:
            return np.zeros(len(self.inputs), self.inputs.dtype)
        given, own = np.split(self.biases, 2)
        if self.settings.resets_after:
            return np.asarray(given + np.concatenate((own[: -self.states.shape[1]], 0 * self.of_candidate)))
        return np.asarray(given + own)

    @property
    def of_candidate(self) -> np.ndarray:
        """What a GRU that resets behind the product adds to the candidate's before."""
        hidden = self.states.shape[1]
        return np.zeros(hidden, self.inputs.dtype) if self.biases is None else self.biases[len(self.biases) - hidden :]

    def activate(self, number: int, x: np.ndarray, clip: bool = True) -> np.ndarray:
        """f, g or h: number 0, 1, 2."""
        most = self.settings.clip if clip else 0
        return activated(self.settings.activations[self.number][number], np.clip(x, -most, most) if most > 0 else x)

    def peephole(self, number: int, x: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """A gate's sum with what it sees of the cell; 0, 1, 2 are the input, output and forget gate."""
        return x if self.peepholes is None else np.asarray(x + np.split(self.peepholes, 3)[number] * cell)


_State = tuple[np.ndarray, np.ndarray]
"""Hidden state and cell, [samples, hidden] each; a cell that nobody has stays as it is."""


def _run(one: _Direction, x: np.ndarray, ends: np.ndarray, state: _State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hidden states after each step and both states after the last, of one direction.

    A row whose sequence is over keeps its state; backwards, rows begin where their sequences end.
    """
    steps, samples, _ = x.shape
    hidden = one.states.shape[1]
    sums = x @ one.inputs.T + one.of_inputs
    found = np.zeros((steps, samples, hidden), x.dtype)
    step = _STEPS[one.settings.op]
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(steps)[::-1] if one.settings.backward[one.number] else range(steps):
            goes_on = (t < ends)[:, None]
            after = step(one, sums[t], state)
            state = np.where(goes_on, after[0], state[0]), np.where(goes_on, after[1], state[1])
            found[t] = np.where(goes_on, state[0], 0)
    ever = (ends > 0)[:, None] if steps else np.zeros((samples, 1), np.bool_)
    return found, np.where(ever, state[0], 0).astype(x.dtype), np.where(ever, state[1], 0).astype(x.dtype)


def _parts(x: np.ndarray, count: int) -> Sequence[np.ndarray]:
    return np.split(x, count, axis=1)


def _lstm(one: _Direction, sums: np.ndarray, state: _State) -> _State:
    hidden, cell = state
    i, o, f, c = _parts(sums + hidden @ one.states.T, 4)
    i = one.activate(0, one.peephole(0, i, cell))
    f = 1 - i if one.settings.coupled else one.activate(0, one.peephole(2, f, cell))
    cell = f * cell + i * one.activate(1, c)
    return one.activate(0, one.peephole(1, o, cell)) * one.activate(2, cell, clip=False), cell


def _gru(one: _Direction, sums: np.ndarray, state: _State) -> _State:
    hidden, cell = state
    update, reset, own = _parts(one.states.T, 3)
    z, r, h = _parts(sums, 3)
    z = one.activate(0, z + hidden @ update)
    r = one.activate(0, r + hidden @ reset)
    if one.settings.resets_after:
        h = one.activate(1, h + r * (hidden @ own + one.of_candidate))
    else:
        h = one.activate(1, h + (r * hidden) @ own)
    return (1 - z) * h + z * hidden, cell


def _rnn(one: _Direction, sums: np.ndarray, state: _State) -> _State:
    return one.activate(0, sums + state[0] @ one.states.T), state[1]


_STEPS: Mapping[str, Callable[[_Direction, np.ndarray, _State], _State]] = MappingProxyType(
    {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}
)


def activated(activation: Activation, x: np.ndarray) -> np.ndarray:
    """An activation of ONNX's recurrent operators, element by element."""
    alpha, beta = x.dtype.type(activation.alpha), x.dtype.type(activation.beta)
    match activation.name:
        case "affine":
            return np.asarray(alpha * x + beta)
        case "elu":
            return np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0)))
        case "hardsigmoid":
            return np.asarray(np.minimum(np.maximum(alpha * x + beta, 0), 1))
        case "leakyrelu":
            return np.where(x >= 0, x, alpha * x)
        case "relu":
            return np.asarray(np.maximum(x, 0))
        case "scaledtanh":
            return np.asarray(alpha * np.tanh(beta * x))
        case "sigmoid":
            return np.asarray(1 / (1 + np.exp(-x)))
        case "softplus":
            return np.asarray(np.logaddexp(x, 0))
        case "softsign":
            return np.asarray(x / (1 + np.abs(x)))
        case "tanh":
            return np.asarray(np.tanh(x))
        case "thresholdedrelu":
            return np.where(x >= alpha, x, 0)
    raise ValueError(f"activation {activation.name!r}")


def recurrent_operators() -> tuple[type[Any], ...]:
    """Classes of all three for the argument `new_ops` of `ReferenceEvaluator`."""
    from onnx.reference.op_run import OpRun

    def run(self: Any, *operands: Any, **attributes: Any) -> tuple[Any, ...]:
        found = recurrence(recurrence_of(type(self).__name__, attributes), *operands)
        return found[: len(self.onnx_node.output)]

    return tuple(type(op, (OpRun,), {"op_domain": "", "_run": run}) for op in GATES)
