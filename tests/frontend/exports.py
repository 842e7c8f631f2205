"""Models of the `transformers` package as files that PyTorch's two ONNX exporters write.

Only configurations are used: small layers, random weights, nothing is downloaded. `export(name, dynamo, path)` writes one
file and returns example inputs by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["BUILDERS", "Build", "export"]


@dataclass(frozen=True)
class Build:
    """A module that takes and returns tensors, and its example inputs by name."""

    module: Any
    inputs: dict[str, Any]


def export(name: str, dynamo: bool, path: Path) -> dict[str, np.ndarray]:
    """Write the model called `name` to `path` through `torch.onnx.export`; returns example inputs."""
    import torch

    torch.manual_seed(0)
    build = BUILDERS[name]()
    module = build.module.eval()
    _lively(module)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(build.inputs.values()),
            str(path),
            input_names=list(build.inputs),
            output_names=["output"],
            dynamo=dynamo,
            opset_version=18 if dynamo else 17,
            verbose=False,
        )
    return {key: value.numpy() for key, value in build.inputs.items()}


def _lively(module: Any) -> None:
    """Weights under which activations keep their size through the layers, so that outputs can be compared."""
    import torch

    for name, parameter in module.named_parameters():
        if parameter.ndim > 1:
            fan_in = parameter[0].numel()
            parameter.data.normal_(0.0, (2.0 / fan_in) ** 0.5)
        elif name.endswith("weight"):
            parameter.data.uniform_(0.8, 1.2)
        else:
            parameter.data.normal_(0.0, 0.1)
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.normal_(0.0, 0.1)
            part.running_var.uniform_(0.5, 1.5)


def _first_output(model: Any, pick: str, names: tuple[str, ...] = ("pixel_values",)) -> Any:
    """The model as a function of positional tensors, called `names`, that returns one of its outputs."""
    import torch

    class Single(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            return self.model(**dict(zip(names, inputs, strict=True)), return_dict=True)[pick]

    return Single()


def _tokens(vocabulary: int, *shape: int) -> Any:
    import torch

    return torch.randint(0, vocabulary, shape)


def _image(*shape: int) -> Any:
    import torch

    return torch.randn(*shape)


def _bert() -> Build:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=200,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        attn_implementation="eager",
    )
    inputs = {"input_ids": _tokens(200, 1, 12), "attention_mask": _tokens(1, 1, 12) + 1}
    return Build(_first_output(BertModel(config), "last_hidden_state", tuple(inputs)), inputs)


def _gpt2() -> Build:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(
        vocab_size=200, n_positions=64, n_embd=32, n_layer=2, n_head=4, use_cache=False, attn_implementation="eager"
    )
    inputs = {"input_ids": _tokens(200, 1, 12), "attention_mask": _tokens(1, 1, 12) + 1}
    return Build(_first_output(GPT2Model(config), "last_hidden_state", tuple(inputs)), inputs)


def _vit() -> Build:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        attn_implementation="eager",
    )
    return Build(_first_output(ViTForImageClassification(config), "logits"), {"pixel_values": _image(1, 3, 32, 32)})


def _resnet() -> Build:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], layer_type="bottleneck")
    return Build(_first_output(ResNetForImageClassification(config), "logits"), {"pixel_values": _image(1, 3, 64, 64)})


def _mobilenet_v2() -> Build:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(depth_multiplier=0.35, image_size=64)
    model = MobileNetV2ForImageClassification(config)
    return Build(_first_output(model, "logits"), {"pixel_values": _image(1, 3, 64, 64)})


def _efficientnet() -> Build:
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    config = EfficientNetConfig(width_coefficient=0.25, depth_coefficient=0.3, hidden_dim=320, image_size=64)
    model = EfficientNetForImageClassification(config)
    return Build(_first_output(model, "logits"), {"pixel_values": _image(1, 3, 64, 64)})


def _convnext() -> Build:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 2, 1], image_size=64)
    model = ConvNextForImageClassification(config)
    return Build(_first_output(model, "logits"), {"pixel_values": _image(1, 3, 64, 64)})


def _segformer() -> Build:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        hidden_sizes=[16, 16, 32, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=32,
        num_labels=7,
    )
    model = SegformerForSemanticSegmentation(config)
    return Build(_first_output(model, "logits"), {"pixel_values": _image(1, 3, 64, 64)})


def _detr() -> Build:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_queries=10,
    )
    return Build(_first_output(DetrForObjectDetection(config), "logits"), {"pixel_values": _image(1, 3, 64, 64)})


BUILDERS: dict[str, Callable[[], Build]] = {
    "bert": _bert,
    "gpt2": _gpt2,
    "vit": _vit,
    "resnet": _resnet,
    "mobilenet_v2": _mobilenet_v2,
    "efficientnet": _efficientnet,
    "convnext": _convnext,
    "segformer": _segformer,
    "detr": _detr,
}
