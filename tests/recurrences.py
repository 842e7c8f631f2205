"""LSTM, GRU and RNN at random, with every option, and what ONNX Runtime says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from fusewise.ops.recurrence import ACTIVATIONS, GATES, recurrence, recurrence_of

OPERANDS = ("x", "w", "r", "b", "lengths", "h", "c", "p")
OUTPUTS = ("y", "y_h", "y_c")
SPELT = "Affine Elu HardSigmoid LeakyRelu Relu ScaledTanh Sigmoid Softplus Softsign Tanh ThresholdedRelu".split()
BOUNDED = ("hardsigmoid", "scaledtanh", "sigmoid", "softsign", "tanh")
FEW_STEPS = 3
PER_DIRECTION = {"LSTM": 3, "GRU": 2, "RNN": 1}


@dataclass(frozen=True)
class Case:
    """One node: `operands` by ONNX's places, None for absent ones; `outputs` are names, empty for absent ones."""

    op: str
    operands: tuple[np.ndarray | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y", "y_h")

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return {name: x for name, x in zip(OPERANDS, self.operands, strict=False) if x is not None}

    @property
    def defined(self) -> dict[str, np.ndarray]:
        """The outputs by definition."""
        found = recurrence(recurrence_of(self.op, self.attributes), *self.operands)
        return {name: value for name, value in zip(self.outputs, found, strict=False) if name}

    @property
    def rounding(self) -> float:
        """How far float32 takes the definition from what it is in float64: some recurrences make roundings grow with every step."""
        wide = tuple(x if x is None or x.dtype.kind == "i" else x.astype(np.float64) for x in self.operands)
        exact = Case(self.op, wide, self.attributes, self.outputs).defined
        return difference({name: y.astype(np.float64) for name, y in self.defined.items()}, exact)

    def model(self, constants: tuple[str, ...] = ()) -> onnx.ModelProto:
        """The node as a model whose operands are inputs, but for `constants`."""
        names = [name if x is not None else "" for name, x in zip(OPERANDS, self.operands, strict=False)]
        node = helper.make_node(self.op, names, list(self.outputs), **self.attributes)
        kinds = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in self.feeds.items()}
        inputs = [
            helper.make_tensor_value_info(name, kinds[name], x.shape)
            for name, x in self.feeds.items()
            if name not in constants
        ]
        weights = [onnx.numpy_helper.from_array(self.feeds[name], name) for name in constants if name in self.feeds]
        outputs = [helper.make_tensor_value_info(name, kinds["x"], None) for name in self.outputs if name]
        graph = helper.make_graph([node], "g", inputs, outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def case(
    op: str,
    rng: np.random.Generator,
    *,
    steps: int = 4,
    samples: int = 3,
    inputs: int = 4,
    hidden: int = 5,
    present: str = "",
    kind: str = "float32",
    outputs: tuple[str, ...] = ("y", "y_h"),
    **attributes: Any,
) -> Case:
    """A node with random operands; of the optional ones, those whose initials are in `present`: `b l h c p`."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    gates = GATES[op] * hidden
    shapes: dict[str, tuple[int, ...]] = {
        "x": (steps, samples, inputs),
        "w": (directions, gates, inputs),
        "r": (directions, gates, hidden),
        "b": (directions, 2 * gates),
        "h": (directions, samples, hidden),
        "c": (directions, samples, hidden),
        "p": (directions, 3 * hidden),
    }
    if attributes.get("layout"):
        shapes |= {name: (shapes[name][1], shapes[name][0], *shapes[name][2:]) for name in ("x", "h", "c")}
    operands: list[np.ndarray | None] = []
    for name in OPERANDS[: 8 if op == "LSTM" else 6]:
        if name == "lengths":
            lengths = rng.integers(0, steps + 1, samples).astype(np.int32)
            operands.append(lengths if "l" in present else None)
        elif name in "xwr" or name in present:
            gain = 1.0 if steps <= FEW_STEPS else 0.4  # many steps of large weights make roundings grow
            scale = 1.0 if name in "xhc" else min(0.5, gain / np.sqrt(max(1, shapes[name][-1])))
            operands.append(rng.normal(scale=scale, size=shapes[name]).astype(kind))
        else:
            operands.append(None)
    return Case(op, tuple(operands), {"hidden_size": hidden, **attributes}, outputs)


def activations(op: str, directions: int, known: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Attributes: none, or names in any case with as many numbers as they take, or fewer where ONNX Runtime has the default."""

    def with_numbers(names: list[str], spelt: int, numbers: list[float], few: bool) -> dict[str, Any]:
        rows = [ACTIVATIONS[name] for name in names]
        found: dict[str, Any] = {"activations": [(str.lower, str.upper, str.title)[spelt](name) for name in names]}
        optional = few and all(name not in ("affine", "scaledtanh", "thresholdedrelu") for name in names)
        for which, attribute in enumerate(("activation_alpha", "activation_beta")):
            count = sum(row[which] is not None for row in rows)
            if count and not optional:
                found[attribute] = [float(np.float32(0.1 + 0.5 * number)) for number in numbers[:count]]
        return found

    count = directions * PER_DIRECTION[op]
    return st.one_of(
        st.just({}),
        st.builds(
            with_numbers,
            st.lists(st.sampled_from(known), min_size=count, max_size=count),
            st.integers(0, 2),
            st.lists(st.floats(0, 1, width=32), min_size=count, max_size=count),
            st.booleans(),
        ),
    )


@st.composite
def cases(
    draw: st.DrawFn, *, steps: int = 6, samples: int = 5, hidden: int = 9, kinds: tuple[str, ...] = ("float32",)
) -> Case:
    """Any option; sizes up to those given. Over many steps only activations that are bounded: what the others make grows."""
    op, count = draw(st.sampled_from(sorted(GATES))), draw(st.integers(1, steps))
    known = sorted(ACTIVATIONS) if count <= FEW_STEPS else BOUNDED
    direction = draw(st.sampled_from(("forward", "reverse", "bidirectional")))
    attributes = {"direction": direction, **draw(activations(op, 1 + (direction == "bidirectional"), known))}
    if draw(st.booleans()):
        attributes["clip"] = draw(st.sampled_from((0.25, 0.5, 3.0)))
    if draw(st.booleans()):
        attributes["layout"] = 1
    if op != "RNN":
        option = "input_forget" if op == "LSTM" else "linear_before_reset"
        attributes[option] = draw(st.integers(0, 1))
    names = OUTPUTS[: 3 if op == "LSTM" else 2]
    kept = draw(st.sets(st.sampled_from(names), min_size=1))
    return case(
        op,
        np.random.default_rng(draw(st.integers(0, 99))),
        steps=count,
        samples=draw(st.integers(1, samples)),
        inputs=draw(st.integers(1, 6)),
        hidden=draw(st.integers(1, hidden)),
        present="".join(draw(st.sets(st.sampled_from("blhcp")))),
        kind=draw(st.sampled_from(kinds)),
        outputs=tuple(name if name in kept else "" for name in names),
        **attributes,
    )


def by_onnx_runtime(one: Case) -> dict[str, np.ndarray]:
    """The outputs. It lacks samples as the first axis, and names of an RNN's activations in any case: it is given those it has."""
    import onnxruntime

    batch_first = bool(one.attributes.get("layout"))
    operands = tuple(
        np.ascontiguousarray(x.transpose(1, 0, 2)) if batch_first and x is not None and name in "xhc" else x
        for name, x in zip(OPERANDS, one.operands, strict=False)
    )
    attributes = {name: value for name, value in one.attributes.items() if name != "layout"}
    if "activations" in attributes:
        spelt = {name.lower(): name for name in SPELT}
        attributes["activations"] = [spelt[name.lower()] for name in attributes["activations"]]
    turned = Case(one.op, operands, attributes, one.outputs)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    model = turned.model().SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, turned.feeds), strict=True))
    if batch_first:
        found = {name: y.transpose((2, 0, 1, 3) if name == "y" else (1, 0, 2)) for name, y in found.items()}
    return found


ROUGHLY_ONE = 0.1
"""The least that ONNX Runtime's answers are measured by: its functions are good to a part of 1 and no better where they are small
(tanh of 1.8e-4 is 5e-8 off)."""


def difference(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], least: float = 1e-3) -> float:
    """The largest, for the largest expected number of each output, which counts as `least` at least."""
    assert found.keys() == expected.keys()
    worst = 0.0
    for name, want in expected.items():
        got = found[name]
        assert got.shape == want.shape and got.dtype == want.dtype, name
        apart, wide = np.abs(got.astype(np.float64) - want.astype(np.float64)), np.abs(want.astype(np.float64))
        assert not np.isnan(apart).any(), name
        worst = max(worst, apart.max(initial=0) / max(wide.max(initial=0), least))
    return float(worst)
