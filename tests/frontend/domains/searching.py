"""Models of one node that searches, with all its options as inputs, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper
from tests.frontend.domains.encoded import FEATURES, FLOAT, INT, VOCABULARY
from tests.frontend.domains.one_node import model_of

import fusewise

REALS = ("length_penalty", "repetition_penalty", "temperature")
DIMS = {
    "input_ids": ["batch", "length"],
    "attention_mask": ["batch", "length"],
    "vocab_mask": [VOCABULARY],
    "prefix_vocab_mask": ["batch", VOCABULARY],
    "presence_mask": ["batch", VOCABULARY],
    "decoder_input_ids": ["batch", "begun"],
}


class Search:
    """A node with these operands, by ONNX Runtime and by us. `operands` are all names in order, `given` those that there are."""

    def __init__(
        self,
        op: str,
        operands: Sequence[str],
        given: Sequence[str],
        outputs: Sequence[str] = ("sequences",),
        opset: int = 17,
        **attributes: Any,
    ) -> None:
        names = [name if name in ("input_ids", *given) else "" for name in operands]
        while not names[-1]:
            names.pop()
        node = helper.make_node(op, names, outputs, name="here", domain="com.microsoft", **attributes)
        ports = [self._port(op, name) for name in names if name]
        ends = [onnx.ValueInfoProto(name=name) for name in outputs if name]
        self.model = model_of(helper.make_graph([node], "g", ports, ends), opset)
        self.outputs = [name for name in outputs if name]
        self.names = [name for name in names if name]
        self.pad = attributes["pad_token_id"]

    @staticmethod
    def _port(op: str, name: str) -> onnx.ValueInfoProto:
        if op == "WhisperBeamSearch" and name == "input_ids":
            return helper.make_tensor_value_info(name, FLOAT, ["batch", FEATURES, "length"])
        return helper.make_tensor_value_info(name, FLOAT if name in REALS else INT, DIMS.get(name, [1]))

    @cached_property
    def program(self) -> fusewise.Model:
        return fusewise.compile(self.model, cache=False)

    @cached_property
    def session(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return onnxruntime.InferenceSession(self.model.SerializeToString(), options, ["CPUExecutionProvider"])

    def both(self, feeds: dict[str, np.ndarray]) -> tuple[list[Any], list[Any]]:
        """Our outputs and theirs."""
        kept = {name: feeds[name] for name in self.names}
        return self.program.run(self.outputs, kept), self.session.run(self.outputs, kept)

    def agree(self, feeds: dict[str, np.ndarray]) -> None:
        """Tokens are equal, scores close. Theirs are not written in rounds that do not take place; ours are zero there."""
        found, wanted = self.both(feeds)
        assert found[0].dtype == wanted[0].dtype
        np.testing.assert_array_equal(found[0], wanted[0])
        if len(wanted) > 1:
            np.testing.assert_allclose(found[1], wanted[1], rtol=1e-4, atol=1e-4)
        if len(wanted) > 2:
            assert found[2].shape == wanted[2].shape
            there = found[2].any(axis=(1, 2, 3))
            rounds = int(there.sum())
            assert rounds and there[:rounds].all()
            np.testing.assert_allclose(found[2][:rounds], wanted[2][:rounds], rtol=1e-4, atol=1e-3)


def agree_to_the_end(found: np.ndarray, wanted: np.ndarray, begun: int, pad: int) -> None:
    """Tokens [rows, length] are equal until every row has ended. Theirs are not written then; ours pad."""
    written = np.flatnonzero((found[:, begun:] != pad).any(0))
    end = begun + 1 + int(written.max(initial=-1))
    assert found.shape == wanted.shape and (found[:, end:] == pad).all()
    np.testing.assert_array_equal(found[:, :end], wanted[:, :end])


@st.composite
def feeds_of(draw: st.DrawFn, shortest: int = 1) -> dict[str, np.ndarray]:
    """Prompts and options of every kind; at least `shortest` tokens follow."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    samples, length = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    beams = draw(st.integers(1, 4))
    mask = (rng.random((samples, length)) < 0.7).astype(np.int32)
    mask[:, -1] = 1

    def one(value: float, kind: type = np.int32) -> np.ndarray:
        return np.array([value], kind)

    return {
        "input_ids": rng.integers(0, VOCABULARY, (samples, length)).astype(np.int32),
        "max_length": one(length + draw(st.integers(shortest, 9))),
        "min_length": one(draw(st.integers(0, 8))),
        "num_beams": one(beams),
        "num_return_sequences": one(draw(st.integers(1, beams))),
        "length_penalty": one(draw(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0])), np.float32),
        "repetition_penalty": one(draw(st.sampled_from([0.8, 1.0, 1.3])), np.float32),
        "vocab_mask": (rng.random(VOCABULARY) < 0.8).astype(np.int32),
        "prefix_vocab_mask": (rng.random((samples, VOCABULARY)) < 0.8).astype(np.int32),
        "attention_mask": mask,
        "presence_mask": (rng.random((samples, VOCABULARY)) < 0.5).astype(np.int32),
        "seed": one(draw(st.sampled_from([0, 1, 12345, 2**31 - 1]))),
    }
