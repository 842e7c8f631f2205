"""Shapes where ONNX's inference says something else than the operator, or nothing: the operator decides.

Each correction gets the node, the types of its operands, what is known of their contents and what ONNX inferred, and gives
the shape of every output as it is by the operator's text, None where it cannot tell better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ir.types import Dim, TensorType, ValueType

__all__ = ["corrected_types"]

Shape = tuple[Dim, ...]
Types = tuple[ValueType | None, ...]
Arrays = tuple[np.ndarray | None, ...]
Correct = Callable[[Node, Types, Arrays, Shape | None], Shape | None]


def corrected_types(node: Node, types: Types, constants: Arrays, found: Types) -> Types:
    """`found`, ONNX's inference, with the shapes of outputs as the operator has them."""
    if node.op == "Attention" and not node.domain:
        return _attended(node, types, found)
    if node.op == "SVMClassifier" and node.domain == "ai.onnx.ml":
        return _supported(node, types, found)
    if node.op in ("LinearClassifier", "TreeEnsembleClassifier") and node.domain == "ai.onnx.ml":
        return _classified(node, types, found)
    correct = _CORRECTIONS.get(f"{node.domain}.{node.op}" if node.domain else node.op)
    if correct is None or not found or not isinstance(found[0], TensorType):
        return found
    shape = correct(node, types, constants, found[0].shape)
    if shape is None or shape == found[0].shape:
        return found
    return tuple(TensorType(kind.dtype, shape) if isinstance(kind, TensorType) else kind for kind in found)


def _shape(types: Types, i: int) -> Shape | None:
    kind = types[i] if i < len(types) else None
    return kind.shape if isinstance(kind, TensorType) else None


def _known(constants: Arrays, i: int) -> list[int] | None:
    found = constants[i] if i < len(constants) else None
    return None if found is None else [int(v) for v in found.reshape(-1).tolist()]


_TRANSPOSED = (("strides", 1), ("dilations", 1), ("output_padding", 0))


def _windowed(node: Node, types: Types, constants: Arrays, shape: Shape | None) -> Shape | None:
    """No window has a place where there is nothing; ONNX divides towards zero, and has one with a stride."""
    data = _shape(types, 0)
    if data is None or shape is None or len(data) != len(shape):
        return None
    rank = len(data) - 2
    pads = node.attribute("pads") or (0,) * (2 * rank)
    room = (n + pads[d] + pads[rank + d] if isinstance(n, int) else None for d, n in enumerate(data[2:]))
    return (*shape[:2], *(0 if n == 0 else dim for n, dim in zip(room, shape[2:], strict=True)))


