"""Substitutions from a file of TASO's: written here byte by byte, read back, verified, refused where they are wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fusewise.errors import UsageError
from fusewise.ops.build import GraphBuilder
from fusewise.rewrite.engine import drafts_of
from fusewise.rewrite.taso.file import BrokenRule, written_rules
from fusewise.rewrite.taso.rules import imported_rules, rules_in

CONV, RELU, CONCAT, SPLIT, ADD, MUL, MATMUL = 3, 8, 12, 13, 16, 17, 18
PLAIN = {9: 0}
CONVOLUTION = {4: 3, 5: 3, 6: 1, 7: 1, 8: 0, 9: 0}


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(*fields: tuple[int, int | bytes]) -> bytes:
    parts = []
    for number, value in fields:
        if isinstance(value, bytes):
            parts.append(varint(number << 3 | 2) + varint(len(value)) + value)
        else:
            parts.append(varint(number << 3) + varint(value))
    return b"".join(parts)


def operation(kind, inputs, parameters=None):
    places = [place if isinstance(place, tuple) else (place, 0) for place in inputs]
    return message(
        (1, kind),
        *((2, message((1, op), (2, output))) for op, output in places),
        *((3, message((1, key), (2, value))) for key, value in (parameters or {}).items()),
    )


def rule(source, target, outputs=None):
    outputs = outputs or [((len(source) - 1, 0), (len(target) - 1, 0))]
    return message(
        *((1, operation(*op)) for op in source),
        *((2, operation(*op)) for op in target),
        *((3, message((1, a), (2, c), (3, b), (4, d))) for (a, b), (c, d) in outputs),
    )


def collection(*rules: bytes) -> bytes:
    return message(*((1, each) for each in rules))


def concat(inputs, axis, rank):
    return (CONCAT, inputs, {1: len(inputs), 11: axis, 10: rank})


FACTORED = rule(
    [(MUL, [-1, -2]), (MUL, [-1, -3]), (ADD, [0, 1])],
    [(ADD, [-2, -3]), (MUL, [-1, 0])],
)
PARALLEL = rule(
    [(MATMUL, [-1, -4], PLAIN), (MATMUL, [-1, -5], PLAIN)],
    [concat([-4, -5], 1, 2), (MATMUL, [-1, 0], PLAIN), (SPLIT, [1], {2: 2, 11: 1})],
    [((0, 0), (2, 0)), ((1, 0), (2, 1))],
)
ONE_IMAGE = rule(
    [(CONV, [-1, -2], {**CONVOLUTION, 9: 2}), (CONV, [-1, -3], {**CONVOLUTION, 9: 2}), concat([0, 1], 1, 4)],
    [concat([-2, -3], 0, 4), (CONV, [-1, 0], {**CONVOLUTION, 9: 2})],
)
GROUPED = rule(
    [(CONV, [-1, -2], CONVOLUTION), (CONV, [-3, -4], CONVOLUTION), concat([0, 1], 1, 4)],
    [concat([-1, -3], 1, 4), concat([-2, -4], 0, 4), (CONV, [0, 1], CONVOLUTION)],
)
WRONG = rule([(MATMUL, [-1, -2], PLAIN)], [(MATMUL, [-2, -1], PLAIN)])
REORDERED = rule([(ADD, [-1, -2]), (ADD, [0, -3])], [(ADD, [-2, -3]), (ADD, [-1, 0])])
UNKNOWN = rule([(77, [-1])], [(RELU, [-1])])
INVENTED = rule([(RELU, [-1])], [(ADD, [-1, -2])])
APART = rule(
    [(RELU, [-1]), (RELU, [-2])],
    [concat([-1, -2], 1, 2), (RELU, [0]), (SPLIT, [1], {2: 2, 11: 1})],
    [((0, 0), (2, 0)), ((1, 0), (2, 1))],
)


def test_sound_rules_are_read_and_named_by_their_place():
    found = rules_in(collection(FACTORED, PARALLEL, ONE_IMAGE), "more")
    assert found.refused == ()
    assert [rule.name for rule in found.rules] == ["more-0", "more-1", "more-2"]
    assert str(found.rules[0]) == "x0 * x1 + x0 * x2  ->  x0 * (x1 + x2)"
    assert found.rules[2].before.operators == {"Conv", "Relu", "Concat"}, "an activation inside becomes an operator"


@pytest.mark.parametrize(
    "written, reason",
    [
        (WRONG, "differ|matched"),
        (GROUPED, "groups"),
        (REORDERED, "another order"),
        (UNKNOWN, "number 77"),
        (INVENTED, "does not look for"),
        (APART, "hangs together by nothing"),
        (rule([(RELU, [-1, -2])], [(RELU, [-1])]), "2 operands"),
        (rule([(RELU, [3])], [(RELU, [-1])]), "comes later"),
        (rule([(RELU, [-1])], [(RELU, [-1])], [((4, 0), (0, 0))]), "operation 4"),
        (rule([(SPLIT, [-1], {2: 2, 11: 1})], [(RELU, [-1])], [((0, 0), (0, 0))]), "unknown sizes"),
        (b"\xff\xff", "ends before"),
        (message((1, b"")), "without a type"),
    ],
)
def test_what_is_wrong_is_refused_with_its_reason_and_the_rest_is_used(written, reason):
    found = rules_in(collection(written, FACTORED), "more")
    assert [rule.name for rule in found.rules] == ["more-1"]
    ((name, told),) = found.refused
    assert name == "more-0"
    assert any(word in told for word in reason.split("|")), told


def test_the_same_rule_twice_is_one():
    renamed = rule(
        [(MUL, [-7, -5]), (MUL, [-6, -5]), (ADD, [1, 0])],
        [(ADD, [-6, -7]), (MUL, [0, -5])],
    )
    found = rules_in(collection(FACTORED, renamed), "more")
    assert found.refused == (("more-1", "it says the same as more-0"),)


def test_a_rule_does_not_touch_grouped_convolutions():
    (stacked,) = rules_in(collection(ONE_IMAGE), "more").rules
    for groups, places in ((1, 1), (2, 0)):
        build = GraphBuilder("two")
        x = build.input("x", (1, 4, 5, 5))
        made = [
            build.op(
                "Relu",
                build.op("Conv", x, build.constant(np.ones((4, 4 // groups, 3, 3), np.float32)), group=groups),
            )
            for _ in range(2)
        ]
        graph = build.finish(build.op("Concat", *made, axis=1))
        assert len(list(drafts_of(graph, [stacked]))) == places


def test_a_file_that_breaks_off_gives_what_came_before():
    data = collection(FACTORED, PARALLEL)
    first, second = written_rules(data[:-3])
    assert not isinstance(first, BrokenRule)
    assert isinstance(second, BrokenRule)


def test_files_that_hold_no_rules_are_named(tmp_path: Path):
    with pytest.raises(UsageError, match=r"nowhere\.pb cannot be read"):
        imported_rules(tmp_path / "nowhere.pb")
    (tmp_path / "empty.pb").write_bytes(b"")
    with pytest.raises(UsageError, match="holds no rules"):
        imported_rules(tmp_path / "empty.pb")
