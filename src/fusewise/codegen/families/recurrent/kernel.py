"""LSTM, GRU and RNN with the loop over time at run time, so that a sequence of any length takes no longer to compile.

Takes a task whose anchor is one of the three (`lower.recurrence`); gives LLVM IR, in one of two ways. In a loop, a unit of some
rows of the samples in one direction goes through all of time by itself, and workers never wait for each other:

    for run of steps:   sums = x W^T + biases, all steps of the run as rows of one product
      for step:         for block of hidden numbers:  gates = sums + h R^T, in registers;  the cell's arithmetic;  new states
                        Y of this step

Of one sample every step's products wait for weights. There a run has few steps, and the sums of the next are made beside its steps
(`recurrent.inputs`).

Every worker then reads all of R in every step. By steps, the kernel is called once for each and the blocks are dealt out, so
that workers keep their part of R near them, and meet after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from fusewise.codegen.families.recurrent.inputs import inputs_ahead, inputs_of_group, sums_ahead
from fusewise.codegen.families.recurrent.product import reduce, weights
from fusewise.codegen.families.recurrent.shape import (
    GateProduct,
    RecurrentPlan,
    RecurrentShape,
    cut_of,
    plan_of,
    steps_ahead,
    understand,
)
from fusewise.codegen.families.recurrent.unit import (
    Unit,
    by_direction,
    gates_of_group,
    is_odd,
    last_states,
    outputs_of,
    prepare,
    results,
    sums_of_step,
)
from fusewise.codegen.kernel import Argument, Kernel, working_memory
from fusewise.codegen.llvm.entry import OpenFunction, operand_arguments, written
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.steps.calls import CALL_BYTES
from fusewise.codegen.target import InstructionSet, Target
from fusewise.ir.size import SizeNeeded
from fusewise.lower.task import RefusalReason, Task
from fusewise.records import record

__all__ = ["RECURRENT", "RecurrentSchedule"]

MOST_SUMS = 64 * 1024 * 1024
"""Bytes of the inputs' products of all steps, which lie in memory where workers meet after every step."""

BEFORE = 2
"""Calls before the first step: one prepares, one makes the inputs' products."""


def _operands(s: RecurrentShape, plan: RecurrentPlan, task: Task, extra: Sequence[Argument]) -> tuple[Argument, ...]:
    packed = []
    for name, stages in (("w", plan.inputs), ("r", plan.states)):
        view = s.views[name]
        if view.operand.constant:
            packed.append(Argument(view.operand.name, weights(s, plan, view, stages)))
    return operand_arguments(task, [*packed, *extra])


# --- in a loop ----------------------------------------------------------------------------------------------------


@record(frozen=True)
class RecurrentSchedule:
    """Each direction's samples are dealt out in so many `units`. Inputs' products are made for `chunk` steps at once, with `ahead`
    beside the steps before them."""

    units: int
    chunk: int
    ahead: bool = False


@record(frozen=True)
class RecurrentTask:
    """What is computed, and by what instructions: these say how wide vectors are and which tiles fit."""

    shape: RecurrentShape
    instructions: InstructionSet

    def plan(self, schedule: RecurrentSchedule) -> RecurrentPlan:
        """The plan; of sizes one for so many steps and rows at least, since the last ones are moved back."""
        s, plan = self.shape, plan_of(self.shape, self.instructions, schedule.units, schedule.chunk, schedule.ahead)
        if s.steps < plan.chunk or s.samples < plan.rows:
            raise SizeNeeded(f"{s.steps} steps of {s.samples} samples are not {plan.chunk} of {plan.rows}")
        return plan


def _understand(task: Task, instructions: InstructionSet) -> RecurrentTask | RefusalReason:
    found = understand(task)
    return found if isinstance(found, RefusalReason) else RecurrentTask(found, instructions)


def _understand_steps(task: Task, instructions: InstructionSet) -> RecurrentTask | RefusalReason:
    found = _understand(task, instructions)
    if isinstance(found, RecurrentTask) and not (
        isinstance(found.shape.steps, int) and isinstance(found.shape.samples, int)
    ):
        return RefusalReason("as many calls as there are steps, which is not known")
    return found


def _schedules(r: RecurrentTask, task: Task, target: Target) -> Iterable[RecurrentSchedule]:
    units, chunk = cut_of(r.shape, target)
    ahead = steps_ahead(r.shape, target, units)
    yield RecurrentSchedule(units, ahead, ahead=True) if ahead else RecurrentSchedule(units, chunk)


