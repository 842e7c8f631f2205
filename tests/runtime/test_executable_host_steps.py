"""Programs written by hand with host steps between their kernels: what is handed over, and what is said when one fails."""

import itertools

import numpy as np
import pytest
from tests.runtime.written import F8, W, X, binary, constant, host_step, program

from fusewise.errors import InvalidData, UnsupportedModel
from fusewise.ir.dtypes import FLOAT32, INT64, STRING
from fusewise.ir.graph import Node, attributes_of
from fusewise.ir.types import SequenceType, TensorType
from fusewise.lower.program import Buffer, HostStep, NativeStep, Place, Port
from fusewise.runtime.executable import build
from fusewise.runtime.program_json import program_from_json, program_to_json


def test_host_step_between_kernels():
    """y = -(x + w) + w, the negation on the host, in place in the arena."""
    buffers = [Buffer("input", 32), Buffer("output", 32), Buffer("arena", 32, 0), constant(W)]
    steps = [
        NativeStep(0, (Place(0), Place(3), Place(2)), "add", 0),
        host_step(Node("Neg", ("a",), ("b",)), 22, (("a", Place(2), F8),), (("b", Place(2), F8),), "test", 1),
        NativeStep(0, (Place(2), Place(3), Place(1)), "add", 2),
    ]
    executable = build(program(buffers, [binary("add", 8)], steps), threads=2)
    for scale in (1, -3):
        (y,) = executable.run(None, {"x": scale * X})
        np.testing.assert_array_equal(y, -(scale * X + W) + W)
    (y,), timings = executable.run_with_timings(None, {"x": X})
    np.testing.assert_array_equal(y, -(X + W) + W)
    assert [(t.step, t.label, t.group, t.native) for t in timings] == [
        (0, "add", 0, True),
        (1, "b", 1, False),
        (2, "add", 2, True),
    ]
    assert all(t.start_ns <= t.end_ns for t in timings)
    assert all(a.end_ns <= b.start_ns for a, b in itertools.pairwise(timings))
    assert [len(t.shares) for t in timings] == [2, 1, 2]


def test_host_step_on_ports_and_host_buffers():
    """A host step reads part of the caller's input and fills a host buffer; the next writes the caller's output."""
    half = TensorType(FLOAT32, (4,))
    steps = [
        host_step(Node("Neg", ("a",), ("b",)), 22, (("a", Place(0, 16), half),), (("b", Place(2), half),)),
        host_step(
            Node("Concat", ("b", "b"), ("y",), attributes_of(axis=0)),
            22,
            (("b", Place(2), half), ("b", Place(2), half)),
            (("y", Place(1), TensorType(FLOAT32, (8,))),),
        ),
    ]
    made = program(
        [Buffer("input", 32), Buffer("output", 32), Buffer("host", 16)],
        [],
        steps,
        outputs=(Port("y", TensorType(FLOAT32, (8,)), 1),),
    )
    executable = build(made)
    assert executable.figures.host_bytes == 16
    np.testing.assert_array_equal(executable.run(None, {"x": X})[0], np.tile(-X[1], 2))


def test_host_step_of_several_nodes():
    """y = Neg(x) + count of positions where x is not zero; what the nodes give each other is nobody else's."""
    nodes = (
        Node("NonZero", ("x",), ("n",)),
        Node("Shape", ("n",), ("s",)),
        Node("Cast", ("s",), ("c",), attributes_of(to=1)),
        Node("ReduceMax", ("c",), ("m",), attributes_of(keepdims=0)),
        Node("Neg", ("x",), ("b",)),
        Node("Add", ("b", "m"), ("y",)),
    )
    step = HostStep(nodes, 22, (("x", Place(0), F8),), (("y", Place(1), F8), ("s", None, None)), ("",) * 6)
    outputs = (Port("y", F8, 1), Port("s", TensorType(INT64, (2,)), -1))
    made = program([Buffer("input", 32), Buffer("output", 32)], [], [step], outputs=outputs)
    assert made.figures["host_steps"] == 1
    assert [row["op"] for row in made.host_nodes] == [node.op for node in nodes]
    y, s = build(made).run(None, {"x": X})
    np.testing.assert_array_equal(y, 8 - X)
    assert s.tolist() == [2, 8]
    assert program_from_json(program_to_json(made)).steps == made.steps


