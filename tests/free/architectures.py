"""Architectures of the `transformers` package, exported with free dimensions: batch and sequence, or height and width.

Small configurations with random weights; nothing is downloaded. A row of `ARCHITECTURES` says how the module is made and what
it is given: each input's dimensions are numbers or expressions over symbols, such as `past + sequence`. `export` writes the
file, `feeds` makes inputs for given sizes.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tests.free.modules import MODULES
from tests.frontend.exports import enliven

__all__ = ["ARCHITECTURES", "Architecture", "Given", "export", "feeds", "sizes_of"]

Dimension = int | str
VOCABULARY = 128


@dataclass(frozen=True)
class Given:
    """An input: its dimensions, and what is in it (`floats`: standard normal, `ids`: below `below`, `mask`: ones, then zeros).

    `mask` drops the last eighth of the last axis, and nothing of the last axis of a length below eight.
    """

    name: str
    shape: tuple[Dimension, ...]
    contents: Literal["floats", "ids", "mask"] = "floats"
    below: int = VOCABULARY


@dataclass(frozen=True)
class Architecture:
    """A module by name in `MODULES`, what it is given, and sizes to try.

    `example` has the sizes that it is exported at (at least 2, since exporters take 1 for a number); `tried` has for each
    symbol the sizes that a test takes in turn. Weights are `enlivened`, or those of a new model where rounding errors would grow.
    """

    name: str
    inputs: tuple[Given, ...]
    tried: Mapping[str, tuple[int, ...]]
    example: Mapping[str, int]
    outputs: tuple[str, ...] = ("output",)
    dynamo: bool = True
    enlivened: bool = True

    @property
    def module(self) -> Callable[[], Any]:
        return MODULES[self.name]


BATCH = (1, 2, 3, 1, 5, 7, 1, 4, 2, 1)
SEQUENCE = (1, 7, 16, 13, 2, 31, 64, 8, 3, 37)
TEXT_SIZES = {"batch": BATCH, "sequence": SEQUENCE}
TEXT_EXAMPLE = {"batch": 2, "sequence": 12}
TOKENS = Given("input_ids", ("batch", "sequence"), "ids")
MASK = Given("attention_mask", ("batch", "sequence"), "mask")


def _text(name: str, *more: Given) -> Architecture:
    return Architecture(name, (TOKENS, MASK, *more), TEXT_SIZES, TEXT_EXAMPLE)


def _image(name: str, unit: int, rows: tuple[int, ...], columns: tuple[int, ...]) -> Architecture:
    """Images of free height and width, tried at `unit` times `rows` and `columns`."""
    tried = {
        "batch": BATCH,
        "height": tuple(unit * n for n in rows),
        "width": tuple(unit * n for n in columns),
    }
    given = Given("pixel_values", ("batch", 3, "height", "width"))
    example = {"batch": 2, "height": tried["height"][2], "width": tried["width"][3]}
    return Architecture(name, (given,), tried, example)


def _fixed_image(name: str, side: int, *more: Given) -> Architecture:
    """Images of one size, of which the module takes no other, in a free batch."""
    given = Given("pixel_values", ("batch", 3, side, side))
    return Architecture(name, (given, *more), {"batch": (1, 2, 3, 5, 7, 8, 11, 13, 1, 4)}, {"batch": 2})


def _past(name: str, layers: int, heads: int, size: int) -> Architecture:
    cache = tuple(
        Given(f"past_{kind}_{layer}", ("batch", heads, "past", size))
        for layer in range(layers)
        for kind in ("key", "value")
    )
    mask = Given("attention_mask", ("batch", "past + sequence"), "mask")
    return Architecture(
        name,
        (TOKENS, mask, *cache),
        {"batch": BATCH, "sequence": (1, 1, 5, 1, 2, 1, 7, 1, 3, 1), "past": (0, 1, 2, 13, 7, 31, 0, 16, 3, 37)},
        {"batch": 2, "sequence": 3, "past": 5},
        ("output", *(f"present_{kind}_{layer}" for layer in range(layers) for kind in ("key", "value"))),
    )


_SMALL = (1, 2, 3, 4, 5, 7, 1, 3, 2, 5)
_PRIMES = (32, 37, 61, 64, 33, 127, 41, 96, 47, 75)
_ODD = (32, 41, 37, 96, 127, 33, 67, 48, 64, 101)
_OTHER = (1, 3, 2, 5, 4, 1, 7, 3, 2, 4)
_AUDIO = {"batch": BATCH, "samples": (400, 401, 719, 720, 1009, 1600, 3203, 2000, 401, 4001)}

TRACED = {
    **dict.fromkeys(("albert", "distilbert", "electra", "roberta"), "bert"),
    **dict.fromkeys(("gpt_neox", "mistral", "phi", "qwen2", "qwen3"), "llama"),
    **dict.fromkeys(("beit", "deit"), "vit"),
    "hubert": "wav2vec2",
    "opt": "gpt2",
    "siglip": "clip",
    "t5_encoder": "t5_decoder",
}
"""What the exporter that traces writes, in a tenth of the time, and whose layers are those that the one built on `torch.export`
writes: files of both are compiled."""

ARCHITECTURES: dict[str, Architecture] = {
    row.name: replace(row, dynamo=row.dynamo and row.name not in TRACED)
    for row in (
        _text("bert"),
        _text("gpt2"),
        _image("resnet", 1, _PRIMES, _ODD),
        _image("vit", 8, _SMALL, _OTHER),
        _text("llama"),
        _past("gpt2_past", 2, 4, 16),
        _text("distilbert"),
        _text("roberta"),
        _text("albert"),
        _text("electra"),
        _text("mobilebert"),
        _text("deberta"),
        _text("qwen2"),
        _text("qwen3"),
        _text("gemma2"),
        _text("mistral"),
        _text("phi"),
        _text("opt"),
        _text("bloom"),
        _text("gpt_neox"),
        _past("llama_past", 1, 2, 16),
        _text("t5_encoder"),
        Architecture(
            "t5_decoder",
            (
                Given("decoder_input_ids", ("batch", "sequence"), "ids"),
                Given("hidden", ("batch", "encoded", 64)),
                Given("attention_mask", ("batch", "encoded"), "mask"),
            ),
            {**TEXT_SIZES, "encoded": (3, 1, 7, 16, 2, 13, 5, 1, 31, 8)},
            {**TEXT_EXAMPLE, "encoded": 7},
        ),
        Architecture(
            "bart",
            (TOKENS, MASK, Given("decoder_input_ids", ("batch", "target"), "ids")),
            {**TEXT_SIZES, "target": (3, 1, 7, 16, 2, 13, 5, 1, 31, 8)},
            {**TEXT_EXAMPLE, "target": 7},
        ),
        Architecture(
            "whisper_encoder",
            (Given("input_features", ("batch", 20, 60)),),
            {"batch": (1, 2, 3, 5, 7, 8, 11, 13, 1, 4)},
            {"batch": 2},
        ),
        Architecture(
            "whisper_decoder",
            (Given("decoder_input_ids", ("batch", "sequence"), "ids"), Given("hidden", ("batch", "encoded", 64))),
            {**TEXT_SIZES, "encoded": (3, 1, 7, 16, 2, 13, 5, 1, 31, 8)},
            {**TEXT_EXAMPLE, "encoded": 7},
        ),
        Architecture("wav2vec2", (Given("input_values", ("batch", "samples")),), _AUDIO, {"batch": 2, "samples": 2000}),
        Architecture("hubert", (Given("input_values", ("batch", "samples")),), _AUDIO, {"batch": 2, "samples": 2000}),
        _fixed_image("deit", 32),
        _image("swin", 32, _SMALL, _OTHER),
        _fixed_image("beit", 32),
        _image("convnext", 1, _PRIMES, _ODD),
        _image("segformer", 1, _PRIMES, _ODD),
        _image("detr", 1, _PRIMES, _ODD),
        _fixed_image("sam_encoder", 64),
        Architecture(
            "sam_decoder",
            (
                Given("embeddings", ("batch", 32, 8, 8)),
                Given("points", ("batch", 1, "points", 2)),
                Given("labels", ("batch", 1, "points"), "ids", 2),
            ),
            {"batch": BATCH, "points": (1, 2, 3, 5, 7, 1, 11, 4, 2, 13)},
            {"batch": 2, "points": 3},
        ),
        Architecture(
            "clip",
            (
                Given("input_ids", ("texts", "sequence"), "ids"),
                Given("pixel_values", ("images", 3, 32, 32)),
                Given("attention_mask", ("texts", "sequence"), "mask"),
            ),
            {"texts": BATCH, "images": (1, 1, 2, 7, 3, 1, 5, 2, 1, 4), "sequence": (2, 7, 16, 13, 2, 31, 32, 8, 3, 29)},
            {"texts": 2, "images": 3, "sequence": 12},
        ),
        Architecture(
            "siglip",
            (Given("input_ids", ("texts", "sequence"), "ids"), Given("pixel_values", ("images", 3, 32, 32))),
            {"texts": BATCH, "images": (1, 1, 2, 7, 3, 1, 5, 2, 1, 4), "sequence": (2, 7, 16, 13, 2, 31, 32, 8, 3, 29)},
            {"texts": 2, "images": 3, "sequence": 12},
        ),
        Architecture(
            "mamba",
            (Given("input_ids", ("batch", 12), "ids"),),
            {"batch": (1, 2, 3, 5, 7, 8, 11, 13, 1, 4)},
            {"batch": 2},
            enlivened=False,
        ),
        Architecture(
            "vae_decoder",
            (Given("latent", ("batch", 4, "height", "width")),),
            {"batch": BATCH, "height": _SMALL, "width": _OTHER},
            {"batch": 2, "height": 3, "width": 4},
        ),
        Architecture(
            "unet",
            (Given("sample", ("batch", 4, "height", "width")), Given("hidden", ("batch", "encoded", 32))),
            {
                "batch": BATCH,
                "height": tuple(4 * n for n in _SMALL),
                "width": tuple(4 * n for n in _OTHER),
                "encoded": (3, 1, 7, 16, 2, 13, 5, 1, 31, 8),
            },
            {"batch": 2, "height": 12, "width": 16, "encoded": 7},
        ),
        Architecture("vits", (TOKENS, MASK), TEXT_SIZES, TEXT_EXAMPLE, dynamo=False, enlivened=False),
    )
}


def sizes_of(row: Architecture) -> list[dict[str, int]]:
    """The sizes to try, as many as the longest list of a symbol."""
    count = max(map(len, row.tried.values()))
    return [{name: values[n % len(values)] for name, values in row.tried.items()} for n in range(count)]


def _number(dimension: Dimension, sizes: Mapping[str, int]) -> int:
    if isinstance(dimension, int):
        return dimension
    return sum(sizes[term.strip()] for term in dimension.split("+"))


def feeds(inputs: tuple[Given, ...], sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs by name, for the given sizes."""
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}
    for given in inputs:
        shape = tuple(_number(dimension, sizes) for dimension in given.shape)
        if given.contents == "floats":
            made[given.name] = rng.standard_normal(shape, dtype=np.float32)
        elif given.contents == "ids":
            made[given.name] = rng.integers(0, given.below, shape)
        else:
            kept = shape[-1] - shape[-1] // 8
            made[given.name] = np.broadcast_to((np.arange(shape[-1]) < kept).astype(np.int64), shape).copy()
    return made


