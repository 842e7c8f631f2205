"""The report's part about answers: which inputs were compared, how far answers are apart, and what is to blame."""

from __future__ import annotations

from math import isfinite
from typing import Any

from fusewise.benchmarking.verification import Verification
from fusewise.reporting.document.taking_back import disabling

__all__ = ["verification_part"]


def verification_part(found: Verification) -> dict[str, Any]:
    """`Verification.summary`, an error that is not finite as None; of each case also the output that comes nearest to its
    tolerance, or is furthest beyond it; and of the decision to blame what it did, and the option that refuses it."""
    blamed = found.blamed
    return {
        **{name: _finite(value) for name, value in found.summary.items()},
        "cases": [
            {
                "inputs": case.inputs,
                "agrees": case.agrees,
                "refused": case.refused,
                "worst": case.worst,
                "outputs": [
                    {"output": name, "error": _finite(error), "tolerance": _finite(case.tolerances[name])}
                    for name, error in case.errors.items()
                ],
            }
            for case in found.cases
        ],
        "blamed": None
        if blamed is None
        else {
            "kind": blamed.kind,
            "what": blamed.what,
            "where": list(blamed.where),
            "serial": blamed.serial,
            "reason": blamed.reason,
            "option": disabling(blamed.what, *blamed.where[:1]),
        },
    }


def _finite(value: Any) -> Any:
    """Plain data without numbers that JSON does not have."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    return {name: _finite(each) for name, each in value.items()} if isinstance(value, dict) else value
