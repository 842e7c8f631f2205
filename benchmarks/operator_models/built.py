"""Models that are built here from modules of PyTorch: what needs positions from data, or a long recurrence."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.operator_models.build import Build
from torch.nn import functional

__all__ = ["keypoints", "long_lstm", "raft"]


def _stage(inputs: int, outputs: int, stride: int = 1) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(inputs, outputs, 3, stride, 1), torch.nn.BatchNorm2d(outputs), torch.nn.ReLU()
    )


class _Suppressed(torch.autograd.Function):
    """NonMaxSuppression of ONNX: [kept, 3] of image, class and box. Only the export matters: eagerly the first box is kept."""

    @staticmethod
    def forward(context: Any, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.zeros(1, 3, dtype=torch.long)

    @staticmethod
    def symbolic(graph: Any, boxes: Any, scores: Any) -> Any:
        limits = [graph.op("Constant", value_t=torch.tensor([value])) for value in (100, 0.5, 0.1)]
        return graph.op("NonMaxSuppression", boxes, scores, *limits)


class _Keypoints(torch.nn.Module):
    """Boxes with scores and 17 keypoints each: the best by TopK, overlaps by NonMaxSuppression, keypoints gathered."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            _stage(3, 32, 2), _stage(32, 64, 2), _stage(64, 64), _stage(64, 128, 2), _stage(128, 128)
        )
        self.head = torch.nn.Conv2d(128, 1 + 4 + 17 * 3, 1)

    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        found = self.head(self.body(pixels)).flatten(2).transpose(1, 2)[0]
        scores, places = found[:, 0].sigmoid().topk(300)
        boxes, points = found[places, 1:5], found[places, 5:]
        corner = boxes[:, :2] * 8 + torch.stack([places % 40, places // 40], 1) * 8
        boxes = torch.cat([corner, corner + boxes[:, 2:].sigmoid() * 64], 1)
        kept = _Suppressed.apply(boxes[None], scores[None, None])[:, 2]
        return boxes[kept], scores[kept], points[kept].view(-1, 17, 3)


def keypoints() -> Build:
    return Build(_Keypoints(), {"pixels": torch.randn(1, 3, 320, 320)}, ("boxes", "scores", "points"), lively=True)


class _Raft(torch.nn.Module):
    """Optical flow after RAFT: all pairs' correlation in a pyramid, looked up around the flow by GridSample, a few updates."""

    def __init__(self, levels: int = 3, radius: int = 3, updates: int = 4) -> None:
        super().__init__()
        self.levels, self.radius, self.updates = levels, radius, updates
        self.features = torch.nn.Sequential(
            _stage(3, 32, 2), _stage(32, 64, 2), _stage(64, 96, 2), torch.nn.Conv2d(96, 128, 1)
        )
        self.update = torch.nn.Sequential(
            _stage(levels * (2 * radius + 1) ** 2 + 2, 96), _stage(96, 64), torch.nn.Conv2d(64, 2, 3, 1, 1)
        )

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        a, b = self.features(first), self.features(second)
        _, channels, height, width = a.shape
        scores = torch.einsum("bcn,bcm->bnm", a.flatten(2), b.flatten(2)) / channels**0.5
        level = scores.reshape(height * width, 1, height, width)
        pyramid = [level]
        for _ in range(self.levels - 1):
            level = functional.avg_pool2d(level, 2)
            pyramid.append(level)
        step = torch.arange(-self.radius, self.radius + 1, dtype=torch.float32)
        window = torch.stack(torch.meshgrid(step, step, indexing="ij"), -1)[None]
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        start = torch.stack([columns, rows], 0)[None].float()
        places = start
        for _ in range(self.updates):
            found = []
            for number, level in enumerate(pyramid):
                centre = places.permute(0, 2, 3, 1).reshape(height * width, 1, 1, 2) / 2**number
                extent = torch.tensor([level.shape[3] - 1, level.shape[2] - 1], dtype=torch.float32)
                grid = 2 * (centre + window) / extent - 1
                found.append(functional.grid_sample(level, grid, align_corners=True).reshape(1, height, width, -1))
            looked = torch.cat(found, -1).permute(0, 3, 1, 2)
            places = places + self.update(torch.cat([looked, places - start], 1))
        return functional.interpolate(8 * (places - start), scale_factor=8.0, mode="bilinear", align_corners=True)


def raft() -> Build:
    return Build(_Raft(), {name: torch.randn(1, 3, 192, 256) for name in ("first", "second")}, ("flow",), lively=True)


class _Lstm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = torch.nn.LSTM(128, 128, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.cells(steps)[0]
        return found


def long_lstm() -> Build:
    """Two layers in both directions over 1,000 steps."""
    return Build(_Lstm(), {"steps": torch.randn(1, 1000, 128)}, ("hidden",))
