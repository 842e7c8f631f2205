"""Operators that only name a new shape, or shuffle blocks, as Reshape and Transpose."""

from __future__ import annotations

from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["MOVEMENT"]


def _shaped(g: Notation, call: Call, x: TensorValue, *operands: TensorValue) -> TensorValue:
    """The same elements in the shape that the operator infers."""
    dims = call.output(0).dims
    return g.Reshape(x, list(dims), allowzero=int(0 in dims))


def _depth_to_space(g: Notation, call: Call, x: TensorValue) -> TensorValue:
    (n, c, h, w), size = x.dims, call.attribute("blocksize")
    if call.attribute("mode", "DCR") == "DCR":
        blocks = g.Transpose(g.reshape(x, [n, size, size, c // size**2, h, w]), perm=[0, 3, 4, 1, 5, 2])
    else:
        blocks = g.Transpose(g.reshape(x, [n, c // size**2, size, size, h, w]), perm=[0, 1, 4, 2, 5, 3])
    return g.reshape(blocks, [n, c // size**2, h * size, w * size])


def _space_to_depth(g: Notation, call: Call, x: TensorValue) -> TensorValue:
    (n, c, h, w), size = x.dims, call.attribute("blocksize")
    blocks = g.Transpose(g.reshape(x, [n, c, h // size, size, w // size, size]), perm=[0, 3, 5, 1, 2, 4])
    return g.reshape(blocks, [n, c * size**2, h // size, w // size])


MOVEMENT: tuple[Decomposition, ...] = (
    row("Flatten", _shaped),
    row("Squeeze", _shaped),
    row("Unsqueeze", _shaped),
    row("DepthToSpace", _depth_to_space),
    row("SpaceToDepth", _space_to_depth),
)
