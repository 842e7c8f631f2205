"""Turn a row's samples into calls with arrays, for the sweeps over the table."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx

from fusewise.ir.dtypes import DType, dtype_named
from fusewise.ir.graph import Constant, Node, attributes_of
from fusewise.ir.types import ValueType
from fusewise.ops.infer import infer_outputs
from fusewise.ops.spec import Call, OpSpec, Sample

__all__ = ["NEWEST_OPSET", "call_of_sample", "opset_of", "random_array"]

NEWEST_OPSET = onnx.defs.onnx_opset_version()


def opset_of(spec: OpSpec) -> int:
    """The newest version of the row's domain that has the operator: deprecated ones live in an older opset."""
    if spec.domain:
        return 1
    schema = onnx.defs.get_schema(spec.name, NEWEST_OPSET, spec.domain)
    return schema.since_version - 1 if schema.deprecated else NEWEST_OPSET


def random_array(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, low: float, high: float) -> np.ndarray:
    """Uniform values between `low` and `high`; integers include both ends as far as the type has them."""
    if dtype.kind == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.is_integer:
        least = 0 if dtype.kind == "uint" else -(2 ** (dtype.bits - 1))
        most = 2 ** (dtype.bits - (0 if dtype.kind == "uint" else 1)) - 1
        bottom = min(max(int(low), least), most)
        values = rng.integers(bottom, max(bottom, min(int(high), most)), shape, endpoint=True, dtype=np.int64)
        return np.asarray(values).astype(dtype.numpy)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype.numpy)


def call_of_sample(
    spec: OpSpec, sample: Sample, rng: np.random.Generator
) -> tuple[Call, tuple[np.ndarray | None, ...]]:
    """The call a sample describes, and the arrays of its operands (None: absent)."""
    arrays: list[np.ndarray | None] = []
    constants: list[np.ndarray | None] = []
    for given in sample.inputs:
        if given is None or isinstance(given, np.ndarray):
            arrays.append(given)
            constants.append(given)
        else:
            name, shape = given
            arrays.append(random_array(dtype_named(name), shape, rng, sample.low, sample.high))
            constants.append(None)
    node = Node(
        spec.name,
        tuple("" if a is None else f"x{i}" for i, a in enumerate(arrays)),
        tuple(f"y{k}" for k in range(sample.outputs)),
        attributes_of(**sample.attributes),
        domain=spec.domain,
    )
    types: tuple[ValueType | None, ...] = tuple(None if a is None else Constant(a).type for a in arrays)
    found = infer_outputs(node, types, tuple(constants), opset_of(spec))
    return dataclasses.replace(Call(node, types, found), constants=tuple(constants)), tuple(arrays)
