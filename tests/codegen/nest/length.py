"""About how long a nest is, found without running it: most kernels are too long to be interpreted, which takes long to find out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fusewise.codegen.nest.build import Function, Module
from fusewise.codegen.nest.opcodes import constant, operation
from fusewise.codegen.nest.tile import Accumulate, Reduction
from fusewise.codegen.nest.tree import Block, For, Int, NestNode, Operation, Repeat, Value, When

__all__ = ["expected_operations"]

_FOLLOWED = frozenset("add sub mul and or xor shl lshr ashr udiv urem sdiv srem icmp".split())
"""Operations on two integers, by the first word of the opcode."""

_BOUNDS = {"llvm.smin": min, "llvm.smax": max}

_PER_STEP = 20
"""What a step of a reduction counts for where it is interpreted."""


def expected_operations(module: Module, name: str, arguments: Sequence[Any]) -> int:
    """Operations that a call of a function takes if all rounds of a loop are as the first. Integers that follow from arguments and
    constants are followed; of two blocks the shorter is taken where they do not decide, and nothing for what else they do not."""
    functions = {function.name: function for function in module.functions}
    return _called(functions[name], arguments, functions)


def _called(function: Function, arguments: Sequence[Any], functions: Mapping[str, Function]) -> int:
    given = zip(function.arguments, arguments, strict=True)
    return _Call(functions, {one.text: value for one, value in given if isinstance(value, int)}).block(function.body)


class _Call:
    """A call: functions, and integers that are known, by name."""

    def __init__(self, functions: Mapping[str, Function], known: dict[str, int]) -> None:
        self.functions = functions
        self.known = known

    def of(self, value: Int) -> int | None:
        if isinstance(value, int):
            return value
        if value.text in self.known or value.text.startswith(("%", "@")):
            return self.known.get(value.text)
        return int(constant(value)) if _is_whole(value) and value.text != "poison" else None

    def block(self, nodes: Block) -> int:
        return len(nodes) + sum(map(self.node, nodes))

    def node(self, node: NestNode) -> int:
        if isinstance(node, Operation):
            return self.operation(node)
        if isinstance(node, For):
            return self.loop(node)
        if isinstance(node, When):
            holds, blocks = self.of(node.condition), (node.then, node.otherwise)
            return min(map(self.block, blocks)) if holds is None else self.block(blocks[not holds])
        if isinstance(node, Repeat):
            return self.block(node.first)
        return self.reduction(node.reduction) if isinstance(node, Accumulate) else 0

    def loop(self, node: For) -> int:
        low, high = self.of(node.low), self.of(node.high)
        if low is None or high is None or low >= high:
            return 0
        self.known[node.counter.text] = low
        return len(range(low, high, node.step)) * self.block(node.body)

    def reduction(self, reduction: Reduction) -> int:
        ends = [(self.of(one.low), one.extent if one.high is None else self.of(one.high)) for one in reduction.levels]
        return _PER_STEP * math.prod(0 if low is None or high is None else max(0, high - low) for low, high in ends)

    def operation(self, node: Operation) -> int:
        """What it calls; its result is noted where it is known."""
        if node.opcode == "call" and (called := self.functions.get(str(node.detail[0]))) is not None:
            return _called(called, [self.of(one) for one in node.operands], self.functions)
        if node.result is not None and _is_whole(node.result):
            given = [self.of(one) for one in node.operands]
            if None not in given and (found := _result(node, given)) is not None:
                self.known[node.result.text] = found
        return 0


def _is_whole(value: Value) -> bool:
    return value.type[:1] == "i"


def _result(node: Operation, given: Sequence[Any]) -> int | None:
    """The integer that an operation makes of integers; None for one that is not followed."""
    if node.opcode.partition(" ")[0] in _FOLLOWED:
        return int(operation(node.opcode, *given, node.operands[0]))
    if node.opcode in ("hidden", "same"):
        return int(given[0])
    if node.opcode == "select":
        return int(given[1] if given[0] else given[2])
    bound = _BOUNDS.get(node.opcode.removesuffix(".i64"))
    return None if bound is None else int(bound(*given))
