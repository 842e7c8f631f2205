"""Every definition over sizes in terms of symbols is, at numbers, the definition over these numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.ops.test_definition import CASES

from fusewise.frontend.equations import Equations
from fusewise.ir.deciding import at_hint, deciding
from fusewise.ir.size import Size, Symbol, evaluate, size_of
from fusewise.ir.types import TensorType, ValueType
from fusewise.lower.index import Simplifier
from fusewise.ops.definition import definition, flops_of, mapping_of
from fusewise.ops.expr import Expr, index
from fusewise.ops.interpret import evaluate_expression, interpret
from fusewise.ops.sampling import call_of_sample, opset_of
from fusewise.ops.shapes.table import infer_sizes
from fusewise.ops.spec import Call, Mapping, NotDefined, OpSpec, Sample

NOT_OF_SIZES = {
    "Attention": "a mask for a part of the keys",
    "Det": "a determinant of",
    "Resize": "'tf_crop_and_resize' of sizes",
    "Adagrad": "operands that do not fit",
    "Adam": "operands that do not fit",
    "Momentum": "operands that do not fit",
}
"""Operators that refuse sizes in some of their samples, and a word of the reason."""


def in_symbols(spec: OpSpec, call: Call) -> tuple[Call, dict[str, int]]:
    """The call with a symbol for every dimension of an operand with data that is larger than 1, and what the symbols stand for."""
    env: dict[str, int] = {}
    types: list[ValueType | None] = []
    for i, kind in enumerate(call.inputs):
        if not isinstance(kind, TensorType) or call.is_known(i):
            types.append(kind)
            continue
        dims = []
        for axis, dim in enumerate(kind.dims):
            name = f"d{i}_{axis}"
            dims.append(size_of(Symbol(name)) if dim > 1 else dim)
            env[name] = dim
        types.append(TensorType(kind.dtype, tuple(dims)))
    equations = Equations([Symbol(name) for name in env])
    constants = tuple(call.constant(i) for i in range(len(call.inputs)))
    found = infer_sizes(call.node, tuple(types), constants, opset_of(spec), equations)

    def known(kind: ValueType | None) -> ValueType | None:
        if not isinstance(kind, TensorType) or kind.shape is None:
            return kind
        return TensorType(kind.dtype, tuple(equations.known(d) if isinstance(d, Size) else d for d in kind.shape))

    return dataclasses.replace(call, inputs=tuple(map(known, types)), outputs=tuple(map(known, found))), env


def defined(spec: OpSpec, call: Call, output: int, at: tuple[Expr, ...]) -> tuple[Expr | None, str]:
    try:
        return definition(spec, call, output, at), ""
    except NotDefined as reason:
        return None, str(reason)


@pytest.mark.parametrize(("spec", "k", "sample"), CASES)
def test_at_numbers_sizes_are_numbers(spec: OpSpec, k: int, sample: Sample) -> None:
    call, arrays = call_of_sample(spec, sample, np.random.default_rng(k))
    sized, env = in_symbols(spec, call)
    if not sized.is_static:
        pytest.skip("no shape in terms of symbols")
    assert evaluate(flops_of(spec, sized), env) == flops_of(spec, call)
    assert mapping_of(spec, sized) in (mapping_of(spec, call), *Mapping)
    loads = {f"#{i}": array for i, array in enumerate(arrays) if array is not None}
    for output, kind in enumerate(sized.outputs):
        if not isinstance(kind, TensorType) or 0 in call.output(output).dims:
            continue
        at = tuple(index(f"i{d}") for d in range(kind.rank))
        body, why = defined(spec, sized, output, at)
        if body is None:
            assert NOT_OF_SIZES.get(spec.name, "?") in why, [str(t) for t in sized.inputs]
            continue
        assert tuple(evaluate(d, env) for d in kind.dims) == call.output(output).dims
        extents = {f"i{d}": n for d, n in enumerate(call.output(output).dims)}
        simple = Simplifier({f"i{d}": n for d, n in enumerate(kind.dims)}).simplify(body)
        expected = np.asarray(interpret(spec, call, arrays, output), np.float64)
        with deciding(env) as conditions:
            for one in (body, simple):
                result = evaluate_expression(at_hint(one), extents, loads)[0]
                found = np.broadcast_to(result, call.output(output).dims).astype(np.float64)
                np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
        assert not list(conditions)
