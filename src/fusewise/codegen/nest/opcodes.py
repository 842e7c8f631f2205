"""What the operations of a nest do, on values as Python and NumPy have them.

An integer scalar is a Python int of the sign that its bits say, another scalar one of NumPy's, a vector an array, a lane of i1 a
bool; bfloat is its bits. Nothing here knows memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np

from fusewise.codegen.nest.tree import Value

__all__ = [
    "INTRINSICS",
    "bits_of",
    "constant",
    "converted",
    "from_bits",
    "numpy_type",
    "operation",
    "saturated",
    "signed",
]

_NUMPY = {"float": "f4", "double": "f8", "half": "f2", "bfloat": "u2", "i1": "?", "ptr": "i8"}


@cache
def numpy_type(element: str) -> np.dtype[Any]:
    """The type of an element in an array."""
    return np.dtype(_NUMPY.get(element) or f"i{int(element[1:]) // 8}")


def signed(value: int, bits: int) -> int:
    """The number that so many low bits are."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def _number(text: str, element: str) -> Any:
    """A constant of one lane."""
    if element == "i1":
        return text in ("true", "1", "-1")
    if element.startswith("i"):
        return signed(int(text), int(element[1:]))
    if text.startswith(("0xH", "0xR")):
        bits = np.uint16(int(text[3:], 16))
        return bits if element == "bfloat" else bits.view(np.float16)
    number = np.uint64(int(text, 16)).view(np.float64) if text.startswith("0x") else np.float64(text)
    return numpy_type(element).type(number)


@lru_cache(maxsize=4096)
def constant(value: Value) -> Any:
    """A value whose text is no name; it is the same object every time, which nobody may change."""
    found = _constant(value)
    if isinstance(found, np.ndarray):
        found.flags.writeable = False
    return found


def _constant(value: Value) -> Any:
    text, lanes, element = value.text, value.lanes, value.element
    vector = value.type.startswith("<")
    if text in ("zeroinitializer", "poison"):
        zero = 0 if element.startswith("i") and element != "i1" else numpy_type(element).type(0)
        return np.zeros(lanes, numpy_type(element)) if vector else zero
    if text.startswith("splat ("):
        return np.full(lanes, _number(text[7:-1].split(" ", 1)[1], element), numpy_type(element))
    if text.startswith("<"):
        every = [one.strip().split(" ", 1)[1] for one in text[1:-1].split(",")]
        return np.array([_number(one, element) for one in every], numpy_type(element))
    return _number(text, element)


def _shift(value: int, by: int, bits: int, logical: bool) -> int:
    return signed((value & ((1 << bits) - 1) if logical else value) >> by, bits)


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _without_sign(value: int, bits: int) -> int:
    return value & ((1 << bits) - 1)


_INTEGERS: Mapping[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul": lambda a, b, n: a * b,
    "and": lambda a, b, n: a & b,
    "or": lambda a, b, n: a | b,
    "xor": lambda a, b, n: a ^ b,
    "shl": lambda a, b, n: a << b,
    "lshr": lambda a, b, n: _shift(a, b, n, True),
    "ashr": lambda a, b, n: _shift(a, b, n, False),
    "udiv": lambda a, b, n: _without_sign(a, n) // _without_sign(b, n),
    "urem": lambda a, b, n: _without_sign(a, n) % _without_sign(b, n),
    "sdiv": lambda a, b, n: _truncated(a, b),
    "srem": lambda a, b, n: a - b * _truncated(a, b),
}

_PREDICATES: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _unsigned(x: Any) -> Any:
    return x if x.dtype == bool else x.view(f"u{x.dtype.itemsize}")


def _vector_integers(stem: str, a: Any, b: Any) -> Any:
    """An operation on arrays of integers, which wrap."""
    bits = 8 * a.dtype.itemsize
    if stem in ("add", "sub", "mul"):
        return {"add": np.add, "sub": np.subtract, "mul": np.multiply}[stem](a, b)
    if stem in ("and", "or", "xor"):
        return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[stem](a, b)
    if stem in ("shl", "lshr", "ashr"):
        by = np.clip(_unsigned(b), 0, bits - 1).astype(a.dtype)
        if stem == "lshr":
            return (_unsigned(a) >> _unsigned(by)).view(a.dtype)
        return a << by if stem == "shl" else a >> by
    return np.array([signed(_INTEGERS[stem](int(x), int(y), bits), bits) for x, y in zip(a, b, strict=True)], a.dtype)


_FLOATS: Mapping[str, Callable[[Any, Any], Any]] = {
    "fadd": np.add,
    "fsub": np.subtract,
    "fmul": np.multiply,
    "fdiv": np.divide,
    "frem": np.fmod,
}


