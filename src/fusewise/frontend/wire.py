"""Finds the weights inside an ONNX file without parsing it.

An ONNX file is a protobuf message, and nearly all of it is the `raw_data` of initializers. `cut` walks the outermost
fields (ModelProto.graph, GraphProto.initializer, TensorProto.raw_data), leaves the big blobs where they are, and returns
the small rest as a valid message. The caller parses that, and reads the blobs when they are needed.

Wire format: every field is a varint tag `number << 3 | kind`, then a varint (kind 0), 8 bytes (1), a varint length and
that many bytes (2), or 4 bytes (5).
"""

from __future__ import annotations

from dataclasses import dataclass

from fusewise.errors import InvalidModel, ResourceLimit
from fusewise.frontend.stored import Stored

__all__ = ["Blob", "cut"]

_GRAPH = 7  # ModelProto.graph
_INITIALIZER = 5  # GraphProto.initializer
_RAW_DATA = 9  # TensorProto.raw_data
_SMALLEST = 4096  # bytes; smaller blobs stay in the message
_MAX_FIELDS = 4_000_000  # of a graph; a bomb of empty fields must not take minutes
_MAX_TENSOR_FIELDS = 4096  # a tensor with more is written element by element and stays in the message


@dataclass(frozen=True, slots=True)
class Blob:
    """Where the data of one initializer lies in the file, in bytes."""

    offset: int
    length: int


def cut(data: memoryview | Stored, name: str) -> tuple[bytes, dict[int, Blob]]:
    """The message without its big blobs, and each blob by the position of its initializer in the graph.

    `name` names the file in errors. Raises `InvalidModel` when `data` is not a whole ModelProto.
    """
    pieces: list[memoryview | bytes] = []
    blobs: dict[int, Blob] = {}
    count = 0
    copied = position = 0
    while position < len(data):
        field, start, end = _field(data, position, len(data), name)
        if field == (_GRAPH, 2):
            inner, found, initializers = _cut_graph(data, start, end, count, name)
            count += initializers
            if found:
                pieces += [data[copied:position], _header(_GRAPH, sum(map(len, inner))), *inner]
                blobs |= found
                copied = end
        position = end
    pieces.append(data[copied:])
    return b"".join(pieces), blobs


def _cut_graph(
    data: memoryview | Stored, begin: int, stop: int, first: int, name: str
) -> tuple[list[memoryview | bytes], dict[int, Blob], int]:
    """The pieces of one GraphProto without its big blobs, the blobs, and how many initializers it has."""
    pieces: list[memoryview | bytes] = []
    blobs: dict[int, Blob] = {}
    initializers = fields = 0
    copied = position = begin
    while position < stop:
        fields += 1
        if fields > _MAX_FIELDS:
            raise ResourceLimit(f"{name}: the graph has more than {_MAX_FIELDS:,} entries")
        field, start, end = _field(data, position, stop, name)
        if field == (_INITIALIZER, 2):
            if end - start >= _SMALLEST:
                raw = _raw_data(data, start, end, name)
                if raw is not None:
                    tag, blob = raw
                    after = blob.offset + blob.length
                    rest = tag - start + end - after
                    pieces += [data[copied:position], _header(_INITIALIZER, rest), data[start:tag], data[after:end]]
                    blobs[first + initializers] = blob
                    copied = end
            initializers += 1
        position = end
    pieces.append(data[copied:stop])
    return pieces, blobs, initializers


def _raw_data(data: memoryview | Stored, begin: int, stop: int, name: str) -> tuple[int, Blob] | None:
    """Where the tag of the only big `raw_data` of a TensorProto is, and its contents; None when it has no such thing."""
    found: tuple[int, Blob] | None = None
    position = begin
    for _ in range(_MAX_TENSOR_FIELDS):
        if position >= stop:
            return found if found is not None and found[1].length >= _SMALLEST else None
        field, start, end = _field(data, position, stop, name)
        if field == (_RAW_DATA, 2):
            if found is not None:
                return None
            found = position, Blob(start, end - start)
        position = end
    return None


def _field(data: memoryview | Stored, position: int, stop: int, name: str) -> tuple[tuple[int, int], int, int]:
    """The (number, kind) of the field at `position`, and where its contents begin and end."""
    tag, start = _varint(data, position, stop, name)
    number, kind = tag >> 3, tag & 7
    if number == 0 or number >= 1 << 29:
        raise InvalidModel(f"{name} is not an ONNX model: it is not a protobuf message (bad tag at byte {position})")
    if kind == 2:
        length, start = _varint(data, start, stop, name)
        end = start + length
    elif kind == 0:
        end = _varint(data, start, stop, name)[1]
    elif kind in (1, 5):
        end = start + (8 if kind == 1 else 4)
    else:
        raise InvalidModel(f"{name} is not an ONNX model: it is not a protobuf message (bad tag at byte {position})")
    if end > stop:
        raise InvalidModel(
            f"{name} is truncated or not an ONNX model: the field at byte {position} ends {end - stop:,} bytes too late"
        )
    return (number, kind), start, end


def _varint(data: memoryview | Stored, position: int, stop: int, name: str) -> tuple[int, int]:
    """An unsigned number in base 128, lowest digits first, and where it ends."""
    value = shift = 0
    while position < stop and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    if shift >= 70:
        raise InvalidModel(f"{name} is not an ONNX model: it is not a protobuf message (bad number at byte {position})")
    raise InvalidModel(f"{name} is truncated or not an ONNX model: it ends inside a number at byte {position}")


def _header(number: int, length: int) -> bytes:
    """The tag and length of a length-delimited field."""
    return bytes((number << 3 | 2,)) + _encode(length)


def _encode(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)
