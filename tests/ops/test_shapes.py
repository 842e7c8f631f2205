"""Shapes in terms of symbols: for every option of every operator, at the numbers they stand for, what ONNX's inference finds."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field

import numpy as np
import pytest
from tests.ops.options.case import Case
from tests.ops.options.ways import node_of, type_of
from tests.ops.test_options import CASES

from fusewise.errors import InvalidModel
from fusewise.ir.size import Symbol, evaluate, size_of
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.infer import infer_outputs
from fusewise.ops.shapes.table import SHAPES, infer_sizes

SHARES = (1.0, 0.6, 0.3)
"""Of the dimensions of a case, how many are symbols."""

BY_OPERATOR = {op: [case for case in CASES if case.op == op] for op in dict.fromkeys(case.op for case in CASES)}

NUMBERS_ONLY = {
    "Resize": "what keeps an aspect ratio is rounded as floats are",
    "StringNormalizer": "ONNX's inference wants to see a number",
}
"""Operators whose shapes are not always told in terms of symbols, and why."""


@dataclass
class Told:
    """What has to hold; it does, at the numbers of the case."""

    values: dict[str, int]
    sentences: list[str] = field(default_factory=list)

    def equal(self, a: int, b: int, why: str) -> int:
        assert evaluate(a, self.values) == evaluate(b, self.values), why
        self.sentences.append(why)
        return a

    def at_least(self, a: int, b: int, why: str) -> None:
        assert evaluate(a, self.values) >= evaluate(b, self.values), why
        self.sentences.append(why)


class Symbols:
    """A symbol for every number: equal numbers have one, so that what has to be equal is."""

    def __init__(self, chance: random.Random, share: float) -> None:
        self.chance, self.share = chance, share
        self.values: dict[str, int] = {}

    def size(self, number: int) -> int:
        if number <= 1 or self.chance.random() >= self.share:  # what may be 1 is broadcast or not
            return number
        name = f"n{number}"
        self.values[name] = number
        return size_of(Symbol(name))

    def kind(self, kind: ValueType | None, keep: int) -> ValueType | None:
        if not isinstance(kind, TensorType) or kind.shape is None:
            return kind
        return TensorType(kind.dtype, tuple(dim if d < keep else self.size(dim) for d, dim in enumerate(kind.dims)))


FIXED = {"Conv": {1: 2}, "ConvInteger": {1: 2}, "QLinearConv": {3: 2}, "DeformConv": {1: 2}, "ConvTranspose": {1: 2}}
"""Operands of which only so many leading dimensions can be symbols."""


def given(case: Case, symbols: Symbols) -> tuple[tuple[ValueType | None, ...], tuple[np.ndarray | None, ...]]:
    types = [type_of(x) for x in case.inputs]
    for i, kind in enumerate(types):
        if i not in case.known and isinstance(kind, TensorType):
            fixed = len(kind.dims) if i in FIXED.get(case.op, {}) else 0
            if case.op == "GatherND" and i == 1:
                fixed = len(kind.dims)
            types[i] = symbols.kind(kind, fixed)
    values = []
    for i, x in enumerate(case.inputs):
        known = isinstance(x, np.ndarray) and i in case.known
        if known and x.dtype == np.int64 and case.op in SIZES_AT and i in SIZES_AT[case.op]:
            array = np.empty(x.shape, object)
            array.reshape(-1)[:] = [symbols.size(n) if n > 1 else n for n in x.reshape(-1).tolist()]
            x = array if any(not isinstance(n, int) for n in array.reshape(-1).tolist()) else x
        values.append(x if known else None)
    return tuple(types), tuple(values)


SIZES_AT = {
    "Reshape": (1,),
    "Expand": (1,),
    "Slice": (1, 2),
    "Tile": (1,),
    "ConstantOfShape": (0,),
    "Split": (1,),
    "Pad": (1,),
    "Range": (1,),
    "OneHot": (1,),
    "TopK": (1,),
    "Resize": (3,),
    "CenterCropPad": (1,),
    "Col2Im": (1,),
    "AffineGrid": (1,),
    "DFT": (1,),
    "HannWindow": (0,),
}
"""Operands whose contents may be sizes."""


@pytest.mark.parametrize("op", sorted(BY_OPERATOR))
def test_at_numbers_shapes_are_what_onnx_finds(op: str) -> None:
    wrong, unknown, tried = [], 0, 0
    for case in BY_OPERATOR[op]:
        node = node_of(case)
        arrays = tuple(x if isinstance(x, np.ndarray) else None for x in case.inputs)
        known = tuple(x if i in case.known else None for i, x in enumerate(arrays))
        try:
            wanted = infer_outputs(node, tuple(map(type_of, case.inputs)), known, case.opset)
        except InvalidModel:
            continue
        for share in SHARES:
            symbols = Symbols(random.Random(zlib.crc32(f"{case.label}{share}".encode())), share)
            types, values = given(case, symbols)
            try:
                found = infer_sizes(node, types, values, case.opset, Told(symbols.values))
            except InvalidModel:
                assert op in NUMBERS_ONLY, case.label
                continue
            for a, b in zip(found, wanted, strict=True):
                if not isinstance(a, TensorType) or not isinstance(b, TensorType) or not b.is_static:
                    continue
                tried += 1
                if a.dtype != b.dtype:
                    wrong.append(f"{case.label}: {a} is {b}")
                elif a.shape is None or None in a.shape:
                    unknown += 1
                    if op in SHAPES and op not in NUMBERS_ONLY:
                        wrong.append(f"{case.label}: {a} is not known, it is {b}")
                elif tuple(evaluate(dim, symbols.values) for dim in a.shape) != b.shape:
                    wrong.append(f"{case.label}: {a} is {b}")
    assert not wrong, "\n".join(wrong[:6]) + f"\n({len(wrong)} of {tried})"