def _compared(predicate: str, a: Any, b: Any, bits: int) -> Any:
    """`icmp` of a predicate."""
    if predicate.startswith(("u", "s")):
        if predicate.startswith("u"):
            scalar = isinstance(a, int)
            a, b = (_without_sign(x, bits) if scalar else _unsigned(x) for x in (a, b))
        predicate = predicate[1:]
    return _PREDICATES[predicate](a, b)


def _ordered(predicate: str, a: Any, b: Any) -> Any:
    """`fcmp` of a predicate: ordered ones are false where either is no number, the others true."""
    nan = np.isnan(a) | np.isnan(b)
    if predicate in ("ord", "uno"):
        return ~nan if predicate == "ord" else nan
    holds = _PREDICATES[predicate[1:]](a, b)
    return holds & ~nan if predicate.startswith("o") else holds | nan


def operation(opcode: str, a: Any, b: Any, operand: Value) -> Any:
    """An operation of two operands of one type."""
    stem, _, rest = opcode.partition(" ")
    bits = int(operand.element[1:]) if operand.element.startswith("i") else 64
    if stem == "icmp":
        return _compared(rest, a, b, bits)
    if stem == "fcmp":
        return _ordered(rest, a, b)
    if stem in _FLOATS:
        return _FLOATS[stem](a, b)
    if operand.type.startswith("<"):
        return _vector_integers(stem, a, b)
    if bits == 1:
        return {"and": a and b, "or": a or b, "xor": a != b, "add": a != b}[stem]
    return signed(_INTEGERS[stem](a, b, bits), bits)


