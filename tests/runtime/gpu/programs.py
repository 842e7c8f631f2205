"""Small programs over vectors of float32, and what they compute by NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tests.runtime.gpu.kernels import pointwise

from fusewise.codegen.gpu.kernel import GpuKernel
from fusewise.codegen.gpu.program import ByteRange, GpuBuffer, GpuProgram, GpuStep, planned
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Node
from fusewise.ir.types import TensorType
from fusewise.lower.program import HostStep, Place, Port

COUNT = 70
KIND = TensorType(FLOAT32, (COUNT,))

KERNELS = {
    "add": pointwise("add", "x y", "vx + vy", COUNT),
    "mul": pointwise("mul", "x y", "vx * vy", COUNT),
    "neg": pointwise("neg", "x", "0.5 - vx", COUNT),
}
BY_NUMPY = {"add": np.add, "mul": np.multiply, "neg": lambda x: np.float32(0.5) - x, "Relu": lambda x: np.maximum(x, 0)}


def program_of(
    lines: Sequence[tuple[str, str, tuple[str, ...]]],
    inputs: Sequence[str],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    kernels: Mapping[str, GpuKernel] = KERNELS,
) -> GpuProgram:
    """Of lines (result, kernel or `Relu` on the host, operands), each value a vector of `COUNT` elements."""
    constants = constants or {}
    hosted = {name for result, how, given in lines if how not in kernels for name in (result, *given)}
    names = [*inputs, *constants, *(result for result, _, _ in lines)]
    buffers, where = [], {}
    for name in names:
        where[name] = len(buffers)
        kind = "input" if name in inputs else "constant" if name in constants else "output" if name in outputs else ""
        kind = kind or ("host" if name in hosted else "arena")
        buffers.append(GpuBuffer(kind, KIND.nbytes, value=name, data=_constant(constants.get(name))))
    used = list(dict.fromkeys(how for _, how, _ in lines if how in kernels))
    steps: list[GpuStep | HostStep] = []
    for result, how, given in lines:
        if how in kernels:
            places = tuple(Place(where[name]) for name in (*given, result))
            spans = [ByteRange(place.buffer, 0, KIND.nbytes) for place in places]
            steps.append(GpuStep(used.index(how), places, tuple(spans[:-1]), tuple(spans[-1:]), result))
        else:
            reads, write = [(name, Place(where[name]), KIND) for name in given], (result, Place(where[result]), KIND)
            steps.append(HostStep((Node(how, tuple(given), (result,)),), 22, tuple(reads), (write,), ("a test",)))
    ports = [tuple(Port(name, KIND, where[name]) for name in some) for some in (inputs, outputs)]
    program = GpuProgram(
        "sm_90", "float32", tuple(kernels[name] for name in used), tuple(steps), tuple(buffers), *ports
    )
    return planned(program)


def expected(lines, feeds, constants=None) -> dict[str, np.ndarray]:
    values = {**feeds, **(constants or {})}
    for result, how, given in lines:
        values[result] = BY_NUMPY[how](*(values[name] for name in given))
    return values


def vectors(*names: str, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(COUNT).astype(np.float32) for name in names}


def _constant(array: np.ndarray | None) -> Constant | None:
    return None if array is None else Constant(array)


DIAMOND = [
    ("a", "add", ("x", "y")),
    ("b", "neg", ("a",)),
    ("c", "mul", ("a", "x")),
    ("d", "add", ("b", "c")),
    ("e", "mul", ("c", "w")),
    ("f", "add", ("d", "e")),
]
"""Two branches that meet again, with a constant `w`."""