def test_dynamic_values_outlive_the_memory_they_came_from():
    """A sequence keeps an arena tensor that a later step overwrites."""
    buffers = [Buffer("input", 32), Buffer("output", 32), Buffer("arena", 32, 0), constant(W)]
    sequence = SequenceType(F8)
    steps = [
        NativeStep(0, (Place(0), Place(3), Place(2))),
        host_step(Node("SequenceConstruct", ("a",), ("s",)), 22, (("a", Place(2), F8),), (("s", None, None),)),
        NativeStep(0, (Place(2), Place(2), Place(2))),
        host_step(
            Node("SequenceAt", ("s", "k"), ("y",)), 22, (("s", None, None), ("k", None, None)), (("y", Place(1), F8),)
        ),
    ]
    made = program(
        buffers,
        [binary("add", 8)],
        steps,
        outputs=(Port("y", F8, 1), Port("s", sequence, -1)),
        objects=(("k", np.array(0)),),
    )
    executable = build(made)
    y, kept = executable.run(None, {"x": X})
    executable.run(None, {"x": -X})
    np.testing.assert_array_equal(y, X + W)
    np.testing.assert_array_equal(kept[0], X + W)


def test_dynamic_ports():
    """Strings and tensors of unknown shape never touch native memory."""
    words, found = TensorType(STRING, (None,)), TensorType(INT64, (1, None))
    steps = [
        host_step(Node("NonZero", ("m",), ("n",)), 22, (("m", None, None),), (("n", None, None),)),
        host_step(Node("Identity", ("w",), ("v",)), 22, (("w", None, None),), (("v", None, None),)),
    ]
    made = program(
        [],
        [],
        steps,
        inputs=(Port("m", TensorType(FLOAT32, (None,)), -1), Port("w", words, -1)),
        outputs=(Port("n", found, -1), Port("v", words, -1), Port("w", words, -1)),
    )
    given = np.array(["a", "b"], object)
    n, v, w = build(made).run(None, {"m": np.array([0, 1, 2], np.float32), "w": given})
    assert n.tolist() == [[1, 2]]
    assert v.tolist() == w.tolist() == ["a", "b"]
    assert not np.shares_memory(w, given)


def test_optional_operands_and_results():
    """Absent operands stay absent, absent results are dropped."""
    kind = F8
    node = Node("Dropout", ("x", "", "t"), ("y", ""), attributes_of(seed=1))
    clip = Node("Clip", ("y", "", "high"), ("z",))
    scalar = TensorType(FLOAT32, ())
    steps = [
        host_step(
            node,
            22,
            (("x", Place(0), kind), ("", None, None), ("t", None, None)),
            (("y", Place(2), kind), ("", None, None)),
        ),
        host_step(
            clip, 22, (("y", Place(2), kind), ("", None, None), ("high", Place(3), scalar)), (("z", Place(1), kind),)
        ),
    ]
    made = program(
        [Buffer("input", 32), Buffer("output", 32), Buffer("arena", 32), constant(np.float32(0.25))],
        [],
        steps,
        objects=(("t", np.array(False)),),
    )
    np.testing.assert_array_equal(build(made).run(None, {"x": X})[0], np.minimum(X, np.float32(0.25)))


def test_host_step_of_another_shape_or_type_than_promised():
    wrong = host_step(
        Node("NonZero", ("x",), ("y",)), 22, (("x", Place(0), F8),), (("y", Place(1), TensorType(INT64, (2, 7))),)
    )
    kind = TensorType(INT64, (2, 7))
    made = program([Buffer("input", 32), Buffer("output", kind.nbytes)], [], [wrong], outputs=(Port("y", kind, 1),))
    executable = build(made)
    with pytest.raises(
        UnsupportedModel, match=r"node 'y' \(NonZero\) gives the shape \[2, 8\], where the model states \[2, 7\]"
    ):
        executable.run(None, {"x": X + 10})
    x = np.array([[0, 1, 2, 3], [4, 5, 6, 7]], np.float32)
    np.testing.assert_array_equal(executable.run(None, {"x": x})[0], np.nonzero(x))


def test_failing_host_step_names_its_node():
    step = host_step(
        Node("Reshape", ("x", "s"), ("y",), name="bend"),
        22,
        (("x", Place(0), F8), ("s", None, None)),
        (("y", Place(1), F8),),
    )
    made = program([Buffer("input", 32), Buffer("output", 32)], [], [step], objects=(("s", np.array([3, 3])),))
    with pytest.raises(InvalidData, match=r"node 'bend' \(Reshape\): its input 1 \(shape\) is \[3, 3\]"):
        build(made).run(None, {"x": X})


# --- many at once -----------------------------------------------------------------------------------------------------
