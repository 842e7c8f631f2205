"""The description of the machine, read from files that a test can write."""

import os

import pytest

from fusewise.errors import ResourceLimit, UsageError
from fusewise.runtime import host


@pytest.mark.parametrize(
    "triple, flags, bits, registers, fma",
    [
        ("x86_64-unknown-linux-gnu", {"avx512f", "avx512vl", "avx512dq", "avx512bw", "avx2", "fma"}, 512, 32, True),
        ("x86_64-unknown-linux-gnu", {"avx512f", "avx512dq", "avx512bw", "avx2", "fma"}, 256, 16, True),
        ("x86_64-unknown-linux-gnu", {"avx2", "fma"}, 256, 16, True),
        ("x86_64-unknown-linux-gnu", {"avx2"}, 128, 16, False),
        ("x86_64-unknown-linux-gnu", set(), 128, 16, False),
        ("aarch64-unknown-linux-gnu", {"neon"}, 128, 32, True),
        ("arm64-apple-darwin", set(), 128, 32, True),
    ],
)
def test_vector_unit(triple, flags, bits, registers, fma):
    target = host.target_of(triple, "cpu", flags)
    assert (target.vector_bits, target.registers, target.fma) == (bits, registers, fma)


def test_what_is_known_of_a_processor_by_its_name():
    flags = {"avx512f", "avx512vl", "avx512dq", "avx512bw", "avx2", "fma"}
    zen, rapids, other, later = (
        host.target_of("x86_64-unknown-linux-gnu", cpu, flags)
        for cpu in ("znver4", "emeraldrapids", "skylake-avx512", "znver5")
    )
    assert [target.multiplies(512) for target in (zen, rapids, other)] == [1, 2, 2]
    assert [target.adds_apart for target in (zen, rapids, other)] == [True, False, True]
    assert rapids.figures.overhead.load > zen.figures.overhead.load == other.figures.overhead.load
    assert later.figures.overhead.fourth > zen.figures.overhead.fourth == other.figures.overhead.fourth == 0


def test_this_machine():
    target = host.host_target()
    assert target.cpu
    assert target.lanes in (4, 8, 16)
    assert 4096 <= target.l1_bytes <= target.l2_bytes
    assert target is host.host_target()


def written(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_what_the_system_says_of_the_processor(tmp_path):
    one = "processor : {0}\nvendor_id : Maker\ncpu family : 25\nmodel : 1\nmodel name : A : B\nflags : fma avx2\ncpu MHz : {0}\n"
    first, second = (
        host.processor(written(tmp_path / str(k), {"proc/cpuinfo": one.format(k) + "\n" + one.format(8)}))
        for k in (1, 2)
    )
    assert first == second
    assert first.endswith("; Maker; 25; 1; fma avx2")
    assert host.processor(written(tmp_path / "a", {"proc/cpuinfo": one.replace("fma", "sse")})) not in ("", first)
    assert host.processor(written(tmp_path / "b", {"proc/cpuinfo": one.replace("flags", "other")})) == ""
    assert host.processor(tmp_path / "nowhere") == ""


def test_tiles_are_none_where_the_system_refuses_them(monkeypatch, tmp_path):
    """Neither for code that is made here, nor for code that was made where they were permitted."""
    line = "vendor_id : Maker\ncpu family : 6\nmodel : 143\nflags : avx2 amx_bf16 amx_tile\n"
    root = written(tmp_path, {"proc/cpuinfo": line})
    found = {"avx2": True, "amx-tile": True, "amx-bf16": True, "amx-fp16": False}
    said = {}
    for permits in (True, False):
        monkeypatch.setattr(host, "permits_tiles", lambda permits=permits: permits)
        assert host._permitted(found) == {**found, "amx-tile": permits, "amx-bf16": permits}
        said[permits] = host.processor(root)
    assert said[True] == said[False].replace("no tiles", "tiles") != said[False]


def test_nobody_is_asked_for_tiles_that_there_are_not(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "permits_tiles", lambda: pytest.fail("is asked"))
    assert host._permitted({"avx2": True, "amx-tile": False}) == {"avx2": True, "amx-tile": False}
    host.processor(written(tmp_path, {"proc/cpuinfo": "vendor_id : M\ncpu family : 6\nmodel : 1\nflags : avx2\n"}))


def test_cache_sizes(tmp_path):
    folder = "sys/devices/system/cpu/cpu0/cache"
    found = {
        f"{folder}/index0/level": "1",
        f"{folder}/index0/type": "Data",
        f"{folder}/index0/size": "48K",
        f"{folder}/index1/level": "1",
        f"{folder}/index1/type": "Instruction",
        f"{folder}/index1/size": "32K",
        f"{folder}/index2/level": "2",
        f"{folder}/index2/type": "Unified",
        f"{folder}/index2/size": "2M",
        f"{folder}/index4/level": "4",
        f"{folder}/index4/type": "Unified",
        f"{folder}/index4/size": "1G",
        f"{folder}/index5/size": "rubbish",
    }
    assert host.cache_bytes(written(tmp_path, found)) == {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20}
    assert host.cache_bytes(tmp_path / "nowhere") == {}


@pytest.fixture
def sixteen(monkeypatch, tmp_path):
    """A machine with 8 cores of two threads each, all allowed."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    siblings = {
        f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"{cpu % 8},{cpu % 8 + 8}"
        for cpu in range(16)
    }
    return written(tmp_path, siblings)


def test_workers_are_physical_cores(sixteen):
    assert host.worker_count(root=sixteen) == 8


def test_workers_respect_affinity(sixteen, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 8, 3})
    assert host.worker_count(root=sixteen) == 2


@pytest.mark.parametrize(
    "files, expected",
    [
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/cpu.max": "200000 100000",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
            },
            2,
        ),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "50000 100000"}, 1),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "350000 100000"}, 3),
        ({"proc/self/cgroup": "0::/seen/from/outside", "sys/fs/cgroup/cpu.max": "300000 100000"}, 3),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, 8),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/box\n3:memory:/box",
                "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "400000",
                "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            8,
        ),
        ({"proc/self/cgroup": "rubbish"}, 8),
    ],
)
def test_workers_respect_the_quota(sixteen, files, expected):
    assert host.worker_count(root=written(sixteen, files)) == expected


def test_requested_workers():
    assert host.worker_count(5) == 5
    for wrong in (0, -1, 257):
        with pytest.raises(UsageError, match=f"not {wrong}"):
            host.worker_count(wrong)


@pytest.mark.parametrize(
    "files, expected",
    [
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/memory.max": "1000",
                "sys/fs/cgroup/a/b/memory.max": "max",
            },
            1000,
        ),
        ({"proc/self/cgroup": "9:memory:/a", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "2000"}, 2000),
    ],
)
def test_memory_limit_of_a_container(tmp_path, files, expected):
    assert host.memory_limit(written(tmp_path, files)) == expected


def test_memory_limit_without_a_container(tmp_path):
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert host.memory_limit(tmp_path) == physical
    unlimited = {"proc/self/cgroup": "9:memory:/", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}
    assert host.memory_limit(written(tmp_path, unlimited)) == physical


def test_limit_on_memory():
    host.check_memory(80, "it", limit_bytes=100)
    with pytest.raises(ResourceLimit, match="the arena would take 4.8 MiB, more than 80% .*\\(3.8 MiB\\)"):
        host.check_memory(5_000_000, "the arena", limit_bytes=5_000_000)
    with pytest.raises(ResourceLimit):
        host.check_memory(1 << 60, "it")
