"""Files that converters to float16 write, `onnxconverter_common` and that of ONNX Runtime, from plain exports."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.files.row import File
from benchmarks.files.sources import export

__all__ = ["HALVES"]


def _converted(source: str, tool: str, dynamo: bool, settings: Mapping[str, Any], folder: Path) -> None:
    import onnx

    if tool == "common":
        from onnxconverter_common import float16
    else:
        from onnxruntime.transformers import float16
    plain = folder / "plain.onnx"
    export(source, plain, dynamo)
    model = float16.convert_float_to_float16(onnx.shape_inference.infer_shapes(onnx.load(plain)), **settings)
    for left in folder.iterdir():
        left.unlink()
    onnx.save(model, folder / "model.onnx")


def _row(source: str, tool: str, dynamo: bool = False, ending: str = "", **settings: Any) -> File:
    make = partial(_converted, source, tool, dynamo, settings)
    return File(f"{source}_half_{tool}{ending}", "float16", make, tolerance=5e-3)


HALVES: tuple[File, ...] = (
    _row("bert", "common"),
    _row("bert", "runtime", keep_io_types=True),
    _row("gpt2", "runtime", dynamo=True, ending="_dynamo"),
    _row("clip_vision", "runtime"),
    _row("vit", "runtime", dynamo=True, ending="_dynamo"),
    _row("resnet", "common", keep_io_types=True),
    _row("mobilenet_v2", "runtime"),
    _row("qwen3", "runtime", keep_io_types=True),
    _row("convnext", "runtime", op_block_list=["LayerNormalization", "Softmax"], ending="_mixed"),
)
