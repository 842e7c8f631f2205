"""Window geometry: padding by mode, and when a guard is needed."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.ops.expr import index
from fusewise.ops.sampling import call_of_sample
from fusewise.ops.spec import Call, NotDefined, Sample
from fusewise.ops.table import spec_of
from fusewise.ops.window import transposed_window_of, window_of


def call(op: str, shape: tuple[int, ...], weights: tuple[int, ...], **attributes: object) -> Call:
    spec = spec_of(op)
    assert spec is not None
    sample = Sample((("float32", shape), ("float32", weights)), attributes)
    return call_of_sample(spec, sample, np.random.default_rng(0))[0]


@pytest.mark.parametrize(
    ("attributes", "begins", "ends"),
    [
        ({}, (0, 0), (0, 0)),
        ({"pads": (1, 0, 2, 1)}, (1, 0), (2, 1)),
        ({"auto_pad": "SAME_UPPER", "strides": (2, 2)}, (0, 1), (1, 1)),
        ({"auto_pad": "SAME_LOWER", "strides": (2, 2)}, (1, 1), (0, 1)),
        ({"auto_pad": "VALID", "strides": (2, 2)}, (0, 0), (0, 0)),
    ],
)
def test_padding(attributes: dict[str, object], begins: tuple[int, ...], ends: tuple[int, ...]) -> None:
    window = window_of(call("Conv", (1, 1, 6, 7), (1, 1, 3, 3), **attributes), (3, 3))
    assert (window.begins, window.ends) == (begins, ends)


def test_no_guard_without_padding() -> None:
    valid = call("Conv", (1, 1, 6, 7), (1, 1, 3, 3))
    window = window_of(valid, (3, 3))
    positions = window.positions((index("y"), index("x")))
    assert window.guard(positions, valid.output().dims[2:]) is None


def test_a_guard_tests_only_the_padded_sides() -> None:
    padded = call("Conv", (1, 1, 6, 7), (1, 1, 3, 3), pads=(1, 0, 0, 1))
    window = window_of(padded, (3, 3))
    guard = window.guard(window.positions((index("y"), index("x"))), padded.output().dims[2:])
    assert repr(guard) == "and(ge(sub(add(y, k0), 1), 0), lt(add(x, k1), 7))"


def test_output_shape_decides_the_cut_of_a_transposed_convolution() -> None:
    wide = call("ConvTranspose", (1, 1, 3), (1, 1, 4), strides=(2,), output_shape=(5,))
    assert (transposed_window_of(wide, (4,)).begins, transposed_window_of(wide, (4,)).ends) == ((2,), (1,))


def test_attributes_of_the_wrong_length_are_refused() -> None:
    spec = call("Conv", (1, 1, 6, 7), (1, 1, 3, 3))
    wrong = Call(spec.node.with_attributes(strides=[1]), spec.inputs, spec.outputs)
    with pytest.raises(NotDefined, match="1 strides for 2 spatial axes"):
        window_of(wrong, (3, 3))
