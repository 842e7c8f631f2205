"""Loads and stores of a point: which elements of an operand they touch, and the cheapest safe way to touch them."""

from __future__ import annotations

from fusewise.codegen.llvm.loops import offset_of
from fusewise.codegen.llvm.point import Point
from fusewise.codegen.llvm.registers import convert, has_masked_memory
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type, register_type
from fusewise.codegen.target import LINE_BYTES
from fusewise.ir.deciding import known_below, known_one, known_zero
from fusewise.ir.dtypes import BOOL
from fusewise.ir.size import Size
from fusewise.lower.index import Linear
from fusewise.lower.task import Operand, Store
from fusewise.ops.expr import Expr, walk
from fusewise.records import record

__all__ = ["Access", "access_of", "fetch_element", "is_combed", "load_element", "store_element"]


@record(frozen=True)
class Access:
    """Where a load or store goes: `form` is the offset in elements. Along the lane axis it moves by `step` elements a lane;
    None: irregularly. `inside` says that every index is known to be within the operand."""

    form: Linear
    step: int | None
    inside: bool

    @property
    def is_uniform(self) -> bool:
        """Is it one element for all lanes?"""
        return self.step is not None and known_zero(self.step)

    @property
    def pace(self) -> int | None:
        """The step, where it is a number."""
        return None if isinstance(self.step, Size) else self.step


def access_of(point: Point, operand: Operand, indices: tuple[Expr, ...]) -> Access:
    """Analyse one access at a point."""
    simplifier = point.elements.facts.simplifier
    form = offset_of(simplifier, operand, indices)
    ranges = (simplifier.range_of(simplifier.linear(expr)) for expr in indices)
    inside = all(
        known_below(-1, low) and known_below(high, extent)
        for (low, high), extent in zip(ranges, operand.shape, strict=True)
    )
    step: int | None = 0
    for atom, coefficient in form.terms:
        if point.varies(atom):
            step = coefficient if atom.op == "index" and step is not None else None
            if step is None:
                break
    return Access(form, step, inside)


def load_element(point: Point, expr: Expr) -> Value:
    """The element a load reads, in register form; a scalar when it is the same in all lanes."""
    f, operand = point.function, point.elements.task.operand(expr.value)
    element = memory_type(operand.dtype)
    access = access_of(point, operand, expr.args)
    if any(map(known_zero, operand.shape)):  # nothing is read, but positions from data are looked at
        for at in (node for index in expr.args for node in walk(index) if node.op == "bounded"):
            point.minimal(at)
        raw = f.constant(0, vector(element, 1 if access.is_uniform else point.lanes))
    else:
        raw = _load(point, operand, access, element)
    if operand.dtype == BOOL:
        raw = f.compare("icmp ne", raw, f.constant(0, raw.type))
    if operand.dtype.is_integer and operand.dtype.bits < 8:  # the bits above a narrow integer mean nothing
        spare = f.constant(8 - operand.dtype.bits, raw.type)
        raw = f.binary("ashr" if operand.dtype.kind == "int" else "lshr", f.binary("shl", raw, spare), spare)
    return raw


def _load(point: Point, operand: Operand, access: Access, element: str) -> Value:
    f, pointer = point.function, point.elements.pointers[operand.name]
    exposed = point.guarded and not access.inside
    if access.is_uniform:
        offset = _uniform(point, access.form)
        return f.load(element, f.at(pointer, _limited(f, offset, operand) if exposed else offset, element))
    if access.pace == 1 and not exposed and point.count is None:
        return f.load(vector(element, point.lanes), f.at(pointer, _uniform(point, access.form), element))
    if access.pace == 1 and has_masked_memory(point.instructions, operand.dtype.itemsize):
        mask = point.mask if exposed else None
        if mask is not None or not exposed:
            start = f.at(pointer, _uniform(point, access.form), element)
            return f.masked_load(vector(element, point.lanes), start, _mask(point, mask))
    if access.pace == -1 and not exposed and point.count is None:
        start = f.at(pointer, f.add(_uniform(point, access.form), 1 - point.lanes), element)
        forward = f.load(vector(element, point.lanes), start)
        return f.shuffle(forward, forward, range(point.lanes - 1, -1, -1))
    if access.pace is not None and is_combed(access.pace, point.lanes) and not exposed and point.count is None:
        return _comb(f, f.at(pointer, _uniform(point, access.form), element), access.pace, point.lanes, element)
    return _gather(point, operand, access, element, exposed or (point.count is not None and access.step is None))


def is_combed(step: int, lanes: int) -> bool:
    """Are elements `step` apart picked from vectors that hold them all, rather than loaded one by one?"""
    return 1 < step <= min(_WIDEST_COMB, lanes)


_WIDEST_COMB = 4
"""Elements, which take as many loads, and one shuffle less."""


