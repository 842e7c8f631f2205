"""The table of rows: every operator that has one, and why the others have none."""

from __future__ import annotations

from benchmarks.operators.row import Row
from benchmarks.operators.rows.classic import CLASSIC
from benchmarks.operators.rows.elementwise import ELEMENTWISE
from benchmarks.operators.rows.movement import MOVEMENT
from benchmarks.operators.rows.numbers import NORMS, PRODUCTS, QUANTIZED, REDUCTIONS, TRAINED
from benchmarks.operators.rows.spectra import RANDOM, SPECTRA
from benchmarks.operators.rows.whole import CONTROL, SEQUENCES, TEXT
from benchmarks.operators.rows.windows import CONVOLUTIONS, POOLING, RECURRENT, SAMPLING

__all__ = ["NOT_MEASURED", "ROWS"]

ROWS: tuple[Row, ...] = (
    *ELEMENTWISE,
    *MOVEMENT,
    *REDUCTIONS,
    *NORMS,
    *PRODUCTS,
    *QUANTIZED,
    *TRAINED,
    *CONVOLUTIONS,
    *POOLING,
    *SAMPLING,
    *RECURRENT,
    *SPECTRA,
    *RANDOM,
    *TEXT,
    *SEQUENCES,
    *CONTROL,
    *CLASSIC,
)

NOT_MEASURED: dict[tuple[str, str], str] = {
    ("", "Constant"): "is no node of a graph once it is read",
    ("", "ImageDecoder"): "decodes files of images, which ONNX Runtime does not",
    ("ai.onnx.ml", "CastMap"): "takes a map, which no input of a compiled model can be",
    ("ai.onnx.ml", "DictVectorizer"): "takes a map, which no input of a compiled model can be",
    (
        "ai.onnx.preview.training",
        "Gradient",
    ): "is no computation by itself: it stands for the slopes of the graph around it",
}
"""Operators without a row, deprecated ones aside, and why."""
