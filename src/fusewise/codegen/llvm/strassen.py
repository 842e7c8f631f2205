"""Strassen's algorithm as kernels: matrix products with a constant right operand, and 1x1 convolutions.

Not under `--exact`: an element of the result is then a difference of larger sums, whose rounding it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from fusewise.codegen.foresight import next_bytes
from fusewise.codegen.kernel import Argument, Kernel, Params, kernel_of, working_memory
from fusewise.codegen.llvm.conv_direct import direct_arguments, matrices, matrix_axes
from fusewise.codegen.llvm.conv_plan import direct_of
from fusewise.codegen.llvm.conv_shape import Convolution, convolution_of
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.emit import Function, Int, Value, vector
from fusewise.codegen.llvm.gemm import packing, understand
from fusewise.codegen.llvm.gemm_entry import enter, initial, operand_arguments, scratch_of, tag_of
from fusewise.codegen.llvm.gemm_finish import fetcher, finisher, is_simple
from fusewise.codegen.llvm.gemm_plan import Axis, tile_of
from fusewise.codegen.llvm.gemm_product import row_address
from fusewise.codegen.llvm.point import Point
from fusewise.codegen.llvm.share import pieces_of
from fusewise.codegen.llvm.strassen_loops import emit_strassen
from fusewise.codegen.llvm.strassen_plan import PAIR, Halves, halves_of, panels_of, strassen_cycles, strassen_space
from fusewise.codegen.llvm.strassen_room import Ends, Row, Rows, strassen_bytes
from fusewise.codegen.overwrite import shared_pointers
from fusewise.codegen.target import SECOND_LEVEL, Target
from fusewise.codegen.view import View
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.task import Reason, Task
from fusewise.ops.expr import walk
from fusewise.records import record

__all__ = ["STRASSEN", "STRASSEN_CONV"]


@record(frozen=True)
class Understood:
    """A task in halves: its left operand, or the convolution whose input is computed; the name of the right one, the bias, the
    pointers a tile takes, and whether it fetches weights of the next step."""

    halves: Halves
    left: View | Convolution
    right: str
    bias: View | None
    arguments: Callable[[Params], tuple[Argument, ...]]
    fetches_next: bool


def _product(task: Task, target: Target) -> Understood | Reason:
    """A matrix product in halves, or why it is none."""
    m = understand(task, target)
    if isinstance(m, Reason):
        return m
    if task.exact or m.dtype != FLOAT32 or not m.right.operand.constant:
        return Reason("exact, not of float32, or of a right operand that changes")
    if m.product.outer or m.depth_stride != 1 or m.addend is not None:
        return Reason("not one product of two plain matrices")
    halves = halves_of(m.product, target)
    if isinstance(halves, Reason):
        return halves

    def arguments(params: Params) -> tuple[Argument, ...]:
        later = [Argument("later")] if "later" in params else []
        return operand_arguments(task, [Argument(m.right.operand.name, packing(m, tile_of(params), PAIR)), *later])

    return Understood(halves, m.left, m.right.operand.name, m.bias, arguments, _is_small(halves, target))


def _convolution(task: Task, target: Target) -> Understood | Reason:
    """A 1x1 convolution in halves, or why it is none."""
    shape = convolution_of(task)
    if isinstance(shape, Reason):
        return shape
    if task.exact or shape.dtype != FLOAT32:
        return Reason("exact, or not of float32")
    if shape.taps > 1 or shape.groups > 1 or shape.planar or not all(axis.is_inside for axis in shape.spatial):
        return Reason("not one product of pixels and channels")
    d, is_computed = direct_of(replace(shape, computed=None), task, target), shape.computed is not None
    halves = halves_of(d.product, target, convolves=True, computed=is_computed)
    if isinstance(halves, Reason):
        return halves

    def arguments(params: Params) -> tuple[Argument, ...]:
        axes = matrix_axes(shape, 1)
        return direct_arguments(d, task, params, lambda weight: matrices(weight, shape, 1), "convolution", axes, PAIR)

    weight = shape.weight.operand.name
    left = shape if is_computed else shape.data
    return Understood(halves, left, weight, shape.bias, arguments, _is_small(halves, target))


def _is_small(halves: Halves, target: Target) -> bool:
    """Are the weights so few that those of the next step find room beside them?"""
    return halves.product.depth * halves.product.columns * FLOAT32.itemsize <= next_bytes(target)


def _space(u: Understood, target: Target) -> Iterable[Params]:
    return strassen_space(u.halves, target)


def _arguments(u: Understood, task: Task, params: Params) -> tuple[Argument, ...]:
    following = [Argument("next")] if u.fetches_next else []
    return (*u.arguments(params), *following, working_memory(strassen_bytes(u.halves, params)))


def _build(u: Understood, task: Task, target: Target, params: Params, symbol: str) -> str:
    given = _arguments(u, task, params)
    module, f, pointers, share = enter(symbol, given, hides_counters=True, shared=shared_pointers(task))
    lanes = tile_of(params).lanes

    def start(columns: Sequence[Int]) -> list[Value]:
        return initial(f, target, pointers, u.bias, columns, lanes, lanes, "float")

    if isinstance(u.left, View):
        first = f.at(pointers[u.left.operand.name], u.left.offset)
        left, rows = first, _in_place(f, first, u.halves.rows, lanes)
    else:
        left, rows = None, _computed(f, u.left, Elements(f, task, target, pointers), lanes)
    ends = Ends(
        rows=rows,
        left=left,
        right=pointers[u.right],
        start=start,
        finish=finisher(f, task, target, pointers),
        is_simple=is_simple(task),
        fetch=fetcher(f, task, target, pointers, SECOND_LEVEL),
        own=scratch_of(f, pointers, given, share),
        tag=tag_of(f, pointers, given, share),
        later=pointers.get("later"),
        following=pointers.get("next"),
    )
    emit_strassen(f, target, u.halves, params, share, ends)
    f.give_back()
    return module.text()


def _in_place(f: Function, left: Value, axes: Sequence[Axis], lanes: int) -> Rows:
    """Rows that lie in memory, along some axes from the first element of the `left` operand on."""

    def row(number: Int) -> Row:
        start = f.at(left, row_address(f, axes, number))

        def fetch(k: Int) -> None:
            f.prefetch(f.at(start, k), SECOND_LEVEL)

        return Row(lambda k: f.load(vector("float", lanes), f.at(start, k)), fetch)

    return row


def _computed(f: Function, shape: Convolution, elements: Elements, lanes: int) -> Rows:
    """What is fused in front of a convolution, evaluated for a vector of channels of an output's pixel."""
    element, names = shape.computed, [f"p{k + 2}" for k in range(len(shape.spatial))]
    assert element is not None
    maps = [e for e in walk(element) if e.op == "load" and any(i.op == "index" and i.value in names for i in walk(e))]

    def row(number: Int) -> Row:
        pixel: dict[str, Int] = {}
        for name, axis in zip(reversed(names), reversed(shape.spatial), strict=True):
            pixel[name], number = f.mul(f.urem(number, axis.out), axis.stride), f.udiv(number, axis.out)

        def at(k: Int) -> Point:
            return elements.at({"p0": number, **pixel, "p1": k}, "p1", lanes)

        def fetch(k: Int) -> None:
            for e in maps:
                at(k).fetch(str(e.value), e.args, SECOND_LEVEL)

        return Row(lambda k: at(k).value(element), fetch)

    return row


def _pieces(u: Understood, target: Target, params: Params) -> int:
    tile = tile_of(params)
    tiles, panels = u.halves.tiles(tile), panels_of(u.halves, tile) // 2
    blocks = -(-tiles // int(params["tiles"]))
    return pieces_of(tiles * panels, strassen_cycles(u.halves, target, params), target, blocks * panels)


def _cycles(u: Understood, target: Target, params: Params) -> int:
    return strassen_cycles(u.halves, target, params)


def _writes_once(u: Understood, params: Params) -> bool:
    return u.halves.is_written_once(tile_of(params))


def _kernel(name: str, understand: Callable[[Task, Target], Understood | Reason]) -> Kernel:
    return kernel_of(
        name,
        understand,
        _space,
        _arguments,
        _build,
        _cycles,
        pieces=_pieces,
        writes_once=_writes_once,
        effort=2,
        level="bare",
    )


STRASSEN = _kernel("strassen-product", _product)
STRASSEN_CONV = _kernel("strassen-convolution", _convolution)
