"""What nodes read of their operands is proved to be there; a model for which it is not is refused."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.errors import InvalidModel
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.lower.inside import Proofs
from fusewise.ops.expr import binary, compare, const, index, load, reduce, select

I0, I1 = index("i0"), index("i1")


def x(*at):
    return load("#0", FLOAT32, at)


def proved(body, extents, shape):
    node = Node("Some", ("x",), ("y",), name="one")
    types = {"x": TensorType(FLOAT32, shape), "y": TensorType(FLOAT32, extents)}
    graph = Graph(("x",), ("y",), (node,), types)
    Proofs().require(graph, node, "y", body)


def within(at, size):
    return binary("and", compare("ge", at, 0), compare("lt", at, size))


ZERO = const(0.0, FLOAT32)
GOOD = {
    "as it is": (x(I0), (4,), (4,)),
    "backwards": (x(const(3) - I0), (4,), (4,)),
    "split": (x(I0 // 2, I0 % 2), (6,), (3, 2)),
    "padded": (select(within(I0 - 2, 4), x(I0 - 2), ZERO), (8,), (4,)),
    "joined": (select(compare("lt", I0, 3), x(I0), x(I0 - 3)), (6,), (3,)),
    "not outside": (select(compare("ge", I0, 3), ZERO, x(I0)), (6,), (3,)),
    "a part, halved": (select(compare("lt", I0, 4), x(I0 // 2), ZERO), (8,), (2,)),
    "mirrored": (x(binary("min", I0, const(6) - I0)), (7,), (4,)),
    "summed": (reduce("sum", (("k", 3),), x(I0 + index("k"))), (4,), (6,)),
    "what is empty is not read": (x(I0), (4,), (0,)),
}
BAD = {
    "too far": (x(I0 + 1), (4,), (4,)),
    "too early": (x(I0 - 1), (4,), (4,)),
    "not as long": (x(I0), (4,), (3,)),
    "padded less than said": (select(within(I0 - 2, 5), x(I0 - 2), ZERO), (8,), (4,)),
    "only one side": (select(compare("ge", I0 - 2, 0), x(I0 - 2), ZERO), (8,), (4,)),
    "the other branch": (select(compare("ge", I0, 3), x(I0), ZERO), (6,), (3,)),
    "a condition about something else": (select(compare("lt", I1, 3), x(I0), ZERO), (6, 6), (3,)),
    "one of two holds": (select(binary("or", compare("lt", I0, 3), compare("lt", I1, 3)), x(I0), ZERO), (6, 6), (3,)),
    "summed too far": (reduce("sum", (("k", 4),), x(I0 + index("k"))), (4,), (6,)),
}


@pytest.mark.parametrize("case", GOOD)
def test_good(case):
    proved(*GOOD[case])


@pytest.mark.parametrize("case", BAD)
def test_bad(case):
    with pytest.raises(InvalidModel, match=r"'one' \(Some\) reads .* along axis 0 of its operand 'x'"):
        proved(*BAD[case])


@pytest.mark.parametrize("seed", range(40))
def test_what_is_proved_is_so(seed):
    """Random index maps of one variable under random conditions: none that is accepted leaves the operand."""
    rng = np.random.default_rng(seed)
    extent, size = (int(n) for n in rng.integers(1, 9, 2))
    scale, shift, low, high = (int(n) for n in rng.integers((-2, -6, -4, 0), (3, 7, 5, 9)))
    at = I0 * scale + shift
    body = select(binary("and", compare("ge", I0, low), compare("le", I0, high)), x(at), ZERO)
    reached = [scale * i + shift for i in range(extent) if low <= i <= high]
    try:
        proved(body, (extent,), (size,))
    except InvalidModel:
        assert not reached or not all(0 <= place < size for place in reached)
    else:
        assert all(0 <= place < size for place in reached)
