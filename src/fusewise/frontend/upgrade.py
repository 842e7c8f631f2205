"""Old operators in terms of the pinned opset.

`UPGRADES` is the table: a node written before opset `before` is rewritten by `adapt`. Operators that are not in it either
did not change since opset 7, or only learned new types, optional attributes and optional operands whose defaults are the
old behaviour. Where ONNX left old behaviour open (nearest-neighbour rounding before opset 11) ONNX Runtime's is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from fusewise.errors import InvalidModel, UnsupportedModel
from fusewise.frontend.upgrade_scan import scan_8
from fusewise.ir.dtypes import FLOAT32, DType
from fusewise.ir.graph import Node, attributes_of
from fusewise.ir.types import TensorType, ValueType

__all__ = ["OLDEST_OPSET", "PINNED_OPSET", "UPGRADES", "Upgrade", "UpgradeSite", "upgraded"]

PINNED_OPSET = 23
OLDEST_OPSET = 7


class UpgradeSite(Protocol):
    """The graph under construction around a node."""

    def type_of(self, name: str) -> ValueType | None:
        """The type of a value."""

    def value_of(self, name: str) -> np.ndarray | None:
        """The contents of a value, when small and known."""

    def fresh(self, stem: str) -> str:
        """A name not used anywhere in the model."""

    def constant(self, array: np.ndarray, stem: str) -> str:
        """Add a constant; returns its name."""

    def is_read(self, name: str) -> bool:
        """Does anything read the value?"""


Adapt = Callable[[Node, int, UpgradeSite], list[Node]]


@dataclass(frozen=True)
class Upgrade:
    """How to rewrite a node written before opset `before` (None: whatever the opset)."""

    before: int | None
    adapt: Adapt


def upgraded(node: Node, version: int, site: UpgradeSite) -> list[Node]:
    """The nodes of the pinned opset that do what `node` does in opset `version`. Their origin is the node's."""
    row = UPGRADES.get(node.op) if not node.domain else None
    if row is None or (row.before is not None and version >= row.before):
        return [node]
    return row.adapt(node, version, site)


def dtype_of_operand(node: Node, site: UpgradeSite, position: int = 0) -> DType:
    """The element type of an operand; float32 when unknown."""
    kind = site.type_of(node.inputs[position])
    return kind.dtype if isinstance(kind, TensorType) else FLOAT32


def step(node: Node, site: UpgradeSite, op: str, *inputs: str, output: str = "", **attributes: Any) -> Node:
    """A further node that stands for part of `node`; it writes `output`, or a new value."""
    name = site.fresh(f"{node.label}_{op.lower()}")
    given = {key: value for key, value in attributes.items() if value is not None}
    return Node(op, inputs, (output or name,), attributes_of(**given), name=name, origin=node.origin)


@dataclass(frozen=True)
class Moved:
    """An attribute that became operand `position`: int64 list, int64 single-element list or scalar, or of the data's type."""

    attribute: str
    position: int
    kind: str
    default: Any = None


def moved(*rows: Moved) -> Adapt:
    """Attributes that became operands."""

    def adapt(node: Node, version: int, site: UpgradeSite) -> list[Node]:
        inputs = list(node.inputs)
        for row in rows:
            value = node.attribute(row.attribute, row.default)
            if value is None:
                continue
            if row.kind == "data":
                array = np.array(value, dtype=dtype_of_operand(node, site).numpy)
            else:
                array = np.array([value] if row.kind == "one" else value, dtype=np.int64)
            inputs += [""] * (row.position + 1 - len(inputs))
            inputs[row.position] = site.constant(array, f"{node.label}_{row.attribute}")
        dropped: dict[str, None] = {row.attribute: None for row in rows}
        return [node.with_inputs(inputs).with_attributes(**dropped)]

    return adapt


