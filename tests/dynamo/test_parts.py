"""A graph with something in it that PyTorch has to do is compiled round it."""

from __future__ import annotations

import copy
import operator
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.dynamo import parts
from fusewise.dynamo.compiler import LEFT, SPLIT, backend
from fusewise.dynamo.parts import PartsInTurn, in_parts
from fusewise.errors import UnsupportedModel

torch = pytest.importorskip("torch")

LIBRARY = torch.library.Library("fusewise_parts", "DEF")
"""Operators that no exporter knows: `odd` triples, `pair` gives two, `double` writes to its operand."""

LIBRARY.define("odd(Tensor x) -> Tensor")
LIBRARY.define("pair(Tensor x) -> (Tensor, Tensor)")
LIBRARY.define("double(Tensor(a!) x) -> ()")
LIBRARY.impl("odd", lambda x: x * 3, "CompositeExplicitAutograd")
LIBRARY.impl("pair", lambda x: (x * 3, x + 1), "CompositeExplicitAutograd")


def _double(x: Any) -> None:
    x.mul_(2)


LIBRARY.impl("double", _double, "CompositeExplicitAutograd")

SPLITS = (torch.ops.fusewise_parts.odd.default, torch.ops.fusewise_parts.pair.default)
KNOWN = (torch.ops.aten.relu.default, torch.ops.aten.neg.default, torch.ops.aten.sin.default)


@pytest.fixture(autouse=True)
def _afresh() -> Any:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Net(torch.nn.Module):
    """Two products, a buffer that is written to, and unknown operators between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.norm = torch.nn.LayerNorm(16)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.first(x)))
        y = torch.ops.fusewise_parts.odd(y) + y
        y, z = torch.ops.fusewise_parts.pair(y.sigmoid())
        torch.ops.fusewise_parts.double(z[:2])
        y = self.second(torch.tanh(y).exp() * 2 + z)
        self.seen += y.sum(0)
        return torch.nn.functional.dropout(y, 0.5, True), y.t(), x, self.seen * 2, y.shape[0]


@pytest.mark.slow
def test_what_surrounds_unknown_operators_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers are written to, views stay views, sizes are symbols, random numbers are PyTorch's."""
    ours = Net()
    eager, runs = copy.deepcopy(ours), []
    made = parts.PartsInTurn.__call__
    monkeypatch.setattr(parts.PartsInTurn, "__call__", lambda self, values: runs.append(1) or made(self, values))
    call = torch.compile(ours, backend=backend, dynamic=True)
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        for rows in (4, 6):
            x = torch.randn(rows, 8)
            torch.manual_seed(rows)
            found = call(x)
            torch.manual_seed(rows)
            for one, other in zip((*found, ours.seen), (*eager(x), eager.seen), strict=True):
                if isinstance(other, torch.Tensor):
                    assert (one.shape, one.stride()) == (other.shape, other.stride())
                    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
                else:
                    assert one == other
    assert len(runs) == 2 and found[2] is x
    told = {str(one.message) for one in caught if str(one.message).startswith((LEFT, SPLIT))}
    assert len(told) == 1
    for name in (
        "fusewise_parts.odd.default",
        "fusewise_parts.pair.default",
        "fusewise_parts.double.default",
        "native_dropout",
        "test_parts.py:",
    ):
        assert name in next(iter(told))


@pytest.mark.slow
def test_sizes_in_terms_of_others_are_free_in_a_part() -> None:
    def folded(x: Any) -> Any:
        count = x.shape[0]
        y = torch.ops.fusewise_parts.odd(torch.relu(x).exp().sin().reshape(count * 2, 4))
        return (y.tanh().exp().reshape(count, 8) * count).sin()

    call = torch.compile(folded, backend=backend, dynamic=True)
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        for rows in (4, 6):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(call(x), folded(x), rtol=1e-5, atol=1e-5)
    assert not [one for one in caught if str(one.message).startswith(LEFT)]


@st.composite
def graphs(draw: st.DrawFn) -> Any:
    """A pure graph of PyTorch: operators that are known and others, each of what was before, some of it given out."""
    graph = torch.fx.Graph()
    values = [graph.placeholder(f"x{k}") for k in range(draw(st.integers(1, 3)))]
    for node in values:
        node.meta["val"] = torch.zeros(3)
    for target in draw(
        st.lists(st.sampled_from((*SPLITS, *KNOWN, torch.ops.aten.add.Tensor)), min_size=1, max_size=14)
    ):
        taken = [draw(st.sampled_from(values)) for _ in range(2 if target is torch.ops.aten.add.Tensor else 1)]
        node = graph.call_function(target, tuple(taken))
        node.meta["val"] = torch.zeros(3)
        if target is SPLITS[1]:
            node.meta["val"] = (torch.zeros(3), torch.zeros(3))
            node = graph.call_function(operator.getitem, (node, draw(st.integers(0, 1))))
            node.meta["val"] = torch.zeros(3)
        values.append(node)
    graph.output([*draw(st.lists(st.sampled_from(values), min_size=1, max_size=4)), None])
    return torch.fx.GraphModule(torch.nn.Module(), graph)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_parts_in_turn_are_the_graph(module: Any) -> None:
    """Whatever is left to PyTorch, and in its order."""

    def refused(part: Any, fixed: Any) -> Any:
        if any(node.target in SPLITS for node in part.graph.nodes):
            raise UnsupportedModel("never asked for")
        return "compiled"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "captured", refused)
        patch.setattr(parts, "_LEAST_NODES", 1)
        patch.setattr(parts, "_operator_of", str)
        names = [str(one) for one in SPLITS if any(node.target is one for node in module.graph.nodes)]
        if not names:
            assert in_parts(module, (), UnsupportedModel("something else")) is None
            return
        patch.setattr(parts, "why_not", lambda node: str(node.target) if node.target in SPLITS else "")
        found = in_parts(module, (), UnsupportedModel(names[0]))
    if found is None:
        assert all(node.target not in (*KNOWN, torch.ops.aten.add.Tensor) for node in module.graph.nodes)
        return
    given = [torch.randn(3) for _ in module.graph.find_nodes(op="placeholder")]
    turns = PartsInTurn(found, [lambda values, part=part: part.module.forward(*values) for part in found.parts])
    for one, other in zip(turns(list(given)), module.forward(*given), strict=True):
        assert other is None if one is None else torch.equal(one, other)
    order = [node.target for node in module.graph.nodes if node.target in SPLITS]
    assert order == [node.target for part in found.parts for node in part.module.graph.nodes if node.target in SPLITS]
    assert all(part.capture is None for part in found.parts if any(n.target in SPLITS for n in part.module.graph.nodes))


def test_a_graph_that_is_refused_for_something_else_stays_whole() -> None:
    module = torch.fx.symbolic_trace(torch.nn.ReLU())
    assert in_parts(module, (), UnsupportedModel("no operator is named")) is None
