"""What control flow asks of its operands and attributes; what bodies take and give is compared where they are looked into."""

from __future__ import annotations

from fusewise.ops.validity.rules import between, counted, needs, one_of
from fusewise.ops.validity.use import Use, ValidityRow, shown

__all__ = ["CONTROL"]


def _scanned(use: Use) -> int:
    """How many operands are scanned: the last ones."""
    count = use.attribute("num_scan_inputs")
    return count if isinstance(count, int) else 0


def _states(use: Use) -> int:
    return len(use.node.inputs) - _scanned(use)


def _made(use: Use) -> int:
    """How many outputs are made of slices: those after the states."""
    return len(use.node.outputs) - _states(use)


def _slices(use: Use) -> str:
    """Every scanned operand has its axis, and all are equally long along it."""
    first, length = _states(use), None
    axes = use.attribute("scan_input_axes") or (0,) * _scanned(use)
    for i, axis in enumerate(axes, first):
        shape = use.shape(i)
        if shape is None:
            continue
        if not -len(shape) <= axis < len(shape):
            return f"{use.operand(i)} has the shape {shown(shape)}, which has no axis {axis} to scan"
        extent = shape[axis]
        if isinstance(extent, int) and length not in (None, extent):
            return f"{use.operand(i)} has {extent} slices, but those before have {length}"
        length = extent if isinstance(extent, int) else length
    return ""


_OUTPUTS = "it has fewer outputs than values that it carries from one run of its body to the next"

CONTROL: tuple[ValidityRow, ...] = (
    ValidityRow("If", "one"),
    ValidityRow("Loop", "one, one", (needs(lambda use: len(use.node.outputs) >= len(use.node.inputs) - 2, _OUTPUTS),)),
    ValidityRow(
        "Scan",
        rules=(
            between("num_scan_inputs", 1),
            needs(lambda use: _states(use) >= 0, "its attribute num_scan_inputs is more than it has operands"),
            needs(lambda use: _made(use) >= 0, _OUTPUTS),
            *(
                counted(f"scan_input_{what}", _scanned, "one for each scanned operand")
                for what in ("axes", "directions")
            ),
            *(
                counted(f"scan_output_{what}", _made, "one for each output of slices")
                for what in ("axes", "directions")
            ),
            *(one_of(f"scan_{what}_directions", 0, 1) for what in ("input", "output")),
            _slices,
        ),
    ),
)
