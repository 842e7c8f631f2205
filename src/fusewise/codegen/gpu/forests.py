"""Forests of decision trees: a lane for each row and tree goes down from node to node, and what its leaf adds is summed over trees.

    for some trees:  place = their roots
                     as many times as the deepest of them has levels:  place = the child that the comparison says
                     sums of a row += weights of the leaves

Where a walk goes next is read from the tables, so it is a chain of loads; a device has many under way. A leaf is its own child.
Trees stand by their depths, so that those beside each other need about as many steps. The order of sums is fixed.

Nothing is read where the tables do not lie: they are looked at when the kernel is made, every number that is a place in them,
and no walk takes more steps than the deepest tree has levels.
"""

from __future__ import annotations

import numpy as np

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import GpuKernel, NoKernel, arguments_of
from fusewise.codegen.gpu.nests import next_power, warps_for
from fusewise.codegen.gpu.source import TritonWriter, is_int32
from fusewise.codegen.gpu.words import literal
from fusewise.ir.graph import Constant
from fusewise.lower.forest import forest_tables
from fusewise.lower.task import Operand, Task
from fusewise.ops.forests import MISSING_BIT, MODE_BIT, MOST_FEATURES, NODE_WORDS, ForestTables
from fusewise.records import record

__all__ = ["forest"]

NODES, ROOTS, WEIGHTS = "nodes", "roots", "weights"

_MOST_TREES = 1024
"""Trees of a block that has one row."""
_WALKS = 256
"""Walks of a block that has several rows, at most."""
_TARGETS = 16
"""Targets that are added up at once, at most."""
_MOST_WEIGHTS = 4096
"""Weights of a block that are added up at once."""

_LEVEL_US = 1.5
"""From a node to its child: three loads, of which two wait for the one before. An estimate."""

_COMPARE = {
    "BRANCH_LEQ": "<=",
    "BRANCH_LT": "<",
    "BRANCH_GTE": ">=",
    "BRANCH_GT": ">",
    "BRANCH_EQ": "==",
    "BRANCH_NEQ": "!=",
}


@record(frozen=True)
class _ForestTiles:
    """A block goes down `trees` at once for `rows` of the data, and adds to `targets`; how many blocks there are of each."""

    rows: int
    trees: int
    targets: int
    row_blocks: int
    target_blocks: int


def forest(task: Task, device: Device, precision: str) -> GpuKernel:
    """A kernel for a task with a forest at its anchor (`lower.forest`); `NoKernel` for others."""
    anchor = task.anchor
    if anchor is None or anchor.family != "forest":
        raise NoKernel("no forest")
    if not task.is_fixed:
        raise NoKernel("a kernel for a GPU is written for known sizes")
    tables, data = forest_tables(anchor), task.operand(anchor.element(0).value)
    _check(tables, data)
    if not is_int32(0, task.extents[0] + _WALKS):  # lanes behind the last row are numbered, too
        raise NoKernel(f"{anchor.op} of {task.extents[0]} rows")
    tiles = _tiles(task.extents, len(tables.roots), device)
    writer = TritonWriter(task)
    if 0 not in task.extents:
        _ForestText(writer, tables, tiles, data, task.operand("out0")).write()
    own = _own_tables(tables)
    arguments = arguments_of(task) | {name: ("fp32" if name == WEIGHTS else "i32", 16) for name in own}
    types, alignments = zip(*arguments.values(), strict=True)
    symbol = f"forest_{task.digest}"
    return GpuKernel(
        symbol,
        writer.source(symbol, arguments),
        tuple(arguments),
        types,
        alignments,
        (tiles.row_blocks * tiles.target_blocks,),
        warps_for(tiles.rows * tiles.trees, 1),
        1,
        f"walks of {tiles.rows} rows down {tiles.trees} trees to a block",
        tables=tuple((name, Constant(array)) for name, array in own.items()),
        wait_us=_LEVEL_US * int(tables.roots[tiles.trees - 1 :: tiles.trees, 1].sum() or tables.roots[-1, 1]),
    )


