"""The kernels of matrix products in the order in which they are tried."""

from __future__ import annotations

from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.gemm import PAIRS, PRODUCT
from fusewise.codegen.llvm.strassen import STRASSEN

__all__ = ["GEMM", "MATMUL"]

MATMUL: tuple[Kernel, ...] = (PAIRS, STRASSEN, PRODUCT)
GEMM: tuple[Kernel, ...] = (PAIRS, STRASSEN, PRODUCT)
"""None accepts integers or computed operands: those tasks run from the operator's definition."""
