"""Softmax, normalisations and their like: whole rows in registers, read once.

Where all reductions of a task run along its columns, a block has all lanes of some rows at once. The reductions' variables are then
the columns' own, so what a maximum, a sum and the result read is the same load. `nests` reads it again for each of them.
"""

from __future__ import annotations

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import GpuKernel, NoKernel
from fusewise.codegen.gpu.nests import RowLayout, finished, layout_of, next_power, row_scope, understood, warps_for
from fusewise.codegen.gpu.source import LaneSharing, TritonWriter, goes_over_lanes
from fusewise.codegen.gpu.words import TritonTerm
from fusewise.lower.task import Task
from fusewise.ops.expr import walk

__all__ = ["rows"]

LONGEST = 8192
"""Elements of a block, at most: 16 for each of 512 threads."""
_SMALL = 512
"""Elements of a block that has several rows."""


def rows(task: Task, device: Device) -> GpuKernel:
    """A kernel for a task all of whose reductions are over rows that the results run along; `NoKernel` for others."""
    writer = TritonWriter(understood(task))
    layout = layout_of(writer, device)
    if layout is None or len(layout.columns) != 1 or 0 in writer.task.extents:
        raise NoKernel("no reductions that columns share")
    ((column, extent),) = layout.columns
    known = {name for name, _ in layout.rows}
    for node in (node for store in writer.task.stores for node in walk(store.value)):
        if node.op == "reduce" and not (
            goes_over_lanes(node) and [n for _, n in node.value[1]] == [extent] and writer.free(node) <= known
        ):
            raise NoKernel("a reduction that is not along the columns")
    lanes = next_power(extent)
    if lanes > LONGEST or (layout.is_beside and lanes * layout.row_tile > LONGEST):
        raise NoKernel(f"rows of more than {LONGEST} elements")
    tile = _row_tile(layout, lanes, device)
    layout = RowLayout(layout.rows, layout.columns, tile, lanes, layout.is_beside)
    scope = row_scope(writer, layout)
    sharing = LaneSharing(tile, lanes, column, extent)
    number = TritonTerm(writer.name(sharing.along("")), "int32", (lanes,) if tile == 1 else (1, lanes))
    bounds = [] if extent == lanes else [writer.words.term(f"{number.text} < {extent}", "int1", number)]
    scope = scope.inside({column: number}, *bounds).over(sharing)
    for store in writer.task.stores:
        scope.store(store)
    way = f"whole rows, {tile} to a block by {lanes} lanes"
    return finished(writer, f"rows_{task.digest}", -(-layout.row_count // tile), warps_for(tile * lanes, 8, 16), way)


def _row_tile(layout: RowLayout, lanes: int, device: Device) -> int:
    """Rows of a block: several where they are short and there are enough of them for all multiprocessors."""
    if layout.is_beside:
        return layout.row_tile
    several = max(1, _SMALL // lanes)
    return max(1, min(several, next_power(layout.row_count), next_power(layout.row_count // device.sms)))
