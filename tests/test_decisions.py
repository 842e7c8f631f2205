"""Names that decisions may be refused by are all known, and nothing else is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusewise
from fusewise.decisions import LOCAL_RULES, OTHERS, names_of_decisions, require_known
from fusewise.errors import UsageError
from fusewise.ops.build import GraphBuilder
from fusewise.passes.published import step_names
from fusewise.trace import Trace

PACKAGE = Path(fusewise.__file__).parent


def gates(tree: ast.AST) -> Iterator[str]:
    """Names that stand as texts where rules are made and the trace is asked."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) >= 2:
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in ("LocalRule", "looking_for", "allows"):
                asked = node.args[name == "allows"]
                if isinstance(asked, ast.Constant):
                    yield str(asked.value)


def test_the_tables_have_what_the_sources_have() -> None:
    found = {name for path in PACKAGE.rglob("*.py") for name in gates(ast.parse(path.read_text()))}
    assert len(found) > 80
    assert found <= set(names_of_decisions())
    assert set(LOCAL_RULES) == found - set(step_names()) - set(OTHERS)


class Asked(Trace):
    """A trace that keeps what it was asked about."""

    def allows(self, kind: str, what: str, *about: Any, **costs: Any) -> bool:
        self.names = {*getattr(self, "names", ()), what}
        return super().allows(kind, what, *about, **costs)


def test_what_is_decided_has_a_known_name() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 8, 16, 16))
    y = b.op("Relu", b.op("Conv", x, b.constant(np.ones((8, 8, 3, 3), np.float32)), pads=[1, 1, 1, 1]))
    y = b.op("Transpose", b.op("Transpose", y, perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2])
    trace = Asked()
    fusewise.compile(b.finish(b.op("Softmax", y, axis=1)), cache=False, trace=trace)
    assert len(trace.names) > 3
    require_known(trace.names)


def test_unknown_names() -> None:
    require_known(("product@Gemm_1", "mine"), others=("mine",))
    with pytest.raises(UsageError, match="did you mean 'product'"):
        require_known(("produkt@Gemm_1",))
