"""The model of the caches: against another one in Python, against what can be counted by hand, and what must hold of any."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.benchmarking.caches import CacheLevel, Caches, Counts, host_levels, parsed_levels
from fusewise.codegen.llvm.traced import LOAD, PREFETCH, STORE
from fusewise.codegen.target import LINE_BYTES
from fusewise.errors import UsageError
from fusewise.runtime.arena import address_of
from fusewise.runtime.host import host_target
from fusewise.runtime.jit import compile_object, load

DRIVE = """
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctlz.i64(i64, i1)

define void @drive(ptr %rows, i64 %count) {
entry:
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %told ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %told, label %done
told:
  %word = mul i64 %k, 3
  %row = getelementptr i64, ptr %rows, i64 %word
  %bytes.at = getelementptr i64, ptr %row, i64 1
  %kind.at = getelementptr i64, ptr %row, i64 2
  %address = load ptr, ptr %row
  %nbytes = load i64, ptr %bytes.at
  %kind = load i64, ptr %kind.at
  call void @fw.touch(ptr %address, i64 %nbytes, i64 1, i64 %kind)
  %next = add i64 %k, 1
  br label %look
done:
  ret void
}
"""

Access = tuple[int, int, int]
"""Address, bytes, kind."""


class Driven:
    """Caches that are told of accesses by a list."""

    def __init__(self, levels: list[CacheLevel], workers: int = 1) -> None:
        self.caches = Caches(levels, workers)
        self._library = load([compile_object(DRIVE + self.caches.listener, host_target(), "bare")], ["drive"])

    def tell(self, accesses: list[Access], worker: int = 0) -> Counts:
        """What is counted in all, after these."""
        rows = np.array(accesses, np.int64).reshape(-1, 3)
        self.caches.use(worker)
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(self._library.addresses["drive"])
        call(address_of(rows), len(rows))
        return self.caches.counts


def expected(levels: list[CacheLevel], accesses: list[Access]) -> Counts:
    """The same by ordered dictionaries: a set's lines from the one used longest ago to the newest."""
    sets: list[dict[int, OrderedDict[int, None]]] = [{} for _ in levels]
    counts, nbytes = [0, 0, 0], [0, 0, 0]
    missed = [[0, 0] for _ in levels]
    for address, size, kind in accesses:
        if size <= 0:
            continue
        counts[min(kind, PREFETCH)] += 1
        nbytes[min(kind, PREFETCH)] += size
        first = min(max(0, kind - PREFETCH), len(levels) - 1)
        for line in range(address // LINE_BYTES, (address + size - 1) // LINE_BYTES + 1):
            for k in range(first, len(levels)):
                held = sets[k].setdefault(line % levels[k].sets, OrderedDict())
                hit = line in held
                held.pop(line, None)
                held[line] = None
                if hit:
                    break
                missed[k][kind >= PREFETCH] += 1
                if len(held) > levels[k].ways:
                    held.popitem(last=False)
    return Counts(*counts, *nbytes[:2], tuple(m for m, _ in missed), tuple(f for _, f in missed))


geometries = st.tuples(st.integers(1, 5), st.integers(1, 4)).map(
    lambda size: CacheLevel("L", size[0] * size[1] * LINE_BYTES, size[1])
)
traces = st.lists(
    st.tuples(st.integers(1, 40 * LINE_BYTES), st.integers(0, 3 * LINE_BYTES), st.integers(LOAD, PREFETCH + 3)),
    max_size=120,
)


@settings(deadline=None, max_examples=60)
@given(st.lists(geometries, min_size=1, max_size=4), traces)
def test_it_counts_as_another_model_does(levels: list[CacheLevel], accesses: list[Access]) -> None:
    assert Driven(levels).tell(accesses) == expected(levels, accesses)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), traces)
def test_more_ways_in_as_many_sets_never_miss_more(sets: int, ways: int, more: int, accesses: list[Access]) -> None:
    few = Driven([CacheLevel("L", sets * ways * LINE_BYTES, ways)]).tell(accesses)
    many = Driven([CacheLevel("L", sets * (ways + more) * LINE_BYTES, ways + more)]).tell(accesses)
    assert many.lines(0) <= few.lines(0)


