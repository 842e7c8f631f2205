"""Architectures that are not in the zoo, exported by PyTorch as their users do, here and in other runtimes.

    python -m benchmarks.beyond_zoo [NAME ...] [--vs onnxruntime,openvino] [--threads 2] [--json FILE]

The zoo's models are those that Fusewise is made with. These show how it does on others: architectures of the `transformers`
package, of a published or the default size, some with fewer layers, and modules of PyTorch. Weights are random, nothing is
downloaded. Run it from the root of the repository with the `torch` and `bench` extras and `transformers` installed, on a
machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from benchmarks.zoo import machine, table

from fusewise import api
from fusewise.benchmarking.timing import TimingBudget
from fusewise.errors import FusewiseError

IMAGE, TOKENS, SOUND = (1, 3, 224, 224), (1, 128), (1, 16000)


@dataclass(frozen=True)
class Architecture:
    """A class of `transformers`, what its configuration is given, and the shape of its input: tokens where there are two axes."""

    model: str
    shape: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    part: str = ""

    def made(self) -> tuple[torch.nn.Module, torch.Tensor]:
        """The module, and an input."""
        import transformers

        kind = getattr(transformers, self.model)
        settings = {"num_labels": 1000} if self.model.endswith("ImageClassification") else {}
        module = kind(kind.config_class(**settings, **self.options)).eval()
        chosen = getattr(module, self.part) if self.part else module
        is_text = len(self.shape) == 2 and self.shape != SOUND
        return _First(chosen), torch.randint(0, 1000, self.shape) if is_text else torch.randn(self.shape)


class _First(torch.nn.Module):
    """The first output of a module, without a cache of keys and values."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        config = getattr(module, "config", None)
        if hasattr(config, "use_cache"):
            config.use_cache = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x, return_dict=False)[0]


