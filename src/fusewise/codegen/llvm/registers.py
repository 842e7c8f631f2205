"""Conversion between element types in registers (`nest.types`), for scalars and vectors alike."""

from __future__ import annotations

from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Value, vector
from fusewise.codegen.nest.types import computed, register_type
from fusewise.codegen.target import InstructionSet
from fusewise.ir.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, DType

__all__ = [
    "clamped",
    "convert",
    "has_bfloat_rounding",
    "has_half_conversion",
    "has_masked_memory",
    "has_rounding",
    "narrow",
    "narrow_any",
    "reinterpreted",
    "resized",
    "rounded",
    "splat",
    "widen",
    "wrapped",
]


def has_rounding(instructions: InstructionSet) -> bool:
    """Does floor, ceil, round lower to an instruction? Plain SSE2 would call a library."""
    return (
        not instructions.triple.startswith(("x86_64", "i686"))
        or instructions.vector_bits >= 256
        or "+sse4.1" in instructions.features
    )


def has_half_conversion(instructions: InstructionSet) -> bool:
    """Does float16 to float32 lower to an instruction?"""
    if instructions.triple.startswith(("aarch64", "arm64")):
        return True
    return "+f16c" in instructions.features or instructions.cpu in ("x86-64-v3", "x86-64-v4")


def has_masked_memory(instructions: InstructionSet, element_bytes: int) -> bool:
    """Do masked loads and stores lower to an instruction?"""
    return instructions.vector_bits >= 512 or (instructions.vector_bits >= 256 and element_bytes >= 4)


def splat(f: Function, value: int | float, like: Value, element: str) -> Value:
    """A constant with the lanes of `like`."""
    return f.constant(value, vector(element, like.lanes))


def widen(f: Function, instructions: InstructionSet, x: Value, dtype: DType) -> Value:
    """float16 or bfloat16 bits as float; other types unchanged."""
    if not (dtype.is_float and dtype.bits < 32):
        return x
    if dtype == FLOAT16:
        if has_half_conversion(instructions):
            return f.convert("fpext", f.convert("bitcast", x, "half"), "float")
        return _half_to_float(f, x)
    wide = f.convert("zext", x, "i32")
    return f.convert("bitcast", f.binary("shl", wide, splat(f, 16, x, "i32")), "float")


def has_bfloat_rounding(instructions: InstructionSet) -> bool:
    """Does an instruction round float32 to bfloat16?"""
    return "+avx512bf16" in instructions.features.split(",") and instructions.vector_bits >= 512


def narrow(f: Function, instructions: InstructionSet, x: Value, dtype: DType) -> Value:
    """A computed float rounded to nearest even as float16 or bfloat16 bits; unchanged for other types.

    Where an instruction rounds to bfloat16, it makes zeros of subnormal numbers, as those that multiply take them.
    """
    if dtype == BFLOAT16 and has_bfloat_rounding(instructions):
        return f.convert("bitcast", _rounded_bfloat(f, x), "i16")
    return narrow_any(f, instructions, x, dtype)


