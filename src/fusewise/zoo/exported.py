"""How many operators the fifteen models of DNNFusion's evaluation had when its authors exported them.

W. Niu et al., "DNNFusion: Accelerating Deep Neural Networks Execution with Advanced Operator Fusion", PLDI 2021. Our graphs
built with `decomposed=True` come within 15 % of these counts; where the rest is from is said beside each, as far as the
count itself tells. The authors' files are not public, so that is our reading and not theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["EXPORTED", "Export"]


@dataclass(frozen=True, slots=True)
class Export:
    """`operators` published for a model, and how our decomposed form differs from what that seems to count."""

    operators: int
    difference: str


EXPORTED: Mapping[str, Export] = MappingProxyType(
    {
        "efficientnet_b0": Export(
            309, 'ours pads inside the convolution; an exporter of TensorFlow\'s "same" pads apart'
        ),
        "vgg16": Export(
            51, "batch normalisation after every convolution and the adaptive pooling make it exactly this"
        ),
        "mobilenet_v1_ssd": Export(202, "ours leaves out the decoding of boxes, but normalises in the extra layers"),
        "yolo_v4": Export(398, "fits a graph with normalisation folded and Mish as three, but without our decoding"),
        "c3d": Export(27, "none"),
        "s3d": Export(272, "sixteen operators we cannot place, perhaps the head's reshapes"),
        "unet": Export(
            292, "fits padding each map to its skip; the bilinear variant or unfolded constants would add more"
        ),
        "faster_rcnn_resnet50_fpn": Export(
            3640,
            "fits a loop over the classes written out for each; ours does not resize the image, and indexes more simply",
        ),
        "mask_rcnn_resnet50_fpn": Export(
            3999, "as Faster R-CNN; ours gives masks of 28 pixels and does not paste them into the image"
        ),
        "tinybert": Export(366, "twenty-eight we cannot place; the layers are those of BERT"),
        "distilbert": Export(457, "thirteen we cannot place, about the mask"),
        "albert": Export(936, "its code of the time had an Einsum for the output product, and no reshape before it"),
        "bert_base": Export(976, "fourteen we cannot place, outside the layers"),
        "mobilebert": Export(2387, "thirty-five we cannot place, outside the layers"),
        "gpt2": Export(2533, "ours neither takes nor gives keys and values of earlier tokens, nine more in each layer"),
    }
)
