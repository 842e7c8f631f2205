"""One program for every size: plans for each, kept while they come back; sizes that contradict each other, or are too large."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.runtime.free_programs import answers, feeds, free_program

from fusewise.errors import UsageError
from fusewise.runtime.executable import Executable, build
from fusewise.runtime.program_json import program_from_json, program_to_json

SIZES = [(1, 1), (1, 8), (2, 9), (3, 7), (0, 5), (1, 17), (5, 101), (2, 64), (1, 1)]


def check(model: Executable, batch: int, sequence: int) -> None:
    given = feeds(batch, sequence)
    for found, wanted in zip(model.run(None, given), answers(given), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("workers", [1, 2])
def test_every_size(threads: int, workers: int) -> None:
    model = build(free_program(workers=workers), threads=threads)
    for batch, sequence in SIZES:
        check(model, batch, sequence)


def test_ports_have_names_for_free_dimensions() -> None:
    model = build(free_program())
    assert [port.shape for port in model.get_inputs()] == [("batch", "sequence", 4), ("batch", "sequence")]
    assert model.get_outputs()[1].shape == ("batch*sequence - batch", 4)


@pytest.mark.parametrize(
    "x, mask, sentence",
    [
        ((2, 3, 4), (2, 5), "dimension 'sequence' is 3 in axis 1 of input 'x' and 5 in axis 1 of input 'mask'"),
        ((2, 3, 5), (2, 3), "input 'x': expected shape batchxsequencex4, found 2x3x5"),
        ((2, 3), (2, 3), "input 'x': expected shape batchxsequencex4, found 2x3"),
        (
            (2, 0, 4),
            (2, 0),
            "dimension 'sequence' is 0 in axis 1 of input 'x', and the model was compiled for 1 to 4096",
        ),
        ((1, 13, 4), (1, 13), "cannot take 13 tokens"),
    ],
)
def test_sizes_that_do_not_fit(x: tuple[int, ...], mask: tuple[int, ...], sentence: str) -> None:
    model = build(free_program())
    with pytest.raises(UsageError) as error:
        model.run(None, {"x": np.zeros(x, np.float32), "mask": np.zeros(mask, np.float32)})
    assert sentence in str(error.value)
    check(model, 2, 3)


def test_many_threads_with_different_sizes() -> None:
    model = build(free_program())
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for k in range(30):
                check(model, 1 + (number + k) % 5, 1 + (number * 7 + k * 3) % 12)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_the_same_after_a_file() -> None:
    program = free_program()
    found = program_from_json(program_to_json(program))
    assert str(program_to_json(found)) == str(program_to_json(program))
