"""Strassen's algorithm in Winograd's form: seven products of half the size in every direction in place of eight.

    [A11 A12]   [B11 B12]      S1 = A21 + A22    T1 = B12 - B11
    [A21 A22] x [B21 B22]      S2 = S1 - A11     T2 = B22 - T1
                               S3 = A11 - A21    T3 = B22 - B12
                               S4 = A12 - S2     T4 = T2 - B21

    P0 = A11 B11, P1 = S1 T1, P2 = S2 T2, P3 = A22 T4, P4 = A12 B21, P5 = S3 T3, P6 = S4 B22;  U = P0 + P2, V = U + P5

    C11 = P0 + P4,  C12 = U + P1 + P6,  C21 = V - P3,  C22 = V + P1

V. Strassen, Gaussian elimination is not optimal, Numerische Mathematik 13, 1969. S. Winograd, On multiplication of 2 x 2 matrices,
Linear Algebra and its Applications 4, 1971.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

__all__ = ["LEFT", "LEFT_STEPS", "LEFT_SUMS", "MADE", "PRODUCTS", "RESULT_STEPS", "RIGHT", "extend"]

T = TypeVar("T")
Step = tuple[int, int, int]
"""The sum of two values, or their difference where the second number is -1; values are numbered, and each step adds one."""

LEFT_STEPS: tuple[Step, ...] = ((2, 1, 3), (4, -1, 0), (0, -1, 2), (1, -1, 5))
"""S1, S2, S3, S4: values 4 to 7, after A11, A12, A21, A22."""

LEFT = (0, 4, 5, 3, 1, 6, 7)
"""The left factor of each product."""

PRODUCTS, LEFT_SUMS = len(LEFT), len(LEFT_STEPS)
"""Products of halves; sums and differences of quarters of the left operand among their factors."""

MADE = 4
"""The right factor made last, among B11, B12, B21, B22."""

RIGHT: tuple[tuple[int, ...], ...] = ((0,), (1, 0), (3, MADE), (MADE, 2), (2,), (3, 1), (3,))
"""The right factor of each product: a quarter, or what is taken from what."""

RESULT_STEPS: tuple[Step, ...] = ((0, 1, 2), (7, 1, 5), (7, 1, 1), (0, 1, 4), (9, 1, 6), (8, -1, 3), (8, 1, 1))
"""U, V, U + P1 and then C11, C12, C21, C22: values 7 to 13, after the products."""


def extend(
    values: Iterable[T], steps: Sequence[Step], plus: Callable[[T, T], T], minus: Callable[[T, T], T]
) -> list[T]:
    """The values, and behind them what each step gives."""
    found = list(values)
    for a, sign, b in steps:
        found.append((plus if sign > 0 else minus)(found[a], found[b]))
    return found
