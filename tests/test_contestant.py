"""This program as `bench` opens it: sizes that may have a program of their own have it before anything is timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.test_specializing import fed, network

from fusewise.benchmarking.peers import Subject
from fusewise.contestant import open_session


@pytest.mark.parametrize("most", [0, 1])
def test_a_size_has_its_program_after_the_first_run(tmp_path: Path, most: int) -> None:
    path = tmp_path / "network.onnx"
    path.write_bytes(network().SerializeToString())
    session = open_session(Subject(path, ("x",), None, {"specialize": most, "cache": False}), 1)
    answers = session.run(fed(2, 9))
    figures = session.model.specialized
    assert (0 if figures is None else figures["made"]) == most
    for found, wanted in zip(session.run(fed(2, 9)), answers, strict=True):
        np.testing.assert_array_equal(found, wanted)
