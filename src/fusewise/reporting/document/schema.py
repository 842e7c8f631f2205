"""The report document as types: what `fusewise report -o x.json` writes.

Keys that do not apply to a document are missing or null. Within a version keys are only added; what is renamed, removed or given
another meaning makes another version, and a document of another version is not read. Sizes are in bytes, `ms` are milliseconds,
`us` microseconds, numbers of operations are floating-point operations. All texts may be hostile: names come from files that
anybody wrote.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

__all__ = [
    "SCHEMA",
    "SCHEMA_VERSION",
    "BufferPart",
    "ChartPart",
    "CompilePart",
    "DecisionPart",
    "DevicePart",
    "EstimatePart",
    "EstimatesPart",
    "GpuKernelPart",
    "GraphPart",
    "GroupPart",
    "ItemPart",
    "KernelPart",
    "MachinePart",
    "MadePart",
    "MemoryPart",
    "ModelPart",
    "NodePart",
    "ReportDocument",
    "StagePart",
    "StepPart",
    "TimesPart",
    "ValuePart",
    "VerdictPart",
]

SCHEMA, SCHEMA_VERSION = "fusewise-report", 1

Verb = Literal["report", "compile", "bench", "optimize", "passes", "plan", "verify"]

MappingName = Literal["one_to_one", "reorganize", "shuffle", "one_to_many", "many_to_many", "opaque"]
"""How an operator maps elements (docs/fusion.md)."""


class MadePart(TypedDict):
    """Who made the document: the version of Fusewise, the time (UTC, ISO 8601), and the command line, if there was one."""

    fusewise: str
    at: str
    command: str | None


class ModelPart(TypedDict):
    """What the model is, as `fusewise inspect --json` says it: types of inputs and outputs by name, sizes to plan for of free
    dimensions (`symbols`), numbers of nodes and parameters, and multiply-accumulates (`macs`; null where a shape is not
    known)."""

    name: str
    opset: int
    inputs: dict[str, str]
    outputs: dict[str, str]
    symbols: dict[str, int]
    nodes: int
    parameters: int
    macs: int | None
    model: NotRequired[str]
    unused_functions: NotRequired[list[str]]
    operators: NotRequired[dict[str, int]]
    mapping_types: NotRequired[dict[str, int]]


class CachePart(TypedDict):
    """A cache of data, nearest first."""

    name: str
    bytes: int


class MachinePart(TypedDict):
    """Where it was made: processor, system, workers that run the model (`threads`), what code may use, caches."""

    processor: str
    threads: int
    instruction_set: str
    caches: list[CachePart]
    system: NotRequired[str]


class StagePart(TypedDict):
    """A stage of the compilation: which of the `graphs` shows it, how long it took, and what it is in a sentence."""

    id: Literal["written", "clean", "native", "groups", "program"]
    title: str
    graph: str
    ms: float | None
    what: str


class ValuePart(TypedDict):
    """A value of a graph: its type, its size (null where that is not known), and whether it is known before the model runs."""

    type: str
    bytes: int | None
    constant: bool


class NodePart(TypedDict):
    """A node. `id` is its place in `nodes`; `inputs` ends with what bodies read from outside, and has "" for an operand that is
    left out. `bytes` are those of all it reads and writes. `origin` names nodes of the graph as it was written. Of the native
    graph also its `group`, what it `runs` as, and `how`."""

    id: int
    name: str
    op: str
    domain: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, str]
    mapping: MappingName
    flops: int
    bytes: int
    origin: list[str]
    group: int | None
    runs: Literal["kernel", "host", "view"] | None
    how: str


class ItemPart(TypedDict):
    """A box of the folded graph. A `scope` and a `group` have `children`; a `repeat` has those of one copy, how many `times` it
    is there, and the ids of the nodes of each copy."""

    kind: Literal["scope", "repeat", "group", "node"]
    title: str
    children: NotRequired[list[ItemPart]]
    times: NotRequired[int]
    copies: NotRequired[list[list[int]]]
    group: NotRequired[int]
    node: NotRequired[int]


class GraphPart(TypedDict):
    """A graph: nodes in an order in which each reads only what is written before, values by name, and the folded tree of the
    nodes, in which each is once."""

    inputs: list[str]
    outputs: list[str]
    nodes: list[NodePart]
    values: dict[str, ValuePart]
    outline: list[ItemPart]


class GraphsPart(TypedDict):
    """The model as it was written, after the clean-up, and as code was made of it (of a plan: as it was planned). Verbs that
    make no code leave out what they do not make."""

    written: GraphPart
    clean: NotRequired[GraphPart]
    native: NotRequired[GraphPart]


class GroupPart(TypedDict):
    """Nodes of the native graph that are computed in one go. `bytes_saved` of results are never written, `bytes` must be read or
    written, `stopped_by` says why it went no further, most often first."""

    id: int
    title: str
    nodes: list[int]
    mapping: MappingName
    anchor: int | None
    bytes_saved: int
    flops: int
    bytes: int
    stopped_by: list[str]
    steps: list[int]


_Ends = TypedDict("_Ends", {"from": int, "to": int})


class VerdictPart(_Ends):
    """An edge of the native graph, `from` a node `to` a node: does it lie within a group, why, what that saves or would save, by
    the estimate of the planner in ms where it was asked, the name of the decision, and what on the command line changes it (null
    where nothing does)."""

    value: str
    fused: bool
    verdict: Literal["fuse", "ask", "break"]
    reason: str
    saved_bytes: int
    saved_ms: float | None
    rule: str | None
    option: str | None


class GpuKernelPart(TypedDict):
    """What a kernel was compiled to for a GPU: threads of a block, registers of a thread, bytes of shared memory of a block and of
    a thread's stack, instructions that multiply tiles; how many blocks a multiprocessor holds, for want of what no more, and the
    share of its warps that these are."""

    threads: int
    registers: int
    shared_bytes: int
    stack_bytes: int
    tensor_instructions: int
    blocks_per_multiprocessor: int
    occupancy: float
    occupancy_limit: str


class EstimatePart(TypedDict):
    """What a launch may take, not measured: `us`, of which `launch_us` are the launch's own, and behind it the longer of moving
    bytes and of arithmetic; `limit` is what takes longest, `waves` how often its blocks fill the device."""

    us: float
    launch_us: float
    memory_us: float
    arithmetic_us: float
    waves: float
    bytes: int
    operations: int
    limit: str


class KernelPart(TypedDict):
    """Code: the family and schedule that it was made by, its loops and tiles as text, its LLVM IR, the bytes of its object
    file. One for a GPU has neither of these two, but its `source` for Triton, and what it takes there (`gpu`)."""

    id: int
    symbol: str
    way: str
    family: str
    schedule: dict[str, str]
    nest: str
    ir: str
    code_bytes: int | None
    steps: list[int]
    source: NotRequired[str]
    gpu: NotRequired[GpuKernelPart]


class StepPart(TypedDict):
    """A step of the program. All workers wait for each other behind it where there is a `barrier`; it takes turns with the next
    where `strips` is not 0. `reason`: why its nodes run on the host. For a GPU it is one launch, which begins when those are done
    that it `waits_for`."""

    index: int
    kind: Literal["native", "host"]
    kernel: int | None
    group: int | None
    label: str
    barrier: bool
    strips: int
    reads: list[str]
    writes: list[str]
    reason: str
    waits_for: NotRequired[list[int]]
    estimate: NotRequired[EstimatePart]


class DecisionPart(TypedDict):
    """A decision, in the order in which they were made. Costs before and after are in the `unit`; `option` takes it back."""

    serial: int
    kind: str
    what: str
    where: list[str]
    reason: str
    before: float | None
    after: float | None
    unit: str | None
    applied: bool
    option: str | None


class DevicePart(TypedDict):
    """The GPU that a model is for: the architecture, and the product that stands for it with the figures of its data sheet.
    `shared_bytes` of a multiprocessor, `peaks_gflops` by type, dense; `launch_us` is an estimate."""

    architecture: str
    product: str
    multiprocessors: int
    shared_bytes: int
    l2_bytes: int
    copy_gbs: float
    peaks_gflops: dict[str, float]
    launch_us: float


class TakenPart(TypedDict):
    """A stage and what it took."""

    name: str
    ms: float


class CompilePart(TypedDict):
    """What compiling took, as a whole and by stage; so many kernels were in the cache, and not compiled."""

    ms: float
    stages: list[TakenPart]
    cached_kernels: NotRequired[int]


class OccupiedPart(TypedDict):
    """Bytes of the arena that hold something while a step runs."""

    step: int
    live_bytes: int


class BufferPart(TypedDict):
    """Memory that steps use: what it is called by (empty for working memory), all values that lie there, its kind (`arena`,
    `constant`, `input`, `output`, `host`, `fault`, `sizes`), where it lies in the arena, and the steps from the first to the last
    that use it."""

    value: str
    values: list[str]
    kind: str
    offset: int | None
    bytes: int
    first: int
    last: int


class MemoryPart(TypedDict):
    """The arena that intermediate results share, packed constants, and each buffer."""

    arena_bytes: int
    constant_bytes: int | None
    steps: list[OccupiedPart]
    buffers: list[BufferPart]


class LevelPart(TypedDict):
    """A level of the caches, or memory: its size, the rate that it was measured at, and how far measurements lay apart."""

    name: str
    bytes: int | None
    gbs: float
    spread: float


class LimitsPart(TypedDict):
    """What the machine can do: 10^9 operations and bytes in a second."""

    gflops: float
    copy_gbs: float
    levels: list[LevelPart]


class GroupTimePart(TypedDict):
    """What a group took, beside its roof (docs/profiling.md): `ms` is a median, `share` of the whole, `peak` the share of its
    roof that it reached, `bound` what that is of. Of an estimate `limit` is what most of it is for: the launch, memory, arithmetic,
    tensor cores."""

    group: int
    operators: str
    ms: float
    share: float
    flops: int
    bytes: int
    level: str
    ceiling_gflops: float
    ceiling_gbs: float
    gflops: float
    gbs: float
    peak: float
    bound: str
    limit: NotRequired[str]
    kernels: list[str]
    nodes: list[str]


class BarPart(TypedDict):
    """A worker's share of a step in the fastest run, in microseconds."""

    step: int
    worker: int
    start_us: float
    us: float


