"""The numbers that the classifier reads."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.accel.pinned import pinned, random_group

from fusewise.accel.bits import mask_of
from fusewise.accel.explain.explainer import edges_inside
from fusewise.accel.gnn.features import COLUMNS, FLAGS, KINDS, OPERATORS, batch_of, node_table, spans, with_buffer
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.lbdf import LBDF


def test_every_operator_of_the_networks_has_its_column() -> None:
    for name in ("resnet18", "mobilenet_v2", "efficientnet_b0"):
        network = pinned(name)
        flags = node_table(network)[0][:, :FLAGS]
        known = [op.op in OPERATORS for op in network.operators]
        assert flags[:, : len(OPERATORS)].sum(axis=1).tolist() == known
        assert flags[:, len(OPERATORS) :].argmax(axis=1).tolist() == [
            KINDS.index(op.form.kind) for op in network.operators
        ]


def test_weights_and_windows_are_those_of_the_worked_example() -> None:
    """ResNet-18, layer 1, first 3x3 convolution: 64 filters of 64x3x3 and a bias; a window of 2 rows and 3 pixels of 56 x 64."""
    network = pinned("resnet18")
    conv = next(
        v
        for v, op in enumerate(network.operators)
        if op.op == "Conv" and network.tensors[op.reads[0].tensor].height == 56
    )
    weights, window, one_filter, row = node_table(network)[1][conv]
    assert weights == 2 * (64 * 64 * 9 + 64)
    assert window == 2 * (2 * 56 + 3) * 64
    assert one_filter == 2 * 64 * 9
    assert row == 2 * 56 * 64


def test_a_scheme_of_half_the_width_in_half_the_buffer_reads_the_same() -> None:
    network, groups = pinned("squeezenet1_1"), [mask_of(range(3, 12)), mask_of(range(20, 24))]
    wide = batch_of(Problem(network, LBDF(bits=16), 131072), groups, node_table(network))[0]
    narrow = batch_of(Problem(network, LBDF(bits=8), 65536), groups, node_table(network))[0]
    assert np.array_equal(wide.x, narrow.x)


def test_a_batch_holds_each_group_with_its_edges() -> None:
    network, rng = pinned("efficientnet_b0"), random.Random(5)
    groups = [random_group(network, rng) for _ in range(20)]
    table = node_table(network)
    batch, inside = batch_of(Problem(network, LBDF(), 131072), groups, table)
    assert batch.x.shape == (sum(g.bit_count() for g in groups), COLUMNS)
    assert [edges_inside(network, group) for group in groups] == inside
    for number, group in enumerate(groups):
        rows = np.flatnonzero(batch.graph == number)
        members = [v for v in range(len(network)) if group >> v & 1]
        capacity = np.full(len(members), 131072.0)
        assert np.array_equal(batch.x[rows], with_buffer(table[0][members], table[1][members], capacity))
        ends = batch.edges[:, batch.edge_graph == number] - (rows[0] if len(rows) else 0)
        assert [(members[u], members[v]) for u, v in ends.T] == list(inside[number])


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5))))
def test_spans_are_the_ranges_one_after_the_other(pairs: list[tuple[int, int]]) -> None:
    starts, lengths = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    expected = [start + i for start, length in pairs for i in range(length)]
    assert spans(starts, lengths).tolist() == expected
