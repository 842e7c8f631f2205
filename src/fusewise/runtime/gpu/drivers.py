"""Where drivers of GPUs are opened: the one place, so that whoever runs something asks here."""

from __future__ import annotations

from contextlib import ExitStack

from fusewise.codegen.gpu.device import DEVICES, Device, DeviceChoice, device_choice, device_named
from fusewise.errors import UsageError
from fusewise.runtime.gpu.driver import Driver, NoDevice, NoDriver, WrongArchitecture, runs_on

__all__ = ["numbered", "opened", "row_for", "row_of", "simulated"]


def opened(device: str | DeviceChoice) -> Driver:
    """The driver of a GPU of this machine: number 0 for `cuda`, number 1 for `cuda:1`; for `cuda:sm_90` number 0 if it runs code
    for that architecture.

    Raises `NoDriver`, `NoDevice`, and `WrongArchitecture` where the GPU is another.
    """
    choice = device_choice(device) if isinstance(device, str) else device
    if not choice.is_gpu:
        raise UsageError(f"{choice.text} has no driver of a GPU")
    driver = numbered(choice.number)
    if choice.architecture and not runs_on(choice.architecture, driver.architecture):
        name, own = driver.name, driver.architecture
        driver.close()
        raise WrongArchitecture(
            f"code for {choice.architecture} does not run on {name}, which is {own}: compile the model for cuda:{own}"
        )
    return driver


def numbered(number: int) -> Driver:
    """The driver of NVIDIA's for a GPU by its number. Raises `NoDriver` and `NoDevice`."""
    from fusewise.runtime.gpu.cuda import CudaDriver

    return CudaDriver(number)


def simulated(architecture: str, nbytes: int) -> Driver:
    """A device of an `architecture` with `nbytes` of memory that is none: kernels run in Triton's interpreter, slowly. Raises
    `NoTriton`."""
    from fusewise.runtime.gpu.fake import FakeDriver
    from fusewise.runtime.gpu.process import require_triton

    require_triton()
    return FakeDriver(architecture, nbytes)


def row_of(driver: Driver) -> Device:
    """The architecture that code for a driver's GPU is written for: its own, or the newest older one whose code runs there.
    `UsageError` where there is none."""
    fitting = [device for device in DEVICES if runs_on(device.name, driver.architecture)]
    return fitting[-1] if fitting else device_named(driver.architecture)


def row_for(choice: DeviceChoice, work: str, held: ExitStack | None = None) -> tuple[Device, str]:
    """The architecture that a choice names, or that of the GPU that is here, with what this calls itself.

    Its driver stays open as long as it is `held`: to open it again then takes no time. Raises what `opened` raises, with what to
    write to do this `work` without a GPU.
    """
    if choice.architecture:
        return device_named(choice.architecture), ""
    try:
        driver = opened(choice)
    except (NoDriver, NoDevice) as error:
        raise type(error)(f"{error}; to {work} without a GPU name an architecture, such as cuda:sm_90") from error
    with ExitStack() as own:
        (own if held is None else held).callback(driver.close)
        return row_of(driver), driver.name
