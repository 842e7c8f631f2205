"""What is known of a size, and who answers what is not."""

from __future__ import annotations

import math
from contextvars import ContextVar
from typing import Any, Protocol

__all__ = ["DECIDER", "Decider", "Undecided", "is_nonnegative", "is_zero", "known"]


class Undecided(TypeError):
    """A comparison of sizes whose answer depends on numbers that are not known."""


class Decider(Protocol):
    """Who answers comparisons that do not follow from what is known."""

    def is_zero(self, size: int) -> bool:
        """Is it to be taken for 0?"""

    def is_nonnegative(self, size: int) -> bool:
        """Is it to be taken for 0 or more?"""


DECIDER: ContextVar[Decider | None] = ContextVar("decider", default=None)
"""Comparisons take no argument, so who decides them is a context variable (`ir.deciding.deciding`)."""


def known(size: Any) -> str:
    """`zero`, `positive`, `negative`, `nonnegative`, `nonzero` or nothing: what holds of a size, whatever its symbols are."""
    if isinstance(size, int):
        return "zero" if size == 0 else "positive" if size > 0 else "negative"
    low, high = size.bounds
    if low > 0 or high < 0:
        return "positive" if low > 0 else "negative"
    factor = math.gcd(*(coefficient for _, coefficient in size.terms))
    return "nonnegative" if low == 0 else "nonzero" if size.constant % factor else ""


def is_zero(size: Any) -> bool:
    """Is it 0? What is not known a decider answers; without one it is not."""
    found, decider = known(size), DECIDER.get()
    if found in ("zero", "positive", "negative", "nonzero"):
        return found == "zero"
    return decider is not None and decider.is_zero(size)


def is_nonnegative(size: Any) -> bool:
    """Is it 0 or more? What is not known a decider answers. Raises `Undecided` without one."""
    found, decider = known(size), DECIDER.get()
    if found in ("zero", "positive", "negative", "nonnegative"):
        return found != "negative"
    if decider is None:
        raise Undecided(f"whether {size} >= 0 is not known")
    return decider.is_nonnegative(size)
