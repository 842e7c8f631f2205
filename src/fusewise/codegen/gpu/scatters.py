"""Scatters: which update lands where is found out by comparing positions, so answers repeat and no lane waits for another.

Updates that may meet differ along the axes that `lower.scatter` calls ordered; they are numbered in ONNX's order, step 0, 1, ...

- where no two meet, each is a lane's: `out[p(i)] = f(out[p(i)], u[i])`
- plain writing, the last of equal positions wins: each of them writes the last one's update

      out[p(i)] = u[max(r: p(r) == p(i) ? r : -1)]

  which for many steps is found by marks in working memory: numbers of steps, of which atomic maxima leave the last
- reductions: each element of the result that may be changed looks through all steps; or, where there are fewer updates than such
  elements, each update does, into working memory, from where all that meet write the same

      out[e] = out[e] + sum(r: p(r) == e ? u[r] : 0)

Floats are never added up by atomics, whose order is another in every run. What is too many comparisons is the host's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import SCRATCH, GpuKernel, NoKernel
from fusewise.codegen.gpu.nests import finished, flat_over, nest, understood, warps_for
from fusewise.codegen.gpu.source import TritonWriter
from fusewise.codegen.gpu.words import identity
from fusewise.ir.dtypes import INT32, INT64
from fusewise.lower.task import Operand, Store, Task
from fusewise.ops.expr import (
    Expr,
    binary,
    cast,
    compare,
    const,
    index,
    load,
    reduce,
    select,
    substitute_indices,
    walk,
)
from fusewise.records import record

__all__ = ["MOST_COMPARISONS", "scatter"]

MOST_COMPARISONS = 1 << 33
"""Of positions, for a reduction: some milliseconds of a large GPU, as a way to the host and back takes. Not measured on a GPU."""
_MARKED = 1 << 26
"""Comparisons from which on marks are worth two more launches. Not measured on a GPU."""
_BLOCK = 256

_REDUCTIONS: Mapping[str, str] = MappingProxyType(
    {"add": "sum", "mul": "prod", "max": "max", "min": "min", "or": "or", "and": "and"}
)


def scatter(task: Task, device: Device, precision: str) -> GpuKernel:
    """Kernels for ScatterElements, ScatterND, TensorScatter or MaxUnpool; `NoKernel` for others, and where these are too slow."""
    if task.anchor is None or task.anchor.family != "scatter":
        raise NoKernel("no scatter")
    if not task.is_fixed:
        raise NoKernel("a kernel for a GPU is written for known sizes")
    found = _Scatter.of(task)
    if found.steps <= 1 or 0 in task.extents:
        return nest(found.plain, device)
    if not found.reads_result:
        return _last(found, device) if found.rows * found.steps < _MARKED else _marked(found, device)
    return _reduced(found, device)


@record(frozen=True)
class _Scatter:
    """A scatter's task without its anchor, the axes along which updates are in order, and positions as data has them by what they
    are bounded as."""

    plain: Task
    ordered: tuple[int, ...]
    owner: Expr
    owners: int
    positions: Mapping[Expr, Expr]

    @classmethod
    def of(cls, task: Task) -> _Scatter:
        anchor, (store,) = task.anchored, task.stores
        positions = {node: node.args[0] for at in store.index for node in walk(at) if node.op == "bounded"}
        owner, owners = anchor.element(0), anchor.attribute("positions")
        return cls(replace(task, anchor=None), anchor.attribute("ordered"), owner, owners, positions)

    @property
    def store(self) -> Store:
        return self.plain.stores[0]

    @property
    def reads_result(self) -> bool:
        return any(node.op == "load" and node.value == self.store.operand for node in walk(self.store.value))

    @property
    def steps(self) -> int:
        return math.prod(self.plain.extents[d] for d in self.ordered)

    @property
    def placed(self) -> tuple[int, ...]:
        """The axes that positions depend on, those in order among them."""
        found = {node.value for root in self.positions for node in walk(root) if node.op == "index"}
        return tuple(d for d in range(len(self.plain.extents)) if d in self.ordered or f"i{d}" in found)

    @property
    def rows(self) -> int:
        """Updates that have positions of their own; the others are elements of slices."""
        return math.prod(self.plain.extents[d] for d in self.placed)

    @property
    def loops(self) -> tuple[tuple[str, int], ...]:
        """Variables of all steps."""
        return tuple((f"r{d}", self.plain.extents[d]) for d in self.ordered)

    @property
    def number(self) -> Expr:
        """Of a step."""
        found = const(0)
        for d in self.ordered:
            found = found * self.plain.extents[d] + index(f"i{d}")
        return found

    def of_step(self, root: Expr) -> Expr:
        """The same in the variables of all steps."""
        return substitute_indices(root, {f"i{d}": index(f"r{d}") for d in self.ordered})

    def at_step(self, root: Expr, number: Expr) -> Expr:
        """The same for the step of a number, which is kept within what there are."""
        rest = binary("min", binary("max", number, 0), self.steps - 1)
        values: dict[str, Expr] = {}
        for k, d in reversed(list(enumerate(self.ordered))):
            values[f"i{d}"] = rest if k == 0 else rest % self.plain.extents[d]
            rest = rest // self.plain.extents[d]
        return substitute_indices(root, values)


def _every(conditions: Sequence[Expr]) -> Expr:
    found = conditions[0]
    for condition in conditions[1:]:
        found = binary("and", found, condition)
    return found


def _named(kernel: GpuKernel, way: str) -> GpuKernel:
    return replace(kernel, way=f"{way}: {kernel.way}")


# --- plain writing --------------------------------------------------------------------------------------------------------


def _last(one: _Scatter, device: Device) -> GpuKernel:
    """All updates that meet write the last one's. Elements of long slices look for it each for itself: rows would be few blocks."""
    meets = _every([compare("eq", one.of_step(given), given) for given in one.positions.values()])
    step = cast(one.of_step(one.number), INT32)
    last = cast(reduce("max", one.loops, select(meets, step, const(-1, INT32))), INT64)
    store = replace(one.store, value=one.at_step(one.store.value, last))
    flat = math.prod(one.plain.extents) > one.rows * one.steps
    return _named(nest(replace(one.plain, stores=(store,)), device, flat=flat), "the last of equal positions")


