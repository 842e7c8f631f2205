"""Floats of a byte and less, as integer arithmetic on their bits: float8 in four kinds, powers of two (e8m0), float4.

A number is widened to float32, which holds them all, and rounded from float32 or float64, once and to nearest even. What is
beyond the largest number saturates or not, as the tables of ONNX's Cast have it; a NaN that float4 has no form for is -0, as in
ONNX's own tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewise.ir.dtypes import BOOL, FLOAT32, FLOAT64, INT32, INT64, UINT8, DType
from fusewise.ops.expr import Expr, binary, bits, cast, compare, const, select, unary
from fusewise.records import record

__all__ = ["NARROW", "from_narrow", "is_narrow", "to_narrow"]


@record(frozen=True)
class Narrow:
    """The bits of a kind: a sign where `signed_zero` or not, `exponent` bits over `mantissa` bits, and the exponent of 1, `bias`.

    `largest` is the largest finite magnitude, `infinity` what is beyond it where nothing saturates, `nan` a NaN: bits below the
    sign. Kinds without -0 have its bits for their only NaN.
    """

    exponent: int
    mantissa: int
    bias: int
    largest: int
    infinity: int
    nan: int
    signed_zero: bool = True

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.mantissa)


NARROW: Mapping[str, Narrow] = MappingProxyType(
    {
        "float8_e4m3fn": Narrow(4, 3, 7, 0x7E, 0x7F, 0x7F),
        "float8_e4m3fnuz": Narrow(4, 3, 8, 0x7F, 0x80, 0x80, signed_zero=False),
        "float8_e5m2": Narrow(5, 2, 15, 0x7B, 0x7C, 0x7E),
        "float8_e5m2fnuz": Narrow(5, 2, 16, 0x7F, 0x80, 0x80, signed_zero=False),
        "float4_e2m1fn": Narrow(2, 1, 1, 7, 7, 8),
    }
)
"""The kinds with a sign and a mantissa (ONNX, technical details: float stored in 8 bits, in 4 bits)."""

POWERS = "float8_e8m0fnu"
"""Powers of two: the eight bits of a float32's exponent, without a zero. 255 is not a number."""

_FLOAT32_NAN, _FLOAT32_INFINITY = 0x7FC00000, 0x7F800000
_NO_POWER = 255


def is_narrow(dtype: DType) -> bool:
    """Is it a float of a byte or less?"""
    return dtype.name == POWERS or dtype.name in NARROW


# -- to float32 -------------------------------------------------------------------------------------------------------------


def from_narrow(x: Expr) -> Expr:
    """A number of a narrow type as float32, exactly."""
    code = cast(bits(x, UINT8), INT32)
    if x.dtype.name == POWERS:
        wide = select(compare("eq", code, 0), _i32(0x00400000), _shl(code, 23))
        return bits(select(compare("eq", code, _NO_POWER), _i32(_FLOAT32_NAN), wide), FLOAT32)
    kind = NARROW[x.dtype.name]
    magnitude = binary("bitand", code, kind.sign - 1)
    up = 23 - kind.mantissa
    normal = bits(_shl(magnitude, up) + ((127 - kind.bias) << 23), FLOAT32)
    small = cast(magnitude, FLOAT32) * 2.0 ** (1 - kind.bias - kind.mantissa)
    number = bits(select(compare("lt", magnitude, 1 << kind.mantissa), small, normal), INT32)
    if kind.infinity > kind.largest and kind.signed_zero:
        special = binary("bitor", _shl(binary("bitand", magnitude, (1 << kind.mantissa) - 1), up), _FLOAT32_INFINITY)
        if kind.infinity == kind.nan:
            special = _i32(_FLOAT32_NAN)
        number = select(compare("gt", magnitude, kind.largest), special, number)
    sign = _shl(binary("bitand", code, kind.sign), 31 - kind.exponent - kind.mantissa)
    number = binary("bitor", number, sign)
    if not kind.signed_zero:
        number = select(compare("eq", code, kind.nan), _i32(_FLOAT32_NAN), number)
    return bits(number, FLOAT32)


def _i32(value: int) -> Expr:
    return const(value, INT32)


def _shl(x: Expr, by: int) -> Expr:
    return binary("shl", x, by)


# -- from float32 and float64 -----------------------------------------------------------------------------------------------


def to_narrow(x: Expr, dtype: DType, saturate: bool = True, rounding: str = "up") -> Expr:
    """`x`, of any type that code computes in, as a number of the narrow type `dtype`.

    `rounding`, for powers of two alone: `up`, `down`, or `nearest` with ties up; their sign is that of nothing.
    """
    x = _as_float(x)
    if dtype.name == POWERS:
        return bits(cast(_power(x, saturate, rounding), UINT8), dtype)
    kind = NARROW[dtype.name]
    whole, width, bias = (INT64, 52, 1023) if x.dtype == FLOAT64 else (INT32, 23, 127)
    size = unary("abs", x)
    magnitude = bits(size, whole)
    down = width - kind.mantissa
    half = const((1 << (down - 1)) - 1, whole) + binary("bitand", binary("shr", magnitude, down), 1)
    normal = binary("shr", magnitude + half, down) - ((bias - kind.bias) << kind.mantissa)
    step = const(2.0 ** (width - kind.bias + 1 - kind.mantissa), x.dtype)  # its last bit is worth the least number
    small = bits(size + step, whole) - bits(step, whole)
    code = cast(select(compare("lt", size, 2.0 ** (1 - kind.bias)), small, normal), INT32)
    code = select(compare("gt", code, kind.largest), _i32(kind.largest if saturate else kind.infinity), code)
    code = select(unary("isnan", x), _i32(kind.nan), code)
    negative = compare("lt", bits(x, whole), 0)
    if not kind.signed_zero:
        no_sign = binary("or", compare("eq", code, 0), compare("eq", code, kind.nan))
        negative = select(no_sign, const(False, BOOL), negative)
    code = binary("bitor", code, select(negative, _i32(kind.sign), _i32(0)))
    return bits(cast(code, UINT8), dtype)


def _as_float(x: Expr) -> Expr:
    """In a float type that holds it: float64 for integers of more than 16 bits."""
    if x.dtype in (FLOAT32, FLOAT64):
        return x
    if is_narrow(x.dtype):
        return from_narrow(x)
    return cast(x, FLOAT64 if x.dtype.is_integer and x.dtype.bits > 16 else FLOAT32)


def _power(x: Expr, saturate: bool, rounding: str) -> Expr:
    """The exponent of a power of two near |x|, as int32, between 0 and 255. What is less than the least is that, or 255."""
    least = 2.0**-127
    size = unary("abs", x)
    whole, width, bias = (INT64, 52, 1023) if x.dtype == FLOAT64 else (INT32, 23, 127)
    held = binary("max", size, 2.0**-126)  # a normal number
    place = bits(held, whole)
    added = {"down": 0, "nearest": 1 << (width - 1), "up": (1 << width) - 1}[rounding]
    exponent = cast(binary("shr", place + added, width), INT32) - (bias - 127)
    under = {"down": 2.0**-126, "nearest": 1.5 * least, "up": None}[rounding]
    lowest = compare("le", size, least) if under is None else compare("lt", size, under)
    code = select(lowest, _i32(0), exponent)
    if saturate:
        code = binary("min", code, _NO_POWER - 1)
    else:
        outside = binary("or", compare("lt", size, least), compare("gt", code, _NO_POWER - 1))
        code = select(outside, _i32(_NO_POWER), code)
    return select(unary("isnan", x), _i32(_NO_POWER), code)
