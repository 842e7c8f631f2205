"""A task with as few loops as possible: operands flat, axes ordered as the output lies in memory, neighbours joined.

    out[i0, i1, i2] = f(a[i0, i1, i2], b[i2])     dense (2, 3, 4)
 -> out[4*i0 + i1]  = f(a[4*i0 + i1], b[i1])      (6, 4)

Two neighbouring loops are joined when every access moves along the outer one by the inner one's extent times its own step, and
neither variable is used for anything but addresses. The loops of a reduction are joined likewise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fusewise.ir.deciding import hint, known_below, known_equal, known_one, known_zero
from fusewise.ir.size import greatest
from fusewise.lower.index import Linear, Simplifier
from fusewise.lower.task import ACC, Operand, Store, Task
from fusewise.ops.expr import Expr, const, index, load, substitute, walk

__all__ = ["cut_axis", "free_axes", "loop_ranges", "offset_of", "reduction_ranges", "simplified"]

Form = Mapping[Expr, int]


def free_axes(root: Expr) -> frozenset[str]:
    """The loop variables a value depends on, those of its own reductions excepted."""
    found: dict[Expr, frozenset[str]] = {}
    for node in walk(root):
        names = frozenset((node.value,)) if node.op == "index" else frozenset().union(*(found[a] for a in node.args))
        if node.op == "reduce":
            names -= {name for name, _ in node.value[1]}
        found[node] = names
    return found[root]


def offset_of(simplifier: Simplifier, operand: Operand, indices: tuple[Expr, ...]) -> Linear:
    """Where an element of an operand lies, in elements from its memory's beginning on."""
    form = Linear(operand.offset)
    for expr, stride in zip(indices, operand.strides, strict=True):
        form = form.plus(simplifier.linear(expr), stride)
    return form


def simplified(task: Task) -> Task:
    """An equal task: flat operands, loops in the order of the output's strides, joined where possible, named i0, i1, ..."""
    flat = _flat(task)
    for _ in range(8):
        cut = _divided_axis(flat)
        if cut is None:
            break
        flat = cut_axis(flat, *cut)
    axes = [(f"i{k}", extent) for k, extent in enumerate(flat.extents) if not known_one(extent)]
    flat = _without_units(flat)
    axes = _ordered(flat, axes)
    flat, axes = _joined(flat, axes)
    names = {name: index(f"i{k}") for k, (name, _) in enumerate(axes)}
    return replace(_mapped(flat, names), extents=tuple(extent for _, extent in axes))


def loop_ranges(task: Task) -> dict[str, int]:
    """The extent of every loop variable a task mentions; the largest when a name is used twice."""
    ranges = task.ranges
    roots = [*(root for store in task.stores for root in (*store.index, store.value)), *task.prologue]
    if task.anchor is not None:
        for kind in task.anchor.inputs:
            for k, extent in enumerate(kind.dims if kind is not None else ()):
                ranges[f"p{k}"] = greatest(extent, ranges.get(f"p{k}", 0))
    for root in roots:
        for name, extent in reduction_ranges(root).items():
            ranges[name] = greatest(extent, ranges.get(name, 0))
    return ranges


def reduction_ranges(root: Expr) -> dict[str, int]:
    """The extent of every loop variable of the reductions in an expression."""
    ranges: dict[str, int] = {}
    for node in walk(root):
        for name, extent in node.value[1] if node.op == "reduce" else ():
            ranges[name] = greatest(extent, ranges.get(name, 0))
    return ranges