def _marked(one: _Scatter, device: Device) -> GpuKernel:
    """Marks are cleared and set, then all updates that meet write the one that is marked."""
    task, placed = one.plain, one.placed
    units = [d for d in placed if d not in one.ordered]
    count = one.owners * math.prod(task.extents[d] for d in units)
    if max(count, one.steps) >= 2**31:
        raise NoKernel(f"marks of {count} elements")
    unit = const(0)
    for d in units:
        unit = unit * task.extents[d] + index(f"i{d}")
    place = (unit * one.owners + one.owner,)
    marks = Operand(SCRATCH, INT32, (count,), (1,))
    cleared = Task((count,), (marks,), (Store(SCRATCH, (index("i0"),), const(-1, INT32)),))
    names = {f"i{d}": index(f"i{k}") for k, d in enumerate(placed)}
    mark = Store(SCRATCH, (substitute_indices(place[0], names),), substitute_indices(cast(one.number, INT32), names))
    reading = {node.value for at in place for node in walk(at) if node.op == "load"}
    read = tuple(operand for operand in task.operands if operand.name in reading)
    marking = Task(tuple(task.extents[d] for d in placed), (*read, marks), (mark,))
    value = one.at_step(one.store.value, cast(load(SCRATCH, INT32, place), INT64))
    writing = replace(task, operands=(*task.operands, marks), stores=(replace(one.store, value=value),))
    first = _named(nest(cleared, device), "marks of the last of equal positions, cleared")
    then = _named(_greatest(marking), "set"), _named(nest(writing, device), "and followed")
    return replace(first, scratch_bytes=4 * count, then=then)


def _greatest(task: Task) -> GpuKernel:
    """A nest that keeps the largest of what it stores at a place; whole numbers, so no order of storing is another answer."""
    writer = TritonWriter(understood(task))
    blocks = flat_over(writer, _BLOCK, word="atomic_max", how=', sem="relaxed"')
    return finished(writer, f"mark_{task.digest}", blocks, warps_for(_BLOCK, 1), f"flat, {_BLOCK} elements to a block")


