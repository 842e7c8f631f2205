"""Samples of every operator with one thing changed: refused by node, or run as ONNX Runtime runs them; nothing else."""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from multiprocessing.connection import Connection
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.validity.mutants import CASES, model_of, mutated, node_of, operands_of

import fusewise
from fusewise.errors import FusewiseError, InvalidModel
from fusewise.frontend.upgrade import PINNED_OPSET
from fusewise.ir.graph import Constant
from fusewise.ops.definition import definition
from fusewise.ops.expr import index
from fusewise.ops.infer import infer_outputs
from fusewise.ops.sampling import NEWEST_OPSET
from fusewise.ops.spec import Call, NotDefined
from fusewise.ops.table import spec_of
from fusewise.ops.validity.table import fault
from fusewise.ops.validity.use import Use


def test_samples_are_valid() -> None:
    for op, sample in CASES:
        operands = operands_of(sample)
        types = tuple(None if a is None else Constant(a).type for a in operands)
        assert fault(Use(node_of(op, sample, operands), types, operands, NEWEST_OPSET)) == "", (op, sample.attributes)


@settings(max_examples=400, deadline=None)
@given(case=st.sampled_from(range(len(CASES))), seed=st.integers(0, 2**32 - 1))
def test_a_mutant_has_types_and_a_definition_or_is_refused_by_name(case: int, seed: int) -> None:
    op, sample = CASES[case]
    node, operands = mutated(op, sample, Random(seed))
    types = tuple(None if a is None else Constant(a).type for a in operands)
    known = tuple(a if a is not None and a.dtype == np.int64 else None for a in operands)
    try:
        found = infer_outputs(node, types, known, PINNED_OPSET)
    except InvalidModel as error:
        message = str(error)
        assert message.startswith("node 'the node'")
        return
    spec = spec_of(op)
    assert spec is not None
    for number, kind in enumerate(found):
        if kind is None or not getattr(kind, "is_static", False) or any(dim < 0 for dim in kind.dims):
            continue
        with suppress(NotDefined):
            definition(spec, Call(node, types, found, known), number, tuple(index(f"i{d}") for d in range(kind.rank)))


def serve(link: Connection) -> None:
    """Answer models with what ONNX Runtime gives, None where it refuses: in a process, since it may die of them."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    onnxruntime.set_default_logger_severity(4)
    while link.poll(None):
        try:
            data, feeds = link.recv()
        except EOFError:  # nobody asks any more
            return
        try:
            session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            link.send(session.run(None, feeds))
        except Exception:  # ONNX Runtime refuses by errors of many kinds
            link.send(None)


class Witness:
    """ONNX Runtime in a process of its own, begun anew when it has died."""

    def __init__(self) -> None:
        self.link: Connection | None = None

    def ask(self, data: bytes, feeds: dict[str, np.ndarray]) -> list[Any] | None:
        if self.link is None:
            ours, theirs = multiprocessing.get_context("spawn").Pipe()
            self.process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
            self.link = ours
        try:
            self.link.send((data, feeds))
            found: list[Any] | None = self.link.recv() if self.link.poll(30) else None
            return found
        except (EOFError, OSError):
            self.link = None
            return None


@pytest.mark.slow
def test_mutants_that_run_here_and_there_agree() -> None:
    """Answers are compared coarsely, and only of samples of which both say the same: what counts is which elements were read."""
    pytest.importorskip("onnxruntime")
    witness, chance, both, refused = Witness(), Random(53), 0, 0
    for _ in range(400):
        op, sample = CASES[chance.randrange(len(CASES))]
        node, operands = mutated(op, sample, chance)
        model, feeds = model_of(node, operands)
        mine, theirs = answers(model, feeds), witness.ask(model.SerializeToString(), feeds)
        refused += mine is None
        if mine is None or theirs is None:
            continue
        both += 1
        label = (node, [None if a is None else a.shape for a in operands])
        assert [a.shape for a in mine] == [a.shape for a in theirs], label
        if not _close(mine, theirs):
            model, feeds = model_of(node_of(op, sample, operands_of(sample)), operands_of(sample))
            first, wanted = answers(model, feeds), witness.ask(model.SerializeToString(), feeds)
            assert first is None or wanted is None or not _close(first, wanted), label
    assert both > 100
    assert refused > 50


def answers(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """What a model gives; None when it is refused in a sentence."""
    try:
        found: list[np.ndarray] = fusewise.compile(model, cache=False, threads=1).run(None, feeds)
    except FusewiseError as error:
        if error.exit_status == 1:
            raise
        return None
    return found


def _close(mine: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    return all(_alike(a, b) for a, b in zip(mine, wanted, strict=True))


def _alike(mine: np.ndarray, wanted: np.ndarray) -> bool:
    loose = 3e-2 if mine.dtype.itemsize < 4 else 1e-3
    pair = (np.asarray(a).astype(np.float64) for a in (mine, wanted))
    return bool(np.allclose(*pair, rtol=loose, atol=loose, equal_nan=True))
