"""What a recurrence does between its products on a GPU: activations, and the cells of LSTM, GRU and RNN, on tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.codegen.gpu.words import TritonTerm, Words
from fusewise.ir.dtypes import DType
from fusewise.ops.recurrence import Activation, Recurrence
from fusewise.records import record

__all__ = ["TritonCell"]


@record(frozen=True)
class TritonCell:
    """Arithmetic of a step on numbers of `dtype`. `direction` is the text of the direction's number, of which there may be two
    whose activations differ: then both are computed."""

    words: Words
    settings: Recurrence
    dtype: DType
    direction: str

    def lstm(
        self, gates: Sequence[TritonTerm], cell: TritonTerm, peephole: Callable[[int], TritonTerm] | None
    ) -> tuple[TritonTerm, TritonTerm]:
        """The hidden state and the cell after a step, from the sums of input, output, forget and cell gate; `peephole` gives the
        weights of the first three by number."""
        i, o, forget, candidate = gates

        def seen(gate: int, x: TritonTerm, by: TritonTerm) -> TritonTerm:
            return x if peephole is None else self.binary("add", x, self.binary("mul", peephole(gate), by))

        taken = self.activate(0, seen(0, i, cell))
        if self.settings.coupled:
            kept = self.binary("sub", self.number(1.0), taken)
        else:
            kept = self.activate(0, seen(2, forget, cell))
        fresh = self.binary("mul", taken, self.activate(1, candidate))
        after = self.binary("add", self.binary("mul", kept, cell), fresh)
        given = self.activate(0, seen(1, o, after))
        return self.binary("mul", given, self.activate(2, after, clip=False)), after

    def gru(self, update: TritonTerm, candidate: TritonTerm, hidden: TritonTerm) -> TritonTerm:
        """The hidden state after a step, from the update gate, the candidate's sum and the state before."""
        fresh = self.activate(1, candidate)
        left = self.binary("mul", self.binary("sub", self.number(1.0), update), fresh)
        return self.binary("add", left, self.binary("mul", update, hidden))

    def activate(self, which: int, x: TritonTerm, clip: bool = True) -> TritonTerm:
        """f, g or h of a sum: `which` is 0, 1, 2."""
        most = self.settings.clip if clip else 0.0
        if most > 0:
            x = self.binary("min", self.binary("max", x, self.number(-most)), self.number(most))
        rows = [row[which] for row in self.settings.activations]
        found = self._applied(rows[0], x)
        for number, other in enumerate(rows[1:], 1):
            if other != rows[0]:
                is_other = TritonTerm(f"({self.direction} == {number})", "int1")
                found = self.words.where(is_other, self._applied(other, x), found)
        return found

    def _applied(self, activation: Activation, x: TritonTerm) -> TritonTerm:
        """An activation, as `ops.recurrence.activated` defines it."""
        alpha, beta = self.number(activation.alpha), self.number(activation.beta)
        zero, one = self.number(0.0), self.number(1.0)
        match activation.name:
            case "affine":
                return self._line(x, alpha, beta)
            case "elu":
                below = self.unary("expm1", self.binary("min", x, zero))
                return self._from(x, zero, self.binary("mul", alpha, below))
            case "hardsigmoid":
                return self.binary("min", self.binary("max", self._line(x, alpha, beta), zero), one)
            case "leakyrelu":
                return self._from(x, zero, self.binary("mul", alpha, x))
            case "relu":
                return self.binary("max", x, zero)
            case "scaledtanh":
                return self.binary("mul", alpha, self.unary("tanh", self.binary("mul", beta, x)))
            case "sigmoid" | "tanh":
                return self.unary(activation.name, x)
            case "softplus":
                power = self.unary("exp", self.unary("neg", self.unary("abs", x)))
                return self.binary("add", self.binary("max", x, zero), self.unary("log1p", power))
            case "softsign":
                return self.binary("div", x, self.binary("add", one, self.unary("abs", x)))
            case "thresholdedrelu":
                return self._from(x, alpha, zero)
        raise ValueError(f"activation {activation.name!r}")

    def number(self, value: float) -> TritonTerm:
        """A number of the type."""
        return self.words.constant(value, self.dtype.name)

    def unary(self, op: str, x: TritonTerm) -> TritonTerm:
        """An operation on one."""
        return self.words.unary(op, x, self.dtype)

    def binary(self, op: str, a: TritonTerm, b: TritonTerm) -> TritonTerm:
        """An operation on two."""
        return self.words.binary(op, a, b, self.dtype)

    def _line(self, x: TritonTerm, alpha: TritonTerm, beta: TritonTerm) -> TritonTerm:
        return self.binary("add", self.binary("mul", alpha, x), beta)

    def _from(self, x: TritonTerm, bound: TritonTerm, below: TritonTerm) -> TritonTerm:
        """x from a bound on, `below` else."""
        return self.words.where(self.words.compare("ge", x, bound), x, below)