# --- reductions -----------------------------------------------------------------------------------------------------------


def _reduced(one: _Scatter, device: Device) -> GpuKernel:
    """What comes together at an element, looked for by that or by every update, whichever is less."""
    store, task = one.store, one.plain
    changed = store.value
    if changed.op not in _REDUCTIONS or changed.args[0] != load(store.operand, changed.dtype, store.index):
        raise NoKernel(f"a scatter that stores {changed.op}")
    fits = all(at in one.positions or at.op == "index" for at in store.index)
    elements = math.prod(
        task.operand(store.operand).shape[k] for k, at in enumerate(store.index) if at in one.positions
    )
    elements *= math.prod(extent for d, extent in enumerate(task.extents) if d not in one.ordered)
    updates = math.prod(task.extents)
    if min(elements if fits else updates, updates) * one.steps > MOST_COMPARISONS:
        raise NoKernel(f"{one.steps} updates, each to be compared with {min(elements, updates)} places")
    return _by_elements(one, device) if fits and elements <= updates else _by_updates(one, device)


def _together(one: _Scatter, meets: Expr, update: Expr) -> Expr:
    """All updates that meet at a place, `update` that of a step."""
    kind, dtype = _REDUCTIONS[one.store.value.op], update.dtype
    return reduce(kind, one.loops, select(meets, update, const(identity(kind, dtype), dtype)))


def _by_elements(one: _Scatter, device: Device) -> GpuKernel:
    """A lane for each element that may be changed, which is where positions are and along the axes that are not in order."""
    store, task = one.store, one.plain
    extents: list[int] = []
    names: dict[str, Expr] = {}
    for d, extent in enumerate(task.extents):
        if d not in one.ordered:
            names[f"i{d}"] = index(f"i{len(extents)}")
            extents.append(extent)
    places: dict[Expr, Expr] = {}
    for k, at in enumerate(store.index):
        if at in one.positions:
            places[at] = index(f"i{len(extents)}")
            extents.append(task.operand(store.operand).shape[k])

    def of_step(root: Expr) -> Expr:
        return substitute_indices(one.of_step(root), names)

    meets = _every([compare("eq", of_step(at), own) for at, own in places.items()])
    where = tuple(places[at] if at in places else substitute_indices(at, names) for at in store.index)
    together = _together(one, meets, of_step(store.value.args[1]))
    old = load(store.operand, together.dtype, where)
    value = binary(store.value.op, old, together)
    if store.value.op == "add":  # a zero that is added to nothing keeps its sign
        value = select(compare("eq", together, const(identity("sum", old.dtype), old.dtype)), old, value)
    found = replace(task, extents=tuple(extents), stores=(Store(store.operand, where, value),))
    return _named(nest(found, device), "each element looks for its updates")


def _by_updates(one: _Scatter, device: Device) -> GpuKernel:
    """What each place becomes, in working memory, then in place."""
    store, task = one.store, one.plain
    at = tuple(index(f"i{d}") for d in range(len(task.extents)))
    meets = _every([compare("eq", one.of_step(given), given) for given in one.positions.values()])
    old, dtype = store.value.args[0], store.value.dtype
    value = binary(store.value.op, old, _together(one, meets, one.of_step(store.value.args[1])))
    strides = tuple(math.prod(task.extents[d + 1 :]) for d in range(len(at)))
    scratch = Operand(SCRATCH, dtype, task.extents, strides)
    result = load(SCRATCH, dtype, at)
    first = replace(task, operands=(*task.operands, scratch), stores=(Store(SCRATCH, at, value),))
    read = {node.value for root in store.index for node in walk(root) if node.op == "load"} | {store.operand}
    kept = tuple(operand for operand in task.operands if operand.name in read)
    second = replace(task, operands=(*kept, scratch), stores=(replace(store, value=result),))
    before, behind = nest(first, device), nest(second, device)
    before = _named(before, "each update looks for those of its place")
    nbytes = math.prod(task.extents) * dtype.itemsize
    return replace(before, scratch_bytes=nbytes, then=(_named(behind, "put in place"),))
