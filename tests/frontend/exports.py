"""Models of the `transformers` package as files that PyTorch's two ONNX exporters write.

Only configurations are used, with random weights; nothing is downloaded. `export(name, dynamo, path, size)` writes one file
and returns example inputs by name. A model comes in three sizes: `small` is a toy with every operator, `shallow` has the
published widths and few layers, `full` is the published network.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

__all__ = ["BUILDERS", "Build", "Size", "enliven", "export"]

Size = Literal["small", "shallow", "full"]


@dataclass(frozen=True)
class Build:
    """A module that takes and returns tensors, and its example inputs by name."""

    module: Any
    inputs: dict[str, Any]


def export(
    name: str, dynamo: bool, path: Path, size: Size = "small", opset: int | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """Write the model called `name` to `path` through `torch.onnx.export`; returns example inputs.

    `opset` None is 18 for the exporter built on `torch.export` (`dynamo`), 17 for the one that traces.
    """
    import torch

    torch.manual_seed(seed)
    build = BUILDERS[name](size)
    module = build.module.eval()
    version = (18 if dynamo else 17) if opset is None else opset
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        enliven(module, tuple(build.inputs.values()))
        torch.onnx.export(
            module,
            tuple(build.inputs.values()),
            str(path),
            input_names=list(build.inputs),
            output_names=["output"],
            dynamo=dynamo,
            opset_version=version,
            verbose=False,
        )
    return {key: value.numpy() for key, value in build.inputs.items()}


def enliven(module: Any, inputs: tuple[Any, ...]) -> None:
    """Weights under which activations keep their size through the layers, so that outputs can be compared.

    Batch statistics are random about the scale that the layer's input has in one run on `inputs`. Those of each channel in
    one small image would fit it so closely that rounding errors grew from layer to layer.
    """
    for name, parameter in module.named_parameters():
        if parameter.ndim > 1:
            fan_in = parameter[0].numel()
            parameter.data.normal_(0.0, (2.0 / fan_in) ** 0.5)
        elif name.endswith("weight"):
            parameter.data.uniform_(0.8, 1.2)
        else:
            parameter.data.normal_(0.0, 0.1)

    def settle(part: Any, operands: tuple[Any, ...]) -> None:
        power = operands[0].square().mean()
        part.running_mean.normal_().mul_(0.1 * power.sqrt())
        part.running_var.uniform_(0.5, 1.5).mul_(power)

    hooks = [part.register_forward_pre_hook(settle) for part in module.modules() if hasattr(part, "running_mean")]
    if hooks:
        module(*inputs)
    for hook in hooks:
        hook.remove()


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


def _text(model: Any, length: int) -> Build:
    """Random tokens, the last eighth of them padding."""
    import torch

    tokens = torch.randint(0, model.config.vocab_size, (1, length))
    mask = (torch.arange(length) < length * 7 // 8).long()[None]
    inputs = {"input_ids": tokens, "attention_mask": mask}
    return Build(_first_output(model, "last_hidden_state", tuple(inputs)), inputs)


def _image(model: Any, height: int, width: int | None = None) -> Build:
    import torch

    pixels = torch.randn(1, 3, height, height if width is None else width)
    return Build(_first_output(model, "logits"), {"pixel_values": pixels})


def _bert(size: Size) -> Build:
    from transformers import BertConfig, BertModel

    sizes: dict[str, dict[str, Any]] = {
        "small": {
            "vocab_size": 200,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
        },
        "shallow": {"vocab_size": 2000, "num_hidden_layers": 2},
        "full": {},
    }
    config = BertConfig(**sizes[size], attn_implementation="eager")
    return _text(BertModel(config), 12 if size == "small" else 128)


def _distilbert(size: Size) -> Build:
    from transformers import DistilBertConfig, DistilBertModel

    sizes: dict[str, dict[str, Any]] = {
        "small": {"vocab_size": 200, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
        "shallow": {"vocab_size": 2000, "n_layers": 2},
        "full": {},
    }
    config = DistilBertConfig(**sizes[size], attn_implementation="eager")
    return _text(DistilBertModel(config), 12 if size == "small" else 128)


def _gpt2(size: Size) -> Build:
    from transformers import GPT2Config, GPT2Model

    sizes: dict[str, dict[str, Any]] = {
        "small": {"vocab_size": 200, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4},
        "shallow": {"vocab_size": 2000, "n_layer": 2},
        "full": {},
    }
    config = GPT2Config(**sizes[size], use_cache=False, attn_implementation="eager")
    return _text(GPT2Model(config), 12 if size == "small" else 128)


def _vit(size: Size) -> Build:
    from transformers import ViTConfig, ViTForImageClassification

    sizes: dict[str, dict[str, Any]] = {
        "small": {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "image_size": 32,
            "patch_size": 8,
            "num_labels": 50,
        },
        "shallow": {"num_hidden_layers": 2, "num_labels": 1000},
        "full": {"num_labels": 1000},
    }
    config = ViTConfig(**sizes[size], attn_implementation="eager")
    return _image(ViTForImageClassification(config), config.image_size)


def _resnet(size: Size) -> Build:
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes: dict[str, dict[str, Any]] = {
        "small": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 2]},
        "shallow": {"depths": [1, 1, 2, 1], "num_labels": 1000},
        "full": {"num_labels": 1000},
    }
    config = ResNetConfig(**sizes[size], layer_type="bottleneck")
    return _image(ResNetForImageClassification(config), 64 if size == "small" else 224)


def _mobilenet_v2(size: Size) -> Build:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    sizes: dict[str, dict[str, Any]] = {
        "small": {"depth_multiplier": 0.35, "image_size": 64},
        "shallow": {"num_labels": 1000},
        "full": {"num_labels": 1000},
    }
    config = MobileNetV2Config(**sizes[size])
    return _image(MobileNetV2ForImageClassification(config), config.image_size)


def _efficientnet(size: Size) -> Build:
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    b0: dict[str, Any] = {"width_coefficient": 1.0, "hidden_dim": 1280, "image_size": 224, "num_labels": 1000}
    sizes: dict[str, dict[str, Any]] = {
        "small": {"width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320, "image_size": 64},
        "shallow": {**b0, "depth_coefficient": 0.3},
        "full": {**b0, "depth_coefficient": 1.0},
    }
    config = EfficientNetConfig(**sizes[size])
    return _image(EfficientNetForImageClassification(config), config.image_size)


def _convnext(size: Size) -> Build:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    sizes: dict[str, dict[str, Any]] = {
        "small": {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 2, 1], "image_size": 64},
        "shallow": {"depths": [1, 1, 2, 1], "num_labels": 1000},
        "full": {"num_labels": 1000},
    }
    config = ConvNextConfig(**sizes[size])
    return _image(ConvNextForImageClassification(config), config.image_size)


def _segformer(size: Size) -> Build:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    sizes: dict[str, dict[str, Any]] = {
        "small": {
            "hidden_sizes": [16, 16, 32, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
            "decoder_hidden_size": 32,
            "num_labels": 7,
        },
        "shallow": {"depths": [1, 1, 1, 1], "num_labels": 150},
        "full": {"num_labels": 150},
    }
    model = SegformerForSemanticSegmentation(SegformerConfig(**sizes[size], attn_implementation="eager"))
    return _image(model, {"small": 64, "shallow": 256, "full": 512}[size])


def _detr(size: Size) -> Build:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbones: dict[str, dict[str, Any]] = {
        "small": {
            "embedding_size": 16,
            "hidden_sizes": [16, 32],
            "depths": [1, 1],
            "layer_type": "basic",
            "out_features": ["stage2"],
        },
        "shallow": {"depths": [1, 1, 1, 1], "out_features": ["stage4"]},
        "full": {"out_features": ["stage4"]},
    }
    sizes: dict[str, dict[str, Any]] = {
        "small": {
            "d_model": 32,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "num_queries": 10,
        },
        "shallow": {"num_labels": 91},
        "full": {"num_labels": 91},
    }
    depth = 6 if size == "full" else 1
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=ResNetConfig(**backbones[size]),
        encoder_layers=depth,
        decoder_layers=depth,
        **sizes[size],
    )
    height, width = {"small": (64, 64), "shallow": (256, 320), "full": (800, 1066)}[size]
    return _image(DetrForObjectDetection(config), height, width)


BUILDERS: dict[str, Callable[[Size], Build]] = {
    "bert": _bert,
    "distilbert": _distilbert,
    "gpt2": _gpt2,
    "vit": _vit,
    "resnet": _resnet,
    "mobilenet_v2": _mobilenet_v2,
    "efficientnet": _efficientnet,
    "convnext": _convnext,
    "segformer": _segformer,
    "detr": _detr,
}
