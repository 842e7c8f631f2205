"""What an operation may take and give: a signature for every opcode, and what stands beside the operands.

In a signature `I` is any type of integers and `F` of floats, scalar or vector, `T` either of them or pointers; the same letter is
the same type. `mask T` has an i1 for every lane of T, `element T` is a lane of it. What is left of the arrow is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType

from fusewise.codegen.nest.tree import Operation, Value, vector

__all__ = ["CONTEXTUAL", "SIGNATURES", "broken_rule", "constant_fits", "is_type"]

_BINARY_INTEGER = "add sub mul udiv sdiv urem srem shl lshr ashr and or xor"
_BINARY_FLOAT = "fadd fsub fmul fdiv frem"
_UNARY_FLOAT = "fabs floor ceil trunc roundeven sqrt"
_CONVERSIONS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "sext": ("I", "I", "wider"),
        "zext": ("I", "I", "wider"),
        "trunc": ("I", "I", "narrower"),
        "fpext": ("F", "F", "wider"),
        "fptrunc": ("F", "F", "narrower"),
        "sitofp": ("I", "F", ""),
        "uitofp": ("I", "F", ""),
        "fptosi": ("F", "I", ""),
        "fptoui": ("F", "I", ""),
    }
)
"""Of what, to what, and which of the two has more bits."""

SIGNATURES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(_BINARY_INTEGER.split(), "I, I -> I"),
        **dict.fromkeys(_BINARY_FLOAT.split(), "F, F -> F"),
        **{f"llvm.{stem}": "F -> F" for stem in _UNARY_FLOAT.split()},
        **{f"llvm.{stem}": "F, F -> F" for stem in "copysign minnum maxnum minimum maximum".split()},
        **{f"llvm.{stem}": "I, I -> I" for stem in "smin smax umin umax".split()},
        **{f"llvm.{stem}": "I -> I" for stem in "abs ctpop ctlz cttz bswap bitreverse".split()},
        **{f"llvm.vector.reduce.{stem}": "I -> element I" for stem in "add mul and or xor smin smax umin umax".split()},
        "llvm.fma": "F, F, F -> F",
        "llvm.fshl": "I, I, I -> I",
        "llvm.fshr": "I, I, I -> I",
        "fneg": "F -> F",
        "icmp": "T, T -> mask T",
        "fcmp": "F, F -> mask F",
        "extractelement": "T, i64 -> element T",
        "insertelement": "T, element T, i64 -> T",
        "broadcast": "T -> T",
        "getelementptr": "ptr, i64 -> ptr",
        "load": "ptr -> T",
        "store": "T, ptr ->",
        "masked.load": "ptr, mask T, T -> T",
        "masked.store": "T, ptr, mask T ->",
        "prefetch": "ptr ->",
        "memcpy": "ptr, ptr, i64 ->",
        "memset": "ptr, i8, i64 ->",
        "alloca": "-> ptr",
        "hidden": "T -> T",
        "same": "T -> T",
    }
)

CONTEXTUAL = frozenset(("call", "intrinsic", "ret"))
"""Opcodes whose types others decide: those of a function."""

_FLAGS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("add", "sub", "mul", "shl"), "nsw nuw"),
        "getelementptr": "inbounds",
        "icmp": "eq ne slt sle sgt sge ult ule ugt uge",
        "fcmp": "oeq ogt oge olt ole one ord uno ueq ugt uge ult ule une",
    }
)
"""Words that may stand behind an opcode."""

_FLOAT_BITS: Mapping[str, int] = MappingProxyType({"half": 16, "bfloat": 16, "float": 32, "double": 64})

_SCALAR = r"i[1-9]\d*|half|bfloat|float|double|ptr"
_TYPE = re.compile(rf"(?:{_SCALAR})|<[1-9]\d* x (?:{_SCALAR})>")
_INTEGER, _FLOAT = r"-?\d+", r"0x[0-9A-F]{16}|0x[HR][0-9A-F]{4}"


@cache
def is_type(kind: str) -> bool:
    """Is this a type that values have?"""
    return _TYPE.fullmatch(kind) is not None


@cache
def constant_fits(text: str, kind: str) -> bool:
    """Is this a constant of a type, as LLVM spells it?"""
    if text in ("poison", "zeroinitializer"):
        return text == "poison" or kind.startswith("<")
    value = Value(text, kind)
    if not kind.startswith("<"):
        if kind == "i1":
            return text in ("true", "false", "0", "1")
        return re.fullmatch(_INTEGER if kind.startswith("i") else _FLOAT, text) is not None
    splat = re.fullmatch(r"splat \((\S+) (\S+)\)", text)
    if splat:
        return splat[1] == value.element and constant_fits(splat[2], splat[1])
    lanes = [one.split(" ") for one in text[1:-1].split(", ")] if text.startswith("<") and text.endswith(">") else []
    return len(lanes) == value.lanes and all(
        len(one) == 2 and one[0] == value.element and constant_fits(one[1], one[0]) for one in lanes
    )


@cache
def _of_class(letter: str, kind: str) -> bool:
    element = Value("", kind).element
    is_float, is_pointer = element in _FLOAT_BITS, element == "ptr"
    return {"F": is_float, "I": not is_float and not is_pointer, "T": True}[letter]


@cache
def _bits(kind: str) -> int:
    """Of an element."""
    element = Value("", kind).element
    return 64 if element == "ptr" else _FLOAT_BITS.get(element) or int(element[1:])


def broken_rule(operation: Operation) -> str | None:
    """What is wrong with operands, result or details of an operation; None where nothing is."""
    words = operation.opcode.split(" ")
    stem, flags = words[0], words[1:]
    given = None if operation.result is None else operation.result.type
    kinds = tuple(one.type for one in operation.operands)
    if stem in CONTEXTUAL:
        return None
    known = _FLAGS.get(stem, "").split()
    if any(flag not in known for flag in flags) or (stem in ("icmp", "fcmp")) != (len(flags) == 1 and "cmp" in stem):
        return "is no operation"
    if stem in SIGNATURES:
        found = _against_signature(SIGNATURES[stem], kinds, given)
    elif stem == "select":
        found = _select(kinds, given)
    elif stem == "shufflevector":
        found = _shuffle(kinds, given, operation.detail)
    elif stem == "bitcast" or stem in _CONVERSIONS:
        found = _conversion(stem, kinds, given)
    else:
        found = "is no operation"
    return found or _details(stem, operation)


@cache
def _against_signature(signature: str, kinds: tuple[str, ...], result: str | None) -> str | None:
    """First the letters that stand alone say what they are; then the rest is held against them."""
    left, _, right = (part.strip() for part in signature.partition("->"))
    wanted = left.split(", ") if left else []
    if len(wanted) != len(kinds):
        return f"takes {len(wanted)} operands, not {len(kinds)}"
    if (result is None) == bool(right):
        return "gives a value" if right else "gives no value"
    pairs = list(zip([*wanted, right] if right else wanted, [*kinds, result or ""], strict=False))
    letters: dict[str, str] = {}
    for form, kind in pairs:
        if form in ("I", "F", "T") and (not _of_class(form, kind) or letters.setdefault(form, kind) != kind):
            return f"is {signature}, which {kind} does not fit"
    for form, kind in pairs:
        if form not in ("I", "F", "T") and kind != _meant(form, letters):
            return f"is {signature}, which {kind} does not fit"
    return None


def _meant(form: str, letters: Mapping[str, str]) -> str:
    how, _, letter = form.partition(" ")
    if not letter:
        return form
    value = Value("", letters[letter])
    return value.element if how == "element" else vector("i1", value.lanes)


@cache
def _select(kinds: tuple[str, ...], result: str | None) -> str | None:
    if len(kinds) != 3 or kinds[1] != kinds[2] or result != kinds[1]:
        return "chooses between two of the type that it gives"
    if kinds[0] not in ("i1", vector("i1", Value("", kinds[1]).lanes)):
        return f"has a condition of type {kinds[0]}"
    return None


def _shuffle(kinds: tuple[str, ...], result: str | None, lanes: Sequence[str | int]) -> str | None:
    if len(kinds) != 2 or kinds[0] != kinds[1] or not kinds[0].startswith("<"):
        return "takes two vectors of one type"
    first = Value("", kinds[0])
    if result != f"<{len(lanes)} x {first.element}>":
        return f"gives {len(lanes)} lanes of {first.element}"
    if not all(isinstance(lane, int) and 0 <= lane < 2 * first.lanes for lane in lanes):
        return f"has lanes that are not among {2 * first.lanes}"
    return None


@cache
def _conversion(stem: str, kinds: tuple[str, ...], result: str | None) -> str | None:
    if len(kinds) != 1 or result is None:
        return "makes one value of one"
    before, after = Value("", kinds[0]), Value("", result)
    if stem == "bitcast":
        same = before.lanes * _bits(kinds[0]) == after.lanes * _bits(result)
        return None if same and "ptr" not in (before.element, after.element) else "gives as many bits as it takes"
    source, target, size = _CONVERSIONS[stem]
    if not (_of_class(source, kinds[0]) and _of_class(target, result)) or before.lanes != after.lanes:
        return f"makes no {result} of {kinds[0]}"
    narrow, wide = (before, after) if size == "wider" else (after, before)
    return (
        f"gives fewer or more bits, not {result} of {kinds[0]}"
        if size and _bits(narrow.type) >= _bits(wide.type)
        else None
    )


# --- what stands beside operands --------------------------------------------------------------------------------------


def _none(operation: Operation) -> bool:
    return not operation.detail


def _is_alignment(one: object) -> bool:
    return isinstance(one, int) and one > 0 and one & (one - 1) == 0


def _aligned(operation: Operation) -> bool:
    return len(operation.detail) == 1 and _is_alignment(operation.detail[0])


def _element(operation: Operation) -> bool:
    return len(operation.detail) == 1 and is_type(str(operation.detail[0]))


def _reserved(operation: Operation) -> bool:
    if len(operation.detail) != 3:
        return False
    element, count, align = operation.detail
    return is_type(str(element)) and isinstance(count, int) and count > 0 and _is_alignment(align)


def _locality(operation: Operation) -> bool:
    return len(operation.detail) == 1 and operation.detail[0] in (0, 1, 2, 3)


def _lane(operation: Operation) -> bool:
    """The number of a lane is one where it is known."""
    text = operation.operands[-1].text
    lanes = operation.operands[0].lanes
    return not operation.detail and (not text.lstrip("-").isdigit() or 0 <= int(text) < lanes)


_DETAILS: Mapping[str, tuple[Callable[[Operation], bool], str]] = MappingProxyType(
    {
        **dict.fromkeys(("load", "store", "memcpy", "memset"), (_aligned, "needs an alignment, a power of two")),
        "alloca": (_reserved, "needs a type, how many of it, and an alignment"),
        "getelementptr": (_element, "needs the type that it counts in"),
        "prefetch": (_locality, "needs a locality from 0 to 3"),
        "extractelement": (_lane, "has no such lane"),
        "insertelement": (_lane, "has no such lane"),
        "shufflevector": (lambda operation: True, ""),
    }
)


def _details(stem: str, operation: Operation) -> str | None:
    fits, complaint = _DETAILS.get(stem, (_none, "needs nothing beside its operands"))
    return None if fits(operation) else complaint
