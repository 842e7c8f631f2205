"""Float arithmetic as the mathematical functions need it: constants, polynomials, bit patterns, for one LLVM float type.

A `Floats` is bound to a function, a target and an element type with a number of lanes; its methods emit one or two instructions.
Where the machine has no fused multiply-add, `mad` rounds twice; nothing here relies on the single rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.codegen.llvm.registers import has_rounding
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Value, vector
from fusewise.codegen.target import InstructionSet
from fusewise.records import record

__all__ = ["Floats", "floats_of"]


@record(frozen=True)
class Floats:
    """Arithmetic on `<lanes x element>`; `element` is float or double."""

    function: Function
    instructions: InstructionSet
    element: str
    lanes: int

    @property
    def double(self) -> bool:
        return self.element == "double"

    @property
    def mantissa(self) -> int:
        """Stored mantissa bits."""
        return 52 if self.double else 23

    @property
    def bias(self) -> int:
        return 1023 if self.double else 127

    @property
    def integer(self) -> str:
        """The integer type of the same width."""
        return "i64" if self.double else "i32"

    def number(self, value: float) -> Value:
        return self.function.constant(value, vector(self.element, self.lanes))

    def whole(self, value: int) -> Value:
        return self.function.constant(value, vector(self.integer, self.lanes))

    def lift(self, value: Value | float) -> Value:
        return value if isinstance(value, Value) else self.number(value)

    def add(self, a: Value | float, b: Value | float) -> Value:
        return self.function.fadd(self.lift(a), self.lift(b))

    def sub(self, a: Value | float, b: Value | float) -> Value:
        return self.function.fsub(self.lift(a), self.lift(b))

    def mul(self, a: Value | float, b: Value | float) -> Value:
        return self.function.fmul(self.lift(a), self.lift(b))

    def div(self, a: Value | float, b: Value | float) -> Value:
        return self.function.binary("fdiv", self.lift(a), self.lift(b))

    def mad(self, a: Value | float, b: Value | float, c: Value | float) -> Value:
        """a * b + c, in one instruction where there is one."""
        if self.instructions.fma:
            return self.function.fma(self.lift(a), self.lift(b), self.lift(c))
        return self.add(self.mul(a, b), c)

    def neg(self, a: Value) -> Value:
        return self.function.negated(a)

    def abs(self, a: Value) -> Value:
        return self.function.intrinsic("fabs", a)

    def sqrt(self, a: Value) -> Value:
        return self.function.intrinsic("sqrt", a)

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        return self.function.intrinsic("copysign", magnitude, sign)

    def compare(self, predicate: str, a: Value | float, b: Value | float) -> Value:
        return self.function.compare(f"fcmp {predicate}", self.lift(a), self.lift(b))

    def select(self, condition: Value, a: Value | float, b: Value | float) -> Value:
        return self.function.select(condition, self.lift(a), self.lift(b))

    def either(self, a: Value, b: Value) -> Value:
        return self.function.binary("or", a, b)

    def both(self, a: Value, b: Value) -> Value:
        return self.function.binary("and", a, b)

    def limited(self, x: Value, low: float, high: float) -> Value:
        """x within [low, high]; NaN stays. The form is one instruction each on x86: unordered gives the second operand."""
        first = self.select(self.compare("ogt", low, x), low, x)
        return self.select(self.compare("olt", high, first), high, first)

    def horner(self, x: Value, coefficients: Sequence[float]) -> Value:
        """The polynomial with the given coefficients, lowest first."""
        total = self.number(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self.mad(total, x, coefficient)
        return total

    def estrin(self, x: Value, coefficients: Sequence[float]) -> Value:
        """As `horner`, with products that do not wait for one another: by pairs, pairs of pairs, and so on."""
        terms: list[Value | float] = list(coefficients)
        power = x
        while len(terms) > 1:
            pairs = [self.mad(terms[k + 1], power, terms[k]) for k in range(0, len(terms) - 1, 2)]
            terms = [*pairs, *terms[len(terms) // 2 * 2 :]]
            power = self.mul(power, power) if len(terms) > 1 else power
        return self.number(terms[0]) if isinstance(terms[0], float) else terms[0]

    def bits(self, x: Value) -> Value:
        return self.function.convert("bitcast", x, self.integer)

    def from_bits(self, x: Value) -> Value:
        return self.function.convert("bitcast", x, self.element)

    def int_add(self, a: Value, b: int | Value) -> Value:
        return self.function.binary("add", a, self.whole(b) if isinstance(b, int) else b)

    def int_sub(self, a: Value, b: int | Value) -> Value:
        return self.function.binary("sub", a, self.whole(b) if isinstance(b, int) else b)

    def shift_left(self, a: Value, by: int) -> Value:
        return self.function.binary("shl", a, self.whole(by))

    def shift_right(self, a: Value, by: int) -> Value:
        """Logical; vectors of i64 have no arithmetic shift on AVX2."""
        return self.function.binary("lshr", a, self.whole(by))

    def round(self, kind: str, x: Value) -> Value:
        """`floor`, `ceil`, or `round` half to even."""
        if has_rounding(self.instructions):
            return self.function.intrinsic({"round": "roundeven"}.get(kind, kind), x)
        big = 2.0**self.mantissa
        magnitude = self.abs(x)
        nearest = self.copysign(self.sub(self.add(magnitude, big), big), x)
        nearest = self.select(self.compare("olt", magnitude, big), nearest, x)
        if kind == "floor":
            nearest = self.select(self.compare("ogt", nearest, x), self.sub(nearest, 1.0), nearest)
        elif kind == "ceil":
            nearest = self.select(self.compare("olt", nearest, x), self.add(nearest, 1.0), nearest)
        return self.copysign(nearest, x)


def floats_of(function: Function, instructions: InstructionSet, like: Value) -> Floats:
    """Arithmetic in the type of `like`."""
    return Floats(function, instructions, like.element, like.lanes)
