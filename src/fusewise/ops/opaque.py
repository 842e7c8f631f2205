"""Operators that never fuse and run whole: recurrent cells, searches, sequences, text, control flow, random numbers.

Rows still say how elements map, so that plans and costs are right about them. `opaque` marks those with several
results per element, conflicts between writes, shapes that depend on data, or effects.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fusewise.ops.cost import free, per_input
from fusewise.ops.edges import every, opaque
from fusewise.ops.indexing import dims
from fusewise.ops.spec import Call, Mapping, OpSpec

__all__ = ["MANY_TO_MANY", "OPAQUE"]


def _many(name: str, cost: Callable[[Call], int], family: str = "", domain: str = "") -> OpSpec:
    """Many-to-Many without an element definition."""
    return OpSpec(name, mapping=every(Mapping.MANY_TO_MANY), flops=cost, family=family, domain=domain)


def _opaque(name: str, domain: str = "", family: str = "") -> OpSpec:
    return OpSpec(name, mapping=opaque, flops=free, domain=domain, family=family, flags=frozenset({"opaque"}))


def _recurrent(gates: int) -> Callable[[Call], int]:
    """Products with the input and the recurrent weights at every step; the gates' own arithmetic is small beside them."""

    def cost(call: Call) -> int:
        steps, batch, size = dims(call, 0)
        directions, _, hidden = dims(call, 2)
        return steps * batch * directions * gates * hidden * (2 * (size + hidden) + 4)

    return cost


def _transform(call: Call) -> int:
    """Five n log n for each signal, as the fast transform is usually counted."""
    size = call.output().size
    return 5 * size * max(1, math.ceil(math.log2(max(2, *dims(call)))))


def _forest_flops(call: Call) -> int:
    """A comparison on each level of trees that branch evenly, and what their leaves add."""
    trees = len(set(call.attribute("nodes_treeids", ()))) or len(call.attribute("tree_roots", ()))
    nodes = len(call.attribute("nodes_featureids", ()))
    levels = max(1, math.ceil(math.log2(max(2, nodes // max(1, trees)))))
    return trees * (dims(call)[0] * levels + call.output().size)


def _deform_flops(call: Call) -> int:
    return call.output().size * (2 * math.prod(dims(call, 1)[1:]) * 4 + int(call.has(3)))


MANY_TO_MANY: tuple[OpSpec, ...] = (
    _many("LSTM", _recurrent(4), "recurrence"),
    _many("GRU", _recurrent(3), "recurrence"),
    _many("RNN", _recurrent(1), "recurrence"),
    _many("TopK", per_input(1), "top_k"),
    _many("MaxRoiPool", per_input(1), "roi_pool"),
    _many("TreeEnsemble", _forest_flops, "forest", "ai.onnx.ml"),
    _many("TreeEnsembleRegressor", _forest_flops, "forest", "ai.onnx.ml"),
    _many("DeformConv", _deform_flops),
    _many("DFT", _transform),
    _many("STFT", _transform),
    _many("MelWeightMatrix", lambda call: 4 * call.output().size),
    _many("SoftmaxCrossEntropyLoss", per_input(6)),
)

OPAQUE: tuple[OpSpec, ...] = (
    *(_opaque(name) for name in ("If", "Loop", "Scan", "SequenceMap")),
    *(
        _opaque(name)
        for name in (
            "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength ConcatFromSequence"
            " SplitToSequence Optional OptionalGetElement OptionalHasElement"
        ).split()
    ),
    *(_opaque(name) for name in "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer".split()),
    *(_opaque(name) for name in "NonZero NonMaxSuppression Unique Compress".split()),
    _opaque("Scatter"),
    *(_opaque(name, family="scatter") for name in "ScatterElements ScatterND TensorScatter MaxUnpool".split()),
    *(
        _opaque(name)
        for name in "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split()
    ),
    *(_opaque(name) for name in ("ImageDecoder", "Constant")),
    _opaque("Gradient", "ai.onnx.preview.training"),
)