@settings(deadline=None, max_examples=30)
@given(geometries, geometries, traces)
def test_a_level_is_asked_for_what_the_one_before_lacks(
    near: CacheLevel, far: CacheLevel, accesses: list[Access]
) -> None:
    accesses = [access for access in accesses if access[2] <= PREFETCH]  # none begins at the second level
    found = Driven([near, far]).tell(accesses)
    assert found.lines(1) <= found.lines(0)
    touched = {
        line for a, size, _ in accesses if size for line in range(a // LINE_BYTES, (a + size - 1) // LINE_BYTES + 1)
    }
    assert found.lines(1) >= len(touched)


def pass_over(lines: int, kind: int = LOAD) -> list[Access]:
    return [(LINE_BYTES * (100 + k), LINE_BYTES, kind) for k in range(lines)]


def test_what_fits_is_fetched_once_and_what_does_not_every_time() -> None:
    level = CacheLevel("L1", 32 * LINE_BYTES, 4)
    fits = Driven([level])
    assert fits.tell(pass_over(32)).misses == (32,)
    assert fits.tell(pass_over(32, STORE)).misses == (32,)
    too_long = Driven([level])
    too_long.tell(pass_over(64))
    assert too_long.tell(pass_over(64)).misses == (128,)


def test_an_access_may_lie_in_two_lines_and_neighbours_share_one() -> None:
    driven = Driven([CacheLevel("L1", 32 * LINE_BYTES, 4)])
    assert driven.tell([(640 + 60, 8, LOAD)]) == Counts(1, 0, 0, 8, 0, (2,), (0,))
    assert driven.tell([(640 + 4 * k, 4, STORE) for k in range(32)]) == Counts(1, 32, 0, 8, 128, (2,), (0,))


def test_a_prefetch_spares_the_load_its_miss() -> None:
    driven = Driven([CacheLevel("L1", 4 * LINE_BYTES, 4), CacheLevel("L2", 64 * LINE_BYTES, 4)])
    found = driven.tell([(640, 1, PREFETCH), (640, 4, LOAD), (6400, 1, PREFETCH + 1), (6400, 4, LOAD)])
    assert (found.misses, found.fetched) == ((1, 0), (1, 2))


def test_workers_have_levels_of_their_own_and_share_others() -> None:
    own = Driven([CacheLevel("L1", 32 * LINE_BYTES, 4), CacheLevel("L3", 64 * LINE_BYTES, 4, shared=True)], workers=2)
    own.tell(pass_over(16), worker=0)
    assert own.tell(pass_over(16), worker=1).misses == (32, 16)
    own.caches.clear()
    assert own.tell(pass_over(16), worker=0).misses == (0, 0)
    with pytest.raises(IndexError):
        own.caches.use(2)


def described(root: Path, rows: list[tuple[int, str, str, str, str]]) -> Path:
    cpu = root / "sys/devices/system/cpu/cpu0"
    (cpu / "topology").mkdir(parents=True)
    (cpu / "topology/thread_siblings_list").write_text("0,4\n")
    for number, (level, kind, size, ways, shared) in enumerate(rows):
        index = cpu / f"cache/index{number}"
        index.mkdir(parents=True)
        for name, text in (("level", str(level)), ("type", kind), ("size", size), ("ways_of_associativity", ways)):
            (index / name).write_text(text + "\n")
        (index / "shared_cpu_list").write_text(shared + "\n")
    return root


def test_levels_are_what_the_system_describes(tmp_path: Path) -> None:
    rows = [
        (1, "Data", "48K", "12", "0,4"),
        (1, "Instruction", "32K", "8", "0,4"),
        (2, "Unified", "2048K", "16", "0,4"),
        (3, "Unified", "36M", "0", "0-7"),
        (4, "Unified", "much", "16", "0-7"),
    ]
    assert host_levels(described(tmp_path, rows)) == (
        CacheLevel("L1", 48 << 10, 12),
        CacheLevel("L2", 2 << 20, 16),
        CacheLevel("L3", 36 << 20, (36 << 20) // LINE_BYTES, shared=True),
    )


def test_where_the_system_describes_none_they_are_as_the_compiler_plans(tmp_path: Path) -> None:
    target = host_target()
    assert [level.nbytes for level in host_levels(tmp_path)] == [target.l1_bytes, target.l2_bytes, target.l3_bytes]
    assert all(level.sets >= 1 for level in host_levels())


def test_levels_may_be_written() -> None:
    assert parsed_levels("64K:4, 512K:8,4M:16") == (
        CacheLevel("L1", 64 << 10, 4),
        CacheLevel("L2", 512 << 10, 8),
        CacheLevel("L3", 4 << 20, 16, shared=True),
    )


@pytest.mark.parametrize(
    "text",
    ["", "64K", "64K:0", "0:4", "64:4", "64K:4,", "2G:4", "2000M:4", "x:4", "-1K:4", ",".join(["64K:4"] * 5)],
)
def test_what_is_no_cache_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="cache"):
        parsed_levels(text)


@given(st.text(alphabet="0123456789KMG:,- ", max_size=30))
def test_any_other_text_is_caches_or_an_error(text: str) -> None:
    try:
        found = parsed_levels(text)
    except UsageError:
        return
    assert found
    assert all(level.sets * level.ways * LINE_BYTES <= level.nbytes for level in found)
