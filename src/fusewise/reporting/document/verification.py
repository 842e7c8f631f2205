"""The report's part about answers: which inputs were compared, how far answers are apart, and what is to blame."""

from __future__ import annotations

from typing import Any

from fusewise.benchmarking.verification import Verification

__all__ = ["verification_part"]


def verification_part(found: Verification) -> dict[str, Any]:
    """`Verification.summary`; of each case also the output that comes nearest to its tolerance, or is furthest beyond it; and of
    the decision to blame what it did, and the option that refuses it."""
    blamed = found.blamed
    return {
        **found.summary,
        "cases": [
            {
                "inputs": case.inputs,
                "agrees": case.agrees,
                "refused": case.refused,
                "worst": case.worst,
                "outputs": [
                    {"output": name, "error": error, "tolerance": case.tolerances[name]}
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
            "option": f"--disable {blamed.what}@{blamed.where[0]}" if blamed.where else f"--disable {blamed.what}",
        },
    }
