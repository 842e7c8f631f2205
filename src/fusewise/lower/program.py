"""The lowered program: plain data that the runtime turns into machine code, memory and threads.

A native step is one kernel called by every worker on its share of the work. A host step runs the nodes of one group
by NumPy, through the reference evaluator, or through a kernel that takes shapes as data. Buffers are flat bytes; where they lie is
decided here, so the runtime only allocates.

A program with `symbols` is one for all sizes. Numbers of bytes, offsets, contents and ports' dimensions may then be sizes
(`ir.size`), several versions of a step are picked from by conditions, and arena buffers share places instead of having offsets:
the runtime makes numbers of all of these once for each new tuple of sizes (`runtime.plans`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from fusewise.ir.deciding import Condition
from fusewise.ir.graph import Check, Constant, Growing, Node, SizesConstant
from fusewise.ir.size import Symbol
from fusewise.ir.types import ValueType
from fusewise.records import record

__all__ = [
    "SIZES",
    "Account",
    "Buffer",
    "DataPosition",
    "Extent",
    "HostStep",
    "HostValue",
    "KernelCode",
    "NativeStep",
    "PackedInParts",
    "Packing",
    "Panels",
    "Place",
    "Port",
    "Program",
    "RowsOf",
    "StepVersions",
]

SIZES = -1
"""In place of a buffer's number: the int64 array of a step's own `sizes`."""


@record(frozen=True, slots=True)
class Panels:
    """A constant [outer..., depth..., columns] arranged as [outer][panel][depth][column of the panel].

    Axes are (extent, stride) in elements of the constant in C order, the first element at `offset`. `starts` has the
    first column of every run of `run` columns, and `runs` of these make a panel. Steps of the depth are multiplied by `factors`,
    over again where there are fewer of these; elements are float32 of 4 bytes, or what has 2 and is not multiplied.
    """

    offset: int
    outer: tuple[tuple[int, int], ...]
    depth: tuple[tuple[int, int], ...]
    column_stride: int
    starts: tuple[int, ...]
    run: int
    runs: int
    factors: tuple[float, ...] = (1.0,)
    itemsize: int = 4


RowsOf = Callable[[int, int], np.ndarray]
"""Of an array the rows from one to before another."""


@record(frozen=True, slots=True)
class PackedInParts:
    """How a constant is packed from some rows at a time: `fill` asks for these, and writes uint8[nbytes] on a 64-byte boundary."""

    nbytes: int
    fill: Callable[[RowsOf, np.ndarray], None]


@record(frozen=True, slots=True)
class Packing:
    """A constant as a kernel wants it: `pack` turns the original array into the bytes of the buffer.

    `recipe` names the transformation with all its parameters; two buffers with equal source and recipe are one. `panels` says
    the same as data when it is one of panels of float32 or of 16 bits, so that native code may do it; `parts` does it in little
    memory. `nbytes` is what it comes to for a GPU, 0 where `parts` say that, or it is as large as the constant.
    """

    recipe: str
    pack: Callable[[np.ndarray], np.ndarray]
    panels: Panels | None = None
    parts: PackedInParts | None = None
    nbytes: int = 0


@record(frozen=True, slots=True)
class Buffer:
    """Memory a step may name.

    `kind`: `arena` (planned, `offset` bytes into the one arena), `input` and `output` (the caller's arrays, `value`
    names the port), `constant` (filled once when the program is loaded, from `data`, which is forgotten then, by `packing`),
    `host` (a NumPy array produced or read by host steps, named `value`, static type, allocated once), `fault` (zeros, where
    kernels say what is wrong with their data), `sizes` (`contents`, integers of `nbytes // len(contents)` bytes, 8 or 4: a constant
    that is known in terms of sizes).

    In a program with symbols an arena buffer has no offset: buffers of one `place`, counted from 0 without gaps, are never alive
    together, and a place is as large as the largest of them.
    """

    kind: str
    nbytes: int
    offset: int = 0
    value: str = ""
    data: Constant | None = None
    packing: Packing | None = None
    contents: tuple[int, ...] = ()
    place: int = -1


@record(frozen=True, slots=True)
class Place:
    """Where a kernel argument points: `offset` bytes into a buffer, or into the step's own sizes where that is `SIZES`.

    `strides`, in elements, are those of a host step's operand that does not lie in ONNX's own order.
    """

    buffer: int
    offset: int = 0
    strides: tuple[int, ...] | None = None


@record(frozen=True)
class KernelCode:
    """One function `void symbol(ptr arguments, i64 low, i64 high, i64 of, i64 worker, i64 again)`; `arguments` is an array of
    pointers, and it does the parts from `low` up to `high` of `of` (`codegen.llvm.share.Share`).

    `key` describes the kernel completely (equal keys: equal code), `build` gives its LLVM IR text on demand: a cached
    kernel is loaded by key and never built again. `task` is a digest of the task. What takes more `effort` is compiled first,
    with the passes of its `level` (`runtime.jit.LEVELS`). `listing` gives its loops and tiles, for
    people, and the LLVM IR, both of one build; a kernel that has none is written as it is built.
    """

    symbol: str
    key: str
    build: Callable[[], str]
    task: str = ""
    effort: int = 1
    level: str = "full"
    listing: Callable[[], tuple[str, str]] | None = None

    def texts(self) -> tuple[str, str]:
        """Its loops and tiles, empty where it has none, and its LLVM IR."""
        return ("", self.build()) if self.listing is None else self.listing()


@record(frozen=True, slots=True)
class DataPosition:
    """Where a node's definition reads a position from data: `operand` names the tensor that holds it, `low` and `high` are the
    least and the largest that its position may be. With `wraps`, negative ones in the data count from the end."""

    node: str
    op: str
    operand: str
    low: int
    high: int
    wraps: bool = False

    def found(self, position: int) -> str:
        """A sentence about a position that is out of bounds."""
        given, least = position, self.low
        if self.wraps:
            given, least = position - (self.high + 1) * (position < 0), -self.high - 1
        allowed = (
            f"only {least} to {self.high} are allowed" if self.high >= self.low else "there is nothing to choose from"
        )
        return f"node {self.node!r} ({self.op}) finds {given} in its operand {self.operand!r}, where {allowed}: check the data"


@record(frozen=True, slots=True)
class Extent:
    """What a kernel may touch of one of its arguments: bytes from `low` up to `high` after where it points, all of the buffer where
    `high` is -1; those that `writes` says, also to write. `value` is the tensor that lies there, for people."""

    argument: str
    value: str
    low: int
    high: int
    writes: bool


@record(frozen=True, slots=True)
class NativeStep:
    """Call kernel number `kernel` with pointers to `arguments`. Workers meet at a barrier afterwards when `barrier`.

    With `strips`, a number of at least 4, this step and the next are tiled depth-first: each worker does so many parts of its
    share of both, a part of the next one when the following part of this one is done; its first and its last part of the next,
    which read what other workers make, after all have done the rest. With more `pieces` than one, which each share has, workers
    that are done early take pieces of the others' shares. `way` names the kernel and its parameters, for people. Of a task that
    reads positions from data, `sites` says where, by number; its argument `fault`, of two int64 to a site, then is 1 and the
    position where one was out of bounds. In a checked build `extents` has what it may touch of each argument.

    `sizes` are the numbers that its kernel reads from its last argument, an array of int64 at `Place(SIZES)`; it has that argument
    only if there are any. `touched` has for each argument the value of the graph that lies there, if any, and whether it is
    written: for people, and not in compiled files.
    """

    kernel: int
    arguments: tuple[Place, ...]
    label: str = ""
    group: int = -1
    barrier: bool = True
    way: str = ""
    strips: int = 0
    pieces: int = 1
    sites: tuple[DataPosition, ...] = ()
    extents: tuple[Extent, ...] = ()
    sizes: tuple[int, ...] = ()
    touched: tuple[tuple[str, bool], ...] = field(default=(), compare=False)


@record(frozen=True, slots=True)
class StepVersions:
    """A native step of which there are several: the first is run whose conditions all hold, so the last has none. Nothing is run
    where `extent`, the number of elements of its index space, is 0. No version is tiled with another step (`strips`)."""

    extent: int
    versions: tuple[tuple[tuple[Condition, ...], NativeStep], ...]

    @property
    def first(self) -> NativeStep:
        """The version that is tried first; all of them have its label and group."""
        return self.versions[0][1]

    @property
    def label(self) -> str:
        return self.first.label

    @property
    def group(self) -> int:
        return self.first.group


HostValue = tuple[str, Place | None, ValueType | None]
"""Name, and place and type of a static tensor in the memory of the program; anything else is an object."""


@record(frozen=True, slots=True)
class HostStep:
    """Run nodes, in order, on the host; `reasons` has, for each, why it is not native.

    `reads` are the values that come from outside and `writes` those that are wanted afterwards, by name: a `Place` with a
    type for a static tensor in native memory, or no place for a dynamic value kept as a Python object between host steps.
    """

    nodes: tuple[Node, ...]
    opset: int
    reads: tuple[HostValue, ...]
    writes: tuple[HostValue, ...]
    reasons: tuple[str, ...] = ()
    group: int = -1

    @property
    def label(self) -> str:
        """The node's name, or the operators of several."""
        return self.nodes[0].label if len(self.nodes) == 1 else "+".join(node.op for node in self.nodes)


