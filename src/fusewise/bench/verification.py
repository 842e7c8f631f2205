"""What comes of comparing a compiled model with a reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Verification"]


@dataclass(frozen=True)
class Verification:
    """Whether the compiled model gives the answers of `reference`.

    `errors` has one relative error per output, `tolerances` what it may be; `blame` the decision found by bisection, as a
    sentence, and `blamed` its event, when answers differ because of one.
    """

    agrees: bool
    reference: str
    errors: Mapping[str, float]
    tolerances: Mapping[str, float]
    decisions: int
    blame: str | None = None
    blamed: Any = None
    builds: int = 1
    confirmed: bool = False
