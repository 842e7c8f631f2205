"""The words of the expression language in Triton's language, on scalars and tiles alike.

Takes and gives `TritonTerm`s. float16 and bfloat16 are computed as float32 and rounded back; what has no word in Triton's language
comes from libdevice, whose functions are NVIDIA's. Division and square root round to nearest, which Triton's `/` does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from fusewise.codegen.gpu.kernel import NoKernel
from fusewise.ir.dtypes import BOOL, DType
from fusewise.records import record

__all__ = ["TritonTerm", "Words", "identity", "joined_shape", "register_type"]

Shape = tuple[int, ...]


@record(frozen=True)
class TritonTerm:
    """A value in a kernel's text: what to write, its type in registers (`int32`), and the shape of the tile that it fills.

    A scalar has the shape (); along an axis of the tile where it does not vary the extent is 1. `number` is what is known of a
    constant, whose text is a literal: beside a term of a type it takes that type.
    """

    text: str
    type: str
    shape: Shape = ()
    number: float | int | bool | None = None


def joined_shape(shapes: Iterable[Shape]) -> Shape:
    """The shape that terms of these shapes are broadcast to."""
    found: Shape = ()
    for shape in shapes:
        if shape:
            found = tuple(map(max, found, shape)) if found else shape
    return found


_REGISTERS = {"bool": "int1", "int4": "int8", "int2": "int8", "uint4": "uint8", "uint2": "uint8"}


def register_type(dtype: DType) -> str:
    """The type in registers; floats of a byte are bits. `NoKernel` for strings and complex numbers."""
    if dtype.is_float and dtype.bits <= 8:
        return "uint8"
    if not (dtype.is_float or dtype.is_integer or dtype == BOOL):
        raise NoKernel(f"no kernel computes on {dtype.name}")
    return _REGISTERS.get(dtype.name, dtype.name)


def literal(value: float | int | bool) -> str:
    """A number as it stands in Python."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return f"({value!r})" if value < 0 or str(value).startswith("-") else repr(value)


def integer_ends(kind: str) -> tuple[int, int]:
    """The least and the largest number of an integer type in registers."""
    bits = int(kind.removeprefix("u").removeprefix("int"))
    return (0, 2**bits - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def identity(kind: str, dtype: DType) -> float | int | bool:
    """What an empty reduction gives, as a number of the type that it is computed in."""
    if dtype == BOOL:
        return kind in ("prod", "and", "min")
    if kind in ("sum", "or"):
        return 0.0 if dtype.is_float else 0
    if kind in ("prod", "and"):
        return 1.0 if dtype.is_float else 1 if kind == "prod" else -1
    if dtype.is_float:
        return -math.inf if kind == "max" else math.inf
    low, high = (
        (0, 2**dtype.bits - 1) if dtype.kind == "uint" else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
    )
    return low if kind == "max" else high


LIBDEVICE = frozenset(
    "exp expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh rint fmod pow".split()
)
"""Functions that kernels take from libdevice."""

_INFIX = {"add": "+", "sub": "-", "mul": "*", "bitand": "&", "bitor": "|", "bitxor": "^"}
_COMPARE = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}
_LOGICAL = {"and": "&", "or": "|", "xor": "^"}
_BOOL = {
    "add": "|",
    "mul": "&",
    "max": "|",
    "min": "&",
    "sub": "^",
    **_LOGICAL,
    "bitand": "&",
    "bitor": "|",
    "bitxor": "^",
}
_NAN = "propagate_nan=tl.PropagateNan.ALL"


