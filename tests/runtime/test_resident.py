"""Memory made resident ahead of use: what is had, what goes back, and what a model is expected to need."""

from __future__ import annotations

import mmap
import threading

import numpy as np
import pytest

from fusewise import api
from fusewise.ir.graph import Constant
from fusewise.runtime import resident as residence
from fusewise.runtime.arena import address_of
from fusewise.runtime.resident import Resident, weight_bytes

MEGABYTE = 1024 * 1024


def running() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "fusewise-resident"]


def test_a_block_is_zero_aligned_and_can_be_written():
    with Resident() as resident:
        resident.start(5 * MEGABYTE)
        block = resident.block()
    assert block.nbytes == 5 * MEGABYTE
    assert address_of(block) % mmap.PAGESIZE == 0
    assert not block.any()
    block[:] = 7
    assert block.min() == 7


def test_what_is_kept_stays_and_the_rest_goes_back():
    with Resident() as resident:
        resident.start(8 * MEGABYTE)
        block = resident.block()
        block[:] = 7
        resident.keep(3 * MEGABYTE + 1)
    whole = 3 * MEGABYTE + mmap.PAGESIZE
    assert (block[:whole] == 7).all()
    assert not block[whole:].any()  # given back, it is found anew and empty


def test_keeping_all_changes_nothing():
    with Resident() as resident:
        resident.start(4 * MEGABYTE)
        block = resident.block()
        block[:] = 7
        resident.keep(block.nbytes)
    assert block.min() == 7


@pytest.mark.parametrize("nbytes", [0, MEGABYTE, 1 << 60])
def test_nothing_is_taken_where_it_is_not_worth_it_or_too_much(nbytes):
    with Resident() as resident:
        resident.start(nbytes)
        assert not running()
        assert resident.block().nbytes == 0
        resident.keep(0)


def test_a_system_that_has_no_memory_is_no_failure(monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(residence.mmap, "mmap", refused)
    with Resident() as resident:
        resident.start(8 * MEGABYTE)
        assert resident.block().nbytes == 0


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


def test_weights_of_products_and_convolutions_are_expected():
    graph = api.load("zoo:mobilenet_v2")
    expected = sum(
        constant.array.nbytes
        for constant in graph.constants.values()
        if isinstance(constant, Constant) and constant.array.ndim >= 2 and constant.array.dtype == np.float32
    )
    assert weight_bytes(graph) == expected


def test_indexed_tables_are_not_expected():
    graph = api.load("zoo:distilbert")
    words = 30522 * 768 * 4
    constants = sum(constant.type.nbytes for constant in graph.constants.values())
    assert 160e6 < weight_bytes(graph) < constants - words + 1e6
