"""Compiled kernels on a GPU, where there is one; the same on the simulated device, which runs their sources."""

import numpy as np
import pytest
from tests.runtime.gpu.kernels import needs_triton
from tests.runtime.gpu.programs import DIAMOND, expected, program_of, vectors

from fusewise.codegen.gpu.device import device_named
from fusewise.errors import FusewiseError
from fusewise.runtime.gpu.compile import TritonCompiler
from fusewise.runtime.gpu.cuda import CudaDriver
from fusewise.runtime.gpu.executable import GpuExecutable

pytestmark = needs_triton


@pytest.fixture(params=["simulated", "real"])
def driver(request):
    if request.param == "simulated":
        yield request.getfixturevalue("device")
        return
    try:
        found = CudaDriver()
    except FusewiseError as error:
        pytest.skip(f"no GPU: {error}")
    yield found
    found.close()


def test_compiled_kernels_repeat_their_answers(driver):
    """Host arrays, arrays on the device, and 20 replays that are equal to the last bit."""
    constants, feeds = vectors("w", seed=9), vectors("x", "y")
    program = program_of(DIAMOND, ["x", "y"], ["f", "d"], constants)
    with TritonCompiler() as compiler:
        # sums and products stay two roundings, as NumPy's are
        cubins = compiler.compile(program.kernels, device_named(driver.architecture), contracted=False)
    wanted = expected(DIAMOND, feeds, constants)
    with GpuExecutable(program, driver, cubins) as model:
        for _ in range(20):
            f, d = model.run(None, feeds)
            np.testing.assert_array_equal(f, wanted["f"])
            np.testing.assert_array_equal(d, wanted["d"])
        (there,) = model.run_on_device(["d"], feeds)
        with GpuExecutable(program, driver, cubins) as other:
            again = expected(DIAMOND, {"x": wanted["d"], "y": feeds["y"]}, constants)
            np.testing.assert_array_equal(other.run(["f"], {"x": there, "y": feeds["y"]})[0], again["f"])
