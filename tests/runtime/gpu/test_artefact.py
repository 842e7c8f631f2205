"""Models for a GPU as files: the same program comes back, without Triton and without a GPU, and nothing of it is believed."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.gpu.kernels import needs_triton
from tests.runtime.gpu.programs import COUNT, DIAMOND, expected, program_of, vectors
from tests.runtime.gpu.sharing import share

from fusewise.codegen.gpu.program import GpuBuffer, GpuProgram, GpuStep, check_program
from fusewise.compiled import Model, open_compiled
from fusewise.errors import FusewiseError, InvalidModel, ResourceLimit, UsageError
from fusewise.ir.graph import Constant
from fusewise.lower.program import DataPosition, HostStep, Packing, Place
from fusewise.runtime import container
from fusewise.runtime.gpu import artefact, drivers
from fusewise.runtime.gpu.driver import Cubin, NoDriver, WrongArchitecture
from fusewise.runtime.gpu.executable import GpuExecutable
from fusewise.runtime.gpu.fake import FakeDriver
from fusewise.runtime.gpu.program_json import cubin_to_json, gpu_program_from_json, gpu_program_to_json
from fusewise.runtime.gpu.runner import GpuContents, GpuRunner, packed
from fusewise.runtime.gpu.sound import check_file
from fusewise.version import VERSION

W = vectors("w", seed=9)
LINES = [*DIAMOND, ("h", "Relu", ("f",)), ("g", "neg", ("h",))]
FEEDS = vectors("x", "y")


def cubin_of(symbol: str, parameters: int) -> Cubin:
    """Figures and an image that no GPU is given."""
    return Cubin(symbol, "sm_90a", b"\x7fELF" + symbol.encode(), 32, 0, 0, 0, 128, parameters, 2)


def contents_of(program: GpuProgram) -> GpuContents:
    return GpuContents(packed(program), tuple(cubin_of(one.symbol, len(one.arguments)) for one in program.kernels))


def program() -> GpuProgram:
    """With a constant, a host step between launches, and a constant that is packed."""
    plain = program_of(LINES, ["x", "y"], ["g", "d"], W)
    reverse = Packing("reversed", lambda array: np.ascontiguousarray(array[::-1]))
    buffers = tuple(
        replace(one, data=Constant(W["w"][::-1].copy()), packing=reverse) if one.kind == "constant" else one
        for one in plain.buffers
    )
    return replace(plain, buffers=buffers, opsets=(("", 22),), objects=(("o", np.arange(3)),))


def model() -> Model:
    runner = GpuRunner(contents_of(program()), lambda: drivers.opened("cuda"))
    return Model(runner, None, {"compile_ms": 1.0, "host_steps": 1, "symbols": []}, {"x": None, "y": None})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model().save(tmp_path / "m.fw")
    return tmp_path / "m.fw"


@needs_triton
def test_the_same_answers_from_a_file(saved, device, monkeypatch):
    opened = share(monkeypatch, device)
    wanted = expected(LINES, FEEDS, W)
    with open_compiled(saved) as found:
        assert len(opened) == 1, "it is loaded when it is opened"
        g, d = found.run(None, FEEDS)
        np.testing.assert_array_equal(g, wanted["g"])
        np.testing.assert_array_equal(found(FEEDS["x"], FEEDS["y"])[1], d)
        assert found.device == "cuda:sm_90"
        assert found.random_inputs()["x"].shape == (COUNT,)
        assert [port.name for port in found.get_outputs()] == ["g", "d"]
        assert "Model for cuda:sm_90: kernels 3, launches 7" in repr(found)
        again = pickle.loads(pickle.dumps(found))
        np.testing.assert_array_equal(again.run(["d"], FEEDS)[0], d)
        again.close()
    assert all(one.is_closed for one in opened)
    with pytest.raises(UsageError, match="closed"):
        found.run(None, FEEDS)


@needs_triton
def test_arrays_of_the_caller(saved, device, monkeypatch):
    share(monkeypatch, device)
    wanted = expected(LINES, FEEDS, W)
    with open_compiled(saved, device="cuda:1") as found:
        (there,) = found.run_on_device(["g"], FEEDS)
        target, g = np.zeros(COUNT, np.float32), there.numpy()
        given_back, new = found.run_into(FEEDS, {"d": target, "g": None})
        assert given_back is target
        np.testing.assert_array_equal(target, wanted["d"])
        np.testing.assert_array_equal(new, g)
        for wrong, words in ((np.zeros(COUNT), "not of float64"), (np.zeros(3, np.float32), "has the shape")):
            with pytest.raises(UsageError, match=words):
                found.run_into(FEEDS, {"d": wrong})
        with pytest.raises(UsageError, match="needs a model for a CPU, and this one is for cuda:sm_90"):
            found.bind_cache(8)


@needs_triton
def test_tensors_of_pytorch(saved, device, monkeypatch):
    torch = pytest.importorskip("torch")
    share(monkeypatch, device)
    with open_compiled(saved) as found:
        g, d = found(torch.from_numpy(FEEDS["x"]), y=torch.from_numpy(FEEDS["y"]).requires_grad_())
    assert isinstance(g, torch.Tensor) and isinstance(d, torch.Tensor)
    np.testing.assert_array_equal(d.numpy(), expected(LINES, FEEDS, W)["d"])


@pytest.mark.parametrize("architecture", ["none", "sm_80", "sm_100"])
def test_without_its_gpu_a_file_can_be_looked_at(saved, monkeypatch, architecture):
    share(monkeypatch, None if architecture == "none" else FakeDriver(architecture), architecture)
    with open_compiled(saved) as found:
        assert found.summary["launches"] == 7 and found.summary["constant_bytes"] == 512
        kind, words = (
            (NoDriver, "no driver") if architecture == "none" else (WrongArchitecture, "compile the model for")
        )
        with pytest.raises(kind, match=words):
            found.run(None, FEEDS)
        found.save(saved.with_name("again.fw"))
        with open_compiled(saved.with_name("again.fw")) as again:
            assert gpu_program_to_json(again.runs.program) == gpu_program_to_json(found.runs.program) == STATED


def test_devices_that_it_is_not_for(saved):
    for text in ("cpu", "cuda:sm_80"):
        with pytest.raises(UsageError, match=f"compiled for cuda:sm_90, not for {text}"):
            open_compiled(saved, device=text)
    with pytest.raises(ResourceLimit, match="more than the 100 allowed"):
        open_compiled(saved, memory_limit=100)


def test_neither_triton_nor_a_driver_is_loaded(saved):
    script = (
        "import sys, fusewise; fusewise.open_compiled(sys.argv[1]); "
        "print(*(name for name in ('triton', 'torch', 'onnx', 'llvmlite') if name in sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", script, saved], capture_output=True, text=True, check=True).stdout
    assert not told.split()


@pytest.mark.parametrize("share_of", [0.0, 0.3, 0.9])
def test_a_file_cut_short(saved, share_of):
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(len(whole) * share_of)])
    with pytest.raises(InvalidModel):
        open_compiled(saved)


def test_a_changed_byte(saved):
    whole = saved.read_bytes()
    for at in np.random.default_rng(0).integers(0, len(whole), 40):
        saved.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(FusewiseError):
            open_compiled(saved).run(None, {})


# --- what a file states is checked ----------------------------------------------------------------------------------------

CONTENTS = contents_of(program())
STATED = gpu_program_to_json(CONTENTS.program)
BLOCKS = {k: one.data.array for k, one in enumerate(CONTENTS.program.buffers) if one.data is not None}
SIZES = {number: block.nbytes for number, block in BLOCKS.items()}


def test_what_was_made_here_is_sound():
    again = gpu_program_from_json(copy.deepcopy(STATED), BLOCKS)
    check_file(again, CONTENTS.cubins, SIZES)
    assert gpu_program_to_json(again) == STATED
    assert again.edges == CONTENTS.program.edges
    assert replace(again, buffers=()) == replace(CONTENTS.program, buffers=())


def test_ranges_with_gaps_are_kept():
    """Without them steps that write beside each other would wait."""
    step = CONTENTS.program.steps[0]
    gaps = replace(step, reads=tuple(replace(one, period=8, width=4) for one in step.reads))
    before = replace(CONTENTS.program, steps=(gaps,))
    assert gpu_program_from_json(gpu_program_to_json(before), BLOCKS).steps == (gaps,)


def _with(part: str, **changes: Any) -> Callable[[GpuProgram], GpuProgram]:
    """The first step, kernel, buffer or port changed."""

    def changed(given: GpuProgram) -> GpuProgram:
        first, *rest = getattr(given, part)
        return replace(given, **{part: (replace(first, **changes), *rest)})

    return changed


SITE = DataPosition("gather", "Gather", "i", 0, 2)
WRONG = {
    "made for 'sm_9'": lambda given: replace(given, device="sm_9"),
    "computes in 'half'": lambda given: replace(given, precision="half"),
    "arena of True bytes": lambda given: replace(given, arena_bytes=True),
    "does not lie in the arena": lambda given: replace(given, arena_bytes=256),
    "buffer 0 has -1 bytes": _with("buffers", nbytes=-1),
    "input 'x' lies nowhere": _with("buffers", kind="disk"),
    "input 'x' has 280 bytes, and room for 276": _with("buffers", nbytes=276),
    "buffer 0 has 280 bytes, and the file None for it": _with("buffers", kind="constant"),
    "a kernel is called 'a b'": _with("kernels", symbol="a b"),
    "has a grid of": _with("kernels", grid=("1",)),
    "over .* blocks, which no GPU does": _with("kernels", grid=(1, 1, 1, 1)),
    "has 0 warps": _with("kernels", warps=0),
    "3 arguments, and others": _with("kernels", types=("fp32",)),
    "launches kernel 9": _with("steps", kernel=9),
    "launches no kernel": _with("steps", kernel=True),
    "gives add another number of arguments": _with("steps", arguments=()),
    "touches what cannot be": _with("steps", reads=(replace(CONTENTS.program.steps[0].reads[0], high="9"),)),
    "step 0 touches what cannot": _with(
        "steps", reads=(replace(CONTENTS.program.steps[0].reads[0], period=-8, width=-8),)
    ),
    "touches bytes 0 to 281": _with("steps", reads=(replace(CONTENTS.program.steps[0].reads[0], high=281),)),
    "writes what may only be read": _with("steps", writes=CONTENTS.program.steps[0].reads),
    "names a buffer that does not exist": _with(
        "steps", arguments=(replace(CONTENTS.program.steps[0].arguments[0], buffer=99),) * 3
    ),
    "a crooked": _with("steps", arguments=(replace(CONTENTS.program.steps[0].arguments[0], offset=4),) * 3),
    "0 places for what is wrong with its data": _with("steps", sites=(SITE,)),
    "input 'x' lies nowhere.*": _with("inputs", buffer=-1),
    "not called by different names": _with("inputs", name="y"),
    "output 'g' lies nowhere": _with("outputs", buffer=99),
    "step 6 runs on the host for no reason": lambda given: replace(
        given, steps=(*given.steps[:6], replace(given.steps[6], reasons=([1],)), *given.steps[7:])
    ),
    "output 'q' lies nowhere": _with("outputs", name="q", buffer=-1),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_does_not_fit_is_told(sentence):
    with pytest.raises(ValueError, match=sentence):
        check_file(WRONG[sentence](CONTENTS.program), CONTENTS.cubins, SIZES)


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"symbol": "other"}, "is not that of"),
        ({"parameters": 2}, "is not that of"),
        ({"architecture": "x86"}, "is for 'x86'"),
        ({"hidden": 1 << 40}, "hidden pointers"),
        ({"shared_bytes": 1 << 30}, "shared memory"),
        ({"threads": 0}, "0 threads"),
        ({"image": b"#!/bin/sh"}, "no machine code"),
    ],
)
def test_kernels_that_do_not_fit(change, sentence):
    first, *rest = CONTENTS.cubins
    with pytest.raises(ValueError, match=sentence):
        check_file(CONTENTS.program, (replace(first, **change), *rest), SIZES)
    with pytest.raises(ValueError, match="2 compiled kernels of 3"):
        check_file(CONTENTS.program, CONTENTS.cubins[1:], SIZES)


def places(found: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all that stands for itself in a document."""
    if isinstance(found, dict | list):
        for key, value in found.items() if isinstance(found, dict) else enumerate(found):
            yield from places(value, (*path, key))
    else:
        yield path


