"""Models of one node of another domain, and whether they agree with ONNX Runtime, at fixed and at free dimensions.

agree(Case("QuickGelu", (x,), attributes={"alpha": 1.0}))
agree(Case("BiasGelu", (x, b)), Case("BiasGelu", (longer, b)), free={0: {0: "batch", 1: "sequence"}})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import fusewise
from fusewise.benchmarking.accuracy import relative_error, tolerance_of

Free = Mapping[int, Mapping[int, str]]
"""Names of free dimensions, by operand and axis."""


@dataclass(frozen=True)
class Case:
    """One node: its operands by place, None for absent ones, which of them are constants, how many outputs it has.

    An output whose number is in `absent` is not asked for.
    """

    op: str
    operands: tuple[np.ndarray | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constant: tuple[int, ...] = ()
    outputs: int = 1
    absent: tuple[int, ...] = ()
    domain: str = "com.microsoft"
    opset: int = 21

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{k}": x for k, x in enumerate(self.operands) if x is not None and k not in self.constant}

    @property
    def node(self) -> onnx.NodeProto:
        inputs = [f"x{k}" if x is not None else "" for k, x in enumerate(self.operands)]
        outputs = ["" if k in self.absent else f"y{k}" for k in range(self.outputs)]
        return helper.make_node(self.op, inputs, outputs, name="here", domain=self.domain, **self.attributes)

    def model(self, free: Free = MappingProxyType({})) -> onnx.ModelProto:
        ports, constants = [], []
        for k, x in enumerate(self.operands):
            if x is not None and k in self.constant:
                constants.append(numpy_helper.from_array(x, f"x{k}"))
            elif x is not None:
                dims = [free.get(k, {}).get(axis, extent) for axis, extent in enumerate(x.shape)]
                ports.append(helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(x.dtype), dims))
        results = [onnx.ValueInfoProto(name=name) for name in self.node.output if name]
        graph = helper.make_graph([self.node], "g", ports, results, constants)
        return model_of(graph, self.opset)


def model_of(graph: onnx.GraphProto, opset: int = 21) -> onnx.ModelProto:
    """A model that imports ONNX's domain and Microsoft's."""
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def expected(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """What ONNX Runtime makes of a model as it is."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    found: list[Any] = session.run(None, dict(feeds))
    return found


def agree(
    *cases: Case,
    free: Free = MappingProxyType({}),
    tolerance: float | None = None,
    strict: bool = True,
    steps: int = 0,
) -> None:
    """The first case at fixed dimensions, and all of them by one program with free ones, if there are any.

    `tolerance` is that of `relative_error`, by default the one of the element type; `strict` refuses host steps. Integers
    may differ by `steps`.
    """
    for place, program in enumerate(_programs(cases[0], free, strict)):
        for case in cases if place else cases[:1]:
            _compare(program, case, expected(case.model(), case.feeds), tolerance, steps)


def agree_with(
    case: Case, *wanted: np.ndarray, free: Free = MappingProxyType({}), tolerance: float | None = None
) -> None:
    """The same for a node that ONNX Runtime has no kernel for on this processor: `wanted` are its outputs."""
    for program in _programs(case, free, strict=True):
        _compare(program, case, wanted, tolerance)


def _programs(case: Case, free: Free, strict: bool) -> Iterator[fusewise.Model]:
    yield fusewise.compile(case.model(), strict=strict, cache=False)
    if free:
        yield fusewise.compile(case.model(free), strict=strict, cache=False)


def _compare(
    program: fusewise.Model, case: Case, answers: Sequence[Any], tolerance: float | None, steps: int = 0
) -> None:
    names = [name for name in case.node.output if name]
    for name, found, wanted in zip(names, program.run(names, case.feeds), answers, strict=True):
        if steps and wanted.dtype.kind in "iu":
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            assert np.abs(found.astype(np.int64) - wanted).max(initial=0) <= steps, name
            continue
        error = relative_error(found, wanted)
        limit = tolerance_of(wanted) if tolerance is None else tolerance
        assert error <= limit, (name, error, limit, np.shape(found), np.shape(wanted))
