"""The table of architectures, and the one function that builds any of them by name.

Published figures are those of the stated source: trained parameters, and multiply-accumulates of one inference at the
stated input. A builder is named, not imported, so that reading the table costs nothing.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from fusewise.errors import UsageError
from fusewise.words import nearest

if TYPE_CHECKING:
    from fusewise.ir.graph import Graph

__all__ = ["MODELS", "ZooModel", "build", "model_named"]

_CLASSIFY, _IMAGE = "image classification", "x float32[1,3,224,224]"
_TEXT = "input_ids, attention_mask, token_type_ids int64[1,128]"
_ROI_ALIGN = 21  # ONNX Runtime has no RoiAlign of opset 22
_VISION = "torchvision's table of weights"
_HUB = "Hugging Face checkpoint "


@dataclass(frozen=True, slots=True)
class ZooModel:
    """One architecture.

    Its builder is the function called `name` in the module `fusewise.zoo.<module>`. `parameters` and `macs` are the
    published figures, None where nobody published one for this form of the model; `source` says where they are from.
    `opset` is the version of ONNX it is written in.
    """

    name: str
    module: str
    family: str
    task: str
    input: str
    parameters: int | None
    macs: float | None
    source: str
    opset: int = 23


MODELS: tuple[ZooModel, ...] = (
    ZooModel("resnet18", "resnet", "resnet", _CLASSIFY, _IMAGE, 11_689_512, 1.814e9, _VISION),
    ZooModel("resnet34", "resnet", "resnet", _CLASSIFY, _IMAGE, 21_797_672, 3.664e9, _VISION),
    ZooModel("resnet50", "resnet", "resnet", _CLASSIFY, _IMAGE, 25_557_032, 4.089e9, _VISION),
    ZooModel("resnet101", "resnet", "resnet", _CLASSIFY, _IMAGE, 44_549_160, 7.801e9, _VISION),
    ZooModel("resnet152", "resnet", "resnet", _CLASSIFY, _IMAGE, 60_192_808, 11.514e9, _VISION),
    ZooModel("resnext50", "resnet", "resnet", _CLASSIFY, _IMAGE, 25_028_904, 4.23e9, _VISION),
    ZooModel("vgg16", "vgg", "vgg", _CLASSIFY, _IMAGE, 138_357_544, 15.47e9, _VISION),
    ZooModel("squeezenet1_1", "squeezenet", "squeezenet", _CLASSIFY, _IMAGE, 1_235_496, 0.349e9, _VISION),
    ZooModel(
        "mobilenet_v1",
        "mobilenet",
        "mobilenet",
        _CLASSIFY,
        _IMAGE,
        4_231_976,
        0.569e9,
        "Keras Applications, trainable; MobileNets paper, table 8",
    ),
    ZooModel("mobilenet_v2", "mobilenet", "mobilenet", _CLASSIFY, _IMAGE, 3_504_872, 0.301e9, _VISION),
    ZooModel("mobilenet_v3_small", "mobilenet", "mobilenet", _CLASSIFY, _IMAGE, 2_542_856, 0.057e9, _VISION),
    ZooModel("mobilenet_v3_large", "mobilenet", "mobilenet", _CLASSIFY, _IMAGE, 5_483_032, 0.217e9, _VISION),
    ZooModel("efficientnet_b0", "efficientnet", "efficientnet", _CLASSIFY, _IMAGE, 5_288_548, 0.386e9, _VISION),
    ZooModel(
        "efficientnet_b3",
        "efficientnet",
        "efficientnet",
        _CLASSIFY,
        "x float32[1,3,300,300]",
        12_233_232,
        1.827e9,
        _VISION,
    ),
    ZooModel(
        "inception_v3",
        "inception",
        "inception",
        _CLASSIFY,
        "x float32[1,3,299,299]",
        27_161_264 - 3_326_696,
        5.713e9,
        _VISION + ", less the auxiliary head",
    ),
    ZooModel("densenet121", "densenet", "densenet", _CLASSIFY, _IMAGE, 7_978_856, 2.834e9, _VISION),
    ZooModel(
        "nasnet_a_mobile",
        "nasnet",
        "nasnet",
        _CLASSIFY,
        _IMAGE,
        5_289_978,
        0.564e9,
        "Cadene/pretrained-models.pytorch; NASNet paper, 564 M multiply-accumulates",
    ),
    ZooModel("convnext_tiny", "convnext", "convnext", _CLASSIFY, _IMAGE, 28_589_128, 4.456e9, _VISION),
    ZooModel(
        "deeplabv3_mobilenet_v3_large",
        "segmentation",
        "segmentation",
        "segmentation",
        "x float32[1,3,513,513]",
        11_029_328 - 3_851,
        None,
        _VISION + ", less the auxiliary head; 10.452e9 at 520 pixels",
    ),
    ZooModel(
        "unet",
        "segmentation",
        "segmentation",
        "segmentation",
        "x float32[1,3,256,256]",
        31_037_698,
        None,
        "milesial/Pytorch-UNet, two classes",
    ),
    ZooModel(
        "yolo_v4",
        "detection",
        "yolo",
        "object detection",
        "x float32[1,3,416,416]",
        64_363_101,
        60.1e9 / 2,
        "Tianxiaomo/pytorch-YOLOv4; AlexeyAB/darknet, 60.1 BFLOPs",
    ),
    ZooModel(
        "mobilenet_v1_ssd",
        "detection",
        "ssd",
        "object detection",
        "x float32[1,3,300,300]",
        6_800_000,
        1.2e9,
        "MobileNets paper, table 13 (two digits)",
    ),
    ZooModel(
        "ssd_resnet50",
        "detection",
        "ssd",
        "object detection",
        "x float32[1,3,300,300]",
        None,
        None,
        "NVIDIA/DeepLearningExamples, SSD300 v1.1 gives no figures",
    ),
    ZooModel(
        "faster_rcnn_resnet50_fpn",
        "rcnn",
        "rcnn",
        "object detection",
        "x float32[1,3,800,800]",
        41_755_286 + 53_126,
        134.38e9,
        _VISION + ", and 53,120 of batch normalisation and 6 for the colours, which it does not count",
        opset=_ROI_ALIGN,
    ),
    ZooModel(
        "mask_rcnn_resnet50_fpn",
        "rcnn",
        "rcnn",
        "instance segmentation",
        "x float32[1,3,800,800]",
        44_401_393 + 53_126,
        None,
        _VISION + ", and 53,120 of batch normalisation and 6 for the colours, which it does not count",
        opset=_ROI_ALIGN,
    ),
    ZooModel(
        "c3d",
        "video",
        "video",
        "video classification",
        "x float32[1,3,16,112,112]",
        78_400_000 + 386 * 4_097,
        38.5e9,
        "MMAction2 (101 classes, here 386 more)",
    ),
    ZooModel(
        "s3d",
        "video",
        "video",
        "video classification",
        "x float32[1,3,16,112,112]",
        8_320_048,
        None,
        _VISION + ", 17.979e9 at 224 pixels",
    ),
    ZooModel(
        "bert_base",
        "bert",
        "transformer",
        "text encoding",
        _TEXT,
        109_482_240,
        22.5e9 / 2,
        _HUB + "bert-base-uncased; MobileBERT paper, 22.5 B FLOPs",
    ),
    ZooModel(
        "distilbert",
        "bert",
        "transformer",
        "text encoding",
        "input_ids, attention_mask int64[1,128]",
        66_362_880,
        11.3e9 / 2,
        _HUB + "distilbert-base-uncased; TinyBERT paper, 11.3 B FLOPs",
    ),
    ZooModel(
        "tinybert",
        "bert",
        "transformer",
        "text encoding",
        _TEXT,
        14_350_248,
        1.2e9 / 2,
        _HUB + "TinyBERT_General_4L_312D; TinyBERT paper, 1.2 B FLOPs",
    ),
    ZooModel("albert", "bert", "transformer", "text encoding", _TEXT, 11_683_584, None, _HUB + "albert-base-v2"),
    ZooModel(
        "mobilebert",
        "mobilebert",
        "transformer",
        "text encoding",
        _TEXT,
        24_581_888,
        5.7e9 / 2,
        _HUB + "mobilebert-uncased, which has no pooler; its paper, 5.7 B FLOPs",
    ),
    ZooModel(
        "gpt2",
        "gpt2",
        "transformer",
        "text generation",
        "input_ids int64[1,128]",
        124_439_808,
        None,
        _HUB + "gpt2, output product tied to the embeddings",
    ),
    ZooModel("vit_b_16", "vit", "transformer", _CLASSIFY, _IMAGE, 86_567_656, 17.564e9, _VISION),
    ZooModel(
        "nasrnn",
        "recurrent",
        "recurrent",
        "sequence modelling",
        "x_0 to x_9, state float32[1,512]",
        None,
        None,
        "TASO's benchmark gives no figures; it unrolls 5 steps, here 10",
    ),
)

_BY_NAME = {row.name: row for row in MODELS}


def model_named(name: str) -> ZooModel:
    """The row called `name`; `UsageError` with the nearest name when there is none."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    hint = nearest(name, _BY_NAME, "'fusewise zoo list' names them all.")
    raise UsageError(f"the zoo has no model called {name!r}; {hint}")