PATHS = sorted((path for path in places(STATED) if "source" not in path), key=repr)
ODD = st.sampled_from([-1, 0, 1, 3, 7, 4096, 1 << 40, 1 << 70, True, 1.5, None, "", "x", [], {}])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), ODD), min_size=1, max_size=2))
def test_any_change_is_refused_or_keeps_every_range_inside_its_buffer(changes):
    stated = copy.deepcopy(STATED)
    for path, value in changes:
        holder = stated
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value
    try:
        found = gpu_program_from_json(stated, BLOCKS)
        check_file(found, CONTENTS.cubins, SIZES)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return
    check_program(found)
    for step in found.steps:
        if isinstance(step, GpuStep):
            assert all(
                0 <= one.low <= one.high <= found.buffers[one.buffer].nbytes for one in (*step.reads, *step.writes)
            )
    for port in found.inputs:
        assert port.type.nbytes == found.buffers[port.buffer].nbytes


def forged(path: Path, changes: Sequence[tuple[tuple[Any, ...], Any]], flips: Sequence[int]) -> None:
    """A file with other words in its manifest and other bytes in its sections, and checksums that are right."""
    stated = json.loads(json.dumps({**said_by(CONTENTS), "notes": model().notes}))
    for at, value in changes:
        holder = stated
        for key in at[:-1]:
            holder = holder[key]
        holder[at[-1]] = value
    sections = [bytearray(one) for one in sections_of(CONTENTS)]
    for flip in flips:
        block = sections[flip % len(sections)]
        block[flip // len(sections) % len(block)] ^= 1 << flip % 8
    path.write_bytes(b"".join(container.written(VERSION, stated, [memoryview(one) for one in sections])))


def said_by(contents: GpuContents) -> dict[str, Any]:
    return {
        artefact.MARK: gpu_program_to_json(contents.program),
        "cubins": [cubin_to_json(one) for one in contents.cubins or ()],
        "constants": list(BLOCKS),
    }


def sections_of(contents: GpuContents) -> list[bytes]:
    return [*(one.image for one in contents.cubins or ()), *(bytes(block.data) for block in BLOCKS.values())]


SAID = said_by(CONTENTS)
FILE_PATHS = sorted((path for path in places(SAID) if "source" not in path), key=repr)
NEAR = st.sampled_from(
    [0, 1, 2, 8, 255, 256, 280, 281, 512, 1 << 20, 1 << 40, 1 << 61, "x", "y", "arena", "host", "output"]
)


@needs_triton
def test_a_forged_file_is_refused_or_runs_within_its_memory(device, monkeypatch, tmp_path):
    """The simulated device holds every access against what a launch says it touches, and every copy against what is allocated."""
    opened, held, told = share(monkeypatch, device), device.allocations, list[str]()

    @settings(max_examples=80, deadline=None)
    @given(
        st.lists(st.tuples(st.sampled_from(FILE_PATHS), NEAR | ODD), max_size=2),
        st.lists(st.integers(0, 1 << 20), max_size=2),
    )
    def run(changes, flips):
        forged(tmp_path / "m.fw", changes, flips)
        try:
            with open_compiled(tmp_path / "m.fw") as found:
                answers = found.run(None, FEEDS)
        except FusewiseError as error:
            told.append(str(error))
        else:
            assert len(answers) == 2

    run()
    assert told and not any("\n" in sentence for sentence in told)
    assert all(one.is_closed for one in opened) and device.allocations == held


def test_memory_of_the_host_that_nobody_has_is_not_asked_for(monkeypatch, tmp_path):
    """A host step's memory is no port's and no kernel's, so that only what a file says of it speaks of its size."""
    device = FakeDriver("sm_90")
    share(monkeypatch, device)
    huge = GpuBuffer("host", 1 << 45, value="h")
    given = CONTENTS.program
    only = replace(given, buffers=(*given.buffers, huge), steps=(*given.steps, _touching(given, len(given.buffers))))
    with pytest.raises(ResourceLimit, match="what the model keeps in the host's memory would take"):
        GpuExecutable(only, device)
    assert not device.allocations and not device.pinned_bytes
    device.close()


def _touching(given: GpuProgram, buffer: int) -> HostStep:
    """The program's host step, with its result in a buffer of its own."""
    step = next(one for one in given.steps if isinstance(one, HostStep))
    ((name, _, kind),) = step.writes
    return replace(step, writes=((name, Place(buffer, 0), kind),))
