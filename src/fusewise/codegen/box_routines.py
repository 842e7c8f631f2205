"""How host steps call the native code for boxes (`codegen.llvm.boxes`): symbols, arguments, sizes.

Apart from that code, so that a compiled model can be opened without the code generator.
"""

from __future__ import annotations

__all__ = [
    "ALIGN_ARGUMENTS",
    "ALIGN_BOXES",
    "ALIGN_HEADER",
    "CHOOSE_ARGUMENTS",
    "CHOOSE_BOXES",
    "CHOOSE_HEADER",
    "CHUNK",
    "LANES",
]

ALIGN_BOXES = "host_align_boxes"
"""The symbol of `boxes.align_boxes`."""

ALIGN_ARGUMENTS = (
    *("target", "source", "scratch", "header", "images"),
    *("row_starts", "row_taps", "row_offsets", "row_weights"),
    *("column_starts", "column_taps", "column_offsets", "column_weights"),
)
"""Pointers: float32 [boxes, channels, rows, columns] to fill, the features with channels side by side, `CHUNK` floats a cell for
each worker, `ALIGN_HEADER`, i64 offset of each box's image; then for each axis, by box, where its taps begin and how many a cell
has (i64), and by tap what it adds to the address, in elements (i64), and its share (float32)."""

ALIGN_HEADER = ("boxes", "rows", "columns", "channels")
"""i64 words."""

CHOOSE_BOXES = "host_choose_boxes"
"""The symbol of `boxes.choose_boxes`."""

CHOOSE_ARGUMENTS = ("sorted", "chosen", "found", "count", "limit", "header")
"""Pointers: float32 [5, boxes], the best box first: bounds of both axes as `low0, high0, low1, high1`, and area; float32 [5, room]
that begins as boxes without extent; i64 [room] for the chosen boxes' positions; i64 [1] for how many there are; float32 [1];
`CHOOSE_HEADER`."""

CHOOSE_HEADER = ("boxes", "room", "most")
"""i64 words; `room` is a multiple of `LANES` and at least `most`."""

LANES = 16
"""Channels, or chosen boxes, that are handled together; LLVM splits them where registers are shorter."""

CHUNK = 4 * LANES
"""Channels whose results wait in scratch memory until they are written in ONNX's order."""
