"""Decoders with random weights in the sizes of known ones, exported by PyTorch.

They take tokens, a mask and the past, and give logits and what is past then, in any batch and of any length. Nothing is
downloaded.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

__all__ = ["DECODERS", "Decoder", "export"]


@dataclass(frozen=True)
class Decoder:
    """A class of the `transformers` package and its sizes; heads of keys and values, and elements of a head, for the caller."""

    kind: str
    layers: int
    heads: int
    head_size: int
    sizes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def _decoder(kind: str, layers: int, hidden: int, inner: int, heads: int, shared: int, **sizes: Any) -> Decoder:
    """`heads` of queries, of which several read one of those that are `shared`."""
    own = {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "max_position_embeddings": 4096,
        **sizes,
    }
    return Decoder(kind, layers, shared, hidden // heads, MappingProxyType(own))


DECODERS: Mapping[str, Decoder] = {
    "tiny": _decoder("Llama", 2, 64, 128, 4, 2, vocab_size=128),
    "qwen2.5-0.5b": _decoder("Qwen2", 24, 896, 4864, 14, 2, vocab_size=151936, tie_word_embeddings=True),
    "llama3.2-1b": _decoder("Llama", 16, 2048, 8192, 32, 8, vocab_size=128256, tie_word_embeddings=True),
}
"""Decoders by name."""


def export(name: str, folder: Path, layers: int | None = None, precision: str = "float32") -> Path:
    """The file of a decoder in `folder`, written unless it is there; with so many `layers`, or its own number. Weights, past and
    logits are of the type `precision`."""
    import torch

    row = DECODERS[name]
    count = row.layers if layers is None else layers
    path = folder / (f"{name}-{count}.onnx" if precision == "float32" else f"{name}-{count}-{precision}.onnx")
    if path.exists():
        return path
    torch.manual_seed(0)
    past = [(f"past_key_values.{n}.{part}", f"present.{n}.{part}") for n in range(count) for part in ("key", "value")]
    dtype = getattr(torch, precision)
    module = _module(row, count).to(dtype)
    shape = (2, row.heads, 5, row.head_size)
    example = (
        torch.randint(0, row.sizes["vocab_size"], (2, 3)),
        torch.ones(2, 8, dtype=torch.int64),
        *(torch.randn(shape, dtype=dtype) for _ in past),
    )
    free = (
        {0: "batch", 1: "sequence"},
        {0: "batch", 1: "past_and_sequence"},
        *({0: "batch", 2: "past"} for _ in past),
    )
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            example,
            str(path),
            input_names=["input_ids", "attention_mask", *(given for given, _ in past)],
            output_names=["logits", *(made for _, made in past)],
            dynamic_shapes=(free,),
            external_data=True,
            opset_version=18,
            verbose=False,
            dynamo=True,
        )
    return path


def _module(row: Decoder, layers: int) -> Any:
    """The decoder as a module of plain arguments: tokens, mask, and key and value of each layer in turn."""
    import torch
    import transformers

    config = getattr(transformers, f"{row.kind}Config")(num_hidden_layers=layers, **row.sizes)
    model = getattr(transformers, f"{row.kind}ForCausalLM")(config).eval()

    class WithPast(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: Any) -> Any:
            tokens, mask, *past = given
            cache = transformers.DynamicCache([(past[2 * n], past[2 * n + 1]) for n in range(layers)])
            result = self.model(input_ids=tokens, attention_mask=mask, past_key_values=cache, use_cache=True)
            present = result.past_key_values.layers
            return (result.logits, *(part for layer in present for part in (layer.keys, layer.values)))

    return WithPast()
