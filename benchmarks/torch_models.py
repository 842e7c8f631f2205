"""Ten architectures of `transformers` and `timm` with random weights, as their libraries build them, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

__all__ = ["MODELS", "built", "import_timm"]

_OPERATORS = ("nms", "qnms")
"""Operators of torchvision that its Python part wants to describe where it is imported."""


@cache
def _declared() -> Any:
    """Schemas of torchvision's operators, which stay for as long as somebody has this."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in _OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def import_timm() -> Any:
    """The package `timm`. Where torchvision's compiled part does not load, beside a PyTorch of another build, its operators are
    declared first: the models here use none of them."""
    try:
        import timm
    except RuntimeError:  # torchvision describes operators that there are not
        import sys

        for name in [name for name in sys.modules if name.partition(".")[0] in ("timm", "torchvision")]:
            del sys.modules[name]
        _declared()
        import timm
    return timm


def _vision(name: str, size: int = 224) -> tuple[Any, dict[str, Any]]:
    import torch

    return import_timm().create_model(name), {"x": torch.randn(1, 3, size, size)}


def _tokens(name: str, config: str, **settings: Any) -> tuple[Any, dict[str, Any]]:
    import torch

    import_timm()  # transformers imports torchvision, too
    import transformers

    model = getattr(transformers, name)(getattr(transformers, config)(**settings))
    return model, {"input_ids": torch.randint(0, 1000, (1, 128))}


def _decoder(name: str, config: str, **settings: Any) -> tuple[Any, dict[str, Any]]:
    """A decoder that reads a prompt and keeps nothing."""
    model, inputs = _tokens(name, config, use_cache=False, **settings)
    return model, inputs


MODELS: Mapping[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "resnet50": partial(_vision, "resnet50"),
    "mobilenetv3_large": partial(_vision, "mobilenetv3_large_100"),
    "efficientnet_b0": partial(_vision, "efficientnet_b0"),
    "convnext_tiny": partial(_vision, "convnext_tiny"),
    "vit_small": partial(_vision, "vit_small_patch16_224"),
    "swin_tiny": partial(_vision, "swin_tiny_patch4_window7_224"),
    "bert_base": partial(_tokens, "BertModel", "BertConfig"),
    "distilbert": partial(_tokens, "DistilBertModel", "DistilBertConfig"),
    "gpt2": partial(_decoder, "GPT2Model", "GPT2Config"),
    "llama_160m": partial(
        _decoder,
        "LlamaForCausalLM",
        "LlamaConfig",
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
    ),
}
"""By name, a module and its inputs: vision from `timm` at 224 by 224, the others from `transformers` with 128 tokens."""


def built(name: str) -> tuple[Any, dict[str, Any]]:
    """A module of `MODELS` for inference, and its inputs, the same whenever it is asked for."""
    import torch

    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    return module.eval(), inputs
