"""The ways to an operator's answer: ONNX Runtime's, our definition's, the host step's, the folded constant's, native code's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from tests.ops.options.case import Case, Operand

import fusewise
from fusewise.errors import FusewiseError
from fusewise.ir.graph import Constant, Node, attributes_of
from fusewise.ir.types import SequenceType, TensorType, ValueType
from fusewise.ops.evaluate import evaluate
from fusewise.ops.infer import infer_outputs
from fusewise.ops.interpret import interpret
from fusewise.ops.plain.table import plain_evaluator
from fusewise.ops.proto import node_to_proto, tensor_to_proto, type_to_proto
from fusewise.ops.spec import Call, NotDefined
from fusewise.ops.table import spec_of

Answers = list[Any]
"""An array, or a list of them, for each output."""


def node_of(case: Case, prefix: str = "") -> Node:
    """The case as a node; a trailing absent operand is left out."""
    inputs = [f"{prefix}x{k}" if given is not None else "" for k, given in enumerate(case.inputs)]
    while inputs and not inputs[-1]:
        inputs.pop()
    outputs = tuple(f"{prefix}y{k}" for k in range(case.outputs))
    return Node(case.op, tuple(inputs), outputs, attributes_of(**case.attributes), name=f"{prefix}node")


def type_of(x: Operand) -> ValueType | None:
    if isinstance(x, list):
        return SequenceType(TensorType(Constant(x[0]).type.dtype, None))
    return None if x is None else Constant(x).type


def call_of_case(case: Case) -> Call:
    """The case as operator rows see it."""
    node = node_of(case)
    given = case.inputs[: len(node.inputs)]
    types = tuple(map(type_of, given))
    constants = tuple(a if k in case.known and isinstance(a, np.ndarray) else None for k, a in enumerate(given))
    return Call(node, types, infer_outputs(node, types, constants, case.opset), constants)


def model_of(cases: Sequence[Case], folded: bool = False) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """One model with a node for each case, and its feeds; with `folded` every operand is a constant."""
    nodes, inputs, outputs, constants, feeds = [], [], [], [], {}
    for number, case in enumerate(cases):
        node = node_of(case, f"n{number}_")
        nodes.append(node_to_proto(node))
        kinds = call_of_case(case).outputs if folded else (None,) * case.outputs
        for name, kind in zip(node.outputs, kinds, strict=True):
            outputs.append(onnx.ValueInfoProto(name=name, type=None if kind is None else type_to_proto(kind)))
        for k, (name, given) in enumerate(zip(node.inputs, case.inputs, strict=False)):
            if not name or given is None:
                continue
            if folded or k in case.known:
                constants.append(tensor_to_proto(given, name))
            else:
                kind = type_of(given)
                assert kind is not None
                inputs.append(onnx.ValueInfoProto(name=name, type=type_to_proto(kind)))
                feeds[name] = given
    graph = helper.make_graph(nodes, "options", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", cases[0].opset)], ir_version=10)
    return model, feeds


def by_onnx_runtime(case: Case) -> Answers | str:
    """ONNX Runtime's answers, optimisations off; or why it has none."""
    import onnxruntime

    model, feeds = model_of([case])
    onnxruntime.set_default_logger_severity(4)
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        return list(session.run(None, feeds))
    except Exception as error:  # its exceptions have no common type
        return f"{type(error).__name__}: {error}".replace("\n", " ")


def by_definition(case: Case) -> Answers | str:
    """Our definition's answers by the interpreter; or why there is none."""
    try:
        call = call_of_case(case)
        spec = spec_of(case.op)
        assert spec is not None
        return [interpret(spec, call, case.inputs, k) for k in range(case.outputs)]
    except (NotDefined, FusewiseError) as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"CRASH {error!r}"


def on_the_host(case: Case) -> Answers | str:
    """A host step's answers; or why there are none."""
    node = node_of(case)
    feeds = {name: given for name, given in zip(node.inputs, case.inputs, strict=False) if name}
    try:
        return list(evaluate(node, feeds, case.opset))
    except Exception as error:  # whatever the evaluator raises is what the sweep is about
        return f"{type(error).__name__}: {error} {error.__cause__}"


def by_numpy(case: Case) -> Answers | str | None:
    """A host step's answers where it is a few calls of NumPy; None where there is no such row, or it asks the evaluator."""
    asked: list[Any] = []
    run = plain_evaluator(node_of(case), case.opset, lambda *operands: asked.append(operands) or [None] * case.outputs)
    if run is None:
        return None
    node = node_of(case)
    given = [value for name, value in zip(node.inputs, case.inputs, strict=False) if name]
    try:
        with np.errstate(all="ignore"):
            found = run(*given)
    except Exception as error:
        return f"CRASH {error!r}"
    return None if asked else found


def compiled(cases: Sequence[Case], folded: bool = False) -> list[Answers]:
    """Native answers of all cases, from one program; with `folded`, the constants compiled into it."""
    model, feeds = model_of(cases, folded)
    found = iter(fusewise.compile(model, cache=False, fusion="none", threads=1).run(None, feeds))
    return [[next(found) for _ in range(case.outputs)] for case in cases]


def difference(found: Answers | str, wanted: Answers, float16: float = 2e-3, others: float = 2e-5) -> str | None:
    """How answers differ: kind, shape, special values, or by how much of the largest; None when they agree."""
    if isinstance(found, str):
        return found
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if isinstance(a, list) and isinstance(b, list):
            if (how := f"{len(a)} for {len(b)}" if len(a) != len(b) else difference(a, b, float16, others)) is not None:
                return f"output {k}: {how}"
            continue
        if a is None or b is None:
            return None if a is b else f"output {k} is missing"
        if a.dtype.kind == "V" and b.dtype.kind == "u":  # ONNX Runtime gives the bits of what NumPy has not
            a = a.view(b.dtype)
        if a.shape != b.shape or (a.dtype != b.dtype and a.dtype != object and b.dtype != object):
            return f"output {k}: {a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
        if a.dtype == object or a.dtype.kind in "US":
            if [str(s) for s in a.reshape(-1)] != [str(s) for s in b.reshape(-1)]:
                return f"output {k}: {a.tolist()} for {b.tolist()}"
        elif a.dtype.kind not in "fcV":
            if not np.array_equal(a, b):
                return f"output {k}: {a.reshape(-1)[:12].tolist()} for {b.reshape(-1)[:12].tolist()}"
        else:
            wide, right = a.astype(np.float64), b.astype(np.float64)
            finite = np.isfinite(right)
            if not np.array_equal(wide[~finite], right[~finite], equal_nan=True) or not np.isfinite(wide[finite]).all():
                return f"output {k}: {a.reshape(-1)[:16].tolist()} for {b.reshape(-1)[:16].tolist()}"
            most = np.abs(right[finite]).max(initial=0) or 1.0
            error = np.abs(wide[finite] - right[finite]).max(initial=0) / most
            if error > (others if a.dtype.itemsize > 2 else float16):
                return (
                    f"output {k}: differs by {error:.1e}: {a.reshape(-1)[:8].tolist()} for {b.reshape(-1)[:8].tolist()}"
                )
    return None
