"""Programs on the simulated device: answers in any order of launches, arrays on the device, host steps, what goes wrong."""

import weakref
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.runtime.gpu.kernels import needs_triton
from tests.runtime.gpu.programs import COUNT, DIAMOND, expected, program_of, vectors

from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.codegen.gpu.program import ByteRange, GpuBuffer, GpuProgram
from fusewise.errors import BrokenPlan, InvalidData, UsageError
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.types import TensorType
from fusewise.lower.program import DataPosition, Place, Port
from fusewise.runtime.gpu.dlpack import DeviceArray
from fusewise.runtime.gpu.driver import BrokenAccess, DeviceLost, DeviceMemoryFull
from fusewise.runtime.gpu.executable import GpuExecutable
from fusewise.runtime.gpu.fake import FakeDriver

pytestmark = needs_triton
W = vectors("w", seed=9)


def diamond():
    return program_of(DIAMOND, ["x", "y"], ["f", "d"], W)


def test_answers_and_figures(device):
    feeds = vectors("x", "y")
    with GpuExecutable(diamond(), device) as model:
        f, d = model.run(None, feeds)
        wanted = expected(DIAMOND, feeds, W)
        np.testing.assert_array_equal(f, wanted["f"])
        np.testing.assert_array_equal(d, wanted["d"])
        np.testing.assert_array_equal(model.run(["d"], feeds)[0], d)
        figures = model.figures
        assert (figures.kernels, figures.launches, figures.graphs, figures.host_steps) == (3, 6, 1, 0)
        assert [port.name for port in model.get_inputs()] == ["x", "y"]
        assert [port.type for port in model.get_outputs()] == ["tensor(float)"] * 2


lines_of = st.lists(
    st.tuples(st.sampled_from(["add", "mul", "neg", "Relu"]), st.integers(0, 50), st.integers(0, 50)),
    min_size=1,
    max_size=9,
)


@given(lines_of, st.integers(0, 1000))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_program_gives_numpys_answers_in_any_order(device, choices, seed):
    """Buffers share memory, host steps lie between, and each run draws another order."""
    known, lines = ["x", "y", "w"], []
    for number, (how, a, b) in enumerate(choices):
        given_ = tuple(known[k % len(known)] for k in (a, b)[: 1 if how in ("neg", "Relu") else 2])
        lines.append((f"v{number}", how, given_))
        known.append(f"v{number}")
    feeds = vectors("x", "y", seed=seed)
    with GpuExecutable(program_of(lines, ["x", "y"], [lines[-1][0]], W), device) as model:
        for _ in range(2):
            np.testing.assert_array_equal(model.run(None, feeds)[0], expected(lines, feeds, W)[lines[-1][0]])


def test_orders_differ_and_a_missing_edge_shows(device, monkeypatch):
    """The property above can fail: without edges some order gives something else."""
    feeds = vectors("x", "y")
    wanted = expected(DIAMOND, feeds, W)["f"]
    with GpuExecutable(diamond(), device) as model:
        begin = len(device.orders)
        for _ in range(12):
            np.testing.assert_array_equal(model.run(["f"], feeds)[0], wanted)
        assert len(set(device.orders[begin:])) > 1
    monkeypatch.setattr("fusewise.runtime.gpu.executable.edges", lambda *_: ())
    with GpuExecutable(diamond(), device) as model:
        found = [np.array_equal(model.run(["f"], feeds)[0], wanted) for _ in range(12)]
    assert not all(found)


def test_nothing_is_allocated_in_a_run_and_all_is_given_back(device):
    before = device.allocations
    model = GpuExecutable(diamond(), device)
    held = device.allocations
    assert held == before + 2, "one for the constants, one for everything else"
    (there,) = model.run_on_device(["f"], vectors("x", "y"))
    assert device.allocations == held
    model.close()
    with pytest.raises(UsageError, match="closed"):
        there.numpy()
    with pytest.raises(BufferError, match="closed"):
        np.from_dlpack(there)
    model.close()
    assert device.allocations == before
    with pytest.raises(UsageError, match="closed"):
        model.run(None, vectors("x", "y"))


