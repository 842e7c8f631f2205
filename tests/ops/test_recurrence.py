"""The definition of recurrences agrees with ONNX Runtime in every option, and is what host steps and folding use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from tests.recurrences import OPERANDS, ROUGHLY_ONE, Case, by_onnx_runtime, case, cases, difference

from fusewise.ir.graph import Node, attributes_of
from fusewise.ops.evaluate import evaluate
from fusewise.ops.recurrence import GATES, recurrence, recurrence_of


@settings(max_examples=120, deadline=None)
@given(one=cases())
def test_any_option_means_what_onnx_runtime_makes_of_it(one):
    assert difference(one.defined, by_onnx_runtime(one), ROUGHLY_ONE) < 1e-5 + 10 * one.rounding


def evaluated(one: Case) -> dict[str, np.ndarray]:
    names = tuple(name if x is not None else "" for name, x in zip(OPERANDS, one.operands, strict=False))
    node = Node(one.op, names, one.outputs, attributes_of(**one.attributes))
    found = evaluate(node, one.feeds, 22)
    return {name: value for name, value in zip(one.outputs, found, strict=True) if name}


@settings(max_examples=40, deadline=None)
@given(one=cases(kinds=("float32", "float64", "float16")))
def test_host_steps_and_folding_use_the_definition(one):
    found = evaluated(one)
    assert found.keys() == one.defined.keys()
    assert all(np.array_equal(found[name], y, equal_nan=True) for name, y in one.defined.items())


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("kind, most", [("float64", 1e-6), ("float16", 2e-3)])
def test_other_types_are_close_to_float32(op, kind, most):
    one = case(op, np.random.default_rng(1), present="blhcp", kind=kind, direction="bidirectional")
    wide = Case(op, tuple(x if x is None or x.dtype.kind == "i" else x.astype(np.float32) for x in one.operands))
    wide.attributes.update(one.attributes)
    found = one.defined
    assert all(y.dtype == kind for y in found.values())
    assert difference({name: y.astype(np.float32) for name, y in found.items()}, wide.defined) < most


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("extents", [{"steps": 0}, {"samples": 0}, {"inputs": 0}])
def test_empty_sequences(op, extents):
    one = case(op, np.random.default_rng(1), present="bhc", direction="bidirectional", **extents)
    found = one.defined
    steps, samples = one.operands[0].shape[:2]
    assert found["y"].shape == (steps, 2, samples, 5) and found["y_h"].shape == (2, samples, 5)
    assert not np.isnan(found["y_h"]).any()


@pytest.mark.parametrize("length", [-1, 5, np.iinfo(np.int32).max])
def test_a_length_beyond_the_steps_is_refused(length):
    one = case("GRU", np.random.default_rng(1), present="l", steps=4)
    one.operands[4][1] = length
    with pytest.raises(IndexError, match="between 0 and its 4 steps"):
        recurrence(recurrence_of("GRU", {}), *one.operands)


@pytest.mark.parametrize(
    "attributes, why",
    [
        ({"direction": "sideways"}, "direction 'sideways'"),
        ({"activations": ["Tanh"], "direction": "bidirectional"}, "1 activations for 2 directions"),
        ({"activations": ["Cosine"]}, "activation 'cosine' is not one of"),
    ],
)
def test_attributes_that_onnx_does_not_have(attributes, why):
    with pytest.raises(ValueError, match=why):
        recurrence_of("RNN", attributes)


def test_numbers_are_used_up_by_activations_that_have_them():
    names = ["Tanh", "LeakyRelu", "Affine", "sigmoid", "ELU", "HardSigmoid"]
    given = {"activations": names, "activation_alpha": [0.5, 2.0, 3.0], "activation_beta": [4.0]}
    first, second = recurrence_of("LSTM", {"direction": "bidirectional", **given}).activations
    assert [(one.name, one.alpha, one.beta) for one in first + second] == [
        ("tanh", 0, 0),
        ("leakyrelu", 0.5, 0),
        ("affine", 2.0, 4.0),
        ("sigmoid", 0, 0),
        ("elu", 3.0, 0),
        ("hardsigmoid", 0.2, 0.5),
    ]
