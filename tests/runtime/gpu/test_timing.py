"""Times of launches by a device's clock."""

import pytest
from tests.runtime.gpu.bindings import Bindings
from tests.runtime.gpu.kernels import needs_triton
from tests.runtime.gpu.programs import DIAMOND, program_of, vectors
from tests.runtime.gpu.test_cuda import cubins_of

from fusewise.errors import FusewiseError
from fusewise.runtime.gpu.cuda import CudaDriver
from fusewise.runtime.gpu.executable import GpuExecutable
from fusewise.runtime.gpu.fake import FakeDriver
from fusewise.runtime.gpu.timing import chain_time, launch_times, replay_times

W = vectors("w", seed=9)
TAKES = {"add": 3.0, "mul": 5.0, "neg": 7.0}


@needs_triton
def test_times_on_a_simulated_device() -> None:
    driver = FakeDriver(nbytes=1 << 20, takes=lambda kernel: TAKES[kernel.symbol])
    program = program_of(DIAMOND, ["x", "y"], ["f", "d"], W)
    with GpuExecutable(program, driver) as model:
        before = model.run(None, vectors("x", "y"))
        assert replay_times(model, 3) == [2 * 5 + 3 * 3 + 7] * 3
        found = launch_times(model, repeats=2, rounds=2)
        assert [(one.label, one.us) for one in found] == [(line[0], TAKES[line[1]]) for line in DIAMOND]
        assert chain_time(driver, [model.launches[k] for k in (0, 1)], 2, 1) == 10.0
        after = model.run(None, vectors("x", "y"))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(before, after, strict=True))
    driver.close()


def test_times_by_the_driver() -> None:
    bindings = Bindings()
    driver = CudaDriver(bindings=bindings)
    program = program_of(DIAMOND, ["x", "y"], ["f", "d"], W)
    with GpuExecutable(program, driver, cubins_of(program)) as model:
        model.run(None, vectors("x", "y"))
        assert replay_times(model, 3) == [1000.0 * len(DIAMOND)] * 3  # a millisecond for each launch
        assert [one.us for one in launch_times(model)] == [1000.0] * len(DIAMOND)
        bindings.fail["cuEventElapsedTime"] = "CUDA_ERROR_INVALID_VALUE"
        with pytest.raises(FusewiseError, match="cuEventElapsedTime"):
            replay_times(model, 3)
    driver.close()
    assert not bindings.held