def _rounded_bfloat(f: Function, x: Value) -> Value:
    """By name where there is one for so many lanes: LLVM would choose between rounded numbers, not round what was chosen."""
    widest = 16
    if x.lanes > widest:
        halves = (range(k * x.lanes // 2, (k + 1) * x.lanes // 2) for k in range(2))
        low, high = (_rounded_bfloat(f, f.shuffle(x, x, half)) for half in halves)
        return f.shuffle(low, high, range(x.lanes))
    if x.lanes not in (widest, widest // 2):
        return f.convert("fptrunc", x, "bfloat")
    kind = vector("bfloat", x.lanes)
    return f.call_intrinsic(f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * x.lanes}", kind, x)


def narrow_any(f: Function, instructions: InstructionSet, x: Value, dtype: DType) -> Value:
    """The same of any float, subnormal numbers included."""
    if not (dtype.is_float and dtype.bits < 32):
        return x
    if dtype == FLOAT16:
        if has_half_conversion(instructions):
            return f.convert("bitcast", f.convert("fptrunc", x, "half"), "i16")
        return _float_to_half(f, x)
    bits = f.convert("bitcast", x, "i32")
    last = f.binary("and", f.binary("lshr", bits, splat(f, 16, x, "i32")), splat(f, 1, x, "i32"))
    rounded = f.binary("add", f.binary("add", bits, splat(f, 0x7FFF, x, "i32")), last)
    quiet = f.binary("or", bits, splat(f, 0x00400000, x, "i32"))
    chosen = f.select(f.compare("fcmp uno", x, x), quiet, rounded)
    return f.convert("trunc", f.binary("lshr", chosen, splat(f, 16, x, "i32")), "i16")


def _half_to_float(f: Function, x: Value) -> Value:
    """Integer bit arithmetic for machines without a conversion instruction: rescale the exponent, mend inf and NaN."""
    wide = f.convert("zext", x, "i32")
    magnitude = f.binary("shl", f.binary("and", wide, splat(f, 0x7FFF, x, "i32")), splat(f, 13, x, "i32"))
    scaled = f.fmul(f.convert("bitcast", magnitude, "float"), splat(f, 2.0**112, x, "float"))
    special = f.compare("icmp uge", magnitude, splat(f, 0x7C00 << 13, x, "i32"))
    extra = f.select(special, splat(f, 0x7F800000, x, "i32"), splat(f, 0, x, "i32"))
    sign = f.binary("shl", f.binary("and", wide, splat(f, 0x8000, x, "i32")), splat(f, 16, x, "i32"))
    bits = f.binary("or", f.binary("or", f.convert("bitcast", scaled, "i32"), extra), sign)
    return f.convert("bitcast", bits, "float")


def _float_to_half(f: Function, x: Value) -> Value:
    """Integer bit arithmetic, rounding to nearest even; a float addition does the rounding of subnormals."""

    def number(value: int) -> Value:
        return splat(f, value, x, "i32")

    bits = f.convert("bitcast", x, "i32")
    sign = f.binary("and", bits, number(0x80000000))
    magnitude = f.binary("xor", bits, sign)
    nan = f.compare("icmp ugt", magnitude, number(0x7F800000))
    huge = f.select(nan, number(0x7E00), number(0x7C00))
    shift = number(((127 - 15) + (23 - 10) + 1) << 23)
    sum_bits = f.fadd(f.convert("bitcast", magnitude, "float"), f.convert("bitcast", shift, "float"))
    tiny = f.binary("sub", f.convert("bitcast", sum_bits, "i32"), shift)
    odd = f.binary("and", f.binary("lshr", magnitude, number(13)), number(1))
    rounded = f.binary("add", f.binary("add", magnitude, number(((15 - 127) << 23) + 0xFFF)), odd)
    normal = f.binary("lshr", rounded, number(13))
    finite = f.select(f.compare("icmp ult", magnitude, number(113 << 23)), tiny, normal)
    result = f.select(f.compare("icmp uge", magnitude, number((127 + 16) << 23)), huge, finite)
    return f.convert("trunc", f.binary("or", result, f.binary("lshr", sign, number(16))), "i16")


def _double_to_float_odd(f: Function, x: Value) -> Value:
    """float64 to float32 rounded to odd, so that a second rounding gives what one rounding would."""
    short = f.convert("fptrunc", x, "float")
    back = f.convert("fpext", short, "double")
    bits = f.convert("bitcast", short, "i32")
    beyond = f.compare("fcmp ogt", f.intrinsic("fabs", back), f.intrinsic("fabs", x))
    toward_zero = f.binary("sub", bits, f.convert("zext", beyond, "i32"))
    inexact = f.convert("zext", f.compare("fcmp one", back, x), "i32")
    return f.convert("bitcast", f.binary("or", toward_zero, inexact), "float")


def convert(f: Function, instructions: InstructionSet, x: Value, source: DType, to: DType) -> Value:
    """Cast as ONNX `Cast`: float to integer truncates (saturating at 32 or 64 bits, then wrapping), to bool is `!= 0`."""
    if source == to:
        return x
    if to == BOOL:
        return _to_bool(f, widen(f, instructions, x, source))
    if source.is_float:
        if to.is_float:
            return _float_to_float(f, instructions, x, source, to)
        return _float_to_integer(f, widen(f, instructions, x, source), to)
    signed = source.kind == "int"
    if to.is_float:
        element = computed(to)
        return narrow_any(f, instructions, f.convert("sitofp" if signed else "uitofp", x, element), to)
    return wrapped(f, resized(f, x, register_type(to), signed), to)


def reinterpreted(f: Function, x: Value, source: DType, to: DType) -> Value:
    """The bits of `x`, a number of the type `source`, as a number of a type of the same width in memory."""
    if source == BOOL:
        x = f.convert("zext", x, "i8")
    if to == BOOL:
        return f.compare("icmp ne", x, splat(f, 0, x, x.element))
    element = register_type(to)
    return wrapped(f, x if x.element == element else f.convert("bitcast", x, element), to)


def clamped(f: Function, x: Value, low: float, high: float, to: DType) -> Value:
    """A float limited to low..high, which lie in the range of the integer `to` of at most 16 bits, and truncated; NaN
    gives `low`. Each limit is one instruction on x86, which takes the second operand when the comparison is unordered."""
    least, most = splat(f, low, x, x.element), splat(f, high, x, x.element)
    above = f.select(f.compare("fcmp ogt", x, least), x, least)
    kept = f.select(f.compare("fcmp olt", above, most), above, most)
    return wrapped(f, resized(f, f.convert("fptosi", kept, "i32"), register_type(to), True), to)


def rounded(f: Function, x: Value, zero: int, low: float, high: float) -> Value:
    """A float32 rounded half to even, plus `zero`, limited to low..high, as i32; NaN gives `low`.

    It is limited first, to what rounds to the limits, so that one instruction both rounds and converts.
    """
    least, most = splat(f, low - zero - 0.25, x, "float"), splat(f, high - zero + 0.25, x, "float")
    above = f.select(f.compare("fcmp ogt", x, least), x, least)
    kept = f.select(f.compare("fcmp olt", above, most), above, most)
    kind, lanes = vector("i32", x.lanes), f"v{x.lanes}" if x.lanes > 1 else ""
    name = f"llvm.lrint.{lanes}i32.{lanes}f32"
    whole = f.call_intrinsic(name, kind, kept)
    return f.binary("add", whole, splat(f, zero, x, "i32")) if zero else whole


def _to_bool(f: Function, x: Value) -> Value:
    zero = splat(f, 0, x, x.element)
    return f.compare("fcmp une" if x.element in ("float", "double") else "icmp ne", x, zero)


def _float_to_float(f: Function, instructions: InstructionSet, x: Value, source: DType, to: DType) -> Value:
    if source == FLOAT64:
        if to == FLOAT32:
            return f.convert("fptrunc", x, "float")
        return narrow_any(f, instructions, _double_to_float_odd(f, x), to)
    wide = widen(f, instructions, x, source)
    return f.convert("fpext", wide, "double") if to == FLOAT64 else narrow_any(f, instructions, wide, to)


def _float_to_integer(f: Function, x: Value, to: DType) -> Value:
    """Through the signed conversion instructions, so that what lies outside wraps as compiled C does on x86."""
    if to.bits == 64 and to.kind == "uint":
        large, small = _saturated(f, x, "i64", "u"), _saturated(f, x, "i64", "s")
        return f.select(f.compare("fcmp olt", x, splat(f, 0, x, x.element)), small, large)
    through = "i64" if to.bits == 64 or (to.bits == 32 and to.kind == "uint") else "i32"
    if x.lanes > 1 and through == "i32":
        whole = _saturated_lanes(f, x)
    else:
        whole = _saturated(f, x, through, "s")
    return wrapped(f, resized(f, whole, register_type(to), True), to)


def _saturated_lanes(f: Function, x: Value) -> Value:
    """As `_saturated` to i32, written out: LLVM takes vectors apart for it, although every machine converts them whole."""
    zero = splat(f, 0.0, x, x.element)
    number = f.select(f.compare("fcmp ord", x, x), x, zero)
    low, beyond = splat(f, -(2.0**31), x, x.element), splat(f, 2.0**31, x, x.element)
    high = f.compare("fcmp oge", number, beyond)
    kept = f.select(f.compare("fcmp olt", number, low), low, f.select(high, zero, number))
    return f.select(high, splat(f, 2**31 - 1, x, "i32"), f.convert("fptosi", kept, "i32"))


def _saturated(f: Function, x: Value, element: str, sign: str) -> Value:
    """Truncation that is defined everywhere: out of range gives the nearest end, NaN gives 0."""
    kind = vector(element, x.lanes)
    short = {"float": "f32", "double": "f64"}[x.element]
    lanes = f"v{x.lanes}" if x.lanes > 1 else ""
    name = f"llvm.fpto{sign}i.sat.{lanes}{element}.{lanes}{short}"
    return f.call_intrinsic(name, kind, x)


def resized(f: Function, x: Value, element: str, signed: bool) -> Value:
    """An integer of another width."""
    have, want = int(x.element[1:]), int(element[1:])
    if have == want:
        return x
    if have > want:
        return f.convert("trunc", x, element)
    return f.convert("sext" if signed else "zext", x, element)


def wrapped(f: Function, x: Value, dtype: DType) -> Value:
    """Integers narrower than a byte wrap inside the byte they live in."""
    if dtype.bits >= 8 or not dtype.is_integer:
        return x
    unused = splat(f, 8 - dtype.bits, x, "i8")
    return f.binary("ashr" if dtype.kind == "int" else "lshr", f.binary("shl", x, unused), unused)