def _transposed(node: Node, types: Types, constants: Arrays, shape: Shape | None) -> Shape | None:
    """ConvTranspose is as large as it is asked to be, smaller than its input too, which ONNX's inference leaves out; padded by
    SAME_* it is stride times the input, `output_padding` or not, and no more than there is to cut.
    """
    data, taps, asked = _shape(types, 0), _shape(types, 1), node.attribute("output_shape")
    same = node.attribute("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    if data is None or shape is None or not (same or asked):
        return None
    rank = len(data) - 2
    if asked:
        return (*shape[:2], *asked[-rank:])
    kernel: Sequence[Dim] = node.attribute("kernel_shape") or (taps[2:] if taps is not None else ())
    settings = [node.attribute(name) or (usual,) * rank for name, usual in _TRANSPOSED]
    if not all(len(values) == rank for values in (kernel, *settings)):
        return None
    sizes: list[Dim] = []
    for extent, size, stride, dilation, extra in zip(data[2:], kernel, *settings, strict=True):
        if isinstance(extent, int) and isinstance(size, int):
            whole = stride * (extent - 1) + extra + (size - 1) * dilation + 1
            sizes.append(min(stride * extent, whole) if extent else 0)
        else:
            sizes.append(None)
    return (*shape[:2], *sizes)


def _stft(node: Node, types: Types, constants: Arrays, shape: Shape | None) -> Shape | None:
    """Frames are as long as the window where their length is not given; half of a frame's bins, and one, tell all of a real one."""
    signal, window, step, length = _shape(types, 0), _shape(types, 2), _known(constants, 1), _known(constants, 3)
    given = len(node.inputs) > 3 and bool(node.inputs[3])
    frame: Dim = (length[0] if length else None) if given else (window[0] if window else None)
    if signal is None or len(signal) != 3 or not isinstance(frame, int):
        return None
    bins = frame // 2 + 1 if node.attribute("onesided", 1) else frame
    frames: Dim = None
    if isinstance(signal[1], int) and step and step[0] > 0:
        frames = (signal[1] - frame) // step[0] + 1
    return (signal[0], frames, bins, 2)


def _gather_nd(node: Node, types: Types, constants: Arrays, shape: Shape | None) -> Shape | None:
    """The indices' shape without its last axis, and of the data what an index leaves."""
    data, indices = _shape(types, 0), _shape(types, 1)
    batch = node.attribute("batch_dims", 0)
    if data is None or not indices or not isinstance(indices[-1], int) or not 0 <= batch < len(indices):
        return None
    return (*indices[:-1], *data[batch + indices[-1] :]) if batch + indices[-1] <= len(data) else None


def _like_data(node: Node, types: Types, constants: Arrays, shape: Shape | None) -> Shape | None:
    return _shape(types, 0)


def _targets(node: Node, types: Types, constants: Arrays, shape: Shape | None) -> Shape | None:
    """A number for each row and target."""
    data = _shape(types, 0)
    count = node.attribute("targets" if node.op in ("LinearRegressor", "SVMRegressor") else "n_targets", 1)
    return None if data is None or len(data) != 2 else (data[0], count)


def _supported(node: Node, types: Types, found: Types) -> Types:
    """A label for each row, and a score for each class, or, without probabilities, for every two of more than two."""
    data, classes = _shape(types, 0), node.attribute("classlabels_ints") or node.attribute("classlabels_strings") or ()
    if data is None or len(data) != 2 or len(found) < 2:
        return found
    count = len(classes)
    width = count * (count - 1) // 2 if count > 2 and not node.attribute("prob_a") else count
    return _labelled(found, data[0], width)


def _classified(node: Node, types: Types, found: Types) -> Types:
    """A label for each row, and a score for each of two classes or more."""
    names = ("classlabels_ints", "classlabels_int64s", "classlabels_strings")
    data, count = _shape(types, 0), max(len(node.attribute(name) or ()) for name in names)
    return found if data is None or len(data) != 2 or len(found) < 2 or count < 2 else _labelled(found, data[0], count)


def _labelled(found: Types, rows: Dim, width: int) -> Types:
    """Labels [rows], and scores [rows, width]."""
    return tuple(
        TensorType(kind.dtype, shape) if isinstance(kind, TensorType) else kind
        for kind, shape in zip(found, ((rows,), (rows, width)), strict=True)
    )


def _extracted(node: Node, types: Types, constants: Arrays, shape: Shape | None) -> Shape | None:
    """As many features as there are places; a vector is one row."""
    data, places = _shape(types, 0), _shape(types, 1)
    if not data or places is None:
        return None
    count, others = (math.prod(n for n in places if isinstance(n, int)), [n for n in places if not isinstance(n, int)])
    if others and (len(others) > 1 or count != 1):
        return None
    return (*(data[:-1] or (1,)), others[0] if others else count)


def _joined(node: Node, types: Types, constants: Arrays, shape: Shape | None) -> Shape | None:
    """The features of all operands side by side."""
    widths, data = node.attribute("inputdimensions") or (), _shape(types, 0)
    return None if data is None or len(data) != 2 else (data[0], sum(widths))


def _attended(node: Node, types: Types, found: Types) -> Types:
    """What Attention gives besides its result, of which ONNX's inference leaves out shapes without a past, and the past's
    share of the scores' without a present."""
    q, k, v = (types[i] if i < len(types) else None for i in range(3))
    known = [
        kind.shape for kind in (q, k, v) if isinstance(kind, TensorType) and kind.shape and len(kind.shape) in (3, 4)
    ]
    if len(known) < 3 or not (isinstance(q, TensorType) and isinstance(v, TensorType)):
        return found
    first, keys, values = known
    past = _shape(types, 4)
    heads, shared = node.attribute("q_num_heads"), node.attribute("kv_num_heads")
    if len(first) == 4:
        heads, shared = first[1], keys[1]
    given = len(node.inputs) > 4 and bool(node.inputs[4])
    before: Dim = 0 if not given else past[2] if past is not None and len(past) == 4 else None
    total = before + keys[-2] if isinstance(before, int) and isinstance(keys[-2], int) else None
    sizes = [
        n if len(first) == 4 else n // shared if isinstance(n, int) and isinstance(shared, int) and shared else None
        for n in (keys[-1], values[-1])
    ]
    states = [TensorType(t.dtype, (first[0], shared, total, n)) for t, n in zip((q, v), sizes, strict=True)]
    whole = (*states, TensorType(q.dtype, (first[0], heads, first[-2], total)))
    later = (
        better if name and (better.is_static or kind is None) else kind
        for name, kind, better in zip(node.outputs[1:], found[1:], whole, strict=False)
    )
    return (*found[:1], *later)


def _unpooled(node: Node, types: Types, constants: Arrays, shape: Shape | None) -> Shape | None:
    """What the third operand asks for."""
    wanted = _known(constants, 2)
    return None if wanted is None else tuple(wanted)


_CORRECTIONS: Mapping[str, Correct] = MappingProxyType(
    {
        "AveragePool": _windowed,
        "Conv": _windowed,
        "ConvInteger": _windowed,
        "ConvTranspose": _transposed,
        "GatherND": _gather_nd,
        "LpPool": _windowed,
        "MaxPool": _windowed,
        "MaxUnpool": _unpooled,
        "QLinearConv": _windowed,
        "STFT": _stft,
        **dict.fromkeys(("ai.onnx.ml.Imputer", "ai.onnx.ml.Normalizer", "ai.onnx.ml.Scaler"), _like_data),
        **dict.fromkeys(
            (
                *("ai.onnx.ml.LinearRegressor", "ai.onnx.ml.SVMRegressor"),
                *("ai.onnx.ml.TreeEnsemble", "ai.onnx.ml.TreeEnsembleRegressor"),
            ),
            _targets,
        ),
        "ai.onnx.ml.ArrayFeatureExtractor": _extracted,
        "ai.onnx.ml.FeatureVectorizer": _joined,
    }
)
