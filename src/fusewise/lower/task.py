"""A task: one group as the code generator sees it. Pure data with canonical names, so equal groups are equal tasks.

Operands are named `in0 in1 ... const0 ... out0 ...`. Each is a strided view of a buffer in elements, so layout
(channels last, transposed, sliced) is only strides. `stores` say what each output element is, in index variables `i0 i1
...` that run over `extents`, the index space of the root. With an anchor, the anchor's own result appears in the stores
as a load of `acc` at exactly (i0, i1, ...), and what the anchor reads per operand is a prologue expression. `bounded` has
the number of its site.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from fusewise.ir.dtypes import DType
from fusewise.ir.size import Size
from fusewise.ir.types import TensorType
from fusewise.ops.expr import Expr, listing, walk
from fusewise.records import record

__all__ = ["ACC", "Anchor", "Operand", "RefusalReason", "Store", "Task"]

ACC = "acc"


@record(frozen=True)
class RefusalReason:
    """Why something was refused: a phrase from a closed list, and what it concerns."""

    text: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.where})" if self.where else self.text


@record(frozen=True)
class Operand:
    """A view of a buffer: element (j0, j1, ...) lies `offset + sum(j * stride)` elements from where the argument
    points.

    Logical dimensions are in ONNX's order; `strides` tell the physical layout. A constant operand may be repacked by a
    kernel. `alignment` in bytes is what the base pointer guarantees.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    constant: bool = False
    alignment: int = 64

    @property
    def span(self) -> tuple[int, int]:
        """The lowest and the highest offset of its elements, of which there are some."""
        low = high = self.offset
        for stride, extent in zip(self.strides, self.shape, strict=True):
            if stride >= 0:
                high += stride * (extent - 1)
            else:
                low += stride * (extent - 1)
        return low, high

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.dtype.itemsize


@record(frozen=True)
class Store:
    """Write `value` to element `index` of an output operand; `index` and `value` are in i0, i1, ..."""

    operand: str
    index: tuple[Expr, ...]
    value: Expr


@record(frozen=True)
class Anchor:
    """The one heavy node of a group.

    `op` and `attributes` as in ONNX; `inputs[k]` is the type of its operand k (None: absent); `prologue[k]` is the
    element (p0, p1, ...) of that operand as an expression over loads of the task's operands (a bare load when nothing
    was fused); `output` is its result type.
    """

    op: str
    family: str
    attributes: tuple[tuple[str, Any], ...]
    inputs: tuple[TensorType | None, ...]
    prologue: tuple[Expr | None, ...]
    output: TensorType

    def element(self, position: int) -> Expr:
        """The element of an operand that is known to be there."""
        element = self.prologue[position]
        assert element is not None
        return element

    def operand_type(self, position: int) -> TensorType:
        """The type of an operand that is known to be there."""
        kind = self.inputs[position]
        assert kind is not None
        return kind

    def attribute(self, name: str, default: Any = None) -> Any:
        for key, value in self.attributes:
            if key == name:
                return value
        return default


@record(frozen=True)
class Task:
    """One group, ready for code generation.

    `extents` is the index space (one entry per i0, i1, ...): the anchor's output shape, or that of the root value.
    """

    extents: tuple[int, ...]
    operands: tuple[Operand, ...]
    stores: tuple[Store, ...]
    anchor: Anchor | None = None
    exact: bool = False
    _index: dict[str, Operand] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._index.update({operand.name: operand for operand in self.operands})

    def operand(self, name: str) -> Operand:
        return self._index[name]

    @property
    def prologue(self) -> list[Expr]:
        """What the anchor reads, if there is one."""
        return [] if self.anchor is None else [e for e in self.anchor.prologue if e is not None]

    @property
    def ranges(self) -> dict[str, int]:
        """The extent of every loop variable."""
        return {f"i{k}": extent for k, extent in enumerate(self.extents)}

    def mapped(self, one: Callable[[Expr], Expr]) -> Task:
        """With what `one` gives in place of every index and value that is stored."""
        stores = (Store(s.operand, tuple(one(i) for i in s.index), one(s.value)) for s in self.stores)
        return replace(self, stores=tuple(stores))

    @property
    def anchored(self) -> Anchor:
        """The anchor, of a task that is known to have one."""
        assert self.anchor is not None
        return self.anchor

    @cached_property
    def is_fixed(self) -> bool:
        """Does it know all sizes as numbers?"""
        shapes = [self.extents, *((*o.shape, *o.strides, o.offset) for o in self.operands)]
        if self.anchor is not None:
            kinds = (self.anchor.output, *(kind for kind in self.anchor.inputs if kind is not None))
            shapes += [kind.dims for kind in kinds]
        if any(isinstance(size, Size) for shape in shapes for size in shape):
            return False
        roots = [*(e for store in self.stores for e in (*store.index, store.value)), *self.prologue]
        return not any(e.op == "const" and isinstance(e.value, Size) for root in roots for e in walk(root))

    @cached_property
    def sites(self) -> int:
        """How many places of definitions read positions from data: their numbers in `bounded`, and one more."""
        roots = [*(e for store in self.stores for e in (*store.index, store.value)), *self.prologue]
        return max((e.value[2] + 1 for root in roots for e in walk(root) if e.op == "bounded"), default=0)

    @cached_property
    def key(self) -> str:
        """A text that says everything about the task: equal texts, equal code."""
        roots = [*(e for store in self.stores for e in (*store.index, store.value)), *self.prologue]
        anchor: tuple[Any, ...] = ()
        if self.anchor is not None:
            given = tuple(e is not None for e in self.anchor.prologue)
            anchor = (self.anchor.op, self.anchor.attributes, self.anchor.inputs, given, self.anchor.output)
        targets = tuple(store.operand for store in self.stores)
        return repr((self.extents, self.operands, targets, anchor, self.exact)) + listing(tuple(roots))

    @cached_property
    def digest(self) -> str:
        """A short name of the task: equal for equal tasks."""
        return hashlib.blake2b(self.key.encode(), digest_size=10).hexdigest()
