"""Operators that ONNX's reference evaluator gets wrong, done right.

Up to onnx 1.23 its Loop joins scan outputs along their first dimension instead of stacking them, and does nothing when the
condition is absent; its Optional wraps the element in a list.
What it only does slowly is in `rois` and `selection`, and recurrences, whose options it lacks, are in `recurrence`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from fusewise.ops.recurrence import recurrent_operators
from fusewise.ops.rois import detection_operators
from fusewise.ops.selection import selection_operators

__all__ = ["corrected_operators"]


@cache
def corrected_operators() -> tuple[type[Any], ...]:
    """Classes for the argument `new_ops` of `ReferenceEvaluator`; they hold inside bodies too."""
    from onnx.reference.op_run import OpRun
    from onnx.reference.ops.op_loop import Loop as ReferenceLoop

    class Loop(ReferenceLoop):
        """Carried values go round, scan outputs are stacked along a new first dimension."""

        op_domain = ""
        body: Any
        _run_body: Any

        def _run(
            self,
            trips: Any,
            condition: Any,
            *carried: Any,
            context: Any = None,
            body: Any = None,
            attributes: Any = None,
            bindings: Any = None,
        ) -> tuple[Any, ...]:
            names = self.body.input_names
            values = list(carried) + [None] * (len(names) - 2 - len(carried))
            going = np.array(True) if condition is None else np.asarray(condition)
            limit = None if trips is None else int(np.asarray(trips).reshape(-1)[0])
            scanned: list[list[Any]] = [[] for _ in range(self.K)]
            count = 0
            while bool(going.reshape(-1)[0]) and (limit is None or count < limit):
                feeds = dict(context or {}) | dict(zip(names, (np.array(count, np.int64), going, *values), strict=True))
                results = self._run_body(feeds, attributes=attributes, bindings=bindings)
                going, values = np.asarray(results[0]), list(results[1 : 1 + self.N])
                for found, value in zip(scanned, results[1 + self.N :], strict=True):
                    found.append(np.asarray(value))
                count += 1
            kinds = self.body.output_types[1 + self.N :]
            return (*values, *map(_stacked, scanned, kinds))

        def _check_and_fix_outputs(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
            return found

    class Optional(OpRun):
        """The value itself, or None."""

        op_domain = ""

        def _run(self, element: Any = None, type: Any = None) -> tuple[Any, ...]:  # noqa: A002 - ONNX's name
            return (element,)

        def _check_and_fix_outputs(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
            return found

    return (Loop, Optional, *detection_operators(), *recurrent_operators(), *selection_operators())


def _stacked(values: list[np.ndarray], kind: Any) -> np.ndarray:
    """All iterations' values as one array; without any, an empty one of the declared type."""
    if values:
        return np.stack(values)
    from onnx.helper import tensor_dtype_to_np_dtype

    declared = kind.tensor_type
    dims = [dim.dim_value for dim in declared.shape.dim]
    return np.empty((0, *dims), tensor_dtype_to_np_dtype(declared.elem_type) if declared.elem_type else np.float32)
