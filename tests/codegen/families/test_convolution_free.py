"""Convolutions of images whose batch, height and width are not known, at many sizes, against PyTorch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.codegen.families.test_convolution import buffer_of, convolution, correlate, finished
from tests.codegen.free import Version, run_at, versions_of

from fusewise.codegen.candidates import CONV
from fusewise.codegen.families.convolution.direct import DIRECT
from fusewise.codegen.families.convolution.transposed import CONV_TRANSPOSE
from fusewise.codegen.families.depthwise import DEPTHWISE
from fusewise.codegen.families.winograd.kernel import WINOGRAD
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.target import Target
from fusewise.ir.size import Symbol, size_of

TOLERANCE = 1e-5

SIZES = (
    (1, 7, 7),
    (2, 8, 5),
    (1, 1, 64),
    (3, 5, 3),
    (1, 31, 16),
    (1, 4, 4),
    (2, 13, 2),
    (1, 64, 64),
    (1, 17, 40),
    (5, 3, 1),
    (1, 3, 25),
    (1, 2, 26),
    (1, 1, 27),
    (1, 2, 49),
    (1, 2, 50),
    (1, 3, 51),
)
"""Batch, height and width to try."""

NAMES = ("batch", "height", "width")

SYMBOLS = tuple(Symbol(name, 1, 2**31 - 1) for name in NAMES)

Case = dict[str, Any]

CASES: dict[str, Case] = {
    "pointwise": {"channels": (24, 40), "kernel": (1, 1)},
    "pointwise apart": {"channels": (16, 20), "kernel": (1, 1), "strides": (2, 2), "epilogue": "residual"},
    "square": {"channels": (8, 17), "kernel": (3, 3), "pads": (1, 1, 1, 1), "epilogue": "residual"},
    "square apart": {"channels": (5, 32), "kernel": (3, 3), "pads": (1, 1, 1, 1), "strides": (2, 2)},
    "image": {"channels": (3, 24), "kernel": (7, 7), "pads": (3, 3, 3, 3), "strides": (2, 2), "layout": "planar"},
    "patches": {"channels": (3, 20), "kernel": (4, 4), "strides": (4, 4), "layout": "planar", "out_layout": "planar"},
    "dilated": {"channels": (16, 16), "kernel": (3, 3), "pads": (2, 2, 2, 2), "dilations": (2, 2)},
    "groups": {"channels": (4, 4), "kernel": (3, 3), "pads": (1, 1, 1, 1), "group": 8},
    "computed": {"channels": (8, 9), "kernel": (3, 3), "pads": (1, 1, 1, 1), "prologue": "relu", "epilogue": "swish"},
    "depthwise": {"channels": (1, 1), "kernel": (3, 3), "pads": (1, 1, 1, 1), "group": 40},
    "depthwise apart": {"channels": (1, 1), "kernel": (5, 5), "pads": (2, 2, 2, 2), "group": 24, "strides": (2, 2)},
}


TRANSPOSED: dict[str, Case] = {
    "doubled": {"op": "ConvTranspose", "channels": (8, 12), "kernel": (4, 4), "pads": (1, 1, 1, 1), "strides": (2, 2)},
    "plain": {"op": "ConvTranspose", "channels": (5, 16), "kernel": (3, 3), "pads": (1, 1, 1, 1)},
    "planar": {"op": "ConvTranspose", "channels": (6, 9), "kernel": (5, 2), "strides": (3, 2), "layout": "planar"},
}


def attributes_of(case: Case) -> dict[str, Any]:
    return {
        "strides": case.get("strides", (1, 1)),
        "dilations": case.get("dilations", (1, 1)),
        "pads": case.get("pads", (0, 0, 0, 0)),
        "group": case.get("group", 1),
    }


def shapes_of(case: Case, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Data, weights and result, of sizes that may be numbers."""
    (inputs, outputs), groups, attributes = case["channels"], case.get("group", 1), attributes_of(case)
    batch, *extents = sizes
    if case.get("op") == "ConvTranspose":
        taps = zip(extents, case["kernel"], attributes["strides"], attributes["pads"], strict=False)
        out = [(extent - 1) * stride + kernel - 2 * pad for extent, kernel, stride, pad in taps]
        return (batch, inputs, *extents), (inputs, outputs, *case["kernel"]), (batch, outputs, *out)
    out = [
        (
            extent
            + attributes["pads"][k]
            + attributes["pads"][k + 2]
            - (case["kernel"][k] - 1) * attributes["dilations"][k]
            - 1
        )
        // attributes["strides"][k]
        + 1
        for k, extent in enumerate(extents)
    ]
    weights = (groups * outputs, inputs, *case["kernel"])
    return (batch, groups * inputs, *extents), weights, (batch, groups * outputs, *out)


