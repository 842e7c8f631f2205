"""What becomes of an axis that parts of one width do not fill: the last part is moved back to end where the axis does.

There is then one width and no remainder code; what two parts share is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable

from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int
from fusewise.ir.deciding import known_zero

__all__ = ["each_part", "fitted"]


def fitted(f: Function, start: Int, width: int, extent: int) -> Int:
    """Where the part that would begin at `start`, a multiple of its width, begins."""
    return start if known_zero(extent % width) else f.minimum(start, extent - width)


def each_part(f: Function, extent: int, width: int, body: Callable[[Int], None]) -> None:
    """`body(start)` for every part of an axis."""
    f.loop(0, extent, width, lambda start, _: body(fitted(f, start, width, extent)), rolled=True)
