"""Control flow for the reference evaluator: Loop, Scan, Optional.

Up to onnx 1.23 its Loop joins scan outputs along their first dimension instead of stacking them, and does nothing when the
condition is absent; its Scan knows neither axes nor directions, nor sequences without elements; its Optional wraps the
element in a list.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.ops.allowed import MOST_ROUNDS, check_held, check_rounds

__all__ = ["control_operators"]

_SCAN = 9
"""Before this version Scan took batches."""


def control_operators() -> tuple[type[Any], ...]:
    """Classes for the argument `new_ops` of `ReferenceEvaluator`."""
    return (_loop(), _scan(), _optional())


def _loop() -> type[Any]:
    from onnx.reference.ops.op_loop import Loop as ReferenceLoop

    class Loop(ReferenceLoop):
        """Carried values go round, scan outputs are stacked along a new first dimension."""

        op_domain = ""
        body: Any
        onnx_node: Any
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
            what = f"node {self.onnx_node.name!r} (Loop)"
            if (limit is None or limit > MOST_ROUNDS) and bool(going.reshape(-1)[0]) and _goes_on(self.body):
                check_rounds(what, MOST_ROUNDS + 1)
            scanned: list[list[Any]] = [[] for _ in range(self.K)]
            count = gathered = 0
            while bool(going.reshape(-1)[0]) and (limit is None or count < limit):
                feeds = dict(context or {}) | dict(zip(names, (np.array(count, np.int64), going, *values), strict=True))
                results = self._run_body(feeds, attributes=attributes, bindings=bindings)
                going, values = np.asarray(results[0]), list(results[1 : 1 + self.N])
                for found, value in zip(scanned, results[1 + self.N :], strict=True):
                    found.append(np.asarray(value))
                    gathered += found[-1].nbytes
                count += 1
                check_rounds(what, count)
                check_held(what, gathered + sum(value.nbytes for value in values if isinstance(value, np.ndarray)))
            kinds = self.body.output_types[1 + self.N :]
            return (*values, *map(_stacked, scanned, kinds))

        def _check_and_fix_outputs(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
            return found

    return Loop


def _scan() -> type[Any]:
    from onnx.reference.op_run import OpRun

    class Scan(OpRun):
        """One run of the body for each slice of the scanned inputs, along their axes and in their directions."""

        op_domain = ""
        body: Any
        onnx_node: Any
        _run_body: Any

        def need_context(self) -> bool:
            return True

        def _run(
            self, *operands: Any, context: Any = None, attributes: Any = None, bindings: Any = None, **settings: Any
        ) -> tuple[Any, ...]:
            if self.run_params["opsets"][""] < _SCAN:
                raise NotImplementedError("Scan over batches")
            count = settings["num_scan_inputs"]
            states = list(operands[: len(operands) - count])
            names, kinds = self.body.input_names, self.body.output_types[len(states) :]
            axes, turned = (_each(settings[f"scan_input_{word}"], count) for word in ("axes", "directions"))
            lines = [_line(x, axis, back) for x, axis, back in zip(operands[len(states) :], axes, turned, strict=True)]
            if len({len(line) for line in lines}) != 1:
                raise ValueError(f"Scan's inputs have {[len(line) for line in lines]} elements along their axes")
            check_rounds(f"node {self.onnx_node.name!r} (Scan)", len(lines[0]))
            scanned: list[list[Any]] = [[] for _ in kinds]
            for elements in zip(*lines, strict=True):
                feeds = dict(context or {}) | dict(zip(names, (*states, *elements), strict=True))
                results = self._run_body(feeds, attributes=attributes, bindings=bindings)
                for found, value in zip(scanned, results[len(states) :], strict=True):
                    found.append(np.asarray(value))
                states = list(results[: len(states)])
            axes, turned = (_each(settings[f"scan_output_{word}"], len(kinds)) for word in ("axes", "directions"))
            joined = (
                np.moveaxis(_stacked(found[::-1] if back else found, kind), 0, axis)
                for found, kind, axis, back in zip(scanned, kinds, axes, turned, strict=True)
            )
            return (*states, *joined)

        def _check_and_fix_outputs(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
            return found

    return Scan


def _optional() -> type[Any]:
    from onnx.reference.op_run import OpRun

    class Optional(OpRun):
        """The value itself, or None."""

        op_domain = ""

        def _run(self, element: Any = None, type: Any = None) -> tuple[Any, ...]:  # noqa: A002 - ONNX's name
            return (element,)

        def _check_and_fix_outputs(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
            return found

    return Optional


def _goes_on(body: Any) -> bool:
    """Does the body of a Loop hand its condition on as it is, so that only the count can end it?"""
    makers = {name: node for node in body.rt_nodes_ for name in node.output}
    name = body.output_names[0]
    while name in makers and makers[name].op_type in ("Identity", "Cast"):
        name = makers[name].input[0]
    return bool(name == body.input_names[1] and name not in makers)


def _each(given: Any, count: int) -> tuple[int, ...]:
    """An axis or direction for each of `count` values; 0 where the attribute is absent."""
    found = (0,) * count if given is None or not len(given) else tuple(int(v) for v in given)
    if len(found) != count:
        raise ValueError(f"Scan has {len(found)} axes or directions for {count} values")
    return found


def _line(values: np.ndarray, axis: int, backwards: int) -> np.ndarray:
    """The elements that a Scan hands to its body, along a first axis, in order."""
    line = np.moveaxis(values, axis, 0)
    return line[::-1] if backwards else line


def _stacked(values: list[np.ndarray], kind: Any) -> np.ndarray:
    """All iterations' values as one array; without any, an empty one of the declared type."""
    if values:
        return np.stack(values)
    from onnx.helper import tensor_dtype_to_np_dtype

    declared = kind.tensor_type
    dims = [dim.dim_value for dim in declared.shape.dim]
    return np.empty((0, *dims), tensor_dtype_to_np_dtype(declared.elem_type) if declared.elem_type else np.float32)
