"""Which kernels are tried for a task, in order: literal tables by the anchor's family. The last accepts every plain task."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.attention import ATTENTION
from fusewise.codegen.llvm.blend import BLEND
from fusewise.codegen.llvm.channel_norm import CHANNEL_NORM
from fusewise.codegen.llvm.conv_kernels import CONV, CONV_INTEGER
from fusewise.codegen.llvm.gemm_kernels import GEMM, MATMUL
from fusewise.codegen.llvm.linear_attention import LINEAR_ATTENTION
from fusewise.codegen.llvm.nest import ANY_NEST
from fusewise.codegen.llvm.pool import POOL
from fusewise.codegen.llvm.recurrent import RECURRENT
from fusewise.codegen.llvm.roi_pool import ROI_POOL
from fusewise.codegen.llvm.rows import ROWS, SOFTMAX
from fusewise.codegen.llvm.sampled import SAMPLED
from fusewise.codegen.llvm.scan import SCAN
from fusewise.codegen.llvm.scatter import SCATTER
from fusewise.codegen.llvm.top_k import TOP_K
from fusewise.codegen.llvm.transposed_conv import CONV_TRANSPOSE
from fusewise.codegen.llvm.turned import TURNED
from fusewise.lower.task import Task

__all__ = ["KERNELS", "PLAIN_KERNELS", "candidates"]

KERNELS: Mapping[str, tuple[Kernel[Any, Any], ...]] = MappingProxyType(
    {
        "attention": ATTENTION,
        "average_pool": (POOL,),
        "conv": CONV,
        "conv_integer": CONV_INTEGER,
        "conv_transpose": CONV_TRANSPOSE,
        "gemm": GEMM,
        "group_norm": (CHANNEL_NORM, ROWS),
        "instance_norm": (CHANNEL_NORM, ROWS),
        "layer_norm": (ROWS,),
        "log_softmax": (SOFTMAX, ROWS),
        "linear_attention": LINEAR_ATTENTION,
        "lp_norm": (ROWS,),
        "lp_pool": (POOL,),
        "matmul": MATMUL,
        "max_pool": (POOL,),
        "recurrence": RECURRENT,
        "rms_norm": (ROWS,),
        "roi_pool": (ROI_POOL,),
        "sampled": (SAMPLED,),
        "scan": (SCAN,),
        "scatter": (SCATTER,),
        "softmax": (SOFTMAX, ROWS),
        "top_k": (TOP_K,),
    }
)
"""Kernels for each anchor family, best first."""

PLAIN_KERNELS: tuple[Kernel[Any, Any], ...] = (BLEND, TURNED, ANY_NEST)
"""Kernels for tasks without an anchor."""


def candidates(task: Task) -> tuple[Kernel[Any, Any], ...]:
    """The kernels to try for a task, in order."""
    return PLAIN_KERNELS if task.anchor is None else KERNELS.get(task.anchor.family, ())
