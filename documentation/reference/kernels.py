"""The ways to run each family of operators, in the order in which they are tried."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from documentation.markdown import code, plain, sentence, table

__all__ = ["page"]

HEAD = """# Kernels

For each family of operators the ways to run it, best first: the first that accepts the task is taken, where nothing
better was measured (`--tune`). `--disable NAME` refuses one. [What kernels are made of](../kernels.md).

"""


def page() -> str:
    """A table of families, and one of kernels."""
    from fusewise.codegen.candidates import KERNELS, PLAIN_KERNELS
    from fusewise.ops.table import OPERATORS

    operators: dict[str, list[str]] = {}
    for spec in OPERATORS:
        if spec.family:
            operators.setdefault(spec.family, []).append(spec.name)
    families = [
        (family, _names(operators.get(family, ())), _names(kernel.name for kernel in kernels))
        for family, kernels in KERNELS.items()
    ]
    families.append(("(no anchor)", "what is computed element by element", _names(one.name for one in PLAIN_KERNELS)))
    kernels = {one.name: one for row in (*KERNELS.values(), PLAIN_KERNELS) for one in row}
    rows = [(code(name), plain(_about(kernel))) for name, kernel in sorted(kernels.items())]
    return (
        HEAD
        + table(("family", "operators", "kernels, in order"), families)
        + "\n## What each does\n\nThe first sentence of its module.\n\n"
        + table(("kernel", "what it does"), rows)
    )


def _names(names: Iterable[str]) -> str:
    return " ".join(map(code, names))


def _about(kernel: Any) -> str:
    """What the module says of itself that builds the kernel's code."""
    module = inspect.getmodule(inspect.unwrap(getattr(kernel.build, "func", kernel.build)))
    return sentence(module.__doc__ if module else "")
