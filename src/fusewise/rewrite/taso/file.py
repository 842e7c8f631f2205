"""TASO's file of substitutions (Z. Jia et al., SOSP 2019), a protobuf message, as plain data; nothing is understood yet.

    RuleCollection: rule = 1                        Rule: srcOp = 1, dstOp = 2, mappedOutput = 3
    Operator: type = 1, input = 2, para = 3         Tensor: opId = 1, tsId = 2 (an opId below zero is an operand of the rule)
    Parameter: key = 1, value = 2                   MapOutput: srcOpId = 1, dstOpId = 2, srcTsId = 3, dstTsId = 4

Every rule is read by itself, so that a broken one does not take the others along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from fusewise.records import record

__all__ = ["BrokenRule", "WrittenOperation", "WrittenRule", "written_rules"]


class BrokenRule(Exception):
    """A message that is not whole; the text says why."""


@record(frozen=True, slots=True)
class WrittenOperation:
    """An operator by number; operands as (operation, output), operations below zero being operands of the rule."""

    type: int
    inputs: tuple[tuple[int, int], ...]
    parameters: Mapping[int, int] = field(default_factory=dict)


@record(frozen=True, slots=True)
class WrittenRule:
    """`outputs` pairs what is found with what takes its place, each as (operation, output)."""

    source: tuple[WrittenOperation, ...]
    target: tuple[WrittenOperation, ...]
    outputs: tuple[tuple[tuple[int, int], tuple[int, int]], ...]


def written_rules(data: bytes) -> Iterator[WrittenRule | BrokenRule]:
    """The rules in their order, and in the place of a broken one what is wrong with it. What follows a break in the
    outermost message is lost."""
    fields = _fields(data)
    while True:
        try:
            number, value = next(fields)
        except StopIteration:
            return
        except BrokenRule as error:
            yield error
            return
        if number != 1 or not isinstance(value, bytes):
            yield BrokenRule("a field that is no rule")
            continue
        try:
            yield _rule(value)
        except BrokenRule as error:
            yield error


def _rule(data: bytes) -> WrittenRule:
    parts: dict[int, list[bytes]] = {1: [], 2: [], 3: []}
    for number, value in _fields(data):
        if number in parts:
            parts[number].append(_message(value))
    outputs = []
    for part in parts[3]:
        numbers = _numbers(part, (1, 2, 3, 4))
        outputs.append(((numbers[1], numbers[3]), (numbers[2], numbers[4])))
    return WrittenRule(tuple(map(_operation, parts[1])), tuple(map(_operation, parts[2])), tuple(outputs))


def _operation(data: bytes) -> WrittenOperation:
    kind: int | None = None
    inputs, parameters = [], {}
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2:
            tensor = _numbers(_message(value), (1, 2))
            inputs.append((tensor[1], tensor[2]))
        elif number == 3:
            parameter = _numbers(_message(value), (1, 2))
            parameters[parameter[1]] = parameter[2]
    if kind is None:
        raise BrokenRule("an operator without a type")
    return WrittenOperation(kind, tuple(inputs), parameters)


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise BrokenRule("a number where a message should be")
    return value


def _numbers(data: bytes, wanted: tuple[int, ...]) -> dict[int, int]:
    found = {number: value for number, value in _fields(data) if isinstance(value, int)}
    if not found.keys() >= set(wanted):
        raise BrokenRule("a required number is missing")
    return found


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of one message: signed numbers, or bytes."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, position = _varint(data, position)
            yield number, value - (1 << 64) if value >> 63 else value
        elif kind == 2:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise BrokenRule("it ends before it is complete")
            yield number, data[position : position + length]
            position += length
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        else:
            raise BrokenRule("it is not a protobuf message")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise BrokenRule("it ends before it is complete")
        byte = data[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result & ((1 << 64) - 1), position
    raise BrokenRule("it is not a protobuf message")