def test_arrays_on_the_device_are_read_and_written_where_they_are(device, monkeypatch):
    feeds = vectors("x", "y")
    wanted = expected(DIAMOND, feeds, W)
    with GpuExecutable(program_of([("x2", "add", ("x", "x"))], ["x"], ["x2"]), device) as double:
        (there,) = double.run_on_device(None, {"x": feeds["x"] / 2})
        np.testing.assert_array_equal(np.from_dlpack(there), feeds["x"])
        np.testing.assert_array_equal(there.numpy(), feeds["x"])
        with GpuExecutable(diamond(), device) as model:
            copied = []
            monkeypatch.setattr(device, "copy_within", lambda *given: copied.append(given))
            f, d = model.run(None, {"x": there, "y": feeds["y"]})
            np.testing.assert_array_equal(f, wanted["f"])
            (target,) = double.run_on_device(None, {"x": feeds["x"] / 2})
            model.run_into({"x": feeds["x"], "y": feeds["y"]}, {"d": target})
            assert not copied
            np.testing.assert_array_equal(target.numpy(), d)
            np.testing.assert_array_equal(model.run(["f"], feeds)[0], wanted["f"], err_msg="pointed back")


def test_an_output_over_an_input_is_copied_there_afterwards(device):
    feeds = vectors("x", "y")
    with GpuExecutable(program_of([("x2", "add", ("x", "x"))], ["x"], ["x2"]), device) as double:
        (there,) = double.run_on_device(None, {"x": feeds["x"] / 2})
        with GpuExecutable(diamond(), device) as model:
            model.run_into({"x": there, "y": feeds["y"]}, {"f": there})
        np.testing.assert_array_equal(there.numpy(), expected(DIAMOND, feeds, W)["f"])


@pytest.mark.parametrize("seed", range(3))
def test_what_a_model_left_on_the_device_goes_in_again(seed):
    """It lies where a launch writes while another may still read."""
    feeds = vectors("x")
    twice = program_of([("y", "add", ("x", "x")), ("z", "mul", ("x", "x"))], ["x"], ["y", "z"])
    with closing(FakeDriver(nbytes=1 << 22, seed=seed)) as own, GpuExecutable(twice, own) as model:
        y, z = model.run_on_device(None, feeds)
        doubled = 2 * feeds["x"]
        found = model.run(None, {"x": y})
        np.testing.assert_array_equal(found, [2 * doubled, doubled * doubled])
        model.run_into({"x": z}, {"z": z})
        np.testing.assert_array_equal(z.numpy(), found[1] * found[1])
        with pytest.raises(UsageError, match="the array for output 'y' is memory of the model itself"):
            model.run_into(feeds, {"y": z})


def test_an_array_of_nothing_lies_nowhere(device):
    """PyTorch's and CuPy's have no address."""
    nothing = TensorType(FLOAT32, (0,))
    buffers, ports = (GpuBuffer("input", 0), GpuBuffer("output", 0)), (Port("x", nothing, 0), Port("y", nothing, 1))
    program = GpuProgram("sm_90", "float32", (), (), buffers, ports[:1], ports[1:])
    empty = DeviceArray(0, (0,), FLOAT32, device.place, read=lambda: np.empty(0))
    with GpuExecutable(program, device) as model:
        assert model.run(None, {"x": empty})[0].shape == (0,)


@pytest.mark.parametrize(
    "feeds, words",
    [
        ({"x": np.zeros(COUNT, np.float32)}, "no value was given for input 'y'"),
        ({"x": np.zeros(COUNT, np.float64), "y": np.zeros(COUNT, np.float32)}, "expected float32, found float64"),
        ({"x": np.zeros(COUNT + 1, np.float32), "y": np.zeros(COUNT, np.float32)}, "expected shape 70, found 71"),
        (3, "mapping"),
    ],
)
def test_inputs_that_do_not_fit(device, feeds, words):
    with GpuExecutable(diamond(), device) as model, pytest.raises(UsageError, match=words):
        model.run(None, feeds)


def test_arrays_on_the_device_that_do_not_fit(device):
    with GpuExecutable(diamond(), device) as model:
        (there,) = model.run_on_device(["f"], vectors("x", "y"))
        y = np.zeros(COUNT, np.float32)
        there.shape = (COUNT - 1,)
        with pytest.raises(UsageError, match="input 'x': expected shape 70, found 69"):
            model.run(None, {"x": there, "y": y})
        there.shape = (COUNT,)
        with pytest.raises(UsageError, match="no input 'z'"):
            model.run(None, {"x": there, "y": y, "z": there})
        elsewhere = DeviceArray(there.address, there.shape, there.dtype, (2, 7), read=there.numpy)
        with pytest.raises(UsageError, match="does not lie on"):
            model.run_into({"x": y, "y": y}, {"f": elsewhere})


