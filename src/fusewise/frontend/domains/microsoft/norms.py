"""Normalisations, with what is added before them."""

from __future__ import annotations

from fusewise.frontend.domains.row import DomainCall, DomainRow, Written, real
from fusewise.frontend.domains.writer import DomainWriter

__all__ = ["NORMS"]


def _skip_layer_normalization(g: DomainWriter, call: DomainCall) -> Written:
    total = g.total(call["input"] + call["skip"], call.get("bias"))
    outputs = 3 if call.wants("mean") or call.wants("inv_std_var") else 1
    given = {"axis": -1, "epsilon": call.attribute("epsilon")}
    found = g.several("LayerNormalization", outputs, total, call["gamma"], call.get("beta"), **given)
    return (*found, *(None,) * (3 - outputs), total)


NORMS: tuple[DomainRow, ...] = (
    DomainRow(
        "SkipLayerNormalization",
        _skip_layer_normalization,
        operands=("input", "skip", "gamma", "beta?", "bias?"),
        attributes=(real("epsilon", 1e-12),),
        outputs=("output", "mean?", "inv_std_var?", "input_skip_bias_sum?"),
        shapes="*S H, ... H, H, H, H",
    ),
)