def _variadic(module: Any) -> Any:
    import torch

    class Variadic(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *inputs: Any) -> Any:
            return self.module(*inputs)

    return Variadic().eval()


def export(name: str, folder: Path) -> Path:
    """Write the architecture called `name` into `folder`, unless it is there: NAME.onnx, and NAME.json with what it takes."""
    import torch

    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    row = ARCHITECTURES[name]
    torch.manual_seed(0)
    module = row.module().eval()
    example = tuple(torch.from_numpy(array) for array in feeds(row.inputs, row.example).values())
    free = tuple(
        {
            axis: dimension.replace(" + ", "_and_")
            for axis, dimension in enumerate(given.shape)
            if isinstance(dimension, str)
        }
        for given in row.inputs
    )
    names = [given.name for given in row.inputs]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if row.enlivened:
            enliven(module, example)
        how = {"dynamic_shapes": (free,)} if row.dynamo else {"dynamic_axes": dict(zip(names, free, strict=True))}
        torch.onnx.export(
            _variadic(module),
            example,
            str(path),
            input_names=names,
            output_names=list(row.outputs),
            dynamo=row.dynamo,
            external_data=False,
            opset_version=18 if row.dynamo else 17,
            verbose=False,
            **how,
        )
    described = {
        "inputs": [vars(given) for given in row.inputs],
        "example": dict(row.example),
        "tried": sizes_of(row),
    }
    path.with_suffix(".json").write_text(json.dumps(described, indent=1))
    return path


if __name__ == "__main__":
    import sys

    for wanted in sys.argv[2:] or ARCHITECTURES:
        try:
            print(wanted, export(wanted, Path(sys.argv[1])), flush=True)
        except Exception as error:
            print(
                "FAILED",
                wanted,
                type(error).__name__,
                str(error).partition("summary")[2].replace("\n", " ")[:700],
                flush=True,
            )
