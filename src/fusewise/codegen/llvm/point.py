"""A point in the index space of a task: what is asked there, what is known, and what varies between lanes.

What expressions mean there is said by `elements`, in words of which some have a file of their own (`memory`, `reduction`,
`bounded`): these ask a `Point` for the values of expressions, and it asks `elements`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Self

from fusewise.codegen.llvm.loops import loop_ranges
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import InstructionSet
from fusewise.ir.deciding import known_below
from fusewise.ir.dtypes import INT64
from fusewise.ir.size import Size
from fusewise.lower.index import Simplifier
from fusewise.lower.task import ACC, Store, Task
from fusewise.ops.expr import Expr, walk
from fusewise.records import record

__all__ = ["Emission", "Point"]


@record
class Facts:
    """What is known of expressions wherever they are evaluated; remembered, so that shared sub-trees cost once."""

    simplifier: Simplifier
    _reads: dict[Expr, bool] = field(default_factory=dict)

    def reads(self, root: Expr) -> bool:
        """Does evaluating `root` touch memory or run a loop?"""
        if root not in self._reads:
            for node in walk(root):
                if node not in self._reads:
                    own = node.op in ("reduce", "bounded") or (node.op == "load" and node.value != ACC)
                    self._reads[node] = own or any(self._reads[a] for a in node.args)
        return self._reads[root]


class Emission:
    """One function that expressions of one task are emitted into, with a pointer per operand."""

    def __init__(
        self, function: Function, task: Task, instructions: InstructionSet, pointers: Mapping[str, Value]
    ) -> None:
        self.function = function
        self.task = task
        self.instructions = instructions
        self.pointers = pointers
        self.facts = Facts(Simplifier(loop_ranges(task)))


@record
class Point(ABC):
    """A place in the index space. Every expression is emitted at most once; `scopes` holds what is known, innermost last.

    `mask` says, per lane, whether the path of conditions to here is taken; `guarded` that there is such a path.
    """

    elements: Emission
    indices: dict[str, Int]
    lane: str | None
    lanes: int
    acc: Value | None
    count: Int | None
    scopes: list[dict[Expr, Value]]
    mask: Value | None = None
    guarded: bool = False
    _varies: dict[Expr, bool] = field(default_factory=dict)

    @property
    def function(self) -> Function:
        return self.elements.function

    @property
    def instructions(self) -> InstructionSet:
        return self.elements.instructions

    def value(self, expr: Expr) -> Value:
        """The element, or a vector of `lanes` elements, in register form (bool i1, float16 and bfloat16 as i16 bits)."""
        return self.function.splat(self.minimal(expr), self.lanes)

    @abstractmethod
    def emit(self, expr: Expr) -> Value:
        """Emit an expression that is not known here; a scalar where it does not vary between lanes."""

    @abstractmethod
    def store(self, store: Store) -> None:
        """Compute one store's value and write it."""

    @abstractmethod
    def fetch(self, name: str, index: tuple[Expr, ...], locality: int) -> None:
        """Fetch the memory of an operand that is about to be read or written, to a cache level: 3 is the first one."""

    def varies(self, expr: Expr) -> bool:
        """Does the value differ between lanes?"""
        if self.lanes == 1:
            return False
        known = self._varies.get(expr)
        if known is None:
            bound = self.known(expr)
            if bound is not None:
                known = bound.lanes > 1
            elif expr.op == "index":
                known = expr.value == self.lane
            elif expr.op == "load" and expr.value == ACC:
                known = self.acc is not None and self.acc.lanes > 1
            else:
                known = any(self.varies(a) for a in expr.args)
            self._varies[expr] = known
        return known

    def minimal(self, expr: Expr) -> Value:
        """As `value`, but a scalar when it is the same in all lanes."""
        known = self.known(expr)
        if known is None:
            known = self.emit(expr)
            self.scopes[-1][expr] = known
        return known

    def integer(self, expr: Expr) -> Int:
        """An int64 expression that is the same in all lanes; folded where it is known now."""
        if self.known(expr) is None:
            if expr.op == "const":
                number: int = expr.value
                return number if isinstance(number, Size) else int(number)
            if expr.op == "index":
                return self.indices[expr.value]
            folded = self.folded(expr)
            if isinstance(folded, Value):
                self.scopes[-1][expr] = folded
            if folded is not None:
                return folded
        return self.minimal(expr)

    def inner(self, indices: Mapping[str, Int], lane: str | None, lanes: int) -> Self:
        """A point inside a loop at this point: more loop variables, possibly another lane axis."""
        same = lane == self.lane and lanes == self.lanes
        shadowed = any(name in self.indices for name in indices)
        scopes = [self.scopes[0], {}] if shadowed else [*self.scopes, {}]
        return replace(
            self,
            indices={**self.indices, **indices},
            lane=lane,
            lanes=lanes,
            count=self.count if same else None,
            mask=self.mask if same else None,
            scopes=scopes,
            _varies={},
        )

    def lane_indices(self, base: Int) -> Value:
        """base, base+1, ...; lanes past `count` repeat the last one that exists, so that their addresses are good."""
        f = self.function
        iota = f.constants(range(self.lanes), "i64")
        if self.count is not None:
            iota = f.intrinsic("smin", iota, f.splat(f.i64(f.sub(self.count, 1)), self.lanes))
        return f.binary("add", f.splat(f.i64(base), self.lanes), iota)

    def known(self, expr: Expr) -> Value | None:
        """What has been emitted for it, if that holds here."""
        for scope in reversed(self.scopes):
            if expr in scope:
                return scope[expr]
        return None

    def folded(self, expr: Expr) -> Int | None:
        """Index arithmetic without data: constants fold, and the rest is short."""
        facts, f = self.elements.facts, self.function
        if expr.dtype != INT64 or expr.op in ("select", "reduce", "load", "cast", "bits") or facts.reads(expr):
            return None
        if expr.op == "neg":
            return f.sub(0, self.integer(expr.args[0]))
        if expr.op not in ("add", "sub", "mul", "min", "max", "floordiv", "floormod"):
            return None
        if expr.op in ("floordiv", "floormod"):
            by = expr.args[1]
            if by.op != "const" or not known_below(0, by.value):
                return None
            if not known_below(-1, facts.simplifier.range_of(facts.simplifier.linear(expr.args[0]))[0]):
                return None
        a, b = (self.integer(x) for x in expr.args)
        if expr.op in ("floordiv", "floormod"):
            return f.udiv(a, b) if expr.op == "floordiv" else f.urem(a, b)
        step = {"add": f.add, "sub": f.sub, "mul": f.mul, "min": f.minimum, "max": f.maximum}[expr.op]
        return step(a, b)

    def within(self, mask: Value | None, expr: Expr) -> Value:
        """`expr` on a path: what is computed there is not known elsewhere. `mask` when lanes differ, else a real branch."""
        before = self.mask, self.guarded
        if mask is not None:
            self.mask = mask if self.mask is None else self.function.binary("and", self.mask, mask)
            self.guarded = True
        self.scopes.append({})
        try:
            return self.minimal(expr)
        finally:
            self.scopes.pop()
            self.mask, self.guarded = before