def split(node: Node, version: int, site: UpgradeSite) -> list[Node]:
    """Split into equal parts: since opset 18 their number is written down, and only since then the last may be smaller."""
    if node.attribute("split") is not None:
        return moved(Moved("split", 1, "list"))(node, version, site)
    if len(node.inputs) > 1 and node.inputs[1]:
        return [node]
    kind, axis, count = site.type_of(node.inputs[0]), node.attribute("axis", 0), len(node.outputs)
    if isinstance(kind, TensorType) and kind.shape is not None and -len(kind.shape) <= axis < len(kind.shape):
        extent = kind.shape[axis]
        if isinstance(extent, int) and extent % count:
            raise InvalidModel(
                f"node {node.label!r} (Split): the {extent} elements of axis {axis} do not make {count} equal parts"
            )
    return [node.with_attributes(num_outputs=count)]


def softmax(node: Node, version: int, site: UpgradeSite) -> list[Node]:
    """Softmax, LogSoftmax and Hardmax over all dimensions from `axis` on; since opset 13 over `axis` alone.

    y = Softmax(x, axis=1)   ->   a = Flatten(x, axis=1); b = Softmax(a, axis=-1); y = Reshape(b, Shape(x))
    """
    kind = site.type_of(node.inputs[0])
    shape = kind.shape if isinstance(kind, TensorType) else None
    axis = node.attribute("axis", 1)
    if shape is not None:
        if shape and not -len(shape) <= axis < len(shape):
            raise InvalidModel(
                f"node {node.label!r} ({node.op}) has the axis {axis}, but its operand {len(shape)} dimensions"
            )
        at = axis % len(shape) if shape else 0
        if all(dim == 1 for dim in shape[at + 1 :]):
            return [node.with_attributes(axis=at - len(shape) if shape else -1)]
    flat = step(node, site, "Flatten", node.inputs[0], axis=axis)
    inner = replace(
        node.with_inputs(flat.outputs).with_attributes(axis=-1), outputs=(site.fresh(f"{node.label}_flat"),)
    )
    if isinstance(kind, TensorType) and kind.is_static:
        target = site.constant(np.array(kind.dims, dtype=np.int64), f"{node.label}_shape")
        back = step(
            node,
            site,
            "Reshape",
            *inner.outputs,
            target,
            output=node.outputs[0],
            allowzero=1 if 0 in kind.dims else None,
        )
        return [flat, inner, back]
    shape_node = step(node, site, "Shape", node.inputs[0])
    return [
        flat,
        inner,
        shape_node,
        step(node, site, "Reshape", *inner.outputs, *shape_node.outputs, output=node.outputs[0]),
    ]


def batch_normalization(node: Node, version: int, site: UpgradeSite) -> list[Node]:
    """Drops outputs that only training had; statistics per element (`spatial=0`, before opset 9) are written out."""
    if any(site.is_read(name) for name in node.outputs[1:] if name):
        raise UnsupportedModel(
            f"node {node.label!r} (BatchNormalization) is in training mode; export the model for inference"
        )
    plain = replace(node.with_attributes(spatial=None), outputs=node.outputs[:1])
    if node.attribute("spatial", 1):
        return [plain]
    data, scale, bias, mean, variance = node.inputs
    epsilon = site.constant(
        np.array(node.attribute("epsilon", 1e-5), dtype=dtype_of_operand(node, site).numpy), f"{node.label}_epsilon"
    )
    centred = step(node, site, "Sub", data, mean)
    safe = step(node, site, "Add", variance, epsilon)
    deviation = step(node, site, "Sqrt", *safe.outputs)
    normal = step(node, site, "Div", *centred.outputs, *deviation.outputs)
    scaled = step(node, site, "Mul", *normal.outputs, scale)
    return [
        centred,
        safe,
        deviation,
        normal,
        scaled,
        step(node, site, "Add", *scaled.outputs, bias, output=plain.outputs[0]),
    ]


