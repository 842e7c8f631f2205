"""What a recurrence is to its kernels on a GPU, where its working memory is cut, and which way is estimated to be the faster.

In a loop, a block goes through all of time for some samples of one direction; it reads the states' weights in every step, at the
speed of one multiprocessor. By steps, a launch for each has the hidden numbers shared out to many blocks; it pays the launch. Both
are estimated from the device's row, at the prices below; nothing was measured on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import STEP_BYTES, NoKernel
from fusewise.codegen.gpu.nests import next_power
from fusewise.codegen.gpu.source import is_int32
from fusewise.ir.dtypes import DType
from fusewise.lower.recurrence import recurrent_operand
from fusewise.lower.task import Operand, Task
from fusewise.ops.recurrence import Recurrence, recurrence_of
from fusewise.records import record

__all__ = ["GpuRecurrence", "RecurrenceTiles", "by_steps", "recurrence_task", "step_us", "tiles_of"]

PLACES = ("x", "w", "r", "b", "lengths", "h", "c", "p")
"""Operands in ONNX's order."""

MOST_LAUNCHES = 1024
"""Launches of a recurrence by steps, at most: each is a node of a graph, and a step of the program."""
_MOST_BYTES = 1 << 30
"""Of working memory, which has the inputs' products of all steps."""
_LINE = 64

_MOST_DEPTH = 512
"""Numbers of a state that are multiplied at once, at most."""
_ELEMENTS = 16
"""Weights of a gate that a thread has at once, of 32 bits."""
_NARROW = 8
"""Hidden numbers of a block by steps: 32 bytes beside each other, which is as little as a GPU reads."""
_MOST_ROWS = 4
"""Samples of a block whose numbers have 32 bits: of more than these the sums of all gates take more registers than there are."""
_MOST_WARPS = 8
"""Of which each thread has all the registers that it can name."""

_CACHE_SPEED = 2.0
"""As in `costs`: how many times the memory's bytes the cache of the second level gives in a second, to all multiprocessors."""
_NEAR_BYTES_PER_SECOND = 128 * 1.4e9
"""What a multiprocessor reads of its own cache: 128 bytes a cycle."""
_NEAR_SHARE = 0.75
"""Of a multiprocessor's memory, what weights that stay there may take."""
_WAIT_US = 1.0
"""From the first load of a tile to the states that it gives: loads from the second level, sums over warps, a barrier."""