@record(frozen=True, slots=True)
class Port:
    """An input or output of the program. `buffer` is -1 for an output that is a dynamic host value called `name`. `contents` are
    the elements of an input of integers that sizes are read from, in terms of symbols."""

    name: str
    type: ValueType
    buffer: int
    contents: tuple[int, ...] = ()


@record(frozen=True, slots=True)
class Account:
    """One group: its operators, the nodes of the user's model that it covers, arithmetic operations and bytes.

    `members` are the numbers of its nodes in the graph that was lowered; a compiled file has none.
    """

    operators: str
    nodes: tuple[str, ...]
    flops: int
    nbytes: int
    members: tuple[int, ...] = field(default=(), compare=False)


@record(frozen=True)
class Program:
    """Everything the runtime needs.

    `objects` are constants that only host steps read, by name; `workers` is how many workers scratch memory was sized
    for. `accounts` has what each group amounts to, by the number that steps call `group`. In a checked build
    all code looks at what it touches (`codegen.llvm.checked`). `exact` and `disabled` say how it was compiled, and hold for
    what is compiled while it runs.

    Each of `symbols` is a dimension of some input by itself, or an element of one. `checks` are asked of every new tuple of sizes,
    and `arena_bytes` is that at the hint. Inputs of its `growth` are written to, and what lies there then is none of `outputs`.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    buffers: tuple[Buffer, ...]
    kernels: tuple[KernelCode, ...]
    steps: tuple[NativeStep | StepVersions | HostStep, ...]
    arena_bytes: int
    groups: int
    opsets: tuple[tuple[str, int], ...] = ()
    objects: tuple[tuple[str, np.ndarray | SizesConstant], ...] = ()
    workers: int = 1
    accounts: tuple[Account, ...] = ()
    is_checked: bool = False
    exact: bool = False
    disabled: tuple[str, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    checks: tuple[Check, ...] = ()
    growth: Growing | None = None

    @property
    def host_nodes(self) -> list[dict[str, str]]:
        """Name, operator and reason of every node that runs on the host."""
        return [
            {"node": node.label, "op": node.op, "reason": reason}
            for step in self.steps
            if isinstance(step, HostStep)
            for node, reason in zip(step.nodes, step.reasons or ("",) * len(step.nodes), strict=True)
        ]

    @property
    def figures(self) -> dict[str, Any]:
        """How many groups, kernels and host steps, and which nodes run on the host and why."""
        return {
            "groups": self.groups,
            "kernels": len(self.kernels),
            "arena_bytes": self.arena_bytes,
            "host_steps": sum(isinstance(step, HostStep) for step in self.steps),
            "host": self.host_nodes,
        }
