"""How the zoo's tests run a graph: in ONNX Runtime, on seeded inputs. Nothing of the frontend is needed for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx.helper import make_graph, make_model, make_opsetid, make_value_info

from fusewise.ir.graph import Graph
from fusewise.ops.proto import node_to_proto, tensor_to_proto, type_to_proto

Run = Callable[..., list[np.ndarray]]


def _model(graph: Graph, outputs: tuple[str, ...]) -> onnx.ModelProto:
    inputs, results = (
        [make_value_info(name, type_to_proto(graph.types[name])) for name in names] for names in (graph.inputs, outputs)
    )
    weights = [tensor_to_proto(constant.array, name) for name, constant in graph.constants.items()]
    body = make_graph([node_to_proto(node) for node in graph.nodes], graph.name, inputs, results, weights)
    return make_model(body, opset_imports=[make_opsetid("", graph.opset)], ir_version=10)


def _feeds(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feeds: dict[str, np.ndarray] = {}
    for name in graph.inputs:
        dims = graph.tensor(name).dims
        if graph.tensor(name).dtype.is_float:
            feeds[name] = rng.standard_normal(dims, dtype=np.float32)
        elif name == "attention_mask":  # the last eighth is padding
            feeds[name] = np.broadcast_to(np.arange(dims[1]) < dims[1] * 7 // 8, dims).astype(np.int64)
        else:
            feeds[name] = rng.integers(0, 2 if name == "token_type_ids" else 30000, dims)
    return feeds


@pytest.fixture(scope="session")
def feeds_of() -> Callable[[Graph, int], dict[str, np.ndarray]]:
    """`feeds_of(graph, seed)`: standard normal images, random token ids, a mask with some padding."""
    return _feeds


@pytest.fixture(scope="session")
def run_reference() -> Run:
    """`run_reference(graph, *feeds, outputs=...)`: for each feed the outputs, in ONNX Runtime; one session for all."""
    onnxruntime = pytest.importorskip("onnxruntime")

    def run(
        graph: Graph, *feeds: dict[str, np.ndarray], outputs: tuple[str, ...] | None = None
    ) -> list[list[np.ndarray]]:
        wanted = graph.outputs if outputs is None else outputs
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        data = _model(graph, wanted).SerializeToString()
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        return [session.run(list(wanted), feed) for feed in feeds]

    return run
