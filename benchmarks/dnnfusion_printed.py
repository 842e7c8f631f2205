"""What DNNFusion's authors print, number by number: the tables of their presentation, and megabytes from table 5 of the paper.

W. Niu et al., "DNNFusion: Accelerating Deep Neural Networks Execution with Advanced Operator Fusion", PLDI 2021. They measured on
a Samsung Galaxy S20 (Snapdragon 865). None: the framework could not run the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["BREAKDOWN", "DEPTHS", "LATENCIES", "LAYERS", "Depth", "Latencies", "Layers"]


class Layers(NamedTuple):
    """A row of the fusion rate table: layers as given, and what each framework leaves; `megabytes` of intermediate results before
    and after DNNFusion."""

    total: int
    mnn: int | None
    tvm: int | None
    tflite: int | None
    pytorch: int | None
    dnnfusion: int
    megabytes: tuple[int, int]


LAYERS: Mapping[str, Layers] = MappingProxyType(
    {
        "efficientnet_b0": Layers(309, 199, 195, 201, 210, 97, (108, 26)),
        "vgg16": Layers(51, 22, 22, 22, 22, 17, (161, 52)),
        "mobilenet_v1_ssd": Layers(202, 138, 124, 138, 148, 71, (110, 37)),
        "yolo_v4": Layers(398, 198, 192, 198, 232, 135, (329, 205)),
        "c3d": Layers(27, 27, 27, None, 27, 16, (195, 90)),
        "s3d": Layers(272, None, None, None, 272, 98, (996, 356)),
        "unet": Layers(292, 241, 232, 234, None, 82, (312, 158)),
        "faster_rcnn_resnet50_fpn": Layers(3640, None, None, None, None, 942, (914, 374)),
        "mask_rcnn_resnet50_fpn": Layers(3999, None, None, None, None, 981, (1524, 543)),
        "tinybert": Layers(366, None, 304, 322, None, 74, (183, 55)),
        "distilbert": Layers(457, None, 416, 431, None, 109, (540, 197)),
        "albert": Layers(936, None, 746, 855, None, 225, (1260, 320)),
        "bert_base": Layers(976, None, 760, 873, None, 216, (915, 196)),
        "mobilebert": Layers(2387, None, 1678, 2128, None, 510, (744, 255)),
        "gpt2": Layers(2533, None, 2047, 2223, None, 254, (1389, 356)),
    }
)

Pair = tuple[int | None, int | None]

_NO: Pair = (None, None)


class Latencies(NamedTuple):
    """A row of the latency table: milliseconds on the phone's CPU and on its GPU. OurB: not fused; OurB+: by fixed patterns."""

    mnn: Pair
    tvm: Pair
    tflite: Pair
    pytorch: Pair
    our_b: Pair
    our_b_plus: Pair
    dnnfusion: Pair


LATENCIES: Mapping[str, Latencies] = MappingProxyType(
    {
        "efficientnet_b0": Latencies((41, 26), (56, 27), (52, 30), (76, None), (54, 35), (38, 24), (16, 10)),
        "vgg16": Latencies((242, 109), (260, 127), (245, 102), (273, None), (251, 121), (231, 97), (171, 65)),
        "mobilenet_v1_ssd": Latencies((67, 43), (74, 52), (87, 68), (92, None), (79, 56), (61, 39), (33, 17)),
        "yolo_v4": Latencies((501, 290), (549, 350), (560, 288), (872, None), (633, 390), (426, 257), (235, 117)),
        "c3d": Latencies((867, None), (1487, None), _NO, (2541, None), (880, 551), (802, 488), (582, 301)),
        "s3d": Latencies(_NO, _NO, _NO, (6612, None), (1409, 972), (1279, 705), (710, 324)),
        "unet": Latencies((181, 106), (210, 120), (302, 117), (271, None), (227, 142), (168, 92), (99, 52)),
        "faster_rcnn_resnet50_fpn": Latencies(_NO, _NO, _NO, _NO, (2325, 3054), (1462, 1974), (862, 531)),
        "mask_rcnn_resnet50_fpn": Latencies(_NO, _NO, _NO, _NO, (5539, 6483), (3907, 4768), (2471, 1680)),
        "tinybert": Latencies(_NO, _NO, (97, None), _NO, (114, 89), (92, 65), (51, 30)),
        "distilbert": Latencies(_NO, _NO, (510, None), _NO, (573, 504), (467, 457), (224, 148)),
        "albert": Latencies(_NO, _NO, (974, None), _NO, (1033, 1178), (923, 973), (386, 312)),
        "bert_base": Latencies(_NO, _NO, (985, None), _NO, (1086, 1204), (948, 1012), (394, 293)),
        "mobilebert": Latencies(_NO, _NO, (342, None), _NO, (448, 563), (326, 397), (170, 102)),
        "gpt2": Latencies(_NO, _NO, (1102, None), _NO, (1350, 1467), (990, 1106), (394, 292)),
    }
)


class Depth(NamedTuple):
    """A row of "deep versus shallow": layers, 10^9 floating-point operations, and 10^9 of them a second."""

    layers: int
    gflop: float
    gflops: int


DEPTHS: Mapping[str, Depth] = MappingProxyType(
    {
        "vgg16": Depth(51, 31.0, 320),
        "yolo_v4": Depth(389, 34.6, 135),
        "distilbert": Depth(457, 35.3, 78),
        "mobilebert": Depth(2387, 17.6, 44),
        "gpt2": Depth(2533, 69.1, 62),
    }
)
"""The speed is that of OurB+ on the GPU, operations by its latency there. YOLO-V4 has 389 layers here, 398 in the other table."""

BREAKDOWN: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"rewriting": (1.2, 1.5), "fusion": (1.6, 2.2), "other": (1.3, 1.8)}
)
"""Factors on the CPU as ranges, from the paper's words: the figure of the four models in the presentation has no numbers, and says
that fusion contributes most."""

BREAKDOWN_MODELS = ("efficientnet_b0", "yolo_v4", "s3d", "gpt2")
"""The paper's, section 5.4."""
