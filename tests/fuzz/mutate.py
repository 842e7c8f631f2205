"""Mutants: models changed in a few places, mostly such that they are still models.

A mutation takes a message apart by what protobuf knows of it: somewhere in the tree a number, a name, a list or a whole
message is replaced by another, often by one that stands elsewhere in this model or in a second one. A few mutants are
changed as bytes instead. The same seed gives the same mutant.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from random import Random
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

__all__ = ["mutant"]

INTEGERS = (
    0,
    1,
    -1,
    2,
    -2,
    3,
    7,
    10,
    16,
    17,
    64,
    255,
    65536,
    -11,
    2**31 - 1,
    2**31,
    -(2**31),
    2**40,
    2**63 - 1,
    -(2**63),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "",
    "NOTSET",
    "SAME_UPPER",
    "SAME_LOWER",
    "VALID",
    "bidirectional",
    "reverse",
    "linear",
    "cubic",
    "nearest",
    "mean",
    "none",
)
OPERATORS = tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))

_BYTES_SHARE = 0.03
_DATA = frozenset({"raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"})
"""Contents of tensors."""
_LESS = _DATA | {"name", "input", "output", "op_type", "version", "ir_version", "elem_type"}
"""Fields that are changed less often: what comes of most of them is refused at once."""
_DULL = frozenset({"doc_string", "producer_name", "producer_version", "metadata_props", "domain", "model_version"})

Place = tuple[Message, FieldDescriptor]


def mutant(seeds: tuple[bytes, ...], number: int) -> bytes:
    """Mutant `number` of these models."""
    source = Random(number)
    data = source.choice(source.choice(_families(seeds)))
    if source.random() < _BYTES_SHARE:
        return _as_bytes(source, data)
    model, other = onnx.ModelProto.FromString(data), onnx.ModelProto.FromString(source.choice(seeds))
    for _ in range(1 + min(source.randrange(4), source.randrange(4))):
        source.choice(_STEPS)(source, model, other)
    return bytes(model.SerializeToString(deterministic=True))


def _as_bytes(source: Random, data: bytes) -> bytes:
    """Bytes overwritten, taken out and put in."""
    found = bytearray(data)
    for _ in range(1 + source.randrange(4)):
        at, length = source.randrange(len(found) + 1), 1 + source.randrange(8)
        kind = source.randrange(3)
        new = source.randbytes(length) if source.randrange(2) else bytes([source.choice((0, 1, 127, 128, 255))])
        found[at : at + (0 if kind == 0 else length)] = b"" if kind == 1 else new
    return bytes(found)


@functools.cache
def _families(seeds: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], ...]:
    """Models by the operator of their last node, so that one with many tests is not tried more often than others."""
    found: dict[str, list[bytes]] = {}
    for data in seeds:
        nodes = onnx.ModelProto.FromString(data).graph.node
        found.setdefault(nodes[-1].op_type if nodes else "", []).append(data)
    return tuple(tuple(found[name]) for name in sorted(found))


# --- places in a message ------------------------------------------------------------------------------------------------


def _messages(root: Message) -> list[Message]:
    """Every message in the tree, parents first."""
    found = [root]
    for message in found:
        for field, value in message.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                found.extend(value if field.is_repeated else [value])
    return found


def _places(root: Message) -> list[Place]:
    """Every field that is set, with the message it stands in."""
    return [
        (message, field) for message in _messages(root) for field, _ in message.ListFields() if field.name not in _DULL
    ]


def _chosen(source: Random, places: list[Place]) -> Place | None:
    if not places:
        return None
    for _ in range(3):
        place = source.choice(places)
        if place[1].name not in _LESS:
            break
    return place


def _words(model: Message) -> list[str]:
    """Every text in the tree."""
    found: list[str] = []
    for message in _messages(model):
        for field, value in message.ListFields():
            if field.type == FieldDescriptor.TYPE_STRING:
                found.extend(value if field.is_repeated else [value])
    return found


# --- steps --------------------------------------------------------------------------------------------------------------


def _scalar(source: Random, model: Message, field: FieldDescriptor, old: Any) -> Any:
    """Another value for a field that is no message."""
    kind = field.cpp_type
    if field.type == FieldDescriptor.TYPE_ENUM:
        return source.choice(field.enum_type.values).number
    if kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64):
        new = source.choice((*INTEGERS, old + 1, old - 1, -old, old * 2))
        bits = 32 if kind == FieldDescriptor.CPPTYPE_INT32 else 64
        return max(-(2 ** (bits - 1)), min(2 ** (bits - 1) - 1, new))
    if kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64):
        return abs(source.choice(INTEGERS)) % 2**31
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return source.choice((*FLOATS, -old, old * 2))
    if field.type == FieldDescriptor.TYPE_BYTES:
        cut = source.randrange(len(old) + 1)
        return source.choice((old[:cut], old + old[:cut], source.randbytes(len(old)), b"\xff" * len(old)))
    if field.name == "op_type":
        return source.choice(OPERATORS)
    return source.choice(["", *_words(model)])


def _change_value(source: Random, model: Message, other: Message) -> None:
    """One number, text or enumeration becomes another."""
    place = _chosen(source, [p for p in _places(model) if p[1].type != FieldDescriptor.TYPE_MESSAGE])
    if place is None:
        return
    message, field = place
    value = getattr(message, field.name)
    if field.is_repeated:
        at = source.randrange(len(value))
        value[at] = _scalar(source, model, field, value[at])
    else:
        setattr(message, field.name, _scalar(source, model, field, value))


def _change_list(source: Random, model: Message, other: Message) -> None:
    """An element of a list goes, comes twice, changes places, or the list is emptied."""
    place = _chosen(source, [p for p in _places(model) if p[1].is_repeated])
    if place is None:
        return
    message, field = place
    items = list(getattr(message, field.name))
    at, to = source.randrange(len(items)), source.randrange(len(items))
    kind = source.randrange(5)
    if kind == 0:
        del items[at]
    elif kind == 1:
        items.insert(to, items[at])
    elif kind == 2:
        items[at], items[to] = items[to], items[at]
    elif kind == 3 and field.type != FieldDescriptor.TYPE_MESSAGE:
        items.append(_scalar(source, model, field, items[at]))
    else:
        items = items[: source.randrange(len(items) + 1)]
    items = [_copy(item) if isinstance(item, Message) else item for item in items]
    message.ClearField(field.name)
    getattr(message, field.name).extend(items)


def _copy(message: Message) -> Message:
    made = type(message)()
    made.CopyFrom(message)
    return made


def _change_message(source: Random, model: Message, other: Message) -> None:
    """A message becomes a copy of another of its kind, of this model or the second one."""
    donors = _messages(model) + _messages(other)
    place = source.choice(_messages(model)[1:] or [model])
    alike = [donor for donor in donors if donor.DESCRIPTOR is place.DESCRIPTOR and donor is not place]
    if alike and place is not model:
        place.CopyFrom(_copy(source.choice(alike)))


def _drop_field(source: Random, model: Message, other: Message) -> None:
    """A field is forgotten."""
    place = _chosen(source, _places(model)[1:])
    if place is not None:
        place[0].ClearField(place[1].name)


def _change_attribute(source: Random, model: Message, other: Message) -> None:
    """A node gets an attribute that its operator knows, with a value that may not fit."""
    nodes = [message for message in _messages(model) if isinstance(message, onnx.NodeProto)]
    if not nodes:
        return
    node = source.choice(nodes)
    try:
        known = onnx.defs.get_schema(node.op_type, 23, node.domain).attributes
    except onnx.defs.SchemaError:
        return
    if not known:
        return
    name = source.choice(sorted(known))
    node_attributes = [_copy(a) for a in node.attribute if a.name != name]
    node.ClearField("attribute")
    node.attribute.extend(node_attributes)
    made = _attribute(source, name, known[name].type)
    if made is not None:
        node.attribute.append(made)


def _attribute(source: Random, name: str, kind: Any) -> onnx.AttributeProto | None:
    """An attribute of a type that the operator takes, with a value that may not fit; None for types of few values."""
    count = source.randrange(5)
    small = tuple(range(-3, 5))
    kinds = onnx.defs.OpSchema.AttrType
    if kind == kinds.INT:
        return onnx.helper.make_attribute(name, source.choice((*small, source.choice(INTEGERS))))
    if kind == kinds.INTS:
        values = [source.choice((*small, source.choice(INTEGERS))) for _ in range(count)]
        return onnx.helper.make_attribute(name, values, attr_type=onnx.AttributeProto.INTS)
    if kind == kinds.FLOAT:
        return onnx.helper.make_attribute(name, source.choice(FLOATS))
    if kind == kinds.FLOATS:
        values = [source.choice(FLOATS) for _ in range(count)]
        return onnx.helper.make_attribute(name, values, attr_type=onnx.AttributeProto.FLOATS)
    if kind == kinds.STRING:
        return onnx.helper.make_attribute(name, source.choice(TEXTS))
    return None


def _change_dimension(source: Random, model: Message, other: Message) -> None:
    """A dimension of a declared type becomes another size."""
    dims = [message for message in _messages(model) if isinstance(message, onnx.TensorShapeProto.Dimension)]
    if dims:
        source.choice(dims).dim_value = source.choice((0, 1, 2, 3, 5, 17, 64, source.choice(INTEGERS)))


_Step = Callable[[Random, Message, Message], None]

_STEPS: tuple[_Step, ...] = (
    *[_change_value] * 6,
    *[_change_attribute] * 3,
    *[_change_dimension] * 3,
    *[_change_list] * 3,
    *[_change_message] * 2,
    _drop_field,
)
"""Every kind of change, as often as it is to be tried."""
