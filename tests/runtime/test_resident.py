"""Memory made resident ahead of use: what is had, and what goes back."""

from __future__ import annotations

import mmap
import threading

import numpy as np
import pytest

from fusewise import api
from fusewise.runtime import expected as estimate
from fusewise.runtime import resident as residence
from fusewise.runtime.arena import address_of
from fusewise.runtime.resident import Resident

MEGABYTE = 1024 * 1024


def running() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "fusewise-resident"]


def test_what_is_taken_is_aligned_apart_and_can_be_written():
    with Resident() as resident:
        resident.start(5 * MEGABYTE)
        blocks = [resident.take(nbytes) for nbytes in (MEGABYTE, 100, 0, 3)]
        assert resident.left == 4 * MEGABYTE - 128 - 64
    assert [block.nbytes for block in blocks] == [MEGABYTE, 100, 0, 3]
    assert not any(block.any() for block in blocks)
    for value, block in enumerate(blocks):
        assert not block.nbytes or address_of(block) % 64 == 0
        block[:] = value + 1
    assert [set(block.tolist()) for block in blocks] == [{1}, {2}, set(), {4}]


def test_what_does_not_fit_is_new_and_smaller_ones_still_fit():
    with Resident() as resident:
        resident.start(5 * MEGABYTE)
        large = resident.take(6 * MEGABYTE)
        assert resident.left == 5 * MEGABYTE
        resident.take(5 * MEGABYTE)
        assert resident.left == 0
    large[:] = 1
    assert large.nbytes == 6 * MEGABYTE
    assert address_of(large) % 64 == 0


def test_what_was_taken_stays_and_the_rest_goes_back():
    with Resident() as resident:
        resident.start(8 * MEGABYTE)
        taken = resident.take(3 * MEGABYTE + 1)
        whole = resident._block  # what nobody can reach otherwise
        whole[:] = 7
    pages = 3 * MEGABYTE + mmap.PAGESIZE
    assert (taken == 7).all()
    assert (whole[:pages] == 7).all()
    assert not whole[pages:].any()  # given back, it is found anew and empty


def test_all_of_it_may_be_taken():
    with Resident() as resident:
        resident.start(4 * MEGABYTE)
        taken = resident.take(4 * MEGABYTE)
        taken[:] = 7
    assert taken.min() == 7


@pytest.mark.parametrize("nbytes", [0, MEGABYTE, 1 << 60])
def test_nothing_is_taken_where_it_is_not_worth_it_or_too_much(nbytes):
    with Resident() as resident:
        resident.start(nbytes)
        assert not running()
        assert resident.left == 0
        assert resident.take(100).nbytes == 100


def test_a_system_that_has_no_memory_is_no_failure(monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(residence.mmap, "mmap", refused)
    with Resident() as resident:
        resident.start(8 * MEGABYTE)
        assert resident.left == 0
        assert resident.take(100).nbytes == 100


def test_the_thread_ends_with_its_owner(monkeypatch):
    monkeypatch.setattr(residence, "_AT_ONCE", mmap.PAGESIZE)

    def planned() -> None:
        with Resident() as resident:
            resident.start(256 * MEGABYTE)
            resident.start(512 * MEGABYTE)  # once is enough
            assert len(running()) <= 1
            raise RuntimeError("planning failed")

    with pytest.raises(RuntimeError, match="planning failed"):
        planned()
    assert not running()


@pytest.mark.parametrize("room", [0, 5 * MEGABYTE, 1024 * MEGABYTE])
def test_a_model_computes_the_same_wherever_its_memory_lies(room, monkeypatch):
    monkeypatch.setattr(estimate, "expected_bytes", lambda graph: room)
    model = api.compile("zoo:squeezenet1_1", cache=False)
    feeds = model.random_inputs()
    here = api.compile(api.load("zoo:squeezenet1_1"), cache=False, threads=1, exact=True)
    (found,), (expected,) = model.run(None, feeds), here.run(None, feeds)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
