"""Processors that code is generated for."""

from __future__ import annotations

from documentation.markdown import code, table

__all__ = ["page"]

HEAD = """# Machines

Code is made for the processor that it runs on: vectors, caches and features are read there. The generic machines
below are for reading code and for tests (`benchmarks.portability --machine NAME` holds the compiler to one). Linux on
x86-64 and AArch64 is supported. [The same models on other machines](../portability.md).

"""


def page() -> str:
    """Generic targets, and processors of which more is known."""
    from fusewise.codegen.machine.processors import PROCESSORS
    from fusewise.codegen.target import MATRIX_TARGET, TARGETS
    from fusewise.words import size_text

    rows = [
        (
            code(one.name),
            code(one.triple),
            code(one.cpu),
            one.vector_bits,
            one.registers,
            "yes" if one.fma else "no",
            size_text(one.l1_bytes),
            size_text(one.l2_bytes),
            size_text(one.l3_bytes),
        )
        for one in (*TARGETS, MATRIX_TARGET)
    ]
    headings = ("name", "system", "LLVM's CPU", "vector bits", "registers", "multiply-add", "L1", "L2", "L3")
    known = [
        (code(name), one.multiply_bits or "two vectors", "yes" if one.adds_apart else "no")
        for name, one in PROCESSORS.items()
    ]
    return (
        HEAD
        + table(headings, rows, right=(3, 4, 6, 7, 8))
        + "\n## Processors of which more is known\n\nBeside what their features say, by LLVM's names.\n\n"
        + table(("processor", "bits of multiply-adds begun in a cycle", "additions have units of their own"), known)
    )