@record
class Words:
    """Writes operations: `name` gives a line of text a name, and `put` writes one as it is."""

    name: Callable[[str], str]
    put: Callable[[str, int], None]

    # --- terms ---------------------------------------------------------------------------------------------------

    def term(self, text: str, kind: str, *of: TritonTerm) -> TritonTerm:
        """A new name for an operation on terms."""
        return TritonTerm(self.name(text), kind, joined_shape(t.shape for t in of))

    def typed(self, x: TritonTerm) -> str:
        """A term's text where its type must not depend on what stands beside it."""
        return x.text if x.number is None else f"tl.full([], {x.text}, tl.{x.type})"

    def pair(self, a: TritonTerm, b: TritonTerm) -> tuple[str, str]:
        """Two terms of one type beside each other: one of them, at least, says it."""
        return (self.typed(a), b.text) if a.number is not None and b.number is not None else (a.text, b.text)

    def to(self, x: TritonTerm, kind: str) -> TritonTerm:
        """A conversion between types in registers where nothing is lost, or integers wrap, or floats round."""
        if x.type == kind:
            return x
        if x.number is not None and kind not in ("int1", "float16", "bfloat16"):
            number = float(x.number) if kind.startswith("float") else int(x.number)
            return TritonTerm(literal(number), kind, (), number)
        return TritonTerm(f"{self.typed(x)}.to(tl.{kind})", kind, x.shape)

    def constant(self, value: float | int | bool, kind: str) -> TritonTerm:
        """A number of a type."""
        number = bool(value) if kind == "int1" else float(value) if "float" in kind else int(value)
        return TritonTerm(literal(number), kind, (), number)

    def spread(self, x: TritonTerm, shape: Shape) -> str:
        """A term's text, of just this shape."""
        if x.number is not None:
            return f"tl.full({list(shape)}, {x.text}, tl.{x.type})"
        return x.text if x.shape == shape else f"tl.broadcast_to({x.text}, {list(shape)})"

    def where(self, condition: TritonTerm, a: TritonTerm, b: TritonTerm) -> TritonTerm:
        """The one or the other, which are of one type."""
        left, right = self.pair(a, b)
        return self.term(f"tl.where({self.typed(condition)}, {left}, {right})", a.type, condition, a, b)

    def every(self, conditions: Iterable[TritonTerm]) -> TritonTerm | None:
        """All of them; None where there are none."""
        found = list(conditions)
        if len(found) < 2:
            return found[0] if found else None
        return self.term(" & ".join(self.typed(c) for c in found), "int1", *found)

    def _wide(self, x: TritonTerm) -> TritonTerm:
        return self.to(x, "float32") if x.type in ("float16", "bfloat16") else x

    def _narrow(self, x: TritonTerm, dtype: DType) -> TritonTerm:
        return self.term(f"{self.typed(x)}.to(tl.{dtype.name})", dtype.name, x) if dtype.bits < 32 else x

    def wrapped(self, x: TritonTerm, dtype: DType) -> TritonTerm:
        """Integers of less than a byte wrap inside the byte they live in."""
        if dtype.bits >= 8 or not dtype.is_integer:
            return x
        unused = 8 - dtype.bits
        return self.term(f"({self.typed(x)} << {unused}) >> {unused}", x.type, x)

    # --- one operand ---------------------------------------------------------------------------------------------

    def unary(self, op: str, x: TritonTerm, dtype: DType) -> TritonTerm:
        """One of `ops.expr.UNARY` of an operand of `dtype`."""
        text = self.typed(x)
        if op == "not":
            wide = self._wide(x)
            return self.term(f"{text} == False" if x.type == "int1" else f"{self.typed(wide)} == 0", "int1", x)
        if op == "bitnot":
            return self.wrapped(self.term(f"~{text}", x.type, x), dtype)
        if not dtype.is_float:
            return self._unary_integer(op, x, dtype)
        wide = self._wide(x)
        text = self.typed(wide)
        if op == "isnan":
            return self.term(f"{text} != {text}", "int1", x)
        if op == "isinf":
            return self.term(f'tl.abs({text}) == float("inf")', "int1", x)
        return self._narrow(self._unary_float(op, wide), dtype)

    def _unary_integer(self, op: str, x: TritonTerm, dtype: DType) -> TritonTerm:
        text = self.typed(x)
        if op in ("floor", "ceil", "round") or (op == "abs" and dtype.kind != "int"):
            return x
        if op in ("isnan", "isinf"):
            return self.constant(False, "int1")
        if op in ("neg", "abs"):
            return self.wrapped(self.term(f"-{text}" if op == "neg" else f"tl.abs({text})", x.type, x), dtype)
        if op == "sign":
            above = self.term(f"({text} > 0).to(tl.{x.type})", x.type, x)
            return (
                above if dtype.kind != "int" else self.term(f"{above.text} - ({text} < 0).to(tl.{x.type})", x.type, x)
            )
        raise NoKernel(f"{op} is not defined on {dtype.name}")

    def _unary_float(self, op: str, x: TritonTerm) -> TritonTerm:
        text = self.typed(x)
        if op == "sigmoid":
            one = self.constant(1.0, x.type)
            return self.quotient(one, self.term(f"1.0 + libdevice.exp(-{text})", x.type, x))
        if op == "sign":
            return self.term(f"tl.where({text} > 0, 1.0, tl.where({text} < 0, -1.0, {text}))", x.type, x)
        if op == "round":
            op = "rint"
        if op in LIBDEVICE:
            return self.term(f"libdevice.{op}({text})", x.type, x)
        if op == "neg":
            return self.term(f"-{text}", x.type, x)
        word = "sqrt_rn" if op == "sqrt" and x.type == "float32" else op
        return self.term(f"tl.{word}({text})", x.type, x)

    def quotient(self, a: TritonTerm, b: TritonTerm) -> TritonTerm:
        """a / b of float32 or float64, to nearest."""
        if a.type == "float64":
            return self.term("{} / {}".format(*self.pair(a, b)), a.type, a, b)
        return self.term(f"tl.div_rn({self.typed(a)}, {self.typed(b)})", a.type, a, b)

    # --- two operands --------------------------------------------------------------------------------------------

    def binary(self, op: str, a: TritonTerm, b: TritonTerm, dtype: DType) -> TritonTerm:
        """One of `ops.expr.BINARY` of operands of `dtype`, in one type of registers."""
        if dtype == BOOL:
            return self.term(f"{self.typed(a)} {_BOOL[op]} {self.typed(b)}", "int1", a, b)
        if op in _LOGICAL:
            a, b = (self.term(f"{self.typed(x)} != 0", "int1", x) for x in (a, b))
            return self.term(f"{a.text} {_LOGICAL[op]} {b.text}", "int1", a, b)
        if dtype.is_integer:
            return self.wrapped(self._binary_integer(op, a, b), dtype)
        return self._narrow(self._binary_float(op, self._wide(a), self._wide(b)), dtype)

    def _infix(self, sign: str, a: TritonTerm, b: TritonTerm) -> TritonTerm:
        left, right = self.pair(a, b)
        return self.term(f"{left} {sign} {right}", a.type, a, b)

    def _binary_float(self, op: str, a: TritonTerm, b: TritonTerm) -> TritonTerm:
        if op in ("add", "sub", "mul"):
            return self._infix(_INFIX[op], a, b)
        if op == "div":
            return a if b.number == 1 else self.quotient(a, b)
        if op in ("min", "max"):
            left, right = self.pair(a, b)
            return self.term(f"tl.{op}imum({left}, {right}, {_NAN})", a.type, a, b)
        if op == "pow":
            return self._power(a, b)
        if op == "floordiv":
            return self.term(f"tl.floor({self.typed(self.quotient(a, b))})", a.type, a, b)
        if op not in ("fmod", "mod", "floormod"):
            raise NoKernel(f"{op} is not defined on floats")
        rest = self._library("fmod", a, b)
        if op == "fmod":
            return rest
        unlike = self.term(f"({rest.text} != 0) & (({rest.text} < 0) ^ ({self.typed(b)} < 0))", "int1", rest, b)
        return self.term(f"tl.where({unlike.text}, {rest.text} + {b.text}, {rest.text})", a.type, rest, unlike)

    def _power(self, a: TritonTerm, b: TritonTerm) -> TritonTerm:
        if b.number == 2:
            return self.term(f"{self.typed(a)} * {self.typed(a)}", a.type, a)
        if b.number == 1:
            return a
        return self._library("pow", a, b)

    def _library(self, name: str, a: TritonTerm, b: TritonTerm) -> TritonTerm:
        """A function of two operands, which are given the same shape."""
        shape = joined_shape((a.shape, b.shape))
        left, right = (self.spread(x, shape) if shape else self.typed(x) for x in (a, b))
        return self.term(f"libdevice.{name}({left}, {right})", a.type, a, b)

    def _binary_integer(self, op: str, a: TritonTerm, b: TritonTerm) -> TritonTerm:
        if op in _INFIX:
            return self._infix(_INFIX[op], a, b)
        if op in ("min", "max"):
            left, right = self.pair(a, b)
            return self.term(f"tl.{op}imum({left}, {right})", a.type, a, b)
        if op in ("shl", "shr"):
            return self._shift(op, a, b)
        if op == "pow":
            return self._integer_power(a, b)
        if op in ("div", "fmod", "mod", "floordiv", "floormod"):
            return self.divided(op, a, b)
        raise NoKernel(f"{op} is not defined on integers")

    def _shift(self, op: str, a: TritonTerm, b: TritonTerm) -> TritonTerm:
        """A shift by the width or more gives 0, or the sign."""
        width = int(a.type.removeprefix("u").removeprefix("int"))
        right = self.typed(b)
        inside = self.term(f"({right} >= 0) & ({right} < {width})", "int1", b)
        if op == "shr" and not a.type.startswith("u"):
            return self.term(f"{self.typed(a)} >> tl.where({inside.text}, {right}, {width - 1})", a.type, a, b)
        sign = "<<" if op == "shl" else ">>"
        moved = f"{self.typed(a)} {sign} tl.where({inside.text}, {right}, 0)"
        return self.term(f"tl.where({inside.text}, {moved}, 0)", a.type, a, b)

    def divided(self, op: str, a: TritonTerm, b: TritonTerm, natural: bool = False) -> TritonTerm:
        """Division and remainder: by zero gives 0, the least integer by -1 wraps. `natural`: it is known that a >= 0 and b > 0."""
        left, right = self.typed(a), self.typed(b)
        is_quotient = op in ("div", "floordiv")
        signed = not a.type.startswith("u")
        known = b.number is not None and b.number not in (0, -1)
        if natural or (known and not signed):
            return self.term(f"{left} {'//' if is_quotient else '%'} {b.text}", a.type, a, b)
        if not known:
            bad = f"({right} == 0) | ({right} == -1)" if signed else f"{right} == 0"
            divisor = self.term(f"tl.where({bad}, 1, {right})", a.type, b)
        else:
            divisor = TritonTerm(right, b.type, b.shape)
        quotient = self.term(f"{left} // {divisor.text}", a.type, a, divisor)
        rest = self.term(f"{left} - {quotient.text} * {divisor.text}", a.type, a, quotient)
        if signed and op in ("mod", "floormod", "floordiv"):
            off = self.term(
                f"(({rest.text} != 0) & (({rest.text} ^ {divisor.text}) < 0)).to(tl.{a.type})", a.type, rest
            )
            quotient = self.term(f"{quotient.text} - {off.text}", a.type, quotient, off)
            rest = self.term(f"{rest.text} + {off.text} * {divisor.text}", a.type, rest, off)
        result = quotient if is_quotient else rest
        if known:
            return result
        if signed and is_quotient:
            result = self.term(f"tl.where({right} == -1, -{left}, {result.text})", a.type, a, b, result)
        return self.term(f"tl.where({right} == 0, 0, {result.text})", a.type, b, result)

    def _integer_power(self, a: TritonTerm, b: TritonTerm) -> TritonTerm:
        """Square and multiply over the bits of the exponent; a negative one truncates to 0 unless the base is 1 or -1."""
        width = int(a.type.removeprefix("u").removeprefix("int"))
        shape = joined_shape((a.shape, b.shape))
        result = self.name(f"tl.full({list(shape)}, 1, tl.{a.type})")
        square, rest = self.name(self.spread(a, shape)), self.name(self.spread(b, shape))
        self.put(f"for _ in range({width}):", 1)
        self.put(f"{result} = tl.where(({rest} & 1) != 0, {result} * {square}, {result})", 0)
        self.put(f"{square} = {square} * {square}", 0)
        self.put(f"{rest} = {rest} >> 1", -1)
        found = TritonTerm(result, a.type, shape)
        if a.type.startswith("u"):
            return found
        left, right = self.typed(a), self.typed(b)
        inverse = f"tl.where({left} == 1, 1, tl.where({left} == -1, 1 - 2 * ({right} & 1), 0))"
        return self.term(f"tl.where({right} < 0, {inverse}, {result})", a.type, found)

    def compare(self, op: str, a: TritonTerm, b: TritonTerm) -> TritonTerm:
        """One of `ops.expr.COMPARE` of operands of one type in registers."""
        if a.type == "int1":
            a, b = (TritonTerm(f"{self.typed(x)}.to(tl.int32)", "int32", x.shape) for x in (a, b))
        left, right = self.pair(self._wide(a), self._wide(b))
        return self.term(f"{left} {_COMPARE[op]} {right}", "int1", a, b)

    def combine(self, kind: str, a: TritonTerm, b: TritonTerm, dtype: DType) -> TritonTerm:
        """One step of a reduction, in the type that it is computed in."""
        if kind in ("and", "or") or dtype == BOOL:
            word = _BOOL[{"sum": "add", "prod": "mul"}.get(kind, kind)]
            return self.term(f"{a.text} {word} {b.text}", a.type, a, b)
        op = {"sum": "add", "prod": "mul"}.get(kind, kind)
        return self._binary_float(op, a, b) if dtype.is_float else self._binary_integer(op, a, b)

    # --- conversions ---------------------------------------------------------------------------------------------

    def cast(self, x: TritonTerm, source: DType, kind: str, dtype: DType) -> TritonTerm:
        """As ONNX `Cast`, to the type `kind` in registers: floats to integers truncate, saturate at 32 or 64 bits and then wrap."""
        if dtype == BOOL:
            return self.compare("ne", x, self.constant(0, self._wide(x).type)) if x.type != "int1" else x
        if dtype.is_float:
            through = "float64" if dtype.bits == 64 or (source.bits == 64 and source.is_float) else "float32"
            wide = x if source.is_float else self.to(x, through)
            return wide if wide.type == kind else self.term(f"{self.typed(wide)}.to(tl.{kind})", kind, wide)
        if source.is_float:
            return self.wrapped(self._whole(self._wide(x), kind), dtype)
        return self.wrapped(self.term(f"{self.typed(x)}.to(tl.{kind})", kind, x) if x.type != kind else x, dtype)

    def _whole(self, x: TritonTerm, kind: str) -> TritonTerm:
        if kind == "uint64":
            below, above = self._saturated(x, "int64"), self._saturated(x, "uint64")
            return self.term(
                f"tl.where({self.typed(x)} < 0, {below.text}.to(tl.uint64), {above.text})", kind, below, above
            )
        through = "int64" if kind in ("int64", "uint32") else "int32"
        found = self._saturated(x, through)
        return found if kind == through else self.term(f"{found.text}.to(tl.{kind})", kind, found)

    def _saturated(self, x: TritonTerm, kind: str) -> TritonTerm:
        """Truncation that is defined everywhere: out of range gives the nearest end, NaN gives 0."""
        text, (low, high) = self.typed(x), integer_ends(kind)
        least, beyond = literal(float(low)), literal(float(high + 1))
        kept = self.term(f"tl.where(({text} >= {least}) & ({text} < {beyond}), {text}, 0.0)", x.type, x)
        whole = self.term(f"{kept.text}.to(tl.{kind})", kind, kept)
        ends = f"tl.full([], {high}, tl.{kind})", f"tl.full([], {literal(low)}, tl.{kind})"
        return self.term(
            f"tl.where({text} >= {beyond}, {ends[0]}, tl.where({text} < {least}, {ends[1]}, {whole.text}))", kind, x
        )

    def bits(self, x: TritonTerm, source: DType, kind: str, dtype: DType) -> TritonTerm:
        """The bits of a number as one of a type of the same width in memory."""
        if source == BOOL:
            return self.term(f"{self.typed(x)}.to(tl.{kind})", kind, x)
        if dtype == BOOL:
            return self.term(f"{self.typed(x)} != 0", "int1", x)
        same = x if x.type == kind else self.term(f"{self.typed(x)}.to(tl.{kind}, bitcast=True)", kind, x)
        return self.wrapped(same, dtype)
