"""Uses of operators with one thing changed: a dimension, an attribute, or an element of a small operand of integers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import onnx

from fusewise.frontend.upgrade import PINNED_OPSET
from fusewise.ir.dtypes import dtype_named
from fusewise.ir.graph import Constant, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.ops.proto import node_to_proto, tensor_to_proto, type_to_proto
from fusewise.ops.sampling import random_array
from fusewise.ops.spec import Sample
from fusewise.ops.table import OPERATORS

__all__ = ["CASES", "Operands", "model_of", "mutated", "node_of", "operands_of"]

Operands = tuple[np.ndarray | None, ...]

NUMBERS = (-(2**40), -11, -3, -1, 0, 1, 2, 3, 7, 100, 2**40)
WORDS = ("", "bogus", "SAME_UPPER", "constant")

RANDOM = frozenset({"Bernoulli", "Dropout", "Multinomial"})


def _cases() -> Iterator[tuple[str, Sample]]:
    """Every sample of an operator of the pinned opset that is not drawn by chance."""
    for spec in OPERATORS:
        if spec.domain or spec.name in RANDOM or not onnx.defs.has(spec.name, ""):
            continue
        try:
            schema = onnx.defs.get_schema(spec.name, PINNED_OPSET, "")
        except onnx.defs.SchemaError:
            continue
        if schema.deprecated:
            continue
        for sample in spec.samples:
            if all(name in schema.attributes for name in sample.attributes):
                yield spec.name, sample


CASES: tuple[tuple[str, Sample], ...] = tuple(_cases())


def operands_of(sample: Sample, seed: int = 0) -> Operands:
    """Arrays for the operands of a sample; None where one is absent."""
    rng = np.random.default_rng(seed)
    return tuple(
        given
        if given is None or isinstance(given, np.ndarray)
        else random_array(dtype_named(given[0]), given[1], rng, sample.low, sample.high)
        for given in sample.inputs
    )


def node_of(op: str, sample: Sample, operands: Operands, **changes: Any) -> Node:
    """The node of a sample, some attributes changed; None leaves one out."""
    given = {key: value for key, value in (sample.attributes | changes).items() if value is not None}
    names = tuple("" if a is None else f"i{k}" for k, a in enumerate(operands))
    return Node(op, names, tuple(f"o{k}" for k in range(sample.outputs)), attributes_of(**given), name="the node")


def mutated(op: str, sample: Sample, chance: Random) -> tuple[Node, Operands]:
    """The sample with one thing changed."""
    operands = operands_of(sample)
    attributes = sorted(onnx.defs.get_schema(op, PINNED_OPSET, "").attributes.items())
    plain = [(name, kind) for name, kind in attributes if int(kind.type.value) in _OTHERS]
    if plain and chance.random() < 0.4:
        name, kind = chance.choice(plain)
        return node_of(op, sample, operands, **{name: _other(kind, sample.attributes.get(name), chance)}), operands
    at = chance.choice([k for k, array in enumerate(operands) if array is not None])
    array = operands[at]
    assert array is not None
    small = at > 0 and array.dtype == np.int64 and 0 < array.size <= 16
    other = _element_changed(array, chance) if small and chance.random() < 0.5 else _reshaped(array, chance)
    operands = (*operands[:at], other, *operands[at + 1 :])
    return node_of(op, sample, operands), operands


_KIND = onnx.AttributeProto
_OTHERS = frozenset({int(_KIND.INT), int(_KIND.INTS), int(_KIND.STRING)})


def _other(attribute: Any, now: Any, chance: Random) -> Any:
    kind = int(attribute.type.value)
    if kind == int(_KIND.STRING):
        return chance.choice(WORDS)
    if kind == int(_KIND.INT):
        return chance.choice((*NUMBERS, *(() if now is None else (now + 1, now - 1))))
    items = list(now or (1, 1))
    where = chance.randrange(len(items))
    edits = [[*items, 1], items[:-1], [*items[:where], chance.choice(NUMBERS[1:-1]), *items[where + 1 :]], items[::-1]]
    return chance.choice(edits)


def _element_changed(array: np.ndarray, chance: Random) -> np.ndarray:
    other = array.copy()
    other.reshape(-1)[chance.randrange(array.size)] = chance.choice(NUMBERS[1:-1])
    return other


def _reshaped(array: np.ndarray, chance: Random) -> np.ndarray:
    """Another shape, filled by repeating what there was."""
    shape = list(array.shape)
    way = chance.randrange(4 if shape else 1)
    if way == 0:
        shape.insert(chance.choice((0, len(shape))), 1)
    elif way == 1:
        del shape[chance.randrange(len(shape))]
    else:
        k = chance.randrange(len(shape))
        shape[k] = chance.choice((1, shape[k] + 1, max(shape[k] - 1, 1), 2 * shape[k]))
    return np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)


def model_of(node: Node, operands: Operands) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of this one node, and what to feed it: small operands of integers are constants of the model."""
    graph = onnx.GraphProto(name="g", node=[node_to_proto(replace(node, name="the node"))])
    feeds: dict[str, np.ndarray] = {}
    for k, array in enumerate(operands):
        if array is None:
            continue
        if k > 0 and array.dtype == np.int64 and array.size <= 16:
            graph.initializer.append(tensor_to_proto(array, f"i{k}"))
        else:
            kind = TensorType(Constant(array).dtype, array.shape)
            graph.input.append(onnx.ValueInfoProto(name=f"i{k}", type=type_to_proto(kind)))
            feeds[f"i{k}"] = array
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.outputs)
    opsets = [onnx.helper.make_opsetid("", PINNED_OPSET)]
    return onnx.ModelProto(graph=graph, ir_version=10, opset_import=opsets), feeds
