"""How far answers are from the same model in float64, where those of another float32 runtime are no measure.

Layers have the published widths, networks few of them, weights are random.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fusewise
from fusewise.ops.build import GraphBuilder

TARGET = 1e-5
"""What the answers of a model may differ by, of the largest."""


def error(found: np.ndarray, right: np.ndarray) -> float:
    return float(np.abs(found.astype(np.float64) - right).max() / np.abs(right).max())


def linear(x: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
    """Linear interpolation along the last two axes, where the outputs lie among the inputs."""
    found = x.astype(np.float64)
    for axis, where in zip((2, 3), places, strict=True):
        extent = found.shape[axis]
        where = np.clip(where, 0, extent - 1)
        low = np.minimum(np.floor(where).astype(int), extent - 2)
        share = (where - low).reshape((-1, 1) if axis == 2 else (-1,))
        found = np.take(found, low, axis) * (1 - share) + np.take(found, low + 1, axis) * share
    return found


@pytest.mark.parametrize("mode", ["align_corners", "half_pixel"])
def test_coordinates_of_a_resize_are_not_rounded_to_float32(mode: str) -> None:
    """There a coordinate near 144 has lost 1e-5 of the step between two elements, and the answer as much."""
    extent, size = 144, 252
    b = GraphBuilder()
    x = b.input("x", (1, 8, extent, extent))
    y = b.op(
        "Resize", x, None, None, b.constant([1, 8, size, size]), coordinate_transformation_mode=mode, mode="linear"
    )
    values = np.random.default_rng(0).standard_normal((1, 8, extent, extent), dtype=np.float32)
    k = np.arange(size, dtype=np.float64)
    where = k * (extent - 1) / (size - 1) if mode == "align_corners" else (k + 0.5) * extent / size - 0.5
    (found,) = fusewise.compile(b.finish(y), cache=False).run(None, {"x": values})
    assert error(found, linear(values, (where, where))) <= 5e-7


def depth_anything() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation, Dinov2Config

    sizes = {"hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6, "patch_size": 14, "image_size": 518}
    backbone = Dinov2Config(**sizes, out_indices=[1, 2, 3, 4], reshape_hidden_states=False)
    widths = {"reassemble_hidden_size": 384, "neck_hidden_sizes": [48, 96, 192, 384], "fusion_hidden_size": 64}
    return DepthAnythingForDepthEstimation(DepthAnythingConfig(backbone_config=backbone, **widths)), (
        torch.randn(1, 3, 252, 252),
    )


def clip() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from transformers import CLIPConfig, CLIPModel

    towers = {"text_config": {"num_hidden_layers": 3}, "vision_config": {"num_hidden_layers": 3, "patch_size": 32}}
    words = torch.randint(0, 49000, (2, 77))
    words[:, -1] = 49407
    return CLIPModel(CLIPConfig(**towers)), (words, torch.randn(1, 3, 224, 224))


def outputs(name: str, module: Any) -> Any:
    """The module as a function of tensors; embeddings in place of CLIP's logits, which are differences that nearly vanish."""
    import torch

    class Chosen(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *given: Any) -> Any:
            if name == "depth_anything":
                return self.module(*given).predicted_depth
            found = self.module(input_ids=given[0], pixel_values=given[1])
            return found.text_embeds, found.image_embeds

    return Chosen().eval()


@pytest.mark.slow
@pytest.mark.parametrize("made", [depth_anything, clip], ids=lambda made: made.__name__)
def test_towers_of_products_stay_near_float64(made: Any) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    module, given = made()
    chosen = outputs(made.__name__, module)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = fusewise.from_torch(chosen, given)
        right = chosen.double()(*(x.double() if x.is_floating_point() else x for x in given))
    feeds = {name: x.numpy() for name, x in zip(graph.inputs, given, strict=True)}
    found = fusewise.compile(graph, cache=False).run(None, feeds)
    for mine, truth in zip(found, right if isinstance(right, tuple) else (right,), strict=True):
        assert error(mine, truth.numpy()) <= TARGET / 2