@record(frozen=True)
class GpuRecurrence:
    """Sizes, and operands by name as ONNX's layout 0 has them (`lower.recurrence`); `digest` names the task as it was, whatever is
    rearranged in it.

    Working memory, in elements from `begin` on, behind the numbers of steps: `sums` [directions, steps, samples, gates * hidden],
    then twice the hidden states [directions, samples, hidden], twice the cells of an LSTM, the update gates and the states that
    a GRU has reset.
    """

    task: Task
    digest: str
    settings: Recurrence
    operands: Mapping[str, Operand]
    steps: int
    samples: int
    inputs: int
    hidden: int

    @property
    def dtype(self) -> DType:
        return self.operands["x"].dtype

    @property
    def directions(self) -> int:
        return len(self.settings.backward)

    @property
    def columns(self) -> int:
        """Of all gates."""
        return self.settings.gates * self.hidden

    @property
    def phases(self) -> tuple[tuple[int, ...], ...]:
        """The gates of each product with states: a GRU's candidate waits for its gates where it resets before the product."""
        if self.settings.op == "GRU" and not self.settings.resets_after:
            return (0, 1), (2,)
        return (tuple(range(self.settings.gates)),)

    @property
    def weight_bytes(self) -> int:
        """Of the states' weights of one direction."""
        return self.columns * self.hidden * self.dtype.itemsize

    @property
    def states(self) -> int:
        """Numbers of all states."""
        return self.directions * self.samples * self.hidden

    @property
    def begin(self) -> int:
        return -(-STEP_BYTES * self.steps // _LINE) * _LINE // self.dtype.itemsize

    def place(self, name: str) -> int:
        """Where a part of working memory begins: `sums`, `hidden`, `cell`, `update`, `reset`, or its `end`."""
        sums = self.directions * self.steps * self.samples * self.columns
        own = {"sums": sums, "hidden": 2 * self.states}
        if self.settings.op == "LSTM":
            own["cell"] = 2 * self.states
        if len(self.phases) > 1:
            own |= {"update": self.states, "reset": self.states}
        at = self.begin
        for part, size in own.items():
            if part == name:
                return at
            at += size
        return at


def recurrence_task(task: Task) -> GpuRecurrence:
    """The recurrence at the anchor of a task; `NoKernel` for others."""
    anchor = task.anchor
    if anchor is None or anchor.family != "recurrence":
        raise NoKernel("no recurrence")
    if not task.is_fixed:
        raise NoKernel("a kernel for a GPU is written for known sizes")
    given = dict(zip(PLACES, anchor.prologue, strict=False))
    operands = {name: task.operand(recurrent_operand(e).value) for name, e in given.items() if e is not None}
    steps, samples, inputs = operands["x"].shape
    settings = recurrence_of(anchor.op, dict(anchor.attributes))
    s = GpuRecurrence(
        task, task.digest, settings, MappingProxyType(operands), steps, samples, inputs, operands["r"].shape[2]
    )
    if any(0 in one.shape for one in operands.values()):
        raise NoKernel("a recurrence of nothing")
    if s.place("end") * s.dtype.itemsize > _MOST_BYTES or not is_int32(0, s.place("end")):
        raise NoKernel("products of inputs that take too much memory")
    if not is_int32(0, 2 * math.prod(operands["r"].shape) * 2):
        raise NoKernel("weights of too many numbers")
    return s


@record(frozen=True)
class RecurrenceTiles:
    """A block has `rows` samples; it multiplies `depth` numbers of their states at once by the weights of `width` hidden numbers,
    with so many `warps`. There are `slices` of the samples and `blocks` of the hidden numbers."""

    rows: int
    slices: int
    depth: int
    width: int
    blocks: int
    warps: int


def tiles_of(s: GpuRecurrence, stepped: bool) -> RecurrenceTiles:
    """The tiles of one of both ways: in a loop as wide as fits, by steps as narrow as is read well."""
    depth = min(next_power(s.hidden), _MOST_DEPTH)
    most = _ELEMENTS * 4 // s.dtype.itemsize
    width = min(next_power(s.hidden), _NARROW if stepped else max(1, 32 * _MOST_WARPS * most // depth))
    warps = max(1, min(_MOST_WARPS, depth * width // (32 * most)))
    rows = min(next_power(s.samples), _MOST_ROWS * 4 // s.dtype.itemsize)
    return RecurrenceTiles(rows, -(-s.samples // rows), depth, width, -(-s.hidden // width), warps)


def by_steps(s: GpuRecurrence, device: Device) -> bool:
    """Is a launch for each step estimated to be faster than a loop over all of them?"""
    if s.steps * len(s.phases) > MOST_LAUNCHES:
        return False
    launches = device.launch_us * len(s.phases)
    return launches + step_us(s, device, stepped=True) < step_us(s, device, stepped=False)


def step_us(s: GpuRecurrence, device: Device, stepped: bool) -> float:
    """What all phases of a step are estimated to take, in microseconds, launches not counted."""
    tiles, cache = tiles_of(s, stepped), _CACHE_SPEED * device.bytes_per_second
    if stepped:
        read = s.weight_bytes * s.directions * tiles.slices
        return read / cache * 1e6 + _WAIT_US * len(s.phases)
    near = s.weight_bytes <= _NEAR_SHARE * device.shared_per_sm
    speed = _NEAR_BYTES_PER_SECOND if near else cache / device.sms
    return s.weight_bytes / speed * 1e6 + _WAIT_US * tiles.blocks * len(s.phases)
