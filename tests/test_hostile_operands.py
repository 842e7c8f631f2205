"""Numbers that operators with positions, lengths and counts in their operands are not meant to get: answered as ONNX's text
says, or refused in a sentence. A checked build says when anything is read or written that is none of the operands.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests.ops.options.case import Case, Operand, i64, scalar, x
from tests.ops.options.ways import model_of

import fusewise
from fusewise.benchmarking.accuracy import within
from fusewise.errors import FusewiseError, InvalidData, InvalidModel, ResourceLimit

Expected = Sequence[np.ndarray] | None
"""Answers, or None where only safety is asked: ONNX's text leaves the answer open."""

_NAN, _INF = np.float32(np.nan), np.float32(np.inf)


@dataclass(frozen=True, eq=False)
class Hostile:
    """A use of an operator and what is to come of it: an answer, an error of one of the kinds, or either."""

    what: str
    op: str
    inputs: tuple[Operand, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    gives: Callable[..., Expected] | None = None
    refused: tuple[type[FusewiseError], ...] = ()

    def __str__(self) -> str:
        return f"{self.op}: {self.what}"


REFUSED = (InvalidData, InvalidModel)


def _far(places: Any) -> np.ndarray:
    """A grid [1, 2, 3, 2] whose every place is far outside an image, or none at all."""
    return np.broadcast_to(np.asarray(places, np.float32), (1, 2, 3, 2)).copy()


_IMAGE, _VOLUME = x(1, 2, 4, 5), x(1, 2, 3, 4, 5)
_GRIDS = {
    "NaN": _NAN,
    "infinity": _INF,
    "minus infinity": -_INF,
    "1e30": 1e30,
    "-1e9": -1e9,
    "3e9": 3e9,
    "both": (_NAN, -_INF),
}
_MODES = ("linear", "nearest", "cubic")


def grids() -> list[Hostile]:
    """Far outside padding is read: zeros, or the edge; what is not a number is anywhere."""
    found = []
    for name, places in _GRIDS.items():
        for mode in _MODES:
            for padding in ("zeros", "border", "reflection"):
                finite = bool(np.isfinite(places).all())
                gives = (lambda *_: [np.zeros((1, 2, 2, 3), np.float32)]) if padding == "zeros" and finite else None
                attributes = {"mode": mode, "padding_mode": padding}
                found.append(
                    Hostile(f"{name} {mode} {padding}", "GridSample", (_IMAGE, _far(places)), attributes, gives=gives)
                )
    volume = np.full((1, 2, 2, 2, 3), 1e30, np.float32)
    for value in (1e30, _NAN, _INF):
        for padding in ("zeros", "border", "reflection"):
            grid = volume * np.float32(0) + np.float32(value)
            attributes = {"mode": "linear", "padding_mode": padding, "align_corners": 1}
            found.append(Hostile(f"{value} {padding} volume", "GridSample", (_VOLUME, grid), attributes))
    return found


def deformed() -> list[Hostile]:
    """Offsets far outside: nothing is sampled, so that the bias is all there is."""
    weight, bias = x(3, 2, 3, 3), x(3)
    found = []
    for value in (1e6, -1e6, 3e9, -3e9, 1e30, -1e30, _INF, -_INF, _NAN):
        offsets = np.full((1, 18, 4, 5), value, np.float32)
        only_bias = lambda data, w, o, b: [np.broadcast_to(b[None, :, None, None], (1, 3, 4, 5))]  # noqa: E731
        gives = only_bias if np.isfinite(value) else None
        found.append(
            Hostile(f"{value}", "DeformConv", (_IMAGE, weight, offsets, bias), {"pads": (1, 1, 1, 1)}, gives=gives)
        )
    return found


def selected() -> list[Hostile]:
    data = x(3, 5)
    best = lambda d, k: [-np.sort(-d, 1)[:, : k[0]], np.argsort(-d, 1, kind="stable")[:, : k[0]]]  # noqa: E731
    wrong = [6, 7, 1000, 2**31, 2**62, -1, -(2**63)]
    return [
        *(Hostile(f"k = {k}", "TopK", (data, i64(k)), outputs=2, refused=(*REFUSED, ResourceLimit)) for k in wrong),
        *(Hostile(f"k = {k}", "TopK", (data, i64(k)), outputs=2, gives=best) for k in (0, 1, 5)),
        Hostile("k beyond nothing", "TopK", (x(3, 0), i64(1)), outputs=2, refused=REFUSED),
        Hostile("of nothing", "TopK", (x(3, 0), i64(0)), outputs=2, gives=best),
        Hostile("NaN", "TopK", (np.where(data > 0, data, _NAN), i64(3)), outputs=2),
        Hostile(
            "condition beyond the axis",
            "Compress",
            (data, np.ones(9, bool)),
            {"axis": 0},
            refused=REFUSED,
        ),
        Hostile("a short condition", "Compress", (data, np.array([True])), {"axis": 0}, gives=lambda d, c: [d[:1]]),
        Hostile("NaN", "Unique", (np.array([_NAN, 1, _NAN, 1], np.float32),), outputs=4),
        Hostile("of nothing", "Unique", (x(0),), gives=lambda d: [d]),
        Hostile("of nothing", "NonZero", (x(0, 3),), gives=lambda d: [np.zeros((2, 0), np.int64)]),
    ]


def transformed() -> list[Hostile]:
    """Lengths of 0, 1 and large primes."""

    def spectrum(data: np.ndarray, length: Any = None, axis: Any = None) -> Expected:
        whole = data[..., 0] + (1j * data[..., 1] if data.shape[-1] == 2 else 0)
        found = np.fft.fft(whole.astype(np.complex128), None if length is None else int(length), 1)
        return [np.stack([found.real, found.imag], -1).astype(data.dtype)]

    axis = scalar(1, "int64")
    primes = (2, 3, 7, 251, 1009, 10007, 65537)
    hann = x(16, low=0.1, high=1)
    signal = x(1, 64, 1)
    return [
        *(Hostile(f"a prime, {n}", "DFT", (x(1, n, 2), None, axis), gives=spectrum) for n in primes),
        *(Hostile(f"of {n}", "DFT", (x(2, n, 1), None, axis), gives=spectrum) for n in (1, 2, 4096, 3 * 5 * 7 * 11)),
        Hostile("padded to 1009", "DFT", (x(1, 100, 2), scalar(1009, "int64"), axis), gives=spectrum),
        Hostile("cut to 1", "DFT", (x(1, 100, 2), scalar(1, "int64"), axis), gives=spectrum),
        *(
            Hostile(f"to length {n}", "DFT", (x(1, 8, 1), scalar(n, "int64"), axis), refused=(*REFUSED, ResourceLimit))
            for n in (0, -1, 2**62)
        ),
        Hostile(
            "of nothing",
            "DFT",
            (x(1, 0, 1), None, axis),
            gives=lambda *_: [np.zeros((1, 0, 2), np.float32)],
            refused=REFUSED,
        ),
        Hostile("along no axis", "DFT", (x(1, 8, 1), None, scalar(7, "int64")), refused=REFUSED),
        Hostile("along the parts", "DFT", (x(1, 8, 1), None, scalar(-1, "int64")), refused=REFUSED),
        *(
            Hostile(f"step {n}", "STFT", (signal, scalar(n, "int64"), hann, scalar(16, "int64")), refused=REFUSED)
            for n in (0, -1)
        ),
        Hostile("frames of 0", "STFT", (signal, scalar(4, "int64"), None, scalar(0, "int64")), refused=REFUSED),
        Hostile(
            "frames beyond the signal", "STFT", (signal, scalar(4, "int64"), None, scalar(65, "int64")), refused=REFUSED
        ),
        Hostile("another window", "STFT", (signal, scalar(4, "int64"), hann, scalar(8, "int64")), refused=REFUSED),
        *(
            Hostile(f"{n}", op, (scalar(n, "int64"),), refused=(*REFUSED, ResourceLimit))
            for op in _WINDOWS
            for n in (-1, 2**62)
        ),
        *(
            Hostile("0", op, (scalar(0, "int64"),), gives=lambda n: [np.zeros(0, np.float32)], refused=REFUSED)
            for op in _WINDOWS
        ),
    ]


_WINDOWS = ("HannWindow", "HammingWindow", "BlackmanWindow")


def placed() -> list[Hostile]:
    """Positions beyond the end, in operands that hold them."""
    data, updates = x(4, 3), x(2, 3)
    outside = [4, -5, 2**31, -(2**31) - 1, 2**62]
    found = []
    for place in outside:
        rows = np.full((2, 3), place, np.int64)
        found += [
            Hostile(f"{place}", "GatherND", (data, i64(place)[:, None]), refused=REFUSED),
            Hostile(f"{place}", "GatherElements", (data, rows), refused=REFUSED),
            Hostile(f"{place}", "Gather", (data, i64(place)), refused=REFUSED),
            Hostile(f"{place}", "ScatterND", (data, i64(place, 0)[:, None], updates), refused=REFUSED),
            Hostile(
                f"{place}", "ScatterND", (data, i64(place, 0)[:, None], updates), {"reduction": "add"}, refused=REFUSED
            ),
            Hostile(f"{place}", "ScatterElements", (data, rows, updates), refused=REFUSED),
            Hostile(f"{place}", "ScatterElements", (data, rows, updates), {"reduction": "max"}, refused=REFUSED),
            Hostile(
                f"{place}",
                "NegativeLogLikelihoodLoss",
                (x(2, 3), np.full(2, place if place != 4 else 3, np.int64)),
                refused=REFUSED,
            ),
            Hostile(
                f"{place}",
                "SoftmaxCrossEntropyLoss",
                (x(2, 3), np.full(2, place if place != 4 else 3, np.int64)),
                refused=REFUSED,
            ),
        ]
        unpooled = np.full((1, 1, 2, 2), place if abs(place) > 100 else 16 if place > 0 else -1, np.int64)
        found.append(
            Hostile(
                f"{place}",
                "MaxUnpool",
                (x(1, 1, 2, 2), unpooled),
                {"kernel_shape": (2, 2), "strides": (2, 2)},
                refused=REFUSED,
            )
        )
    for axis in (2, -3, 2**31):
        found += [
            Hostile(f"axis {axis}", "CumSum", (data, scalar(axis, "int64")), refused=REFUSED),
        ]
    return found


def boxed() -> list[Hostile]:
    """Boxes that are not numbers, or far outside."""
    found = []
    for value in (_NAN, _INF, -_INF, 1e30, -1e30):
        boxes = np.full((2, 4), value, np.float32)
        for mode in ("avg", "max"):
            attributes = {"output_height": 2, "output_width": 2, "sampling_ratio": 2, "mode": mode}
            found.append(Hostile(f"{value} {mode}", "RoiAlign", (_IMAGE, boxes, i64(0, 0)), attributes))
        rois = np.concatenate([np.zeros((2, 1), np.float32), boxes], 1)
        found.append(Hostile(f"{value}", "MaxRoiPool", (_IMAGE, rois), {"pooled_shape": (2, 2)}))
        scores = x(1, 1, 2)
        for limit in (1, 2**62):
            given = (boxes[None], scores, i64(limit), np.float32([0.5]), np.float32([0.0]))
            found.append(Hostile(f"{value}, {limit} at most", "NonMaxSuppression", given))
    found += [
        Hostile(f"image {n}", "RoiAlign", (_IMAGE, x(1, 4), i64(n)), {"output_height": 2}, refused=REFUSED)
        for n in (1, -1, 2**40)
    ]
    found += [
        Hostile(
            f"image {n}",
            "MaxRoiPool",
            (_IMAGE, np.float32([[n, 0, 0, 2, 2]])),
            {"pooled_shape": (2, 2)},
            refused=REFUSED,
        )
        for n in (1, -1, 1e30, _NAN)
    ]
    return found


def counted() -> list[Hostile]:
    """Counts, diagonals and lengths that are extreme."""
    square = x(3, 4)
    far = (2**62, -(2**62), 2**63 - 1, -(2**63))
    lengths = (4, 0, -1, 2**62)
    return [
        *(
            Hostile(
                f"diagonal {k}",
                "Trilu",
                (square, scalar(k, "int64")),
                {"upper": upper},
                gives=lambda d, k, u=upper: [d if (k < 0) == bool(u) else np.zeros_like(d)],
            )
            for k in far
            for upper in (0, 1)
        ),
        *(Hostile(f"diagonal {k}", "EyeLike", (square,), {"k": k}, gives=lambda d: [np.zeros_like(d)]) for k in far),
        *(
            Hostile(f"lengths of {n}", "ReverseSequence", (x(3, 2), i64(n, 1)), refused=REFUSED)
            for n in lengths
            if not 0 <= n <= 3
        ),
        *(
            Hostile(
                f"{depth} classes",
                "OneHot",
                (i64(0, 1), scalar(depth, "int64"), np.float32([0, 1])),
                refused=(*REFUSED, ResourceLimit),
            )
            for depth in (-1, 2**62)
        ),
        Hostile(
            "classes that there are not",
            "OneHot",
            (i64(7, -9, 2**62), scalar(3, "int64"), np.float32([0, 1])),
            gives=lambda i, d, v: [np.zeros((3, 3), np.float32)],
        ),
        *(
            Hostile(f"repeated {n} times", "Tile", (square, i64(n, 1)), refused=(*REFUSED, ResourceLimit))
            for n in (-1, 2**62)
        ),
        *(
            Hostile(f"by {step}", "Range", (scalar(0), scalar(5), scalar(step)), refused=(*REFUSED, ResourceLimit))
            for step in (0.0, _NAN, 1e-30)
        ),
        Hostile("nothing", "Det", (x(2, 0, 0),), gives=lambda d: [np.ones(2, np.float32)]),
        Hostile("singular", "Det", (np.zeros((2, 3, 3), np.float32),), gives=lambda d: [np.zeros(2, np.float32)]),
        Hostile("no square", "Det", (square,), refused=REFUSED),
        Hostile(
            "shifted by more bits than there are",
            "BitShift",
            (np.uint32([1, 7]), np.uint32([32, 4_000_000_000])),
            {"direction": "LEFT"},
            gives=lambda a, b: [np.zeros(2, np.uint32)],
        ),
        *(
            Hostile(f"at {n}", "SequenceAt", ([square, square], scalar(n, "int64")), refused=REFUSED)
            for n in (2, -3, 2**62)
        ),
    ]


ALL = (*grids(), *deformed(), *selected(), *transformed(), *placed(), *boxed(), *counted())


def _known(case: Hostile) -> frozenset[int]:
    """Small operands that decide sizes, as constants."""
    return frozenset(
        k
        for k, given in enumerate(case.inputs)
        if isinstance(given, np.ndarray) and given.dtype.kind == "i" and given.size <= 2 and k
    )


def answers(case: Hostile, known: frozenset[int], checked: bool) -> list[Any] | FusewiseError:
    model, feeds = model_of([Case(case.op, case.inputs, case.attributes, case.outputs, known)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compiled = fusewise.compile(model, cache=False, threads=1, sanitize=checked)
            return list(compiled.run(None, feeds))
        except FusewiseError as error:
            return error


def check(case: Hostile, checked: bool) -> None:
    with np.errstate(all="ignore"):
        expected = None if case.gives is None else case.gives(*case.inputs)
    for known in {_known(case), frozenset[int]()}:
        found = answers(case, known, checked)
        if case.refused and (case.gives is None or isinstance(found, FusewiseError)):
            assert isinstance(found, case.refused), found
            assert "\n" not in str(found)
        elif isinstance(found, FusewiseError):
            raise found
        elif expected is not None:
            assert within(found, expected), (found, expected)


def uses() -> Iterator[Any]:
    """Every case in both builds; a fifth of the cases, each in one of them, are not slow."""
    for number, case in enumerate(ALL):
        for checked in (False, True):
            is_quick = number % 5 == 0 and checked == (number % 2 == 1)
            name = f"{case}-{'checked' if checked else 'normal'}"
            yield pytest.param(case, checked, marks=() if is_quick else pytest.mark.slow, id=name)


@pytest.mark.parametrize("case, checked", uses())
def test_hostile_numbers_are_answered_or_refused(case: Hostile, checked: bool) -> None:
    check(case, checked)


def test_the_list_has_answers_refusals_and_what_is_only_safe() -> None:
    assert min(sum(bool(c.refused) for c in ALL), sum(c.gives is not None for c in ALL)) > 40
