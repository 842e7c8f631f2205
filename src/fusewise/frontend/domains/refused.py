"""Operators of Microsoft's domains that have no row, and why."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["REFUSED", "why_refused"]

_OTHER_MACHINES = "it stands for code of other processors, which no file carries"
_OTHERS_ALONE = "its maker writes it for graphics processors alone"
_PACKED = "its maker runs it on graphics processors alone, over sequences without padding"
_LAYOUT = "its operands are in a layout of graphics processors, which the file does not describe"

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "AttnLSTM": "no tool has written it since 2019",
        "BifurcationDetector": "it decides between steps of a decoder; do so around the model",
        "DecoderAttention": _OTHERS_ALONE,
        "DecoderMaskedSelfAttention": _OTHERS_ALONE,
        "DequantizeBFP": "its block floating point is of one accelerator",
        "DequantizeWithOrder": _LAYOUT,
        "DynamicSparseAttention": _PACKED,
        "DynamicTimeWarping": "it is a shortest path, which follows a model",
        "EPContext": _OTHER_MACHINES,
        "GatedDeltaNet": _OTHERS_ALONE,
        "GemmFloat8": _OTHERS_ALONE,
        "LongformerAttention": _OTHERS_ALONE,
        "MatMulBlockQuantizedFp4Weight": _OTHERS_ALONE,
        "MatMulBlockQuantizedFp8Weight": _OTHERS_ALONE,
        "MatMulNBitsMlp": _OTHERS_ALONE,
        "MatMulNBitsQkv": _OTHERS_ALONE,
        "MaxpoolWithMask": "where its mask ends a window depends on the order of a loop that is not described",
        "NGramHashMapping": "it prepares token ids; do so before the model",
        "PackedAttention": _PACKED,
        "PackedMultiHeadAttention": _PACKED,
        "PackedSparseAttentionIndexer": _PACKED,
        "PagedAttention": _PACKED,
        "QOrderedAttention": _LAYOUT,
        "QOrderedGelu": _LAYOUT,
        "QOrderedLayerNormalization": _LAYOUT,
        "QOrderedLongformerAttention": _LAYOUT,
        "QOrderedMatMul": _LAYOUT,
        "QuantizeBFP": "its block floating point is of one accelerator",
        "QuantizeWithOrder": _LAYOUT,
        "RemovePadding": _PACKED,
        "RestorePadding": _PACKED,
        "Snpe": _OTHER_MACHINES,
        "SparseAttentionIndexer": "which keys it picks of equal ones is not described",
        "SparsePagedAttention": _PACKED,
        "SparseToDenseMatMul": "its operand is a sparse tensor",
        "Tokenizer": "it takes text apart; do so before the model",
        "VarlenCausalConvWithState": _PACKED,
        "VarlenNGramHashMapping": "it prepares token ids; do so before the model",
        "WordConvEmbedding": "no tool has written it since 2019",
    }
)

_REFUSED_DOMAINS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        ("com.microsoft.nchwc", "com.ms.internal.nhwc"),
        "it has the layout of the processor that the file was saved on; save it with ORT_ENABLE_EXTENDED",
    )
)


def why_refused(domain: str, op: str) -> str:
    """Why an operator of Microsoft's domains has no row; empty for what is not known at all."""
    return REFUSED.get(op, "") if domain == "com.microsoft" else _REFUSED_DOMAINS.get(domain, "")