def _comb(f: Function, start: Value, step: int, lanes: int, element: str) -> Value:
    """Every `step`th element from `start` on, out of whole vectors, of which the last ends with the last that is asked for."""
    kind, owners = vector(element, lanes), [step * lane // lanes for lane in range(lanes)]
    found = f.load(kind, start)
    for number in range(1, step):
        begin = number * lanes if number < step - 1 else (lanes - 1) * (step - 1)
        here = [step * lane if number == 1 and owners[lane] == 0 else lane for lane in range(lanes)]
        there = [lanes + step * lane - begin for lane in range(lanes)]
        order = [there[lane] if owners[lane] == number else here[lane] for lane in range(lanes)]
        found = f.shuffle(found, f.load(kind, f.at(start, begin, element)), order)
    return found


def _gather(point: Point, operand: Operand, access: Access, element: str, exposed: bool) -> Value:
    """One scalar load per lane."""
    f, pointer = point.function, point.elements.pointers[operand.name]
    result = f.unset(vector(element, point.lanes))
    for lane, offset in enumerate(_lane_offsets(point, access)):
        address = f.at(pointer, _limited(f, offset, operand) if exposed else offset, element)
        result = f.insert(result, f.load(element, address), lane)
    return result


def _lane_offsets(point: Point, access: Access) -> list[Int]:
    f = point.function
    if access.step is None:
        offsets = _varying(point, access.form)
        return [f.extract(offsets, lane) for lane in range(point.lanes)]
    base = _uniform(point, access.form)
    lanes = [lane if point.count is None else f.minimum(lane, f.sub(point.count, 1)) for lane in range(point.lanes)]
    return [f.add(base, f.mul(lane, access.step)) for lane in lanes]


def _uniform(point: Point, form: Linear) -> Int:
    """The offset at the first lane."""
    f = point.function
    total: Int = 0
    for atom, coefficient in form.terms:
        at = point.indices[atom.value] if atom.op == "index" else point.integer(atom)
        total = f.add(total, f.mul(at, coefficient))
    return f.add(total, form.constant)


def _varying(point: Point, form: Linear) -> Value:
    """The offset of every lane."""
    f = point.function
    total = f.splat(f.i64(_uniform(point, _part(point, form, varying=False))), point.lanes)
    for atom, coefficient in _part(point, form, varying=True).terms:
        term = point.value(atom)
        if not known_one(coefficient):
            term = f.binary("mul", term, f.every(coefficient, term.lanes))
        total = f.binary("add", total, term)
    return total


def _part(point: Point, form: Linear, varying: bool) -> Linear:
    terms = tuple((a, c) for a, c in form.terms if point.varies(a) == varying)
    return Linear(0 if varying else form.constant, terms)


def _limited(f: Function, offset: Int, operand: Operand) -> Int:
    """An offset kept within the operand's memory."""
    low, high = operand.span
    return f.maximum(f.minimum(offset, high), low)


def _mask(point: Point, path: Value | None) -> Value:
    f = point.function
    if point.count is None:
        assert path is not None
        return path
    present = f.mask(point.count, point.lanes)
    return present if path is None else f.binary("and", present, path)


def store_element(point: Point, store: Store) -> None:
    """Compute a store's value at a point and write it, lanes past `count` excepted."""
    f, operand = point.function, point.elements.task.operand(store.operand)
    if any(map(known_zero, operand.shape)):
        return
    element, pointer = memory_type(operand.dtype), point.elements.pointers[operand.name]
    value = convert(f, point.instructions, point.minimal(store.value), store.value.dtype, operand.dtype)
    assert value.element == register_type(operand.dtype)
    if operand.dtype == BOOL:
        value = f.convert("zext", value, "i8")
    access = access_of(point, operand, store.index)
    if access.is_uniform:
        single = f.extract(value, 0) if value.lanes > 1 else value
        f.store(single, f.at(pointer, _uniform(point, access.form), element))
        return
    value = f.splat(value, point.lanes)
    if access.pace == 1:
        start = f.at(pointer, _uniform(point, access.form), element)
        if point.count is None:
            f.store(value, start)
            return
        if point.count == f.i64(
            1
        ):  # LLVM would write a short one in 32 bits, where it makes a scalar of a masked store
            f.store(f.extract(value, 0), start)
            return
        if has_masked_memory(point.instructions, operand.dtype.itemsize):
            f.masked_store(value, start, f.mask(point.count, point.lanes))
            return
    _scatter(point, access, value, pointer, element)


def fetch_element(point: Point, name: str, index: tuple[Expr, ...], locality: int) -> None:
    """Fetch what lies in an operand at a point, if it lies side by side."""
    f, operand = point.function, point.elements.task.operand(name)
    access = access_of(point, operand, index)
    if access.pace == 1:
        start = f.at(point.elements.pointers[operand.name], _uniform(point, access.form), memory_type(operand.dtype))
        for byte in range(0, point.lanes * operand.dtype.itemsize, LINE_BYTES):
            f.prefetch(f.at(start, byte, "i8"), locality)


def _scatter(point: Point, access: Access, value: Value, pointer: Value, element: str) -> None:
    """One scalar store per lane."""
    f = point.function
    for lane, offset in enumerate(_lane_offsets(point, access)):

        def write(lane: int = lane, offset: Int = offset) -> None:
            f.store(f.extract(value, lane), f.at(pointer, offset, element))

        if point.count is None or lane == 0:
            write()
        else:
            f.when(f.compare("icmp slt", lane, point.count), write)
