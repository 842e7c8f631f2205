"""Files of ONNX Runtime's optimiser of transformers, and those that the runtime saves itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.files.row import File
from benchmarks.files.sources import HEADS, HIDDEN, export

__all__ = ["OPTIMIZED", "SAVED", "optimize"]

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "bert": "bert",
        "roberta": "bert",
        "distilbert": "bert",
        "gpt2": "gpt2",
        "t5_encoder": "t5",
        "t5_decoder": "t5",
        "bart": "bart",
        "whisper_encoder": "bart",
        "vit": "vit",
        "swin": "swin",
        "clip_text": "clip",
        "clip_vision": "vit",
        "qwen3": "qwen3",
    }
)
"""What the optimiser calls each of the sources."""


def optimize(source: str, folder: Path, half: bool = False, **settings: Any) -> None:
    """The source as the optimiser writes it; `half` in float16. `settings` are fields of its `FusionOptions`."""
    from onnxruntime.transformers.fusion_options import AttentionMaskFormat, AttentionOpType, FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    plain = folder / "plain.onnx"
    export(source, plain)
    chosen = FusionOptions(KINDS[source])
    for name, value in settings.items():
        if name == "attention_op_type":
            chosen.set_attention_op_type(AttentionOpType(value))
        elif name == "raw_mask":
            chosen.attention_mask_format = AttentionMaskFormat.AttentionMask
        else:
            setattr(chosen, name, value)
    made = optimize_model(str(plain), KINDS[source], num_heads=HEADS, hidden_size=HIDDEN, optimization_options=chosen)
    if half:
        made.convert_float_to_float16(keep_io_types=False)
    made.save_model_to_file(str(folder / "model.onnx"))
    plain.unlink()


def _saved(source: str, level: str, folder: Path) -> None:
    """The source as a session of the runtime saves it behind its own optimisations."""
    import onnxruntime

    plain = folder / "plain.onnx"
    export(source, plain)
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level.upper()}")
    settings.optimized_model_filepath = str(folder / "model.onnx")
    onnxruntime.InferenceSession(str(plain), settings, providers=["CPUExecutionProvider"])
    plain.unlink()


def _row(source: str, ending: str, half: bool = False, **settings: Any) -> File:
    make = partial(_optimized, source, half, settings)
    return File(f"{source}_{ending}", "optimizer", make, tolerance=5e-3 if half else 1e-5)


def _optimized(source: str, half: bool, settings: Mapping[str, Any], folder: Path) -> None:
    optimize(source, folder, half, **settings)


OPTIMIZED: tuple[File, ...] = (
    *(_row(source, "optimized") for source in KINDS),
    *(_row(source, "optimized_half", half=True) for source in ("bert", "gpt2", "vit", "t5_encoder", "whisper_encoder")),
    _row("bert", "multi_head", use_multi_head_attention=True),
    _row("bert", "raw_mask", raw_mask=True),
    _row("gpt2", "approximate_gelu", enable_gelu_approximation=True),
    _row("whisper_encoder", "multi_head", use_multi_head_attention=True),
    _row("roberta", "no_bias_fusion", enable_bias_gelu=False, enable_bias_skip_layer_norm=False),
)
SAVED: tuple[File, ...] = tuple(
    File(f"{source}_saved_{level}", "saved", partial(_saved, source, level))
    for source, level in (
        ("bert", "basic"),
        ("bert", "extended"),
        ("gpt2", "extended"),
        ("vit", "basic"),
        ("vit", "extended"),
        ("swin", "extended"),
        ("clip_text", "extended"),
        ("qwen3", "extended"),
        ("resnet", "basic"),
        ("resnet", "extended"),
        ("mobilenet_v2", "extended"),
        ("convnext", "extended"),
    )
)
