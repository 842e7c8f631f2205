"""Classifiers by tree ensembles: scores are those of a regressor with a target for each class, which has a kernel of its own.

scores = TreeEnsembleRegressor(x); label = classes[argmax scores]; probabilities = post_transform(scores)
"""

from __future__ import annotations

from typing import Any

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.ops.forests import tables_of
from fusewise.ops.plain.classic import listed
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.classic import classes_of, labels_of
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["FORESTS"]

_REGRESSOR = "ai.onnx.ml.TreeEnsembleRegressor"


def _classifier(g: Notation, call: Call, x: TensorValue) -> tuple[TensorValue, ...] | None:
    node, classes = call.node, classes_of(call)
    how = node.attribute("post_transform", "NONE")
    if len(classes) < 2 or how not in ("NONE", "SOFTMAX", "LOGISTIC") or x.rank != 2 or x.dtype != FLOAT32:
        return None
    settings = _scores(node, len(classes), how)
    if settings is None:
        return None
    tables = tables_of(Node("TreeEnsembleRegressor", ("x",), ("y",), attributes_of(**settings)))
    if tables is None or tables.features > x.dims[1]:
        return None
    scores = g.typed(_REGRESSOR, TensorType(FLOAT32, (x.dims[0], len(classes))), x, **settings)
    labels = labels_of(g, classes, scores)
    return labels, g.Softmax(scores, axis=1) if how == "SOFTMAX" else g.Sigmoid(scores) if how == "LOGISTIC" else scores


def _scores(node: Node, classes: int, how: str) -> dict[str, Any] | None:
    """The attributes of the regressor."""
    ids, weights, base = (
        list(node.attribute("class_ids") or ()),
        listed(node, "class_weights"),
        listed(node, "base_values"),
    )
    places = [list(node.attribute(f"class_{name}") or ()) for name in ("treeids", "nodeids")]
    if weights is None:
        return None
    if len(set(ids)) == 1:  # the one score is that of the second class, and what it lacks that of the first
        given = 0.0 if not any(base or ()) else base[0] if base is not None and len(base) == 1 else None
        if classes != 2 or ids[0] != 0 or given is None:
            return None
        ids, places = ids + [1] * len(ids), [place + place for place in places]
        weights, base = [-weight for weight in weights] + weights, [float(how == "NONE") - given, given]
    found: dict[str, Any] = {name: value for name, value in node.attributes if name.startswith("nodes_")}
    found |= {"n_targets": classes, "target_ids": ids, "target_weights": weights}
    found |= {"target_treeids": places[0], "target_nodeids": places[1]}
    return found if base is None else found | {"base_values": base}


FORESTS: tuple[Decomposition, ...] = (row("TreeEnsembleClassifier", _classifier),)
