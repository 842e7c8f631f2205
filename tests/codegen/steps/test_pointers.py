"""Where arguments lie."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from tests.codegen.steps.drafts import MACHINE, chain, draft_before, native

from fusewise.codegen.kernel import Argument
from fusewise.codegen.steps.calls import CALL_BYTES
from fusewise.codegen.steps.draft import Pointer, TaskDraft, Upcoming, Visit
from fusewise.codegen.steps.pointers import SITE_BYTES, place_arguments
from fusewise.ir.dtypes import INT64
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace


def named(step: TaskDraft) -> dict[str, Pointer]:
    return dict(zip((argument.name for argument in step.arguments), step.pointers, strict=True))


def test_a_step_reads_where_the_one_before_wrote_and_equal_weights_are_one() -> None:
    draft = place_arguments(draft_before(place_arguments, chain(3)), MACHINE, Trace())
    steps = [named(step) for step in native(draft)]
    for above, below in itertools.pairwise(steps):
        assert above["out0"] == below["in0"]
    assert steps[0]["in0"].area is draft.inputs[0].area and steps[-1]["out0"].area is draft.outputs[0].area
    assert {step["const0"].area.buffer.kind for step in steps} == {"constant"}
    assert len({step["const0"].area for step in steps}) == 1


def test_kernels_get_what_they_ask_for_themselves() -> None:
    draft = draft_before(place_arguments, chain(3))
    steps = native(draft)
    call, scratch = Argument("call", nbytes=3 * CALL_BYTES), Argument("scratch", nbytes=100, per_worker=True)
    weights = Argument("next"), Argument("later")
    asking = [
        replace(step, arguments=(*step.arguments, call, scratch, *weights), next=Upcoming(2), later=Upcoming(2, 64))
        for step in steps[:2]
    ]
    found = native(place_arguments(replace(draft, steps=(*asking, steps[2])), MACHINE, Trace()))
    first, second, last = map(named, found)
    assert first["scratch"].area != second["scratch"].area and first["scratch"].area.buffer.nbytes == 200
    assert first["call"] == second["call"] and first["call"].at(Visit(0, call=2)) == 2 * CALL_BYTES
    assert first["next"] == last["const0"] and first["later"] == replace(last["const0"], offset=64)


def test_each_step_tells_of_its_data_behind_those_before() -> None:
    b = GraphBuilder("picked")
    x, places = b.input("x", (5, 6)), b.input("places", (3,), INT64)
    product = b.op("MatMul", b.op("Gather", x, places), b.constant(np.eye(6, dtype=np.float32)))
    graph = b.finish(b.op("Gather", product, places))
    draft = place_arguments(draft_before(place_arguments, graph), MACHINE, Trace())
    told = [(named(step)["fault"], len(step.work.bound.sites)) for step in native(draft) if "fault" in named(step)]
    assert len(told) > 1
    assert [pointer.offset for pointer, _ in told] == [
        SITE_BYTES * sum(n for _, n in told[:k]) for k in range(len(told))
    ]
    assert {pointer.area.buffer.nbytes for pointer, _ in told} == {SITE_BYTES * sum(sites for _, sites in told)}


def test_working_memory_is_enough_for_every_version_of_a_step() -> None:
    draft = draft_before(place_arguments, chain(1))
    (step,) = native(draft)
    small, large = (
        replace(step, arguments=(*step.arguments, Argument("scratch", nbytes=n, per_worker=each)))
        for n, each in ((100, True), (300, False))
    )
    for first, other in ((small, large), (large, small)):
        (found,) = native(place_arguments(replace(draft, steps=(replace(first, others=(other,)),)), MACHINE, Trace()))
        assert {named(one)["scratch"].area.buffer.nbytes for one in found.versions} == {300}
