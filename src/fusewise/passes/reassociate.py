"""Put two constants in a row together. Numeric class reassociating."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, looking_for, sweep
from fusewise.rewrite.match import Occurrence
from fusewise.trace import Trace

__all__ = ["reassociate"]


def reassociate(graph: Graph, trace: Trace) -> Graph:
    """Sums with two constants, and products with two, take one.

    b = Add(Add(x, 2.0), 3.0)   ->   b = Add(x, 5.0)

    Refused: someone else reads the first result, or the constants together are larger than each alone.
    """
    return sweep(graph, trace, (_RULE,))


def _twice(g: Any, x: Any, inner: Any, outer: Any) -> Any:
    return (x + inner) + outer | (x * inner) * outer


def _merge(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    x, inner = found.value("x"), found.value("inner")
    first, last = edit.array(inner), edit.array(found.value("outer"))
    if first is None or last is None or x in edit.constants:
        return None
    if first.dtype != last.dtype or first.dtype.kind != "f":
        return None
    wide = np.float64 if first.dtype != np.float64 else np.longdouble
    function = np.add if node.op == "Add" else np.multiply
    both = function(first, last, dtype=wide)
    if both.size > max(first.size, last.size) or not np.all(np.isfinite(both)):
        return None
    known = edit.constant(np.asarray(both).astype(first.dtype), f"{inner}_merged")
    return Change(edit.covered(found, node), "two constants", (node.with_inputs((x, known)),))


_RULE = looking_for("reassociate", _twice, _merge)
