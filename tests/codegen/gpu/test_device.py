"""Rows of GPUs."""

from __future__ import annotations

import pytest

from fusewise.codegen.gpu.device import DEVICES, Device, device_named
from fusewise.errors import UsageError


@pytest.mark.parametrize("device", DEVICES, ids=[device.name for device in DEVICES])
def test_rows_are_plausible(device: Device) -> None:
    assert device_named(device.name) is device
    assert device.name == f"sm_{device.capability}"
    assert device.shared_per_sm - device.shared_per_block == 1 << 10, "the system keeps 1 KiB of each block's"
    kinds = ("float32", "tf32", "float16", "bfloat16")
    peaks = [device.peak(kind) for kind in kinds]
    assert peaks == sorted(peaks)
    assert device.peak("tf32") / device.bytes_per_second < 1000, "operations to a byte"


def test_unknown_architectures_are_refused() -> None:
    with pytest.raises(UsageError, match="choose one of sm_80, sm_86"):
        device_named("sm_70")
