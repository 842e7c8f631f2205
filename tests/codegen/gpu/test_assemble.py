"""Whole graphs as programs for a GPU, run on the simulated device against ONNX's reference, node by node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

import numpy as np
import pytest
from tests.fusion.graphs import feeds_for, random_graph
from tests.runtime.gpu.kernels import needs_triton

from fusewise.benchmarking.node_by_node import answers_by_nodes
from fusewise.codegen.gpu import choose
from fusewise.codegen.gpu.device import Device, device_named
from fusewise.codegen.gpu.kernel import GpuKernel, NoKernel
from fusewise.codegen.gpu.program import GpuProgram, GpuStep
from fusewise.errors import InvalidData, UnsupportedModel
from fusewise.ir.dtypes import FLOAT16, FLOAT32, INT64, STRING
from fusewise.ir.graph import Constant, Graph
from fusewise.lower.program import HostStep, PackedInParts, Packing, RowsOf
from fusewise.lower.task import Task
from fusewise.making import GpuMaking, gpu_planned
from fusewise.ops.build import GraphBuilder
from fusewise.passes.later import rounded
from fusewise.runtime.gpu.executable import GpuExecutable
from fusewise.runtime.gpu.fake import FakeDriver
from fusewise.trace import Trace

pytestmark = needs_triton

RNG = np.random.default_rng(0)
SM_90 = device_named("sm_90")


@pytest.fixture(scope="module")
def device() -> Iterator[FakeDriver]:
    driver = FakeDriver("sm_90", 1 << 26)
    yield driver
    driver.close()


def program_of(graph: Graph, trace: Trace | None = None, **options: object) -> GpuProgram:
    return gpu_planned(graph, GpuMaking(SM_90, **options), trace).program


def checked(device: FakeDriver, graph: Graph, feeds: Mapping[str, np.ndarray], **options: object) -> GpuProgram:
    """Run a graph twice, in two orders, and hold its answers against the reference's."""
    program = program_of(graph, **options)
    wanted = answers_by_nodes(graph, feeds)
    with GpuExecutable(program, device) as model:
        first, second = (model.run(None, feeds) for _ in range(2))
    for name, found, again, reference in zip(graph.outputs, first, second, wanted, strict=True):
        np.testing.assert_array_equal(found, again, err_msg=name)
        bound = 2e-5 * max(1.0, float(np.abs(np.nan_to_num(reference)).max(initial=0)))
        np.testing.assert_allclose(found, reference, rtol=0, atol=bound, err_msg=name)
    return program


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def test_branches_that_are_written_into_one_concat(device: FakeDriver) -> None:
    """Both convolutions write their half of one buffer; nothing is copied, and neither waits for the other."""
    b = GraphBuilder("branches")
    x = b.input("x", (1, 3, 6, 6))
    parts = [b.op("Conv", x, b.constant(floats(4, 3, k, k)), pads=[k // 2] * 4) for k in (1, 3)]
    whole = b.op("Concat", *parts, axis=1)
    graph = b.finish(b.op("MaxPool", whole, kernel_shape=[2, 2]))
    program = checked(device, graph, {"x": floats(1, 3, 6, 6)})
    assert program.launches == 3
    assert sorted(program.edges) == [(0, 2), (1, 2)]


def test_what_a_kernel_stores_lies_anywhere(device: FakeDriver) -> None:
    """Boxes of a detector: channels are taken apart, and some joined with pixels, in a Concat. Nothing is copied for that."""
    b = GraphBuilder("boxes")
    parts = []
    for k, size in enumerate((4, 3)):
        y = b.op("Conv", b.input(f"x{k}", (1, 8, size, size)), b.constant(floats(6, 8, 1, 1)))
        parts.append(b.op("Reshape", y, b.constant(np.array([1, 2, -1], np.int64))))
    graph = b.finish(b.op("Concat", *parts, axis=2))
    feeds = {f"x{k}": floats(1, 8, size, size) for k, size in enumerate((4, 3))}
    assert checked(device, graph, feeds).launches == 2


def test_a_host_step_between(device: FakeDriver) -> None:
    b = GraphBuilder("host")
    x = b.input("x", (1, 3, 4, 4))
    y = b.op("Relu", b.op("Conv", x, b.constant(floats(4, 3, 3, 3)), pads=[1, 1, 1, 1]))
    values, places = b.op("TopK", y, b.constant(np.array([2], np.int64)), outputs=2)
    graph = b.finish(b.op("Add", values, b.constant(floats(2))), places)
    checked(device, graph, {"x": floats(1, 3, 4, 4)})
    trace = Trace(disabled=frozenset({"top_k"}))
    program = program_of(graph, trace)
    assert [isinstance(step, HostStep) for step in program.steps].count(True) == 1
    assert [event.what for event in trace if event.kind == "host"] == ["TopK"]
    checked(device, graph, {"x": floats(1, 3, 4, 4)}, disable=("top_k",))
    with pytest.raises(UnsupportedModel, match=r"1 nodes have no kernel .*TopK.*without --strict"):
        program_of(graph, trace, strict=True)


def test_outputs_that_are_inputs_constants_views_or_there_twice(device: FakeDriver) -> None:
    b = GraphBuilder("through")
    x = b.input("x", (2, 6))
    c = b.constant(np.arange(4, dtype=np.float32))
    y = b.op("Relu", x)
    turned = b.op("Transpose", b.op("Reshape", y, b.constant([3, 4])))
    graph = b.finish(x, c, y, y, turned, b.op("Slice", y, b.constant([1]), b.constant([5]), b.constant([1])))
    checked(device, graph, {"x": floats(2, 6)})


def test_a_position_out_of_bounds_is_told_with_its_node(device: FakeDriver) -> None:
    """Some steps read positions from data; each has its own place to tell of them."""
    b = GraphBuilder("gather")
    table, rows = b.input("table", (5, 3)), b.input("rows", (4,), INT64)
    first = b.op("Gather", table, rows, name="first")
    second = b.op("Gather", b.op("Softmax", first), b.input("more", (2,), INT64), name="second")
    third = b.op(
        "ScatterND", b.op("Relu", table), b.input("there", (2, 1), INT64), second, name="third", reduction="add"
    )
    graph = b.finish(b.op("MatMul", second, b.constant(floats(3, 2))), third)
    feeds = {"table": floats(5, 3), "rows": np.array([0, -1, 4, 2]), "more": np.array([3, 0])}
    feeds["there"] = np.array([[-4], [1]])
    program = checked(device, graph, feeds)
    assert len({site.node for step in program.steps if isinstance(step, GpuStep) for site in step.sites}) == 3
    with GpuExecutable(program, device) as model:
        for name, bad, node in (("rows", 5, "first"), ("more", -5, "second"), ("there", -6, "third")):
            with pytest.raises(InvalidData, match=f"'{node}'.*finds {bad} "):
                model.run(None, {**feeds, name: np.full_like(feeds[name], bad)})
        model.run(None, feeds)


def in_float16() -> Graph:
    """A product, a normalisation, an activation and attention that is written out, of float16 as a model stores it."""
    b = GraphBuilder("halves")

    def constant(*shape: int) -> str:
        return b.constant((floats(*shape) / 4).astype(np.float16))

    x = b.input("x", (8, 32), FLOAT16)
    h = b.op("Add", b.op("MatMul", x, constant(32, 32)), constant(32))
    h = b.op("LayerNormalization", h, constant(32), constant(32))
    q = b.op("Reshape", b.op("Relu", h), b.constant([1, 2, 8, 16]))
    scores = b.op("Softmax", b.op("MatMul", q, b.op("Transpose", q, perm=[0, 1, 3, 2])))
    return b.finish(b.op("MatMul", scores, q))


def test_models_in_float16_multiply_float16_and_lose_no_fusion(device: FakeDriver) -> None:
    graph, feeds = in_float16(), {"x": floats(8, 32).astype(np.float16)}
    planned = gpu_planned(graph, GpuMaking(SM_90))
    assert planned.program.precision == "float16"
    assert "Attention" in {node.op for node in planned.graph.nodes}
    products = [kernel for kernel in planned.program.kernels if kernel.symbol.startswith("product")]
    assert products
    for kernel in products:
        types = dict(zip(kernel.arguments, kernel.types, strict=True))
        assert types["in0"] == types["const0"] == "fp16"
    (wanted,) = answers_by_nodes(graph, feeds)
    with GpuExecutable(planned.program, device) as model:
        (found,) = model.run(None, feeds)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float32), wanted.astype(np.float32), rtol=0, atol=0.01)
    assert program_of(graph, exact=True).precision == "exact"


def test_weights_of_16_bits_stay_so(device: FakeDriver) -> None:
    b = GraphBuilder("short")
    x, w = b.input("x", (16, 64)), b.constant(floats(64, 64))
    graph = b.finish(b.op("MatMul", x, w))
    stored = Constant(graph.constants[w].array.astype(np.float16))
    graph = graph.replace(constants={w: rounded(stored, FLOAT32)})
    program = checked(device, graph, {"x": floats(16, 64)})
    assert sum(one.nbytes for one in program.buffers if one.kind == "constant") == stored.type.nbytes


def test_nothing_at_all(device: FakeDriver) -> None:
    """Tensors without elements need no launch."""
    b = GraphBuilder("empty")
    x = b.input("x", (0, 3))
    graph = b.finish(b.op("Relu", x), b.op("ReduceSum", x, b.constant([0]), keepdims=0))
    program = checked(device, graph, {"x": np.zeros((0, 3), np.float32)})
    assert program.launches == 1


def test_sizes_have_to_be_known() -> None:
    b = GraphBuilder("free")
    x = b.input("x", ("batch", 3))
    with pytest.raises(UnsupportedModel, match=r"some are free: x\[batch,3\]; give each a size"):
        program_of(b.finish(b.op("Relu", x)))


def test_inputs_have_to_lie_in_memory() -> None:
    b = GraphBuilder("words")
    with pytest.raises(UnsupportedModel, match=r"^input 'x' is string\[2\], which no memory of a GPU holds$"):
        program_of(b.finish(b.op("Identity", b.input("x", (2,), STRING))))


def test_kernels_are_refused_by_name() -> None:
    """What is left is the nest, which nobody refuses."""
    b = GraphBuilder("softmax")
    graph = b.finish(b.op("Softmax", b.input("x", (8, 64))))
    usual, other = program_of(graph), program_of(graph, disable=("rows",))
    assert [program.kernels[0].symbol.partition("_")[0] for program in (usual, other)] == ["rows", "nest"]


@pytest.mark.parametrize("number", range(8))
def test_random_graphs(device: FakeDriver, number: int) -> None:
    graph = random_graph(Random(number), FLOAT32, nodes=4 + number)
    checked(device, graph, feeds_for(graph, number))


# --- a family of kernels that asks for packed constants, working memory and a second launch ---------------------------------

_SPLIT = """
@triton.jit
def {name}({arguments}):
    at = tl.arange(0, 4)
    {body}
"""


def _kernel(name: str, arguments: tuple[str, ...], body: str, **more: object) -> GpuKernel:
    source = _SPLIT.format(name=name, arguments=", ".join(arguments), body=body)
    types = ("fp32",) * len(arguments)
    return GpuKernel(name, source, arguments, types, (16,) * len(arguments), (1,), 1, **more)


def _in_two(task: Task, device: Device, precision: str) -> GpuKernel:
    """x * w of four elements, w doubled when it is packed, by way of working memory."""
    if {operand.name for operand in task.operands} != {"out0", "in0", "const0"}:
        raise NoKernel("another task")
    packing = Packing("doubled", lambda array: array * 2, parts=PackedInParts(16, _doubled))
    first = "tl.store(scratch + at, tl.load(in0 + at) * tl.load(const0 + at))"
    second = _kernel(f"then_{task.digest}", ("out0", "scratch"), "tl.store(out0 + at, tl.load(scratch + at))")
    return _kernel(
        f"two_{task.digest}",
        ("in0", "const0", "scratch"),
        first,
        scratch_bytes=16,
        then=(second,),
        packed=(("const0", packing),),
    )


def _doubled(rows: RowsOf, out: np.ndarray) -> None:
    out.view(np.float32)[:] = 2 * rows(0, 4)


def test_packed_constants_and_working_memory(device: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """One constant for both that read it by the same recipe, its own working memory for each."""
    monkeypatch.setattr(choose, "FAMILIES", (choose.KernelFamily("two", _in_two), *choose.FAMILIES))
    b = GraphBuilder("split")
    x, w = b.input("x", (4,)), b.constant(floats(4))
    graph = b.finish(b.op("Mul", x, w), b.op("Mul", b.input("y", (4,)), w))
    program = program_of(graph, fusion="none")
    assert (program.launches, len(program.kernels)) == (4, 2)
    kinds = [buffer.kind for buffer in program.buffers]
    assert (kinds.count("constant"), kinds.count("arena")) == (1, 2)
    feeds = {"x": floats(4), "y": floats(4)}
    with GpuExecutable(program, device) as model:
        for found, value in zip(model.run(None, feeds), feeds.values(), strict=True):
            np.testing.assert_array_equal(found, value * (2 * graph.constants[w].array))