def test_host_steps_run_between_graphs(device):
    lines = [("a", "neg", ("x",)), ("h", "Relu", ("a",)), ("b", "add", ("h", "a")), ("g", "Relu", ("x",))]
    feeds = vectors("x")
    with GpuExecutable(program_of(lines, ["x"], ["b", "g"]), device) as model:
        wanted = expected(lines, feeds)
        b, g = model.run(None, feeds)
        np.testing.assert_array_equal(b, wanted["b"])
        np.testing.assert_array_equal(g, wanted["g"])
        assert (model.figures.graphs, model.figures.host_steps) == (2, 2)
        with pytest.raises(UsageError, match="output 'g' is computed by the host"):
            model.run_on_device(["g"], feeds)
        (there,) = model.run_on_device(["b"], feeds)
        np.testing.assert_array_equal(model.run(["g"], {"x": there})[0], np.maximum(wanted["b"], 0))


def test_a_position_from_data_that_is_out_of_bounds():
    kernel = GpuKernel(
        "pick",
        "@triton.jit\ndef pick(x, out, fault):\n    v = tl.load(x)\n    bad = v > 2.0\n"
        "    tl.store(fault, 1, mask=bad)\n    tl.store(fault + 1, v.to(tl.int64), mask=bad)\n    tl.store(out, v)\n",
        ("x", "out", "fault"),
        ("fp32", "fp32", "i64"),
        (16, 16, 16),
        (1,),
    )
    plain = program_of([("a", "neg", ("x",))], ["x"], ["a"])
    step = plain.steps[0]
    site = DataPosition("gather", "Gather", "i", 0, 2)
    spans = (ByteRange(2, 0, 16),)
    step = replace(step, arguments=(*step.arguments, Place(2)), writes=(*step.writes, *spans), sites=(site,))
    program = replace(plain, kernels=(kernel,), steps=(step,), buffers=(*plain.buffers, GpuBuffer("fault", 16)))
    driver = FakeDriver()
    with GpuExecutable(program, driver) as model:
        x = np.zeros(COUNT, np.float32)
        model.run(None, {"x": x})
        x[0] = 5
        with pytest.raises(InvalidData, match=r"node 'gather' \(Gather\) finds 5"):
            model.run(None, {"x": x})
        x[0] = 1
        assert model.run(None, {"x": x})[0][0] == 1
    driver.close()


def test_a_kernel_that_reads_more_than_its_step_says(device):
    program = diamond()
    step = program.steps[0]
    short = replace(step, reads=(replace(step.reads[0], high=step.reads[0].high - 4), step.reads[1]))
    with (
        GpuExecutable(replace(program, steps=(short, *program.steps[1:])), device) as model,
        pytest.raises(BrokenAccess, match=r"'add' \(a\): it reads 4 bytes"),
    ):
        model.run(None, vectors("x", "y"))


def test_a_device_that_is_lost_mid_run():
    driver = FakeDriver(lost_after=2)
    model = GpuExecutable(diamond(), driver)
    for _ in range(2):
        with pytest.raises(DeviceLost, match="has to be loaded again"):
            model.run(None, vectors("x", "y"))
    model.close()


def test_a_device_with_too_little_memory_keeps_none_of_it():
    driver = FakeDriver(nbytes=4096)
    with pytest.raises(DeviceMemoryFull, match="use smaller input shapes") as told:
        GpuExecutable(diamond(), driver)
    assert "\n" not in str(told.value)
    assert told.value.exit_status == 5
    assert driver.allocations == 0


def test_broken_programs_are_refused(device):
    with pytest.raises(BrokenPlan):
        GpuExecutable(replace(diamond(), arena_bytes=0), device)


def test_what_nobody_holds_is_given_back(device):
    before = device.allocations
    model = GpuExecutable(diamond(), device)
    (there,) = model.run_on_device(["f"], vectors("x", "y"))
    gone, capsule = weakref.ref(model), np.from_dlpack(there)
    kept = capsule.copy()
    del model, there
    assert gone() is not None, "whoever has an array has what it lies in"
    np.testing.assert_array_equal(capsule, kept)
    del capsule
    assert gone() is None
    assert device.allocations == before
