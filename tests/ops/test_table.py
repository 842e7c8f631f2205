"""The table covers the whole operator set, and its rows are consistent."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Node
from fusewise.ir.types import TensorType
from fusewise.ops.definition import flops_of, is_opaque, mapping_of, mappings_of
from fusewise.ops.sampling import call_of_sample
from fusewise.ops.spec import Call, Mapping, OpSpec
from fusewise.ops.table import OPERATORS, spec_of


def test_every_schema_has_a_row() -> None:
    """Those of classical machine learning are written with others, but for the few that have kernels."""
    classic = "ai.onnx.ml"
    wanted, found = (
        {(s.domain, s.name) for s in onnx.defs.get_all_schemas()},
        {(row.domain, row.name) for row in OPERATORS},
    )
    assert {name for name in wanted if name[0] != classic} == {name for name in found if name[0] != classic}
    assert all(onnx.defs.has(name, domain) for domain, name in found)


def test_rows_are_distinct() -> None:
    assert len({(row.domain, row.name) for row in OPERATORS}) == len(OPERATORS)


def test_lookup() -> None:
    found = spec_of("Relu")
    assert found is not None
    assert found.name == "Relu"
    assert spec_of("Relu", "ai.onnx") is found
    assert spec_of("NoSuchOperator") is None
    assert spec_of("Relu", "com.example") is None


def test_distributes_over_names_operators() -> None:
    for row in OPERATORS:
        for other in row.distributes_over:
            assert spec_of(other) is not None, (row.name, other)


@pytest.mark.parametrize("spec", [row for row in OPERATORS if row.samples], ids=lambda row: row.name)
def test_samples_have_types_mapping_and_cost(spec: OpSpec) -> None:
    for k, sample in enumerate(spec.samples):
        call, arrays = call_of_sample(spec, sample, np.random.default_rng(k))
        assert all(isinstance(kind, TensorType) and kind.is_static for kind in call.outputs), (spec.name, k)
        assert len(mappings_of(spec, call)) == len(arrays)
        assert flops_of(spec, call) >= 0


def called(op: str, *operands: tuple[int, ...] | np.ndarray, output: tuple[int, ...]) -> tuple[OpSpec, Call]:
    spec = spec_of(op)
    assert spec is not None
    types = tuple(TensorType(FLOAT32, x if isinstance(x, tuple) else x.shape) for x in operands)
    constants = tuple(None if isinstance(x, tuple) else x for x in operands)
    names = tuple(f"x{i}" for i in range(len(operands)))
    return spec, Call(Node(op, names, ("y",)), types, (TensorType(FLOAT32, output),), constants)


@pytest.mark.parametrize(
    ("operands", "edges", "overall"),
    [
        (((2, 3), (2, 3)), (Mapping.ONE_TO_ONE, Mapping.ONE_TO_ONE), Mapping.ONE_TO_ONE),
        (((2, 3), (3,)), (Mapping.ONE_TO_ONE, Mapping.ONE_TO_MANY), Mapping.ONE_TO_MANY),
        (((2, 3), ()), (Mapping.ONE_TO_ONE, Mapping.ONE_TO_MANY), Mapping.ONE_TO_ONE),
        (((1, 1), (2, 3)), (Mapping.ONE_TO_MANY, Mapping.ONE_TO_ONE), Mapping.ONE_TO_ONE),
        (((2, 3), np.zeros(3, np.float32)), (Mapping.ONE_TO_ONE, Mapping.ONE_TO_MANY), Mapping.ONE_TO_ONE),
    ],
)
def test_broadcast_makes_an_edge_one_to_many(
    operands: tuple[tuple[int, ...] | np.ndarray, ...], edges: tuple[Mapping, ...], overall: Mapping
) -> None:
    spec, call = called("Add", *operands, output=(2, 3))
    assert mappings_of(spec, call) == edges
    assert mapping_of(spec, call) == overall


def test_expanding_a_scalar_is_one_to_many() -> None:
    spec, call = called("Expand", (), np.array([2, 2]), output=(2, 2))
    assert mapping_of(spec, call) == Mapping.ONE_TO_MANY


def test_a_shape_that_is_not_constant_is_opaque() -> None:
    spec, call = called("Reshape", (2, 3), (1,), output=(6,))
    assert mapping_of(spec, call) == Mapping.OPAQUE


def test_without_static_shapes_everything_is_opaque() -> None:
    spec, call = called("Relu", (2, "n"), output=(2, "n"))  # type: ignore[arg-type]
    assert mappings_of(spec, call) == (Mapping.OPAQUE,)
    assert mapping_of(spec, call) == Mapping.OPAQUE
    assert flops_of(spec, call) == 0


def test_opaque_rows_are_opaque_even_without_operands() -> None:
    spec, call = called("RandomNormal", output=(2,))
    assert is_opaque(spec)
    assert mapping_of(spec, call) == Mapping.OPAQUE