def _small(hidden: int, heads: int, layers: int, **others: Any) -> dict[str, Any]:
    """A transformer's usual options."""
    sizes = {"hidden_size": hidden, "intermediate_size": 4 * hidden}
    return {**sizes, "num_attention_heads": heads, "num_hidden_layers": layers, **others}


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "swin_tiny": Architecture("SwinForImageClassification", IMAGE),
        "swin_v2_tiny": Architecture(
            "Swinv2ForImageClassification", (1, 3, 256, 256), {"image_size": 256, "window_size": 8}
        ),
        "dino_v2_small": Architecture("Dinov2Model", IMAGE, _small(384, 6, 12, image_size=224)),
        "deit_small": Architecture("DeiTForImageClassification", IMAGE, _small(384, 6, 12)),
        "beit_base": Architecture("BeitForImageClassification", IMAGE),
        "hiera_base": Architecture("HieraForImageClassification", IMAGE),
        "cvt_13": Architecture("CvtForImageClassification", IMAGE),
        "pvt_v2_b0": Architecture("PvtV2ForImageClassification", IMAGE),
        "levit_128": Architecture("LevitForImageClassification", IMAGE),
        "poolformer_s12": Architecture("PoolFormerForImageClassification", IMAGE),
        "focalnet_tiny": Architecture("FocalNetForImageClassification", IMAGE),
        "convnext_v2_tiny": Architecture("ConvNextV2ForImageClassification", IMAGE),
        "big_transfer_r50": Architecture("BitForImageClassification", IMAGE),
        "regnet_y": Architecture(
            "RegNetForImageClassification",
            IMAGE,
            {
                "embedding_size": 32,
                "hidden_sizes": [48, 104, 208, 440],
                "depths": [1, 3, 6, 6],
                "groups_width": 8,
                "layer_type": "y",
            },
        ),
        "segformer_b0": Architecture("SegformerForSemanticSegmentation", (1, 3, 512, 512)),
        "glpn": Architecture("GLPNForDepthEstimation", (1, 3, 256, 256)),
        "mobilenet_v2_stride_8": Architecture(
            "MobileNetV2ForSemanticSegmentation", (1, 3, 513, 513), {"num_labels": 21, "output_stride": 8}
        ),
        "yolos_tiny": Architecture(
            "YolosForObjectDetection", (1, 3, 512, 512), _small(192, 3, 12, image_size=[512, 512])
        ),
        "vitdet_small": Architecture(
            "VitDetModel", IMAGE, {"hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 6}
        ),
        "swin2sr_small": Architecture(
            "Swin2SRForImageSuperResolution",
            (1, 3, 64, 64),
            {
                "image_size": 64,
                "embed_dim": 60,
                "depths": [6, 6],
                "num_heads": [6, 6],
                "upsampler": "pixelshuffledirect",
            },
        ),
        "clip_vision": Architecture("CLIPVisionModel", IMAGE),
        "clip_text": Architecture("CLIPTextModel", (1, 77)),
        "siglip_vision": Architecture("SiglipVisionModel", IMAGE, {"num_hidden_layers": 6}),
        "video_mae_small": Architecture("VideoMAEModel", (1, 16, 3, 224, 224), _small(384, 6, 6)),
        "whisper_tiny": Architecture(
            "WhisperModel",
            (1, 80, 3000),
            {"d_model": 384, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536},
            part="encoder",
        ),
        "wav2vec2_base": Architecture("Wav2Vec2Model", SOUND),
        "wav2vec2_conformer": Architecture("Wav2Vec2ConformerModel", SOUND, _small(512, 8, 4)),
        "sew": Architecture("SEWModel", SOUND, _small(384, 6, 6)),
        "patch_tst": Architecture(
            "PatchTSTModel", (1, 512, 7), {"num_input_channels": 7, "context_length": 512, "patch_length": 16}
        ),
        "albert_base": Architecture("AlbertModel", TOKENS, _small(768, 12, 12)),
        "electra_small": Architecture("ElectraModel", TOKENS),
        "deberta_v2": Architecture(
            "DebertaV2Model",
            TOKENS,
            _small(
                *(768, 12, 6),
                relative_attention=True,
                position_buckets=256,
                norm_rel_ebd="layer_norm",
                share_att_key=True,
                pos_att_type="p2c|c2p",
            ),
        ),
        "mpnet": Architecture("MPNetModel", TOKENS, {"num_hidden_layers": 6}),
        "roformer": Architecture("RoFormerModel", TOKENS, {"num_hidden_layers": 6}),
        "conv_bert": Architecture("ConvBertModel", TOKENS, {"num_hidden_layers": 6}),
        "squeeze_bert": Architecture("SqueezeBertModel", TOKENS, {"embedding_size": 768}),
        "xlnet": Architecture("XLNetModel", TOKENS, {"d_model": 512, "n_layer": 4, "n_head": 8, "d_inner": 2048}),
        "t5_small": Architecture("T5EncoderModel", TOKENS),
        "llama": Architecture(
            "LlamaForCausalLM", (1, 64), _small(768, 12, 12) | {"intermediate_size": 2048, "vocab_size": 32000}
        ),
        "qwen2": Architecture(
            "Qwen2ForCausalLM",
            (1, 64),
            _small(896, 14, 4) | {"intermediate_size": 4864, "num_key_value_heads": 2, "vocab_size": 32000},
        ),
        "gemma": Architecture(
            "GemmaForCausalLM", (1, 64), _small(512, 8, 6, num_key_value_heads=1, head_dim=64, vocab_size=32000)
        ),
        "gpt_neox": Architecture("GPTNeoXForCausalLM", (1, 64), _small(768, 12, 12)),
        "opt_125m": Architecture("OPTForCausalLM", (1, 64)),
        "bloom": Architecture("BloomForCausalLM", (1, 64), {"hidden_size": 512, "n_layer": 6, "vocab_size": 32000}),
        "mamba": Architecture(
            "MambaForCausalLM", (1, 32), {"hidden_size": 768, "num_hidden_layers": 4, "vocab_size": 32000}
        ),
    }
)