def _check(tables: ForestTables, data: Operand) -> None:
    """Refuse tables by which a walk could leave them, or the data."""
    nodes, roots = tables.nodes, tables.roots
    if set(tables.modes) - _COMPARE.keys() or not tables.modes:
        raise NoKernel("comparisons that are not known")
    places = np.concatenate((nodes[:, 2:].reshape(-1), roots[:, 0]))
    leaf = (nodes[:, 2:] == NODE_WORDS * np.arange(len(nodes))[:, None]).all(axis=1)
    numbers, words = nodes[leaf, 1], nodes[:, 0]
    fits = (
        len(nodes) > 0 and len(roots) > 0,
        np.all((places >= 0) & (places < nodes.size) & (places % NODE_WORDS == 0)),
        np.all((numbers >= 0) & (numbers < len(tables.weights))),
        np.all(words >> MODE_BIT & 7 < len(tables.modes)) and (tables.tracks or np.all(words >> MODE_BIT < 8)),
        tables.tracks or np.all(words >= 0),
        tables.features <= data.shape[1],
    )
    if not all(fits) or not _ends_at_leaves(tables, leaf):
        raise NoKernel("tables of a forest that do not fit together")


def _ends_at_leaves(tables: ForestTables, leaf: np.ndarray) -> bool:
    """Is every walk at a leaf after as many steps as its tree is said to have levels?"""
    children, most = tables.nodes[:, 2:] // NODE_WORDS, int(tables.roots[:, 1].max())
    levels = np.where(leaf, 0, most + 1)
    for _ in range(most):
        levels = np.where(leaf, 0, 1 + levels[children].max(axis=1))
    return bool(np.all(levels[tables.roots[:, 0] // NODE_WORDS] <= tables.roots[:, 1]))


def _tiles(extents: tuple[int, ...], trees: int, device: Device) -> _ForestTiles:
    rows, targets = extents
    width = min(next_power(targets), _TARGETS)
    together = min(next_power(trees), _MOST_TREES // 4 if width > 1 else _MOST_TREES)
    several = max(1, min(_WALKS // together, next_power(rows // device.sms)))
    if rows > device.sms and together > _WALKS:
        together = _WALKS
    while width > 1 and several * together * width > _MOST_WEIGHTS:
        several, together = (several // 2, together) if several > 1 else (1, together // 2)
    return _ForestTiles(several, together, width, -(-rows // several), -(-targets // width))


def _own_tables(tables: ForestTables) -> dict[str, np.ndarray]:
    """What the kernel is given beside the data; behind the weights of all leaves is the base."""
    weights = [tables.weights.reshape(-1), *([] if tables.base is None else [tables.base])]
    return {
        NODES: np.ascontiguousarray(tables.nodes.reshape(-1)),
        ROOTS: np.ascontiguousarray(tables.roots.reshape(-1)),
        WEIGHTS: np.concatenate(weights).astype(np.float32),
    }


@record
class _ForestText:
    """The text of the kernel."""

    writer: TritonWriter
    tables: ForestTables
    tiles: _ForestTiles
    data: Operand
    out: Operand

    def write(self) -> None:
        """All of it."""
        put, tiles, tables = self.writer.put, self.tiles, self.tables
        (rows, targets), trees = self.writer.task.extents, len(tables.roots)
        put(f"rows = tl.program_id(0) // {tiles.target_blocks} * {tiles.rows} + tl.arange(0, {tiles.rows})")
        put(f"here = tl.minimum(rows, {rows - 1})")
        put(f"target = tl.program_id(0) % {tiles.target_blocks} * {tiles.targets} + tl.arange(0, {tiles.targets})")
        put(f"base = {self._offset(self.data, 'here')}[:, None]")
        put(f"sums = tl.full([{tiles.rows}, {tiles.targets}], 0.0, tl.float32)")
        put(f"for first in range(0, {trees}, {tiles.trees}):", 1)
        put(f"tree = first + tl.arange(0, {tiles.trees})")
        put(f"levels = tl.max(tl.load({ROOTS} + tree * 2 + 1, mask=tree < {trees}, other=0), 0)")
        put(f"levels = tl.minimum(levels, {int(tables.roots[:, 1].max())})")
        put(f"root = tl.load({ROOTS} + tree * 2, mask=tree < {trees}, other=0)")
        put(f"place = tl.broadcast_to(root[None, :], [{tiles.rows}, {tiles.trees}])")
        put("for _ in range(levels):", 1)
        self._step()
        self.writer.depth = 2
        self._add(trees, targets)
        self.writer.depth = 1
        self._store(rows, targets)

    def _step(self) -> None:
        """From a node to its child."""
        put, tables = self.writer.put, self.tables
        kind = "int32" if is_int32(*_reach(self.data)) else "int64"
        put(f"word = tl.load({NODES} + place)")
        feature = "word"
        if tables.tracks or len(tables.modes) > 1:
            feature = f"(word & {MOST_FEATURES - 1})"
        put(f"x = tl.load({self.data.name} + base + {feature}.to(tl.{kind}) * {literal(self.data.strides[1])})")
        put(f"split = tl.load({NODES} + place + 1).to(tl.float32, bitcast=True)")
        put(f"taken = x {_COMPARE[tables.modes[0]]} split")
        if len(tables.modes) > 1:
            put(f"mode = (word >> {MODE_BIT}) & 7")
            for number, name in enumerate(tables.modes[1:], 1):
                put(f"taken = tl.where(mode == {number}, x {_COMPARE[name]} split, taken)")
        assert MISSING_BIT == 31, "the sign of the word"
        missing = "word < 0" if tables.tracks else f"tl.full([{self.tiles.rows}, {self.tiles.trees}], False, tl.int1)"
        put(f"taken = tl.where(x != x, {missing}, taken)")
        put(f"place = tl.load({NODES} + place + 2 + taken.to(tl.int32))")

    def _add(self, trees: int, targets: int) -> None:
        """What the leaves add to the targets."""
        put, tiles = self.writer.put, self.tiles
        put(f"leaf = tl.load({NODES} + place + 1)")
        if targets == 1:
            put(f"found = tl.load({WEIGHTS} + leaf, mask=(tree < {trees})[None, :], other=0.0)")
            put("sums += tl.sum(found, 1)[:, None]")
            return
        put(f"there = leaf[:, :, None] * {targets} + target[None, None, :]")
        put(f"inside = (tree < {trees})[None, :, None] & (target < {targets})[None, None, :]")
        shape = [tiles.rows, tiles.trees, tiles.targets]
        put(f"found = tl.load({WEIGHTS} + there, mask=tl.broadcast_to(inside, {shape}), other=0.0)")
        put("sums += tl.sum(found, 1)")

    def _store(self, rows: int, targets: int) -> None:
        put, tables = self.writer.put, self.tables
        if tables.divisor > 1:
            put(f"sums = tl.div_rn(sums, tl.full([], {float(tables.divisor)!r}, tl.float32))")
        if tables.base is not None:
            put(f"more = tl.load({WEIGHTS} + {tables.weights.size} + target, mask=target < {targets}, other=0.0)")
            put("sums += more[None, :]")
        put(f"at = {self._offset(self.out, 'here')}[:, None] + {self._along(self.out, 'target')}[None, :]")
        put(f"tl.store({self.out.name} + at, sums, mask=(rows < {rows})[:, None] & (target < {targets})[None, :])")

    def _offset(self, operand: Operand, row: str) -> str:
        """Where a row begins, for each of the block's."""
        kind = "int32" if is_int32(*_reach(operand)) else "int64"
        return f"({row}.to(tl.{kind}) * {literal(operand.strides[0])} + {literal(operand.offset)})"

    def _along(self, operand: Operand, column: str) -> str:
        kind = "int32" if is_int32(*_reach(operand)) else "int64"
        return f"({column}.to(tl.{kind}) * {literal(operand.strides[1])})"


def _reach(operand: Operand) -> tuple[int, int]:
    """Bounds of every number that is computed on the way to an element."""
    far = abs(operand.offset) + sum(
        abs(step) * extent for step, extent in zip(operand.strides, operand.shape, strict=True)
    )
    return -far, far + _TARGETS * abs(operand.strides[-1])