def _arguments(r: RecurrentTask, task: Task, schedule: RecurrentSchedule) -> tuple[Argument, ...]:
    s, plan = r.shape, r.plan(schedule)
    return _operands(s, plan, task, [working_memory(plan.size * s.nbytes)])


def _write(o: OpenFunction, r: RecurrentTask, schedule: RecurrentSchedule) -> None:
    f, s, plan = o.f, r.shape, r.plan(schedule)
    e = Unit(o, s, plan, o.scratch(), outputs_of(o))

    def unit(number: Value, _: Sequence[Value]) -> None:
        first = f.minimum(f.mul(f.urem(number, plan.units), plan.rows), s.samples - plan.rows)
        one = replace(e, direction=f.udiv(number, plan.units), first=first)
        prepare(one)
        by_direction(one, _ahead if plan.ahead else _through_time)
        last_states(one, one.each_block)

    f.loop(*o.share.run(f, s.directions * plan.units), 1, unit, rolled=True)


def _through_time(e: Unit) -> None:
    """All steps, a run of them at a time; the last run is moved back to end at the last step."""
    f, s, plan, chunk = e.f, e.shape, e.plan, e.plan.chunk

    def step(number: Value, origin: Int) -> None:
        sums = sums_of_step(e, f.sub(number, origin))
        for stage in plan.states:
            _each_group(e, number, stage, lambda group, _, stage=stage: gates_of_group(e, stage, number, sums, group))  # type: ignore[misc]
        results(e, "out0", f.add(number, 1), e.time(number), e.each_block)

    def run(number: Value, _: Sequence[Value]) -> None:
        begin = f.mul(number, chunk)
        origin = f.minimum(begin, s.steps - chunk)
        groups = plan.blocks // plan.inputs[0].together
        f.loop(0, groups, 1, lambda group, _: inputs_of_group(e, origin, group), rolled=True)
        f.loop(begin, f.minimum(f.add(begin, chunk), s.steps), 1, lambda k, _: step(k, origin), rolled=True)

    f.loop(0, -(-s.steps // chunk), 1, run, rolled=True)


def _each_group(e: Unit, step: Int, stage: GateProduct, body: Callable[[Int, Int], None]) -> None:
    """`body(group, its place)` of a stage's groups of blocks, from the last one on in every other step."""
    f, groups = e.f, e.plan.blocks // stage.together
    odd = is_odd(e, step)
    f.loop(0, groups, 1, lambda k, _: body(f.select(odd, f.i64(f.sub(groups - 1, k)), k), k), rolled=True)


def _ahead(e: Unit) -> None:
    """All steps, a run of them at a time, and beside it the inputs' products of the next; the last run is moved back, too."""
    f, s, plan, chunk = e.f, e.shape, e.plan, e.plan.chunk
    (stage, *others), vectors = plan.states, s.gates * plan.blocks

    def origin(run: Int) -> Int:
        return f.minimum(f.mul(run, chunk), s.steps - chunk)

    def first(number: Value, _: Sequence[Value]) -> None:
        ahead = inputs_ahead(e, 0, 0, number)
        ahead.keep(reduce(f, e.instructions, ahead.product, 1))

    def run(number: Value, _: Sequence[Value]) -> None:
        begin, following = f.mul(number, chunk), f.add(number, 1)

        def step(k: Value, _: Sequence[Value]) -> None:
            sums = sums_ahead(e, number, origin(number), k)
            place = f.mul(f.sub(k, begin), plan.blocks // stage.together)

            def group(block: Int, among: Int) -> None:
                ahead = inputs_ahead(e, following, origin(following), f.add(place, among))
                gates_of_group(e, stage, k, sums, block, ahead)

            _each_group(e, k, stage, group)
            for other in others:
                _each_group(e, k, other, lambda block, _, other=other: gates_of_group(e, other, k, sums, block))  # type: ignore[misc]
            results(e, "out0", f.add(k, 1), e.time(k), e.each_block)

        f.loop(begin, f.minimum(f.add(begin, chunk), s.steps), 1, step, rolled=True)

    f.loop(0, vectors, 1, first, rolled=True)
    f.loop(0, -(-s.steps // chunk), 1, run, rolled=True)


# --- by steps -----------------------------------------------------------------------------------------------------


def _declines_steps(r: RecurrentTask, task: Task, target: Target) -> RefusalReason | None:
    s = r.shape
    plan = r.plan(_by_steps(r))
    least = target.figures.ways.shared_weights * target.workers * len(plan.states)
    if cut_of(s, target)[0] * s.directions >= target.workers or s.gates * s.hidden**2 * s.nbytes < least:
        return RefusalReason("a loop is as fast")
    if plan.size * s.directions * s.nbytes > MOST_SUMS:
        return RefusalReason("the inputs' products take too much memory")
    return None


def _by_steps(r: RecurrentTask) -> RecurrentSchedule:
    return RecurrentSchedule(1, r.shape.steps)


def _schedules_steps(r: RecurrentTask, task: Task, target: Target) -> Iterable[RecurrentSchedule]:
    yield _by_steps(r)


def _arguments_steps(r: RecurrentTask, task: Task, schedule: RecurrentSchedule) -> tuple[Argument, ...]:
    s, plan = r.shape, r.plan(schedule)
    scratch = Argument("scratch", nbytes=s.directions * plan.size * s.nbytes)
    calls = BEFORE + s.steps * len(plan.states)
    return _operands(s, plan, task, [scratch, Argument("call", nbytes=CALL_BYTES * calls)])


def _write_steps(o: OpenFunction, r: RecurrentTask, schedule: RecurrentSchedule) -> None:
    f, s, plan = o.f, r.shape, r.plan(schedule)
    e = Unit(o, s, plan, o.pointers["scratch"], outputs_of(o))
    call, stages = f.load("i64", o.pointers["call"]), plan.states

    def dealt(count: int, body: Callable[[Unit, Int], None]) -> None:
        """`body(unit, number)` for the numbers up to `count` of every direction, dealt out to the workers."""
        low, high = o.share.run(f, s.directions * count)
        odd, ends = is_odd(e, f.udiv(f.add(call, BEFORE), len(stages))), f.sub(f.add(low, high), 1)

        def one(place: Value, _: Sequence[Value]) -> None:
            number = f.select(odd, f.i64(f.sub(ends, place)), place)
            direction = f.udiv(number, count)
            scratch = e.at(e.scratch, f.mul(direction, plan.size))
            body(replace(e, direction=direction, scratch=scratch), f.urem(number, count))

        f.loop(low, high, 1, one, rolled=True)

    def stepped(stage: GateProduct) -> None:
        step = f.i64(f.udiv(f.sub(call, BEFORE), len(stages)))
        dealt(
            plan.blocks // stage.together,
            lambda unit, group: by_direction(unit, lambda one: _group(one, stage, step, group)),
        )

    def of_stage() -> None:
        if len(stages) == 1:
            stepped(stages[0])
            return
        is_first = f.compare("icmp eq", f.urem(f.sub(call, BEFORE), 2), 0)
        f.when(is_first, lambda: stepped(stages[0]), lambda: stepped(stages[1]))

    def before() -> None:
        is_first = f.compare("icmp eq", call, 0)
        groups = plan.blocks // plan.inputs[0].together
        f.when(
            is_first,
            lambda: dealt(1, lambda unit, _: prepare(unit)),
            lambda: dealt(groups, lambda unit, group: inputs_of_group(unit, 0, group)),
        )

    f.when(f.compare("icmp slt", call, BEFORE), before, of_stage)


def _group(e: Unit, stage: GateProduct, step: Value, group: Int) -> None:
    """A group of blocks in a step, and its results behind the last stage."""
    f, s, plan = e.f, e.shape, e.plan
    gates_of_group(e, stage, step, sums_of_step(e, step), group)
    if stage is not plan.states[-1]:
        return
    full, rest = divmod(s.hidden, plan.lanes)

    def blocks(body: Callable[[Int, int], None]) -> None:
        for k in range(stage.together):
            block = f.add(f.mul(group, stage.together), k)
            if not rest:
                body(block, plan.lanes)
                continue
            is_last = f.compare("icmp eq", block, full)
            f.when(is_last, lambda block=block: body(block, rest), lambda block=block: body(block, plan.lanes))  # type: ignore[misc]

    results(e, "out0", f.add(step, 1), e.time(step), blocks)
    f.when(f.compare("icmp eq", step, s.steps - 1), lambda: last_states(e, blocks))


RECURRENT = (
    Kernel(
        "recurrence-by-steps",
        _understand_steps,
        _schedules_steps,
        _arguments_steps,
        written(_arguments_steps, _write_steps),
        _declines_steps,
    ),
    Kernel("recurrence", _understand, _schedules, _arguments, written(_arguments, _write)),
)
"""Both ways; the last accepts what `lower.recurrence` makes."""