def _flat(task: Task) -> Task:
    """Every operand as one row of elements; indices become simplified offsets."""
    simplifier = Simplifier(loop_ranges(task))
    operands: dict[str, Operand] = {}
    for operand in task.operands:
        low, high = (0, -1) if any(map(known_zero, operand.shape)) else operand.span
        operands[operand.name] = replace(operand, shape=(high - low + 1,), strides=(1,), offset=low)

    def offset(name: str, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        form = offset_of(simplifier, task.operand(name), indices)
        return (simplifier.expression(form.plus(Linear(-operands[name].offset))),)

    def flat_load(node: Expr) -> Expr | None:
        if node.op != "load" or node.value == ACC:
            return None
        return load(node.value, node.dtype, offset(node.value, node.args))

    def flat(store: Store) -> Store:
        where = tuple(substitute(i, flat_load) for i in store.index)  # which may come from data
        return Store(
            store.operand, offset(store.operand, where), simplifier.simplify(substitute(store.value, flat_load))
        )

    return replace(task, operands=tuple(operands.values()), stores=tuple(map(flat, task.stores)))


def _divided_axis(task: Task) -> tuple[int, int] | None:
    """A loop whose variable is divided by a divisor of its extent, and that divisor; None when there is none."""
    for store in task.stores:
        for node in (*walk(store.index[0]), *walk(store.value)):
            if node.op not in ("floordiv", "floormod") or node.args[0].op != "index" or node.args[1].op != "const":
                continue
            name, by = node.args[0].value, node.args[1].value
            if name[0] == "i" and name[1:].isdigit() and int(name[1:]) < len(task.extents):
                extent = task.extents[int(name[1:])]
                if known_below(1, by) and known_below(by, extent) and known_equal(extent % by, 0):
                    return int(name[1:]), by
    return None


def cut_axis(task: Task, axis: int, by: int) -> Task:
    """Loop `axis` as two loops, the inner one of extent `by`: quotient and remainder become loop variables.

    for i < 12: a[i // 4, i % 4]   ->   for i < 3: for j < 4: a[i, j]
    """
    extents = (*task.extents[:axis], task.extents[axis] // by, by, *task.extents[axis + 1 :])
    values: dict[str, Expr] = {f"i{axis}": index(f"i{axis}") * by + index(f"i{axis + 1}")}
    values |= {f"i{k}": index(f"i{k + 1}") for k in range(axis + 1, len(task.extents))}
    moved = replace(_mapped(task, values), extents=extents)
    return moved.mapped(Simplifier(loop_ranges(moved)).simplify)


def _mapped(task: Task, values: Mapping[str, Expr]) -> Task:
    """Loop variables replaced."""

    def one(node: Expr) -> Expr | None:
        return values.get(node.value) if node.op == "index" else None

    return task.mapped(lambda root: substitute(root, one))


def _without_units(task: Task) -> Task:
    return _mapped(task, {f"i{k}": const(0) for k, extent in enumerate(task.extents) if known_one(extent)})


def _forms(task: Task) -> list[Form]:
    """The offset of every store and load, as coefficients of atoms."""
    simplifier = Simplifier(loop_ranges(task))
    roots = [s.index[0] for s in task.stores]
    for store in task.stores:
        for node in walk(store.value):
            if node.op == "load" and node.value != ACC:
                roots.append(node.args[0])
    return [dict(simplifier.linear(root).terms) for root in dict.fromkeys(roots)]


def _ordered(task: Task, axes: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Loops by falling stride of the first output; axes it does not mention come first."""
    if not task.stores:
        return axes
    first = Simplifier(loop_ranges(task)).linear(task.stores[0].index[0])
    steps = {atom.value: abs(hint(c)) for atom, c in first.terms if atom.op == "index"}
    if any(atom.op != "index" for atom, _ in first.terms):
        return axes
    return sorted(axes, key=lambda axis: -steps.get(axis[0], 2**62))


def _used_as_values(task: Task) -> set[str]:
    """Loop variables that are more than terms of an address: in conditions, quotients, values."""
    simplifier = Simplifier(loop_ranges(task))
    used: set[str] = set()

    def address(root: Expr) -> None:
        for atom, _ in simplifier.linear(root).terms:
            if atom.op != "index":
                used.update(free_axes(atom))

    for store in task.stores:
        address(store.index[0])
        # a load depends on its address only; with loads cut off, what is left uses loop variables as values
        cut = substitute(store.value, lambda n: load(n.value, n.dtype, ()) if n.op == "load" else None)
        for node in walk(cut):
            if node.op == "index":
                used.add(node.value)
        for node in walk(store.value):
            if node.op == "load" and node.value != ACC:
                address(node.args[0])
    return used


def _joinable(forms: list[Form], outer: str, inner: str, extent: int) -> bool:
    first, second = index(outer), index(inner)
    return all(known_equal(form.get(first, 0), extent * form.get(second, 0)) for form in forms)


def _joined(task: Task, axes: list[tuple[str, int]]) -> tuple[Task, list[tuple[str, int]]]:
    """Join neighbouring loops, of the task and of its reductions, from the innermost outwards."""
    values = _used_as_values(task)
    forms = _forms(task)
    gone: dict[str, Expr] = {}
    kept: list[tuple[str, int]] = []
    for name, extent in reversed(axes):
        if kept and not {name, kept[-1][0]} & values and _joinable(forms, name, *kept[-1]):
            kept[-1] = (kept[-1][0], kept[-1][1] * extent)
            gone[name] = const(0)
        else:
            kept.append((name, extent))
    sizes = _joined_reductions(task, forms, values, gone)
    task = _resized(_mapped(task, gone), sizes)
    return task, kept[::-1]


def _joined_reductions(
    task: Task, forms: list[Form], values: set[str], gone: dict[str, Expr]
) -> dict[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
    """New loops per reduction; those of names used by several different reductions stay."""
    found = {n.value[1] for s in task.stores for n in walk(s.value) if n.op == "reduce"}
    named = [name for loops in found for name, _ in loops]
    result: dict[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]] = {}
    for loops in found:
        kept: list[tuple[str, int]] = []
        for name, extent in reversed(loops):
            free = named.count(name) == 1 and not known_zero(extent)
            if kept and free and not {name, kept[-1][0]} & values and _joinable(forms, name, *kept[-1]):
                kept[-1] = (kept[-1][0], kept[-1][1] * extent)
                gone[name] = const(0)
            else:
                kept.append((name, extent))
        result[loops] = tuple(kept[::-1])
    return result


def _resized(task: Task, sizes: Mapping[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]) -> Task:
    def one(node: Expr) -> Expr | None:
        if node.op != "reduce" or node.value[1] not in sizes:
            return None
        return Expr("reduce", node.dtype, node.args, (node.value[0], sizes[node.value[1]]))

    stores = tuple(replace(s, value=substitute(s.value, one)) for s in task.stores)
    return replace(task, stores=stores)
