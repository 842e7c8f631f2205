"""How host steps call the native code for boxes (`codegen.families.boxes`): symbols, arguments, sizes.

Apart from that code, so that a compiled model can be opened without the code generator.
"""

from __future__ import annotations

__all__ = [
    "ALIGN_ARGUMENTS",
    "ALIGN_BOXES",
    "ALIGN_HEADER",
    "CHUNK",
    "LANES",
    "SUPPRESS_ARGUMENTS",
    "SUPPRESS_BOXES",
    "SUPPRESS_HEADER",
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

SUPPRESS_BOXES = "host_suppress_boxes"
"""The symbol of `boxes.suppress_boxes`."""

SUPPRESS_ARGUMENTS = (
    *("boxes", "scores", "rows", "count", "limits", "header", "chosen"),
    *("keys", "places", "other_keys", "other_places", "digits"),
)
"""Pointers: float32 [images, boxes, 4] and [images, classes, boxes]; i64 [classes of all images, most, 3] to fill with image, class
and box, and i64 [1] with how many of these rows there are; float32 overlap that is too much, and score that is too little;
`SUPPRESS_HEADER`; to work in, float32 [5, room], four times i32 [boxes], and `digit_bytes` of 32 bits."""

SUPPRESS_HEADER = ("classes", "of_image", "boxes", "most", "room", "centred", "all")
"""i64 words: classes of all images and of one; boxes of an image; how many of a class may be chosen, and that in whole `LANES`; are
boxes given by centre and extent; does every score count?"""

LANES = 16
"""Channels, or chosen boxes, that are handled together; LLVM splits them where registers are shorter."""

CHUNK = 4 * LANES
"""Channels whose results wait in scratch memory until they are written in ONNX's order."""
