"""The names of decisions that may be refused: passes, rules, kernels, layouts and what else asks the trace first."""

from __future__ import annotations

from collections.abc import Iterable

from fusewise.words import no_such

__all__ = ["LOCAL_RULES", "OTHERS", "names_of_decisions", "require_known"]

LOCAL_RULES = (
    "attention-with-past",
    "batch-norm-into-consumer",
    "batch-norm-into-producer",
    "batch-norm-to-affine",
    "before-split",
    "bound-to-clip",
    "cache-of-one-length",
    "clip-to-relu",
    "concat-of-concat",
    "concat-of-constants",
    "concat-of-split",
    "drop-cast",
    "drop-constant-where",
    "drop-double-negation",
    "drop-dropout",
    "drop-empty-pad",
    "drop-identity",
    "drop-neutral",
    "drop-padded-taps",
    "drop-reduction-of-one",
    "drop-repeated",
    "drop-same-resize",
    "drop-same-shape",
    "drop-single-operand",
    "drop-single-part",
    "drop-whole-slice",
    "drop-window-of-one",
    "drop-zero-term",
    "expand-undefined",
    "gather-of-all",
    "gather-of-concat",
    "gather-of-one",
    "halved_weights",
    "halves-in-float32",
    "integer_convolution",
    "integer_product",
    "integer_scale",
    "integer_sum_scale",
    "known-branch",
    "lone-norm-into-convolution",
    "merge-bounds",
    "merge-reshapes",
    "merge-transposes",
    "narrow_attention",
    "norm-takes-bias",
    "norm-takes-scale",
    "norm-to-primitives",
    "own_weights",
    "padding-into-pool",
    "pool_by_rows",
    "product-of-reshaped",
    "reassociate",
    "recognise-attention",
    "recognise-gelu",
    "recognise-group-norm",
    "recognise-hard-sigmoid",
    "recognise-hard-swish",
    "recognise-layer-norm",
    "recognise-mish",
    "recognise-rms-norm",
    "recognise-scaled-norm",
    "scale_by_column",
    "scale_samples",
    "share-heads",
    "short_weights",
    "slice-of-concat",
    "split-of-concat",
    "split_wide",
    "steady-states",
    "sum-to-add",
    "transpose-behind-concat",
    "transpose-behind-elementwise",
    "transpose-behind-pad",
    "transpose-behind-reduction",
    "unroll_recurrences",
)
"""Rules of single passes. A literal, since passes keep them to themselves; a test compares it with them."""

OTHERS = ("fuse", "ask", "pattern", "overwrite", "samples", "strips")
"""Edges by the table of mapping types, groups of a fixed pattern, and decisions between steps."""


def names_of_decisions() -> tuple[str, ...]:
    """Every name that `Options.disable` may have in front of `@`, in order of the alphabet."""
    from fusewise.codegen.candidates import KERNELS, PLAIN_KERNELS
    from fusewise.codegen.gpu.choose import FAMILIES as GPU_FAMILIES
    from fusewise.lower.whole import FAMILIES
    from fusewise.passes.decompositions.table import NATIVE, SPECIAL
    from fusewise.passes.published import step_names
    from fusewise.rewrite.rules.table import ALGEBRA, SUBSTITUTIONS
    from fusewise.trace import INTER_BLOCK, INTRA_BLOCK

    kernels = {kernel.name for kernels in (*KERNELS.values(), PLAIN_KERNELS) for kernel in kernels}
    kernels |= {family.name for family in GPU_FAMILIES}
    rows = {
        f"{stem}-{row.op.lower()}" for stem, table in (("canonical", SPECIAL), ("write-out", NATIVE)) for row in table
    }
    rules = {rule.name for rule in (*ALGEBRA, *SUBSTITUTIONS)}

    return tuple(
        sorted(
            {*step_names(), *rules, *kernels, *rows, *FAMILIES, *LOCAL_RULES, *OTHERS, INTRA_BLOCK, INTER_BLOCK},
            key=str.lower,
        )
    )


def require_known(names: Iterable[str], others: Iterable[str] = ()) -> None:
    """`UsageError` for the first of the names, written `name` or `name@node`, that no decision has; `others` are known, too."""
    asked = [name.partition("@")[0] for name in names]
    if asked:
        known = (*names_of_decisions(), *others)
        for name in asked:
            if name not in known:
                raise no_such("pass, rule or kernel", name, known, "'fusewise passes --list' names the passes")
