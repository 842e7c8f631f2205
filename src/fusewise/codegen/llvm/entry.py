"""The outside of an anchored kernel: the exported symbol unpacks its argument array and calls the body.

The body takes every pointer as an argument of its own, marked `noalias`, because that is the only way to tell LLVM that buffers
do not overlap; it stays a function so that the promise survives. Only a result and what it may overwrite (`steps.overwrite`) come
without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from fusewise.codegen.kernel import Argument
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.registers import widen
from fusewise.codegen.llvm.share import PARAMETERS, Share
from fusewise.codegen.llvm.stores import Finish, finisher
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Function, Module
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.steps.overwrite import shared_pointers
from fusewise.codegen.target import LINE_BYTES, InstructionSet, whole_lines
from fusewise.codegen.view import OperandView
from fusewise.ir.dtypes import DType
from fusewise.lower.program import KernelCode
from fusewise.lower.task import Task
from fusewise.records import record

__all__ = [
    "OpenFunction",
    "Writer",
    "areas",
    "initial",
    "operand_arguments",
    "operands_alone",
    "routine",
    "widened",
    "written",
]

T = TypeVar("T")
S = TypeVar("S")


def operand_arguments(task: Task, extra: Sequence[Argument]) -> tuple[Argument, ...]:
    """A pointer per operand of the task, those in `extra` repacked, one for faults if there may be any, then the others, and last
    one to the numbers that sizes are, if there are any."""
    given = {argument.name: argument for argument in extra}
    named = tuple(given.pop(operand.name, Argument(operand.name)) for operand in task.operands)
    faults = (Argument("fault"),) if task.sites else ()
    sizes = () if task.is_fixed else (Argument("sizes"),)
    return (*named, *faults, *given.values(), *sizes)


def operands_alone(understood: object, task: Task, schedule: object) -> tuple[Argument, ...]:
    """The arguments of a kernel that takes nothing but the operands."""
    return operand_arguments(task, ())


@record(frozen=True)
class OpenFunction:
    """The function of a task that is being written: its arguments, where they point, and its share of the work."""

    f: Function
    task: Task
    instructions: InstructionSet
    arguments: Sequence[Argument]
    pointers: Mapping[str, Value]
    share: Share

    @property
    def symbol(self) -> str:
        """What the function is exported as."""
        return self.f.module.functions[0].name

    @property
    def elements(self) -> Elements:
        """The task's expressions, here."""
        return Elements(self.f, self.task, self.instructions, self.pointers)

    @property
    def finish(self) -> Finish:
        """The task's stores, here."""
        return finisher(self.f, self.task, self.pointers)

    def alone(self, **pointers: Value) -> OpenFunction:
        """The same where a worker does all of something by itself, with more pointers."""
        return replace(self, share=Share.whole(), pointers={**self.pointers, **pointers})

    def scratch(self) -> Value:
        """This worker's part of the scratch memory."""
        return self.f.at(self._own(), LINE_BYTES, "i8")

    def tag(self) -> Value:
        """Where the number of what this worker's scratch memory holds is kept, for `Stage`; to be asked for when a call begins."""
        return self.share.tag(self.f, self._own())

    def _own(self) -> Value:
        nbytes = next(argument.nbytes for argument in self.arguments if argument.name == "scratch")
        return self.f.at(self.pointers["scratch"], self.f.mul(self.share.worker, nbytes), "i8")


@record(frozen=True)
class Writer:
    """What writes a part of a task's function."""

    o: OpenFunction

    @property
    def f(self) -> Function:
        return self.o.f

    @property
    def instructions(self) -> InstructionSet:
        return self.o.instructions

    @property
    def pointers(self) -> Mapping[str, Value]:
        return self.o.pointers


def written(
    arguments: Callable[[T, Task, S], tuple[Argument, ...]],
    write: Callable[[OpenFunction, T, S], None],
    hides_counters: bool = False,
    overwrites: bool = False,
) -> Callable[[T, Task, InstructionSet, S, str], Module]:
    """A function (`Kernel.build`) whose body is what `write(function, understood, schedule)` writes. Of a kernel that
    `overwrites`, a result may lie where what is added to it does."""

    def build(understood: T, task: Task, instructions: InstructionSet, schedule: S, symbol: str) -> Module:
        given = arguments(understood, task, schedule)
        shared = shared_pointers(task) if overwrites else ()
        f, pointers, share = _entered(symbol, given, hides_counters, shared)
        write(OpenFunction(f, task, instructions, given, pointers, share), understood, schedule)
        f.give_back()
        return f.module

    return build