class WorkerPart(TypedDict):
    """What a worker did in the fastest run, and how long it waited."""

    worker: int
    busy_us: float
    wait_us: float


class TimesPart(TypedDict):
    """Runs that were timed: the median, of so many, what else kept the machine busy, its limits, groups, and the fastest run. On
    a GPU by its clock, each launch by itself, so that there is no picture of a run; limits are those of its data sheet."""

    ms: float
    runs: int
    threads: int
    gflops: float
    disturbed: str | None
    limits: LimitsPart
    groups: list[GroupTimePart]
    timeline: list[BarPart]
    workers: list[WorkerPart]


class EstimatesPart(TypedDict):
    """Of a model for a GPU what its launches may take one after the other, and each group as in `times`: nothing was measured.
    `limits` are those of the device's data sheet."""

    ms: float
    gflops: float
    limits: LimitsPart
    groups: list[GroupTimePart]


class ChartPart(TypedDict):
    """A chart as Vega-Lite with its data inside, a sentence for who cannot see it, and the same data as a table."""

    id: str
    title: str
    section: str
    about: str
    spec: dict[str, Any]
    rows: list[list[Any]]


class ReportDocument(TypedDict):
    """The whole document."""

    schema: Literal["fusewise-report"]
    version: Literal[1]
    title: str
    verb: Verb
    made: MadePart
    model: NotRequired[ModelPart | None]
    machine: NotRequired[MachinePart | None]
    options: NotRequired[dict[str, Any] | None]
    stages: NotRequired[list[StagePart]]
    graphs: NotRequired[GraphsPart | None]
    groups: NotRequired[list[GroupPart]]
    verdicts: NotRequired[list[VerdictPart]]
    kernels: NotRequired[list[KernelPart]]
    steps: NotRequired[list[StepPart]]
    decisions: NotRequired[list[DecisionPart]]
    compile: NotRequired[CompilePart | None]
    memory: NotRequired[MemoryPart | None]
    times: NotRequired[TimesPart | None]
    device: NotRequired[DevicePart | None]
    estimates: NotRequired[EstimatesPart | None]
    search: NotRequired[dict[str, Any] | None]
    passes: NotRequired[dict[str, Any] | None]
    plan: NotRequired[dict[str, Any] | None]
    verification: NotRequired[dict[str, Any] | None]
    bench: NotRequired[dict[str, Any] | None]
    comparison: NotRequired[dict[str, Any] | None]
    charts: NotRequired[list[ChartPart]]