def free_convolution(case: Case) -> Any:
    x, w, out = shapes_of(case, tuple(map(size_of, SYMBOLS)))
    options = {key: case[key] for key in ("layout", "out_layout", "epilogue", "prologue") if key in case}
    return convolution(case.get("op", "Conv"), x, w, out, attributes_of(case), **options)


def check(versions: list[Version], case: Case, sizes: tuple[int, int, int], tolerance: float = TOLERANCE) -> list[str]:
    """Run every version that holds at these sizes."""
    import torch

    x, w, out = shapes_of(case, sizes)
    rng = np.random.default_rng(7)
    data, residual = (rng.standard_normal(shape).astype(np.float32) for shape in (x, out))
    weights = (rng.standard_normal(w) / max(1, np.prod(w[1:])) ** 0.5).astype(np.float32)
    bias = rng.standard_normal(out[1]).astype(np.float32)
    seen = np.maximum(data, 0) if case.get("prologue") == "relu" else data
    wanted = (torch.from_numpy(a.astype(np.float64)) for a in (seen, weights, bias))
    run = correlate(attributes_of(case))
    if case.get("op") == "ConvTranspose":
        pads, strides = attributes_of(case)["pads"][:2], attributes_of(case)["strides"]
        run = partial(torch.conv_transpose2d, stride=strides, padding=pads)
    expected = finished(run(*wanted).numpy(), case.get("epilogue", "none"), residual)
    out_layout, names = case.get("out_layout", "last"), []
    for version in versions:
        arrays = {
            "in0": buffer_of(data, case.get("layout", "last")),
            "const0": weights,
            "const1": bias,
            "in1": buffer_of(residual, out_layout),
            "out0": np.full(buffer_of(expected, out_layout).shape, np.nan, np.float32),
        }
        for argument in version.loaded.arguments:
            if argument.packing is not None:
                arrays[argument.name] = argument.packing.pack(arrays[argument.name])
        names += run_at([version], dict(zip(NAMES, sizes, strict=True)), arrays)
        if not names or names[-1] != version.kernel or np.isnan(arrays["out0"]).all():
            continue
        found = arrays["out0"] if out_layout == "planar" else np.moveaxis(arrays["out0"], -1, 1)
        error = np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30)
        assert error <= tolerance, (version.kernel, sizes, error)
    return names


def fits(case: Case, sizes: tuple[int, int, int]) -> bool:
    return min(shapes_of(case, sizes)[2]) > 0


@pytest.mark.parametrize("name", CASES)
def test_one_kernel_for_every_size(target: Target, name: str) -> None:
    case = CASES[name]
    kernels: tuple[Kernel[Any, Any], ...] = (DEPTHWISE, DIRECT) if case.get("group") == 40 else (DIRECT,)
    versions = versions_of(kernels, free_convolution(case), SYMBOLS, target, workers=2)
    for sizes in SIZES:
        if fits(case, sizes):
            assert check(versions, case, sizes), f"no version is for {sizes}"


@pytest.mark.parametrize("name", CASES)
def test_whichever_kernel_is_taken(target: Target, name: str) -> None:
    case = CASES[name]
    versions = versions_of(CONV, free_convolution(case), SYMBOLS, target)
    for sizes in SIZES:
        if fits(case, sizes):
            assert check(versions, case, sizes), f"no version is for {sizes}"


WINOGRADS = {
    "many": {"channels": (32, 48), "kernel": (3, 3), "pads": (1, 1, 1, 1), "epilogue": "residual"},
    "apart": {"channels": (32, 32), "kernel": (3, 3), "pads": (1, 1, 1, 1), "strides": (2, 2)},
    "wide": {"channels": (16, 32), "kernel": (5, 5), "pads": (2, 2, 2, 2), "epilogue": "swish"},
    "image": {"channels": (3, 32), "kernel": (7, 7), "pads": (3, 3, 3, 3), "strides": (2, 2), "layout": "planar"},
    "colours": {"channels": (3, 32), "kernel": (5, 5), "pads": (2, 2, 2, 2), "strides": (2, 2)},
    "in line": {"channels": (32, 32), "kernel": (1, 7), "pads": (0, 3, 0, 3)},
}


@pytest.mark.parametrize("name", WINOGRADS)
def test_winograd_for_every_size(target: Target, name: str) -> None:
    case = WINOGRADS[name]
    kernel = replace(WINOGRAD, declines=lambda understood, task, target: None)
    versions = versions_of((kernel,), free_convolution(case), SYMBOLS, target, workers=2)
    for sizes in SIZES:
        if fits(case, sizes):
            assert check(versions, case, sizes, 3e-5), f"no version is for {sizes}"


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_for_every_size(target: Target, name: str) -> None:
    case = TRANSPOSED[name]
    versions = versions_of(CONV_TRANSPOSE, free_convolution(case), SYMBOLS, target, workers=2)
    for sizes in SIZES:
        if fits(case, sizes):
            assert check(versions, case, sizes), f"no version is for {sizes}"
