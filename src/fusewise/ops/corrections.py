"""What ONNX's reference evaluator gets wrong or leaves out, done right: the classes it is given in place of its own.

Truth does not rest on that evaluator: a sweep over the options of every operator (`tests/ops/test_options.py`) compares it
with ONNX Runtime, and what differed, failed or was missing is here. Operators that have a definition are computed from that
(`corrected_definitions`); the others are written out, by subject, recurrences in `recurrence`. What it only does slowly is in
`rois` and `selection`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from fusewise.ops.recurrence import recurrent_operators
from fusewise.ops.rois import detection_operators
from fusewise.ops.selection import selection_operators

__all__ = ["corrected_operators"]


@cache
def corrected_operators() -> tuple[type[Any], ...]:
    """Classes for the argument `new_ops` of `ReferenceEvaluator`; they hold inside bodies too."""
    from fusewise.ops.corrected_arrays import array_operators
    from fusewise.ops.corrected_attention import attention_operators
    from fusewise.ops.corrected_control import control_operators
    from fusewise.ops.corrected_definitions import defined_operators
    from fusewise.ops.corrected_losses import loss_operators
    from fusewise.ops.corrected_samples import sample_operators
    from fusewise.ops.corrected_text import text_operators

    return (
        *control_operators(),
        *detection_operators(),
        *recurrent_operators(),
        *selection_operators(),
        *array_operators(),
        *attention_operators(),
        *defined_operators(),
        *loss_operators(),
        *sample_operators(),
        *text_operators(),
    )