def dropout(node: Node, version: int, site: UpgradeSite) -> list[Node]:
    """Inference only: the data pass through. The mask was of the data's type before opset 10, and empty, not full."""
    plain = node.with_attributes(ratio=None)
    mask = node.outputs[1] if len(node.outputs) > 1 else ""
    if not mask or not site.is_read(mask):
        return [replace(plain, outputs=node.outputs[:1])]
    kept = site.fresh(mask)
    plain = replace(plain, outputs=(node.outputs[0], kept))
    if version >= 10:
        return [plain, step(node, site, "Not", kept, output=mask)]
    dropped = step(node, site, "Not", kept)
    return [
        plain,
        dropped,
        step(node, site, "Cast", *dropped.outputs, output=mask, to=dtype_of_operand(node, site).onnx),
    ]


def resize_10(node: Node, version: int, site: UpgradeSite) -> list[Node]:
    """Upsample, and Resize of opset 10: pixel i reads i / scale. Nearest rounds down, but up where it shrinks.

    An axis that shrinks and one that grows need different rounding, so they are resized one after the other.
    """
    if node.op == "Upsample" and node.attribute("scales") is not None:
        known: np.ndarray | None = np.array(node.attribute("scales"), dtype=np.float32)
        operand = site.constant(np.array(node.attribute("scales"), dtype=np.float32), f"{node.label}_scales")
    else:
        known, operand = site.value_of(node.inputs[1]), node.inputs[1]
    mode = {"bilinear": "linear", "trilinear": "linear"}.get(
        node.attribute("mode", "nearest"), node.attribute("mode", "nearest")
    )
    common: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "mode": mode}
    target = Node("Resize", (node.inputs[0], "", operand), node.outputs, name=node.name, origin=node.origin)
    if mode != "nearest":
        return [target.with_attributes(**common)]
    if known is None and node.op == "Resize":
        raise UnsupportedModel(
            f"node {node.label!r} (Resize, opset 10): its scales are computed; export with opset 11 or newer"
        )
    if known is None or np.all(known >= 1):
        return [target.with_attributes(**common, nearest_mode="floor")]
    if np.all(known <= 1):
        return [target.with_attributes(**common, nearest_mode="ceil")]
    shrink = site.constant(np.minimum(known, 1).astype(np.float32), f"{node.label}_shrink")
    grow = site.constant(np.maximum(known, 1).astype(np.float32), f"{node.label}_grow")
    first = step(node, site, "Resize", node.inputs[0], "", shrink, **common, nearest_mode="ceil")
    second = replace(target, inputs=(*first.outputs, "", grow)).with_attributes(**common, nearest_mode="floor")
    return [first, second]


