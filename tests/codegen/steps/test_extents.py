"""What kernels of a checked build may touch."""

from __future__ import annotations

from dataclasses import replace

from tests.codegen.steps.drafts import MACHINE, chain, draft_before, native

from fusewise.codegen.steps.extents import state_extents
from fusewise.trace import Trace


def test_only_a_checked_build_says_what_may_be_touched() -> None:
    draft = draft_before(state_extents, chain(2))
    assert state_extents(draft, MACHINE, Trace()) is draft
    for step in native(state_extents(draft, replace(MACHINE, sanitize=True), Trace())):
        told = {extent.argument: extent for extent in step.extents}
        assert [extent.argument for extent in step.extents] == [argument.name for argument in step.arguments]
        assert told["out0"].writes and not told["in0"].writes
        assert (told["in0"].low, told["in0"].high) == (0, 4 * 8 * 4)
        assert told["const0"].high == -1, "as it is packed"
