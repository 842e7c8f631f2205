"""The convolution kernels in the order in which they are tried."""

from __future__ import annotations

from typing import Any

from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.conv import DIRECT, DIRECT_PAIRS
from fusewise.codegen.llvm.conv_integer import INTEGER_CONV
from fusewise.codegen.llvm.conv_quads import QUAD_CONV
from fusewise.codegen.llvm.conv_scaled import SCALED
from fusewise.codegen.llvm.depthwise import DEPTHWISE
from fusewise.codegen.llvm.strassen import STRASSEN_CONV
from fusewise.codegen.llvm.winograd import WINOGRAD

__all__ = ["CONV", "CONV_INTEGER"]

CONV: tuple[Kernel[Any, Any], ...] = (WINOGRAD, DEPTHWISE, DIRECT_PAIRS, SCALED, STRASSEN_CONV, DIRECT)
CONV_INTEGER: tuple[Kernel[Any, Any], ...] = (DEPTHWISE, QUAD_CONV, INTEGER_CONV)