def resize(node: Node, version: int, site: UpgradeSite) -> list[Node]:
    """Opset 11 wanted an empty `scales` beside `sizes`, and had a coordinate rule that opset 13 dropped."""
    if version < 11:
        return resize_10(node, version, site)
    inputs = list(node.inputs)
    if len(inputs) > 3 and inputs[3]:
        inputs[2] = ""
    if node.attribute("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize":
        inputs[1] = ""
    node = node.with_inputs(inputs)
    if node.attribute("coordinate_transformation_mode") != "tf_half_pixel_for_nn":
        return [node]
    if node.attribute("mode", "nearest") != "nearest" or node.attribute("nearest_mode") != "floor":
        raise UnsupportedModel(
            f"node {node.label!r} (Resize): tf_half_pixel_for_nn is understood only with nearest_mode=floor"
        )
    # floor((i + 0.5) / scale) is (i + 0.5) / scale - 0.5 rounded half up
    return [node.with_attributes(coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil")]


def group_normalization(node: Node, version: int, site: UpgradeSite) -> list[Node]:
    """Scale and bias were per group before opset 21, and are per channel since: each is repeated."""
    kind = site.type_of(node.inputs[0])
    channels = (
        kind.shape[1] if isinstance(kind, TensorType) and kind.shape is not None and len(kind.shape) > 1 else None
    )
    groups = node.attribute("num_groups")
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise InvalidModel(f"node {node.label!r} (GroupNormalization) has {groups} groups for {channels} channels")
    if not isinstance(channels, int):
        raise UnsupportedModel(f"node {node.label!r} (GroupNormalization, opset {version}): its channels are not known")
    column = site.constant(np.array([groups, 1], dtype=np.int64), f"{node.label}_column")
    full = site.constant(np.array([groups, channels // groups], dtype=np.int64), f"{node.label}_repeat")
    flat = site.constant(np.array([channels], dtype=np.int64), f"{node.label}_flat")
    nodes: list[Node] = []
    operands: list[str] = []
    for name in node.inputs[1:3]:
        first = step(node, site, "Reshape", name, column)
        second = step(node, site, "Expand", *first.outputs, full)
        third = step(node, site, "Reshape", *second.outputs, flat)
        nodes += [first, second, third]
        operands += third.outputs
    return [*nodes, node.with_inputs([node.inputs[0], *operands])]


def grid_sample(node: Node, version: int, site: UpgradeSite) -> list[Node]:
    """Modes were called after the two-dimensional case before opset 20."""
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = node.attribute("mode")
    return [node.with_attributes(mode=names[mode]) if mode in names else node]


def stft(node: Node, version: int, site: UpgradeSite) -> list[Node]:
    """A signal [batch, length], which PyTorch's exporter writes for a real one, is [batch, length, 1]."""
    kind = site.type_of(node.inputs[0])
    if not isinstance(kind, TensorType) or kind.shape is None or len(kind.shape) != 2:
        return [node]
    last = site.constant(np.array([-1], np.int64), f"{node.label}_axes")
    signal = step(node, site, "Unsqueeze", node.inputs[0], last)
    return [signal, node.with_inputs((*signal.outputs, *node.inputs[1:]))]


def roi_align(node: Node, version: int, site: UpgradeSite) -> list[Node]:
    """Before opset 16 there was no half-pixel shift."""
    return [node.with_attributes(coordinate_transformation_mode="output_half_pixel")]


def scatter(node: Node, version: int, site: UpgradeSite) -> list[Node]:
    """Scatter is ScatterElements since opset 11."""
    return [replace(node, op="ScatterElements")]


_AXES = Moved("axes", 1, "list")

UPGRADES: dict[str, Upgrade] = {
    "BatchNormalization": Upgrade(14, batch_normalization),
    "Clip": Upgrade(11, moved(Moved("min", 1, "data"), Moved("max", 2, "data"))),
    "DFT": Upgrade(20, moved(Moved("axis", 2, "scalar", 1))),
    "Dropout": Upgrade(12, dropout),
    "GridSample": Upgrade(20, grid_sample),
    "GroupNormalization": Upgrade(21, group_normalization),
    "Hardmax": Upgrade(13, softmax),
    "LogSoftmax": Upgrade(13, softmax),
    "Pad": Upgrade(11, moved(Moved("pads", 1, "list"), Moved("value", 2, "data"))),
    "ReduceL1": Upgrade(18, moved(_AXES)),
    "ReduceL2": Upgrade(18, moved(_AXES)),
    "ReduceLogSum": Upgrade(18, moved(_AXES)),
    "ReduceLogSumExp": Upgrade(18, moved(_AXES)),
    "ReduceMax": Upgrade(18, moved(_AXES)),
    "ReduceMean": Upgrade(18, moved(_AXES)),
    "ReduceMin": Upgrade(18, moved(_AXES)),
    "ReduceProd": Upgrade(18, moved(_AXES)),
    "ReduceSum": Upgrade(13, moved(_AXES)),
    "ReduceSumSquare": Upgrade(18, moved(_AXES)),
    "Resize": Upgrade(13, resize),
    "RoiAlign": Upgrade(16, roi_align),
    "STFT": Upgrade(None, stft),
    "Scan": Upgrade(9, scan_8),
    "Scatter": Upgrade(None, scatter),
    "Slice": Upgrade(10, moved(Moved("starts", 1, "list"), Moved("ends", 2, "list"), Moved("axes", 3, "list"))),
    "Softmax": Upgrade(13, softmax),
    "Split": Upgrade(18, split),
    "Squeeze": Upgrade(13, moved(_AXES)),
    "TopK": Upgrade(10, moved(Moved("k", 1, "one"))),
    "Unsqueeze": Upgrade(13, moved(_AXES)),
    "Upsample": Upgrade(None, resize_10),
}
