"""Optionals that are tensors, so that whether they have an element is known before anything runs."""

from __future__ import annotations

import numpy as np

from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["OPTIONALS"]


def _has_element(g: Notation, call: Call, x: TensorValue | None = None) -> TensorValue:
    return g.constant(np.array(x is not None))


def _element(g: Notation, call: Call, x: TensorValue) -> TensorValue:
    return g.Identity(x)


OPTIONALS: tuple[Decomposition, ...] = (row("OptionalGetElement", _element), row("OptionalHasElement", _has_element))
