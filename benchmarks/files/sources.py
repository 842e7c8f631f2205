"""Networks of the `transformers` package, small ones with random weights, as PyTorch's exporters write them: what tools start from.

A model of each kind has real proportions (heads of 64, four times as wide between) and few layers. The exporter that traces is the
one whose files the optimiser of ONNX Runtime knows best.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.files.row import VOCABULARY

__all__ = ["HEADS", "HIDDEN", "LAYERS", "SOURCES", "export"]

HIDDEN, HEADS, LAYERS, LENGTH = 256, 4, 2, 64
_SIZES = {
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 4 * HIDDEN,
}
_TEXT = {**_SIZES, "vocab_size": VOCABULARY}
_TWO_SIDED = {
    "d_model": HIDDEN,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 4 * HIDDEN,
    "decoder_ffn_dim": 4 * HIDDEN,
    "vocab_size": VOCABULARY,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_T5 = {
    "vocab_size": VOCABULARY,
    "d_model": HIDDEN,
    "d_kv": 64,
    "d_ff": 4 * HIDDEN,
    "num_layers": LAYERS,
    "num_heads": HEADS,
}


@dataclass(frozen=True)
class Source:
    """A class of `transformers` with its configuration, and inputs by name: `tokens`, `mask`, `states`, or the dimensions of an
    image or sound. `part` of it is exported, or all."""

    kind: str
    options: Mapping[str, Any]
    inputs: Mapping[str, str | tuple[int, ...]]
    part: str = ""

    def module(self) -> Any:
        import torch
        import transformers

        torch.manual_seed(0)
        kind = getattr(transformers, self.kind)
        whole = kind(kind.config_class(**self.options, attn_implementation="eager")).eval()
        for name, parameter in whole.named_parameters():
            if parameter.ndim == 1 and name.endswith("bias"):
                parameter.data.normal_(0.0, 0.1)
        return functools.reduce(getattr, filter(None, self.part.split(".")), whole)


_TOKENS = {"input_ids": "tokens", "attention_mask": "mask"}
_IMAGE = {"pixel_values": (1, 3, 64, 64)}
_LARGER = {"pixel_values": (1, 3, 224, 224)}

SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        "bert": Source("BertModel", _TEXT, {**_TOKENS, "token_type_ids": "types"}),
        "roberta": Source("RobertaForSequenceClassification", _TEXT, _TOKENS),
        "distilbert": Source(
            "DistilBertForSequenceClassification",
            {"vocab_size": VOCABULARY, "dim": HIDDEN, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 4 * HIDDEN},
            _TOKENS,
        ),
        "gpt2": Source(
            "GPT2LMHeadModel",
            {"vocab_size": VOCABULARY, "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "use_cache": False},
            _TOKENS,
        ),
        "t5_encoder": Source("T5EncoderModel", _T5, _TOKENS),
        "t5_decoder": Source(
            "T5ForConditionalGeneration",
            {**_T5, "use_cache": False},
            {
                "decoder_input_ids": "tokens",
                "encoder_attention_mask": "mask",
                "encoder_hidden_states": "states",
            },
        ),
        "bart": Source("BartModel", _TWO_SIDED, {**_TOKENS, "decoder_input_ids": "tokens"}),
        "whisper_encoder": Source(
            "WhisperModel",
            {**_TWO_SIDED, "num_mel_bins": 80, "max_source_positions": 200},
            {"input_features": (1, 80, 400)},
            part="encoder",
        ),
        "vit": Source("ViTForImageClassification", {**_SIZES, "image_size": 64, "patch_size": 8}, _IMAGE),
        "swin": Source(
            "SwinForImageClassification",
            {
                "image_size": 64,
                "embed_dim": 48,
                "depths": [2, 2],
                "num_heads": [3, 6],
                "window_size": 4,
                "patch_size": 4,
            },
            _IMAGE,
        ),
        "clip_text": Source(
            "CLIPTextModel",
            {**_TEXT, "max_position_embeddings": LENGTH, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
            {"input_ids": "tokens"},
        ),
        "clip_vision": Source("CLIPVisionModel", {**_SIZES, "image_size": 64, "patch_size": 8}, _IMAGE),
        "qwen3": Source(
            "Qwen3ForCausalLM",
            {**_TEXT, "num_key_value_heads": 2, "head_dim": 64, "use_cache": False},
            _TOKENS,
        ),
        "resnet": Source(
            "ResNetForImageClassification",
            {"embedding_size": 32, "hidden_sizes": [32, 64, 128], "depths": [2, 2, 2], "layer_type": "basic"},
            _LARGER,
        ),
        "mobilenet_v2": Source(
            "MobileNetV2ForImageClassification", {"depth_multiplier": 0.5, "image_size": 224}, _LARGER
        ),
        "convnext": Source(
            "ConvNextForImageClassification",
            {"hidden_sizes": [32, 64, 128, 256], "depths": [1, 1, 2, 1], "image_size": 64},
            _IMAGE,
        ),
    }
)
"""What the tools are given, by name."""


@functools.cache
def _single() -> Any:
    """The class of a module that takes tensors in a row and gives the first output of another."""
    import torch

    class Single(torch.nn.Module):
        def __init__(self, module: torch.nn.Module, names: Sequence[str]) -> None:
            super().__init__()
            self.module, self.names = module, tuple(names)

        def forward(self, *given: torch.Tensor) -> torch.Tensor:
            from transformers.modeling_outputs import BaseModelOutput

            named: dict[str, Any] = dict(zip(self.names, given, strict=True))
            if "encoder_hidden_states" in named:
                named["encoder_outputs"] = BaseModelOutput(named.pop("encoder_hidden_states"))
                named["attention_mask"] = named.pop("encoder_attention_mask")
            return self.module(**named, return_dict=False)[0]

    return Single


def export(name: str, path: Path, dynamo: bool = False, free: bool = True) -> None:
    """Write the model called `name`; batch and length of a text are `free` dimensions."""
    import torch

    source = SOURCES[name]
    makers: Mapping[str, Callable[[], Any]] = {
        "tokens": lambda: torch.randint(3, VOCABULARY, (1, LENGTH)),
        "mask": lambda: torch.ones(1, LENGTH, dtype=torch.int64),
        "types": lambda: torch.zeros(1, LENGTH, dtype=torch.int64),
        "states": lambda: torch.randn(1, LENGTH, HIDDEN),
    }
    given = {
        port: makers[what]() if isinstance(what, str) else torch.randn(what) for port, what in source.inputs.items()
    }
    axes = {
        port: {0: "batch", 1: "sequence"} if isinstance(what, str) else {0: "batch"}
        for port, what in source.inputs.items()
    }
    ways: dict[str, Any] = {"dynamo": True} if dynamo else {"dynamo": False, "do_constant_folding": True}
    if free and not dynamo:
        ways["dynamic_axes"] = axes
    with torch.no_grad():
        torch.onnx.export(
            _single()(source.module(), tuple(given)),
            tuple(given.values()),
            str(path),
            input_names=list(given),
            output_names=["output"],
            opset_version=18 if dynamo else 17,
            verbose=False,
            **ways,
        )