def bits_of(x: Any, element: str) -> bytes:
    """What lies in memory for a value; a number of less than a byte is the low bits of one."""
    if isinstance(x, np.ndarray) and x.dtype == bool:
        return int("".join("1" if lane else "0" for lane in reversed(x)), 2).to_bytes(-(-len(x) // 8), "little")
    if isinstance(x, int):
        width = int(element[1:]) if element.startswith("i") else 64
        return (x & ((1 << width) - 1)).to_bytes(-(-width // 8), "little")
    return np.ascontiguousarray(x).tobytes()


def from_bits(data: bytes, to: Value) -> Any:
    """The value of a type that these bytes are."""
    if to.element.startswith("i") and not to.type.startswith("<"):
        return signed(int.from_bytes(data, "little"), int(to.element[1:]))
    found = np.frombuffer(data, numpy_type(to.element))
    return found.copy() if to.type.startswith("<") else found[0]


def _widened(x: Any, to: Value) -> Any:
    """bfloat bits as float."""
    return (np.asarray(x, np.uint32) << 16).astype(np.uint32).view(np.float32).reshape(np.shape(x))


def _narrowed(x: Any) -> Any:
    """Floats as the bits of bfloat, rounded to nearest even; subnormal numbers become zeros, as the instruction makes them."""
    bits = np.where(np.abs(x) < np.finfo(np.float32).smallest_normal, np.copysign(np.float32(0), x), x).view(np.uint32)
    rounded = np.where(np.isnan(x), bits | 0x400000, bits + 0x7FFF + (bits >> 16 & 1))
    return (rounded >> 16).astype(np.uint16).reshape(np.shape(x))[()]


def converted(opcode: str, x: Any, source: Value, to: Value) -> Any:
    """A conversion, lane by lane; `bitcast` of all lanes together."""
    if opcode == "bitcast":
        return from_bits(bits_of(x, source.element), to)
    kind, vector = numpy_type(to.element), to.type.startswith("<")
    if opcode in ("zext", "uitofp") and source.element != "i1":
        bits = int(source.element[1:])
        x = _unsigned(x) if vector else _without_sign(x, bits)
    if source.element == "i1" and opcode in ("sext", "sitofp"):
        x = -np.asarray(x, np.int64) if vector else -int(x)
    if source.element == "bfloat":
        x = _widened(x, to)
    if to.element == "bfloat":
        return _narrowed(x)
    if vector:
        return np.asarray(x).astype(kind)
    if to.element.startswith("i"):
        if to.element == "i1":
            return bool(int(x) & 1)
        return signed(int(x), int(to.element[1:]))
    return kind.type(x)


def _fma(a: Any, b: Any, c: Any) -> Any:
    wide = np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)
    return wide.astype(np.asarray(a).dtype)[()]


def _smallest(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, int) else np.minimum(a, b)


def _largest(a: Any, b: Any) -> Any:
    return max(a, b) if isinstance(a, int) else np.maximum(a, b)


def _by_unsigned(pick: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def picked(a: Any, b: Any) -> Any:
        if isinstance(a, int):
            return a if pick(a & (1 << 64) - 1, b & (1 << 64) - 1) == a & (1 << 64) - 1 else b
        return pick(_unsigned(a), _unsigned(b)).view(a.dtype)

    return picked


def _trailing_zeros(x: Any) -> Any:
    def one(value: int, bits: int) -> int:
        return bits if value == 0 else (value & -value).bit_length() - 1

    if isinstance(x, int):
        return one(x, 64)
    return np.array([one(int(lane), 8 * x.dtype.itemsize) for lane in x], x.dtype)


def saturated(x: Any, element: str, has_sign: bool) -> Any:
    """Floats as integers of a type, the nearest that it has, and 0 for what is no number."""
    bits = int(element[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if has_sign else (0, (1 << bits) - 1)
    lanes = [0 if np.isnan(one) else int(min(max(float(one), low), high)) for one in np.atleast_1d(x)]
    whole = [signed(min(max(lane, low), high), bits) for lane in lanes]
    return np.array(whole, numpy_type(element)) if np.ndim(x) else whole[0]


def _nearest(x: Any) -> Any:
    """Floats as i32, to the nearest, halves to even; the least number for what i32 does not have."""
    found = np.rint(np.asarray(x, np.float64))
    outside = ~((found >= -(1 << 31)) & (found < 1 << 31))
    return np.where(outside, -(1 << 31), np.where(outside, 0, found)).astype(np.int32)


def _quads(total: Any, a: Any, w: Any) -> Any:
    """Unsigned by signed bytes, four products to a lane."""
    products = a.view(np.uint8).astype(np.int64) * w.view(np.int8).astype(np.int64)
    return (total + products.reshape(-1, 4).sum(1)).astype(np.int64).astype(np.int32)


def _byte_pairs(a: Any, w: Any) -> Any:
    """Two products of bytes to a lane of 16 bits, which saturates."""
    products = a.view(np.uint8).astype(np.int64) * w.view(np.int8).astype(np.int64)
    return np.clip(products.reshape(-1, 2).sum(1), -(1 << 15), (1 << 15) - 1).astype(np.int16)


def _pairs(a: Any, b: Any) -> Any:
    return (a.astype(np.int64) * b.astype(np.int64)).reshape(-1, 2).sum(1).astype(np.int32)


def _bfloat_pairs(total: Any, a: Any, b: Any) -> Any:
    products = _widened(a, Value("", "")) * _widened(b, Value("", ""))
    return total + products.reshape(-1, 2).sum(1, dtype=np.float32)


INTRINSICS: tuple[tuple[re.Pattern[str], Callable[..., Any]], ...] = tuple(
    (re.compile(pattern), run)
    for pattern, run in (
        (r"llvm\.fma", _fma),
        (r"llvm\.smin", _smallest),
        (r"llvm\.smax", _largest),
        (r"llvm\.umin", _by_unsigned(_smallest)),
        (r"llvm\.umax", _by_unsigned(_largest)),
        (r"llvm\.minnum", np.fmin),
        (r"llvm\.maxnum", np.fmax),
        (r"llvm\.minimum", np.minimum),
        (r"llvm\.maximum", np.maximum),
        (r"llvm\.sqrt", np.sqrt),
        (r"llvm\.fabs", np.abs),
        (r"llvm\.abs", abs),
        (r"llvm\.floor", np.floor),
        (r"llvm\.ceil", np.ceil),
        (r"llvm\.trunc", np.trunc),
        (r"llvm\.(roundeven|rint|nearbyint)", np.rint),
        (r"llvm\.lrint", _nearest),
        (r"llvm\.copysign", np.copysign),
        (r"llvm\.cttz", lambda x, *_: _trailing_zeros(x)),
        (r"llvm\.vector\.reduce\.or", np.bitwise_or.reduce),
        (r"llvm\.vector\.reduce\.umax", lambda x: x[np.argmax(x.view(f"u{x.itemsize}"))]),
        (r"llvm\.vector\.reduce\.add", lambda x: int(np.add.reduce(x))),
        (r"llvm\.x86\.avx512\.vpdpbusd", _quads),
        (r"llvm\.x86\..*pmadd\.?ub", _byte_pairs),
        (r"llvm\.x86\..*pmadd", _pairs),
        (r"llvm\.x86\.avx512bf16\.dpbf16ps", _bfloat_pairs),
        (r"llvm\.x86\.avx512bf16\.cvtneps2bf16", _narrowed),
        (r"llvm\.x86\.avx512\.vpermi2var", lambda a, lanes, b: np.concatenate([a, b])[lanes % (2 * len(a))]),
        (r"llvm\.x86\.avx.*perm(d|ps|var)", lambda x, lanes: x[lanes % len(x)]),
        (
            r"llvm\.aarch64\.neon\.tbl4",
            lambda *given: np.append(np.concatenate(given[:4]), 0)[given[4].view("u1").clip(0, 64)],
        ),
        (r"llvm\.launder", lambda x: x),
    )
)
"""By the beginning of its name, what an intrinsic gives."""
