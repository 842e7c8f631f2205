"""Whole layers whose weights are 8-bit numbers: embeddings and recurrences."""

from __future__ import annotations

from fusewise.frontend.domains.microsoft.quantisers import dequantized
from fusewise.frontend.domains.row import DomainCall, DomainRow, Written, integer, real, reals, text, texts
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.dtypes import INT32

__all__ = ["QUANTIZED_LAYERS"]


def _embed_layer_normalization(g: DomainWriter, call: DomainCall) -> Written:
    """The sum of rows of two or three tables, which are dequantised one by one, and how many numbers of the mask are 1."""
    ids, segments, mask = call["input_ids"], call.get("segment_ids"), call.get("mask")

    def floats(name: str, of: str, x: DomainValue | None = None) -> DomainValue:
        return dequantized(g, call[name] if x is None else x, call[f"{of}_scale"], call[f"{of}_zero_point"])

    def rows(name: str, of: str, places: DomainValue) -> DomainValue:
        return floats(name, of, g.Gather(call[name], places, axis=0))

    positions = g.slice(call["position_embedding_quant"], 0, 0, g.dim(ids, 1))
    total = rows("word_embedding_quant", "word_embedding", ids) + floats("", "position_embedding", positions)
    if segments is not None:
        total = total + rows("segment_embedding", "segment_embedding", segments)
    scale, shift = floats("gamma_quant", "gamma"), floats("beta_quant", "beta")
    y = g.LayerNormalization(total, scale, shift, axis=-1, epsilon=call.attribute("epsilon"))
    if mask is None:
        return y, g.Expand(g.number(0, INT32), [g.dim(ids, 0)])
    return y, g.ReduceSum(g.cast(g.Equal(mask, 1), INT32), [1], keepdims=0)


def _dynamic_lstm(g: DomainWriter, call: DomainCall) -> Written:
    """The operator of floats, on weights that are dequantised and on a sequence that is rounded as one tensor; states are not, as
    others than ONNX Runtime's parts of a batch would round them by other scales."""

    def weights(name: str) -> DomainValue:
        """[directions, to, from] of numbers [directions, from, to]."""
        x, scale, zero = call[name], call[f"{name}_scale"], call[f"{name}_zero_point"]
        axes = [1, 2] if scale.rank == 1 else [1]
        centred = g.cast(x, scale.dtype) - g.cast(g.Unsqueeze(zero, axes), scale.dtype)
        return g.permute(centred * g.Unsqueeze(scale, axes), [0, 2, 1])

    x = g.DequantizeLinear(*g.several("DynamicQuantizeLinear", 3, call["X"]))
    given = {a.name: call.attribute(a.name) for a in call.row.attributes}
    rest = [call.get(name) for name in ("B", "sequence_lens", "initial_h", "initial_c", "P")]
    return g.several("LSTM", 3, x, weights("W"), weights("R"), *rest, **given)


QUANTIZED_LAYERS: tuple[DomainRow, ...] = (
    DomainRow(
        "QEmbedLayerNormalization",
        _embed_layer_normalization,
        operands=(
            *("input_ids", "segment_ids?", "word_embedding_quant", "position_embedding_quant", "segment_embedding?"),
            *("gamma_quant", "beta_quant", "mask?", "word_embedding_scale", "position_embedding_scale"),
            *("segment_embedding_scale?", "gamma_scale", "beta_scale", "word_embedding_zero_point"),
            *("position_embedding_zero_point", "segment_embedding_zero_point?", "gamma_zero_point", "beta_zero_point"),
        ),
        attributes=(real("epsilon", 1e-12),),
        outputs=("layernorm_out", "mask_index_out"),
        shapes="B S, B S, V H, P H, T H, H, H, B S, one, one, one, one, one, one, one, one, one, one",
    ),
    DomainRow(
        "DynamicQuantizeLSTM",
        _dynamic_lstm,
        operands=(
            *("X", "W", "R", "B?", "sequence_lens?", "initial_h?", "initial_c?", "P?"),
            *("W_scale", "W_zero_point", "R_scale", "R_zero_point"),
        ),
        attributes=(
            reals("activation_alpha", None),
            reals("activation_beta", None),
            texts("activations", None),
            real("clip", None),
            text("direction", "forward"),
            integer("hidden_size", None),
            integer("input_forget", 0),
        ),
        outputs=("Y?", "Y_h?", "Y_c?"),
        shapes=("S B I, D I 4*H, D H 4*H, D 8*H, B, D B H, D B H, D 3*H, D | D 4*H, D | D 4*H, D | D 4*H, D | D 4*H"),
    ),
)
