"""What a node of the tree stands for that LLVM has no word for, as operations, loops and conditions."""

from __future__ import annotations

from collections.abc import Iterator

from fusewise.codegen.llvm.accumulate import reduced
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.tiles import add_tiles, section
from fusewise.codegen.nest.build import Function, Module
from fusewise.codegen.nest.tile import Accumulate, AccumulateTiles, WithTiles
from fusewise.codegen.nest.tree import Block, Composite, Stage, StoreAccumulator, Table
from fusewise.codegen.target import InstructionSet

__all__ = ["Expansion"]


class Expansion:
    """The nodes of one module, expanded for a machine. Functions and tables that this takes are added to those of the module."""

    def __init__(self, module: Module, instructions: InstructionSet | None) -> None:
        self._instructions = instructions
        self._module = Module()
        self._module.functions.extend(module.functions)
        self._module.tables.extend(module.tables)
        self._module.sizes = module.sizes
        self._inside: dict[str, Function] = {}
        self._elements: dict[tuple[str, int], Elements] = {}

    def functions(self) -> Iterator[Function]:
        """All functions; those that the expansion of one adds come after it."""
        yield from self._module.functions  # it may grow meanwhile

    def tables(self) -> tuple[Table, ...]:
        """All tables, once every function is expanded."""
        return tuple(self._module.tables)

    def expanded(self, node: Stage | Composite, function: Function) -> Block:
        """What a node of a function stands for."""
        assert self._instructions is not None, "a kernel is written for a machine"
        f = self._inside.get(function.name)
        if f is None:
            f = self._inside[function.name] = function.beside(self._module)
        if isinstance(node, Stage):
            _stage(f, node)
        elif isinstance(node, Accumulate):
            found = reduced(f, self._instructions, node.tile, node.reduction, node.start)
            for name, value in zip(node.results, found, strict=True):
                f.same(name, value)
        elif isinstance(node, AccumulateTiles):
            add_tiles(f, self._instructions, node)
        elif isinstance(node, WithTiles):
            section(f, self._instructions, node)
        else:
            assert isinstance(node, StoreAccumulator)
            self._results(f, node, self._instructions)
        return f.taken()

    def _results(self, f: Function, node: StoreAccumulator, instructions: InstructionSet) -> None:
        key = f.name, id(node.task)
        if key not in self._elements:
            self._elements[key] = Elements(f, node.task, instructions, node.pointers)
        lanes = node.value.lanes
        count = None if node.count == lanes else f.i64(node.count)
        at = self._elements[key].at(dict(node.indices), lane=node.lane, lanes=lanes, acc=node.value, count=count)
        for store in node.task.stores:
            at.store(store)


def _stage(f: Function, node: Stage) -> None:
    def afresh() -> None:
        f.include(node.body)
        f.store(f.i64(node.unit), node.tag)

    f.when(f.compare("icmp ne", f.load("i64", node.tag), node.unit), afresh)
