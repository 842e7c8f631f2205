"""The kernels of matrix products in the order in which they are tried."""

from __future__ import annotations

from typing import Any

from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.gemm import PAIRS, PRODUCT
from fusewise.codegen.llvm.strassen import STRASSEN

__all__ = ["GEMM", "MATMUL"]

MATMUL: tuple[Kernel[Any, Any], ...] = (PAIRS, STRASSEN, PRODUCT)
GEMM: tuple[Kernel[Any, Any], ...] = (PAIRS, STRASSEN, PRODUCT)
"""None accepts integers or computed operands: those tasks run from the operator's definition."""
