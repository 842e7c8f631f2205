"""What a recurrence does between its products: activations, and the cells of LSTM, GRU and RNN, on a vector of one row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.codegen.llvm.arithmetic import apply_binary, apply_unary
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tree import Value
from fusewise.codegen.target import InstructionSet
from fusewise.ir.dtypes import FLOAT32, FLOAT64, DType
from fusewise.ops.recurrence import Activation
from fusewise.records import record

__all__ = ["Cell"]


@record(frozen=True)
class Cell:
    """Arithmetic of one direction: `activations` are f, g and h, `clip` bounds the arguments of f and g, 0 for nothing."""

    f: Function
    instructions: InstructionSet
    activations: tuple[Activation, ...]
    clip: float
    coupled: bool

    def lstm(
        self, gates: Sequence[Value], cell: Value, peepholes: Sequence[Callable[[], Value]]
    ) -> tuple[Value, Value]:
        """The hidden state and the cell after a step, from the sums of input, output, forget and cell gate; `peepholes` give
        the weights of the first three, if there are any."""
        f = self.f
        i, o, forget, candidate = gates

        def seen(gate: int, x: Value, by: Value) -> Value:
            return self.multiply_add(peepholes[gate](), by, x) if peepholes else x

        taken = self.activate(0, seen(0, i, cell))
        if self.coupled:
            kept = f.fsub(f.constant(1.0, taken.type), taken)
        else:
            kept = self.activate(0, seen(2, forget, cell))
        after = self.multiply_add(kept, cell, f.fmul(taken, self.activate(1, candidate)))
        return f.fmul(self.activate(0, seen(1, o, after)), self.apply(self.activations[2], after)), after

    def gru(self, update: Value, candidate: Value, hidden: Value) -> Value:
        """The hidden state after a step, from the update gate, the candidate's sum and the state before."""
        f, fresh = self.f, self.activate(1, candidate)
        left = f.fmul(f.fsub(f.constant(1.0, fresh.type), update), fresh)
        return self.multiply_add(update, hidden, left)

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c."""
        return multiply_add(self.f, self.instructions, a, b, c)

    def activate(self, number: int, x: Value) -> Value:
        """f or g of a sum."""
        if self.clip > 0:
            x = self._least(self._most(x, -self.clip), self.clip)
        return self.apply(self.activations[number], x)

    def apply(self, activation: Activation, x: Value) -> Value:
        """An activation, as `ops.recurrence.activated` defines it."""
        f, alpha, beta = self.f, activation.alpha, activation.beta
        match activation.name:
            case "affine":
                return self._line(x, alpha, beta)
            case "elu":
                below = f.fmul(self._unary("expm1", self._least(x, 0.0)), self._number(x, alpha))
                return f.select(self._reaches(x, 0.0), x, below)
            case "hardsigmoid":
                return self._least(self._most(self._line(x, alpha, beta), 0.0), 1.0)
            case "leakyrelu":
                return f.select(self._reaches(x, 0.0), x, f.fmul(x, self._number(x, alpha)))
            case "relu":
                return self._most(x, 0.0)
            case "scaledtanh":
                inner = f.fmul(x, self._number(x, beta))
                return f.fmul(self._unary("tanh", inner), self._number(x, alpha))
            case "sigmoid" | "tanh":
                return self._unary(activation.name, x)
            case "softplus":
                power = self._unary("exp", self._unary("neg", self._unary("abs", x)))
                return f.fadd(self._most(x, 0.0), self._unary("log1p", power))
            case "softsign":
                return f.binary("fdiv", x, f.fadd(self._unary("abs", x), self._number(x, 1.0)))
            case "thresholdedrelu":
                return f.select(self._reaches(x, alpha), x, self._number(x, 0.0))
        raise ValueError(f"activation {activation.name!r}")

    def _number(self, like: Value, value: float) -> Value:
        return self.f.constant(value, like.type)

    def _unary(self, op: str, x: Value) -> Value:
        return apply_unary(self.f, self.instructions, op, x, _dtype(x))

    def _least(self, x: Value, bound: float) -> Value:
        return apply_binary(self.f, self.instructions, "min", x, self._number(x, bound), _dtype(x), bound)

    def _most(self, x: Value, bound: float) -> Value:
        return apply_binary(self.f, self.instructions, "max", x, self._number(x, bound), _dtype(x), bound)

    def _line(self, x: Value, alpha: float, beta: float) -> Value:
        return self.multiply_add(x, self._number(x, alpha), self._number(x, beta))

    def _reaches(self, x: Value, bound: float) -> Value:
        return self.f.compare("fcmp oge", x, self._number(x, bound))


def _dtype(x: Value) -> DType:
    return FLOAT64 if x.element == "double" else FLOAT32
