"""Inputs whose contents decide: as operands, through arithmetic, not through data."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fusewise.frontend.deciding import DECIDED_BY, deciding_inputs
from fusewise.ir.dtypes import INT64
from fusewise.ops.build import GraphBuilder
from fusewise.ops.definition import definition
from fusewise.ops.expr import index
from fusewise.ops.sampling import call_of_sample
from fusewise.ops.spec import NotDefined, OpSpec
from fusewise.ops.table import OPERATORS


def test_operands_decide_and_what_they_are_computed_from() -> None:
    b = GraphBuilder()
    x, size, k = b.input("x", ("N",)), b.input("size", (1,), INT64), b.input("k", (1,), INT64)
    twice = b.op("Mul", size, b.constant(np.array([2])))
    graph = b.finish(b.op("Reshape", x, twice), b.op("Add", k, k))
    assert deciding_inputs(graph) == ("size",)


def test_floats_that_arithmetic_is_done_on_are_data_unless_they_are_single() -> None:
    b = GraphBuilder()
    image, limit = b.input("image", (3, 4)), b.input("limit", ())
    longest = b.op("Cast", b.op("ReduceMax", image, keepdims=0), to=INT64.onnx)
    zero, one = b.constant(np.array(0)), b.constant(np.array(1))
    graph = b.finish(b.op("Range", zero, longest, one), b.op("Range", zero, b.op("Cast", limit, to=INT64.onnx), one))
    assert deciding_inputs(graph) == ("limit",)


@pytest.mark.parametrize("spec", [one for one in OPERATORS if one.samples and not one.domain], ids=lambda one: one.name)
def test_what_definitions_ask_the_contents_of_is_listed(spec: OpSpec) -> None:
    for sample in spec.samples:
        call, _ = call_of_sample(spec, sample, np.random.default_rng(0))
        at = tuple(index(f"i{d}") for d in range(call.output().rank))
        for place in filter(call.is_known, range(len(call.inputs))):
            withheld = (*call.constants[:place], None, *call.constants[place + 1 :])
            try:
                definition(spec, dataclasses.replace(call, constants=withheld), 0, at)
            except NotDefined as reason:
                if "is not constant" in str(reason):
                    assert place in (*DECIDED_BY.get(spec.name, ()), *spec.shaped_by), (spec.name, place)