def build(name: str, *, batch: int = 1, seed: int = 0, decomposed: bool = False) -> Graph:
    """The architecture called `name` with random weights that follow from `seed` alone.

    `NAME@STYLE` writes it as the framework `pytorch`, `tensorflow` or `mxnet` exports it (`zoo.styles`), `NAME@exported` as
    `decomposed` does.

    `decomposed` writes the same function as exporters did around 2020: LayerNorm, GELU, HardSwish and Mish with elementary
    operators, and sizes of free axes read and computed at run time (`zoo.extents`); `zoo.exported` says how many operators
    that makes. Shapes are known all the same. `UsageError` for an unknown name or a batch below one.
    """
    name, _, style = name.partition("@")
    row = model_named(name)
    if batch < 1:
        raise UsageError(f"the batch of zoo model {name!r} must be at least 1, not {batch}")
    from fusewise.zoo.net import start
    from fusewise.zoo.styles import AS_EXPORTED, styled

    builder = getattr(importlib.import_module(f"fusewise.zoo.{row.module}"), name)
    as_exported = decomposed or style == AS_EXPORTED
    graph = cast("Graph", builder(start(name, seed=seed, decomposed=as_exported, opset=row.opset), batch))
    return graph if style in ("", AS_EXPORTED) else styled(graph, style)