def _entered(
    symbol: str, arguments: Sequence[Argument], hides_counters: bool = False, shared: Collection[str] = ()
) -> tuple[Function, dict[str, Value], Share]:
    """Write the exported function; gives the body, pointers by name, and the part of the work that a call does.

    `hides_counters` is for kernels whose loops have many addresses each: loop strength reduction, which tries every way to
    share out their terms, is then done with them at once, and LLVM with the kernel in three quarters of the time. Pointers that
    are `shared` may overlap one another.
    """
    module = Module()
    outside = module.function(symbol, ("ptr", *PARAMETERS))
    array, *share = outside.arguments
    pointers = [outside.load("ptr", outside.at(array, k, "ptr")) for k in range(len(arguments))]
    kinds = ["ptr" if argument.name in shared else "ptr noalias" for argument in arguments]
    body = module.function(f"{symbol}_body", (*kinds, *PARAMETERS), "void", "noinline nounwind", "internal")
    body.hides_counters = hides_counters
    outside.call(body.name, "void", *pointers, *share)
    outside.give_back()
    named = {argument.name: pointer for argument, pointer in zip(arguments, body.arguments, strict=False)}
    body.sizes_at = named.get("sizes")
    return body, named, Share(*body.arguments[-len(PARAMETERS) :])


def routine(
    symbol: str,
    arguments: Sequence[str],
    header: Sequence[str],
    recipe: str,
    write: Callable[[Function, dict[str, Value], dict[str, Value], Share], None],
) -> KernelCode:
    """A function for all shapes, which takes numbers as data: `write(function, pointers, words, share)` writes its body, where
    `words` are those of the argument `header`, int64, by name. `recipe` says everything about it."""

    def build() -> str:
        f, at, share = _entered(symbol, [Argument(name) for name in arguments])
        write(f, at, {word: f.load("i64", f.at(at["header"], k, "i64")) for k, word in enumerate(header)}, share)
        f.give_back()
        return llvm_text(f.module)

    return KernelCode(symbol, recipe, build)


def areas(f: Function, start: Value, sizes: Mapping[str, int]) -> dict[str, Value]:
    """Where areas of so many bytes lie from `start` on, whole cache lines each."""
    found, before = {}, 0
    for name, nbytes in sizes.items():
        found[name] = f.at(start, before, "i8")
        before += whole_lines(nbytes)
    return found


def initial(o: OpenFunction, bias: OperandView | None, columns: Sequence[Int], kind: str, count: int) -> list[Value]:
    """Start values of the accumulators, a vector of the type `kind` per column position: the bias along its last axis, or zero."""
    f = o.f
    zero = f.constant(0.0, kind)
    if bias is None:
        return [zero for _ in columns]
    stride = bias.strides[-1] if bias.shape and bias.shape[-1] != 1 else 0
    dtype, found = bias.operand.dtype, []
    for column in columns:
        offset = f.add(f.mul(column, stride), bias.offset)
        start = f.at(o.pointers[bias.operand.name], offset, memory_type(dtype))
        found.append(widened(f, o.instructions, start, stride, dtype, zero.lanes, count))
    return found


def widened(
    f: Function,
    instructions: InstructionSet,
    start: Value,
    stride: int,
    dtype: DType,
    lanes: int,
    count: int,
) -> Value:
    """`count` elements from `start` on, `stride` apart, in the type arithmetic is done in; the lanes past `count` are zero."""
    stored = memory_type(dtype)
    if stride == 0:
        return f.splat(widen(f, instructions, f.load(stored, start), dtype), lanes)
    if stride == 1 and count == lanes:
        return widen(f, instructions, f.load(vector(stored, lanes), start), dtype)
    value = f.constant(0, vector(stored, lanes))
    for lane in range(count):
        one = f.load(stored, f.at(start, lane * stride, stored))
        value = one if lanes == 1 else f.insert(value, one, lane)
    return widen(f, instructions, value, dtype)
