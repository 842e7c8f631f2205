"""In how many pieces a step is dealt out."""

from dataclasses import replace

import numpy as np
import pytest

import fusewise
from fusewise.codegen.llvm.share import LEAST_PIECES, MOST_PIECES, pieces_of
from fusewise.codegen.machine.figures import MeasuredFigures
from fusewise.codegen.target import Target
from fusewise.lower.program import NativeStep

CYCLES = MeasuredFigures().sharing.piece_cycles


@pytest.mark.parametrize("workers", [2, 3, 64])
def test_pieces_are_few_enough_to_be_long(target: Target, workers: int) -> None:
    several = replace(target, workers=workers)
    each = 10 * CYCLES * workers
    assert pieces_of(10**6, each, several) == 10
    assert pieces_of(10**6, 100 * each, several) == MOST_PIECES
    assert pieces_of(7 * workers + 1, 100 * each, several) == 7, "a piece of less than a unit is nothing"


def test_short_steps_and_one_worker_have_no_pieces(target: Target) -> None:
    two = replace(target, workers=2)
    assert pieces_of(10**6, 2 * (LEAST_PIECES * CYCLES) - 1, two) == 1
    assert pieces_of(2 * LEAST_PIECES - 1, 10**9, two) == 1
    assert pieces_of(10**6, 10**9, replace(target, workers=1)) == 1


def test_pieces_are_whole_where_they_can_be(target: Target) -> None:
    two = replace(target, workers=2)
    assert pieces_of(10**6, 10**9, two, 96) == 48
    assert pieces_of(10**6, 10**9, two, 97) == MOST_PIECES
    assert pieces_of(10**6, 10**9, two, 2 * (LEAST_PIECES - 1)) == MOST_PIECES, "too few of them"


def test_answers_are_those_of_one_worker() -> None:
    """Many runs of a model whose steps are in pieces: whoever does a piece, it comes to the same."""
    model = {threads: fusewise.compile("zoo:squeezenet1_1", threads=threads) for threads in (1, 2, 3)}
    program = model[2].executable.contents.program
    steps = [step for step in program.steps if isinstance(step, NativeStep)]
    assert sum(step.pieces > 1 for step in steps) > len(steps) // 2
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    feeds = {model[1].get_inputs()[0].name: image}
    for threads in (2, 3):
        first = model[threads].run(None, feeds)[0].tobytes()
        assert all(model[threads].run(None, feeds)[0].tobytes() == first for _ in range(30))
    np.testing.assert_allclose(model[2].run(None, feeds)[0], model[1].run(None, feeds)[0], rtol=1e-4, atol=1e-6)
