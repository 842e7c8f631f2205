"""The collector of cycles waits, and goes on as it was."""

from __future__ import annotations

import gc

import pytest

from fusewise import compile as compiled
from fusewise.runtime.collection import uncollected


@pytest.fixture(autouse=True)
def _restored():
    yield
    gc.enable()


@pytest.mark.parametrize("before", [True, False])
def test_it_is_left_as_it_was(before):
    (gc.enable if before else gc.disable)()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled() is before


def test_it_goes_on_after_an_error():
    with pytest.raises(ValueError, match="planning failed"), uncollected():
        raise ValueError("planning failed")
    assert gc.isenabled()


def test_compiling_leaves_it_on_and_so_does_failing():
    compiled("zoo:mobilenet_v3_small", cache=False)
    assert gc.isenabled()
    with pytest.raises(Exception, match="no_such"):
        compiled("zoo:no_such", cache=False)
    assert gc.isenabled()
