"""What pages call theirs: the files and names that a reader has before the first block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from tests.blocks import ROOT

import fusewise
from fusewise.ops.build import GraphBuilder

__all__ = ["names_of"]


def names_of(page: Path, folder: Path) -> dict[str, Any]:
    """The names that the blocks of a page may use; writes the files that they name into the folder."""
    make = OWNED.get(str(page.relative_to(ROOT)))
    return make(folder) if make else {}


def _network(folder: Path) -> dict[str, Any]:
    """A small convolutional network of `x`."""
    b, rng = GraphBuilder(), np.random.default_rng(0)
    x = b.input("x", (1, 4, 16, 16))
    weights = [
        b.constant(rng.standard_normal(shape, np.float32) / 8) for shape in ((8, 4, 3, 3), (8, 8, 3, 3), (8, 10))
    ]
    h = b.op("Relu", b.op("Conv", x, weights[0], pads=[1, 1, 1, 1], name="conv1"), name="relu1")
    h = b.op("MaxPool", h, kernel_shape=[2, 2], strides=[2, 2], name="pool")
    h = b.op("GlobalAveragePool", b.op("Conv", h, weights[1], pads=[1, 1, 1, 1], name="conv2"))
    fusewise.save(b.finish(b.op("MatMul", b.op("Flatten", h), weights[2])), folder / "model.onnx")
    return {"np": np, "fusewise": fusewise, "x": rng.standard_normal((1, 4, 16, 16), np.float32)}


def _sentences(folder: Path) -> dict[str, Any]:
    """A model of `ids` and a `mask` of any batch and length."""
    table = np.random.default_rng(0).standard_normal((100, 8), np.float32)
    sizes = ["batch", "sequence"]
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["rows"]),
            helper.make_node("Unsqueeze", ["mask", "last"], ["kept"]),
            helper.make_node("Mul", ["rows", "kept"], ["y"]),
        ],
        "sentences",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, sizes),
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, sizes),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*sizes, 8])],
        [onnx.numpy_helper.from_array(table, "table"), onnx.numpy_helper.from_array(np.array([2]), "last")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder / "model.onnx"
    )
    return {"np": np, "fusewise": fusewise, "ids": np.zeros((3, 17), np.int64), "mask": np.ones((3, 17), np.float32)}


def _decoder(folder: Path) -> dict[str, Any]:
    from tests.test_examples import of_tokens

    onnx.save(of_tokens(), folder / "decoder.onnx")
    return {"np": np, "fusewise": fusewise, "prompt": np.array([[3, 1, 4]]), "token": np.array([[1]]), "n": 3}


def _module(folder: Path) -> dict[str, Any]:
    """A network as ONNX, and a module of PyTorch."""
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).eval()
    return _network(folder) | {"torch": torch, "model": module, "module": module, "example": torch.ones(2, 4)}


def _torch(folder: Path) -> dict[str, Any]:
    names = _module(folder)
    return names | {"x": names["example"]}


def _gpu(folder: Path) -> dict[str, Any]:
    """The small network, and a model of sentences of any batch and length."""
    _sentences(folder)
    (folder / "model.onnx").rename(folder / "sentences.onnx")
    return _network(folder)


HOW_TO = (
    *("a-slow-kernel", "a-wrong-answer", "another-machine", "cache-in-ci", "containers-and-threads"),
    *("report-a-problem", "serve-a-model", "sign-files"),
)

OWNED: Mapping[str, Callable[[Path], dict[str, Any]]] = MappingProxyType(
    {
        "README.md": _module,
        "docs/decoding.md": _decoder,
        "docs/free-dimensions.md": _sentences,
        "docs/kernels.md": _network,
        "docs/onnxruntime.md": _network,
        "docs/operators.md": _network,
        "docs/passes.md": _network,
        "docs/python.md": _sentences,
        "docs/pytorch.md": _torch,
        "docs/security.md": _network,
        "docs/substitutions.md": _network,
        **{f"docs/how-to/{name}.md": _network for name in HOW_TO},
        "docs/how-to/free-dimensions.md": _sentences,
        "docs/how-to/gpu.md": _gpu,
    }
)
"""By page. Pages that are not here make everything that they use; tutorials do."""
