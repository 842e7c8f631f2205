"""Parts of a diffusion model, as PyTorch modules: the decoder of a variational autoencoder and the network that removes noise.

R. Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion Models", CVPR 2022: residual blocks with group
normalisation and SiLU, attention over pixels, upsampling by nearest neighbours.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import interpolate, scaled_dot_product_attention, silu

__all__ = ["Denoiser", "VaeDecoder"]

_GROUPS = 8


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.GroupNorm(_GROUPS, inputs)
        self.narrow = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.GroupNorm(_GROUPS, outputs)
        self.wide = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Any) -> Any:
        y = self.narrow(silu(self.first(x)))
        return self.wide(silu(self.second(y))) + self.skip(x)


class _Attention(nn.Module):
    """Pixels look at each other, or at `context` [batch, tokens, width]."""

    def __init__(self, channels: int, context: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(_GROUPS, channels)
        self.query, self.out = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.key, self.value = nn.Linear(context, channels), nn.Linear(context, channels)

    def _split(self, x: Any) -> Any:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x: Any, context: Any = None) -> Any:
        batch, channels, height, width = x.shape
        pixels = self.norm(x).view(batch, channels, height * width).transpose(1, 2)
        source = pixels if context is None else context
        y = scaled_dot_product_attention(
            self._split(self.query(pixels)), self._split(self.key(source)), self._split(self.value(source))
        )
        y = self.out(y.transpose(1, 2).reshape(batch, height * width, channels))
        return x + y.transpose(1, 2).view(batch, channels, height, width)


def _doubled(x: Any) -> Any:
    return interpolate(x, scale_factor=2.0, mode="nearest")


class VaeDecoder(nn.Module):
    """Latents [batch, latents, height, width] to images of four times the height and width."""

    def __init__(self, latents: int, widths: tuple[int, int]) -> None:
        super().__init__()
        wide, narrow = widths
        self.enter = nn.Conv2d(latents, wide, 3, padding=1)
        self.before, self.attention, self.after = (
            _Residual(wide, wide),
            _Attention(wide, wide, 1),
            _Residual(wide, wide),
        )
        self.first, self.second = nn.Conv2d(wide, wide, 3, padding=1), nn.Conv2d(narrow, narrow, 3, padding=1)
        self.middle, self.last = _Residual(wide, narrow), _Residual(narrow, narrow)
        self.norm, self.leave = nn.GroupNorm(_GROUPS, narrow), nn.Conv2d(narrow, 3, 3, padding=1)

    def forward(self, latent: Any) -> Any:
        x = self.after(self.attention(self.before(self.enter(latent))))
        x = self.middle(self.first(_doubled(x)))
        x = self.last(self.second(_doubled(x)))
        return self.leave(silu(self.norm(x)))


class Denoiser(nn.Module):
    """A U-Net of two levels on noisy latents, with attention to a text."""

    def __init__(self, latents: int, widths: tuple[int, int], context: int) -> None:
        super().__init__()
        narrow, wide = widths
        self.enter = nn.Conv2d(latents, narrow, 3, padding=1)
        self.down, self.halve = _Residual(narrow, narrow), nn.Conv2d(narrow, narrow, 3, stride=2, padding=1)
        self.middle = _Residual(narrow, wide)
        self.own, self.other = _Attention(wide, wide, 4), _Attention(wide, context, 4)
        self.up, self.last = nn.Conv2d(wide, wide, 3, padding=1), _Residual(wide + narrow, narrow)
        self.leave = nn.Conv2d(narrow, latents, 3, padding=1)

    def forward(self, sample: Any, hidden: Any) -> Any:
        x = self.down(self.enter(sample))
        y = self.other(self.own(self.middle(self.halve(x))), hidden)
        y = interpolate(y, size=x.shape[2:], mode="nearest")
        return self.leave(self.last(torch.cat([self.up(y), x], dim=1)))