class Recurrent(torch.nn.Module):
    """Two layers of an LSTM or GRU in both directions, and a layer behind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = getattr(torch.nn, kind)(256, 512, 2, batch_first=True, bidirectional=True)
        self.last = torch.nn.Linear(1024, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers(x)[0])


class Residual(torch.nn.Module):
    """A block of a diffusion model: group normalisation, Swish and convolution, twice."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.GroupNorm(32, channels) for channels in (inputs, outputs)])
        self.convolutions = torch.nn.ModuleList(
            [torch.nn.Conv2d(channels, outputs, 3, padding=1) for channels in (inputs, outputs)]
        )
        self.skip = torch.nn.Conv2d(inputs, outputs, 1) if inputs != outputs else torch.nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            y = convolution(torch.nn.functional.silu(norm(y)))
        return y + self.skip(x)


class Diffusion(torch.nn.Module):
    """A U-Net as diffusion models have it, without attention and time."""

    def __init__(self, widths: tuple[int, ...] = (128, 256, 384)) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(4, widths[0], 3, padding=1)
        self.down = torch.nn.ModuleList([Residual(a, b) for a, b in zip((widths[0], *widths), widths, strict=False)])
        self.halve = torch.nn.ModuleList([torch.nn.Conv2d(width, width, 3, 2, 1) for width in widths[:-1]])
        self.middle = Residual(widths[-1], widths[-1])
        back = widths[::-1]
        self.up = torch.nn.ModuleList([Residual(2 * a, b) for a, b in zip(back, (*back[1:], back[-1]), strict=True)])
        self.last = torch.nn.Conv2d(widths[0], 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, kept = self.first(x), []
        for k, block in enumerate(self.down):
            x = block(x)
            kept.append(x)
            x = self.halve[k](x) if k < len(self.halve) else x
        x = self.middle(x)
        for k, block in enumerate(self.up):
            x = block(torch.cat([x, kept[-1 - k]], 1))
            x = torch.nn.functional.interpolate(x, scale_factor=2.0) if k < len(self.halve) else x
        return self.last(x)


def made(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """A module of this name with random weights, and an input."""
    torch.manual_seed(0)
    if name in ARCHITECTURES:
        return ARCHITECTURES[name].made()
    return MODULES[name][0].eval(), torch.randn(MODULES[name][1])


MODULES: Mapping[str, tuple[torch.nn.Module, tuple[int, ...]]] = MappingProxyType(
    {
        "lstm": (Recurrent("LSTM"), (1, 100, 256)),
        "gru": (Recurrent("GRU"), (1, 100, 256)),
        "diffusion_unet": (Diffusion(), (1, 4, 32, 32)),
    }
)


def measured(name: str, peers: tuple[str, ...], threads: int | None, budget: TimingBudget) -> dict[str, Any]:
    """The result for one model; an error is a result too."""
    with tempfile.TemporaryDirectory(prefix="fusewise-beyond-") as folder:
        path = Path(folder) / f"{name}.onnx"
        try:
            module, given = made(name)
            torch.onnx.export(module, (given,), path, dynamo=True, external_data=False, verbose=False)
            found = api.bench(path, api.Options(threads=threads), against=peers, budget=budget, weigh=False)
        except (FusewiseError, torch.onnx.OnnxExporterError, AttributeError, TypeError, ValueError) as error:
            return {"model": name, "error": str(error).partition("\n")[0]}
    return {**found, "model": name}


def main() -> None:
    """Measure and print."""
    names = (*ARCHITECTURES, *MODULES)
    parser = argparse.ArgumentParser(description="Measure architectures that are not in the zoo.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names)}; all by default")
    parser.add_argument("--vs", default="onnxruntime,openvino")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(names))
    if unknown:
        parser.error(f"there is no architecture {unknown[0]!r}; there are {', '.join(names)}")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # the exporter's own remarks
    peers = tuple(name for name in given.vs.split(",") if name)
    results: list[dict[str, Any]] = []
    with torch.no_grad():
        for name in given.names or names:
            results.append(measured(name, peers, given.threads, TimingBudget(runs=given.runs, seconds=given.seconds)))
            print(table(results[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
            if given.json:
                given.json.write_text(
                    json.dumps({"machine": machine(given.threads), "results": results}, indent=2) + "\n"
                )
    print(table(results))


if __name__ == "__main__":
    main()
