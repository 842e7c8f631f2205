"""Decoders with a cache: as the model builder of onnxruntime-genai writes them, and as merged decoders of optimum are made.

Optimum itself does not go with a current `transformers`; a merged decoder is made by its recipe, from two exports: an If on
`use_cache_branch` whose branches are the decoder without and with past keys and values, their weights in common.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.files.row import VOCABULARY, File
from benchmarks.files.sources import HEADS, HIDDEN, LAYERS

__all__ = ["BUILT", "MERGED"]

_DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 3 * HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
ARCHITECTURES: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "llama": ("LlamaForCausalLM", {}),
        "qwen2": ("Qwen2ForCausalLM", {}),
        "qwen3": ("Qwen3ForCausalLM", {}),
        "phi3": ("Phi3ForCausalLM", {"original_max_position_embeddings": 512, "sliding_window": 256}),
        "gemma": ("GemmaForCausalLM", {"num_key_value_heads": 1}),
        "gemma2": ("Gemma2ForCausalLM", {"sliding_window": 4096}),
        "mistral": ("MistralForCausalLM", {"sliding_window": 256}),
        "granite": ("GraniteForCausalLM", {}),
        "smollm3": ("SmolLM3ForCausalLM", {}),
    }
)


def _checkpoint(name: str, folder: Path) -> None:
    """Random weights with a tokenizer of a few words, as `save_pretrained` writes them."""
    import tokenizers
    import torch
    import transformers

    kind, options = ARCHITECTURES[name]
    torch.manual_seed(0)
    model_class = getattr(transformers, kind)
    model = model_class(model_class.config_class(**{**_DECODER, **options}))
    model.save_pretrained(folder)
    words = {word: number for number, word in enumerate(("<pad>", "<s>", "</s>", "<unk>", "a", "b"))}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, **special).save_pretrained(folder)


def _built(name: str, precision: str, options: tuple[str, ...], folder: Path) -> None:
    import shutil

    from onnxruntime_genai.models import builder

    checkpoint, cache = folder / "checkpoint", folder / "cache"
    _checkpoint(name, checkpoint)
    provider = "cuda" if precision in ("fp16", "bf16") else "cpu"
    given = (None, str(checkpoint), str(folder), precision, provider, str(cache))
    builder.create_model(*given, **builder.parse_extra_options(*given, list(options)))
    shutil.rmtree(checkpoint)
    shutil.rmtree(cache, ignore_errors=True)


_STEP = {"sequence_length": 1, "past_sequence_length": 64, "total_sequence_length": 65}
_PREFILL = {"sequence_length": 64, "past_sequence_length": 0, "total_sequence_length": 64}
_TOLERANCES = {"fp32": 1e-5, "fp16": 5e-3, "int4": 2e-2, "int8": 2e-2}


def _row(name: str, precision: str, *options: str, ending: str = "", sizes: Mapping[str, int] = _STEP) -> File:
    make = partial(_built, name, precision, options)
    return File(f"{name}_genai_{precision}{ending}", "genai", make, sizes, {}, _TOLERANCES[precision])


BUILT: tuple[File, ...] = (
    _row("llama", "fp32"),
    _row("llama", "fp32", ending="_prefill", sizes=_PREFILL),
    _row("llama", "fp16"),
    _row("llama", "int4"),
    _row("llama", "int4", "int4_accuracy_level=1", "int4_block_size=128", ending="_floats"),
    _row("qwen2", "fp32"),
    _row("qwen2", "int4", "int4_is_symmetric=false"),
    _row("qwen3", "fp32"),
    _row("qwen3", "int4"),
    _row("phi3", "fp32"),
    _row("phi3", "int4"),
    _row("gemma", "fp32"),
    _row("gemma2", "fp32"),
    _row("gemma2", "int4"),
    _row("qwen2", "fp32", ending="_prefill", sizes=_PREFILL),
    _row("smollm3", "int4"),
    _row("mistral", "fp32"),
    _row("mistral", "int4"),
    _row("smollm3", "fp32"),
    _row("granite", "int4"),
)


@functools.cache
def _cached_decoder() -> Any:
    """The class of a decoder that takes and gives keys and values in a row. PyTorch is imported when it is used."""
    import torch

    class Cached(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: torch.Tensor, mask: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
            from transformers import DynamicCache

            kept = list(zip(past[::2], past[1::2], strict=True)) if past else None
            cache = DynamicCache(kept) if kept else DynamicCache()
            found = self.model(input_ids=tokens, attention_mask=mask, past_key_values=cache, use_cache=True)
            held = [part for layer in found.past_key_values.layers for part in (layer.keys, layer.values)]
            return (found.logits, *held)

    return Cached


def _decoder(name: str, past: int, path: Path) -> None:
    """One decoder, with `past` tokens in its cache or without one (0), names as optimum has them."""
    import torch
    import transformers

    kind, options = ARCHITECTURES[name]
    torch.manual_seed(0)
    model_class = getattr(transformers, kind)
    model = model_class(model_class.config_class(**{**_DECODER, **options}, attn_implementation="eager")).eval()
    parts = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    length = 1 if past else 8
    kept = tuple(torch.randn(1, 2, past, 64) for _ in parts) if past else ()
    inputs = ["input_ids", "attention_mask", *(f"past_key_values.{part}" for part in parts[: len(kept)])]
    outputs = ["logits", *(f"present.{part}" for part in parts)]
    axes = {"input_ids": {0: "batch", 1: "sequence_length"}, "attention_mask": {0: "batch", 1: "total_sequence_length"}}
    axes |= {port: {0: "batch", 2: "past_sequence_length"} for port in inputs[2:]}
    axes |= {port: {0: "batch", 2: "total_sequence_length"} for port in outputs[1:]}
    with torch.no_grad():
        torch.onnx.export(
            _cached_decoder()(model),
            (torch.randint(3, VOCABULARY, (1, length)), torch.ones(1, past + length, dtype=torch.int64), *kept),
            str(path),
            input_names=inputs,
            output_names=outputs,
            dynamic_axes=axes | {"logits": {0: "batch", 1: "sequence_length"}},
            opset_version=17,
            dynamo=False,
            verbose=False,
        )


def _merged(name: str, folder: Path) -> None:
    """Both decoders in one file: an If, weights that both have outside of it once."""
    import onnx
    from onnx import TensorProto, helper

    parts = []
    for past in (0, 16):
        _decoder(name, past, folder / "part.onnx")
        parts.append(onnx.load(folder / "part.onnx"))
        (folder / "part.onnx").unlink()
    shared: dict[bytes, TensorProto] = {}
    branches = []
    for number, part in enumerate(parts):
        graph, renamed = part.graph, {}
        for tensor in graph.initializer:
            kept = shared.setdefault(_contents(tensor), tensor)
            renamed[tensor.name] = kept.name
        outer = {port.name for port in graph.input} | set(renamed)
        inner = {value: f"branch{number}.{value}" for node in graph.node for value in node.output if value}
        for node in graph.node:
            node.input[:] = [renamed.get(v, inner.get(v, v)) if v in outer | set(inner) else v for v in node.input]
            node.output[:] = [inner.get(v, v) for v in node.output]
            node.name = f"branch{number}.{node.name}"
        for port in graph.output:
            port.name = inner[port.name]
        branches.append(helper.make_graph(graph.node, f"branch{number}", [], graph.output))
    whole = onnx.load_model_from_string(parts[1].SerializeToString())
    names = [port.name.partition(".")[2] for port in branches[1].output]
    outputs = [helper.make_value_info(n, port.type) for n, port in zip(names, branches[1].output, strict=True)]
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    choice = helper.make_node(
        "If", ["use_cache_branch"], names, "choice", then_branch=branches[1], else_branch=branches[0]
    )
    graph = helper.make_graph([choice], "merged", [*whole.graph.input, flag], outputs, list(shared.values()))
    onnx.save(helper.make_model(graph, opset_imports=parts[0].opset_import, ir_version=8), folder / "model.onnx")


def _contents(tensor: Any) -> bytes:
    """What makes two weights one."""
    named = type(tensor)()
    named.CopyFrom(tensor)
    named.ClearField("name")
    return bytes(named.SerializeToString(deterministic=True))


MERGED: tuple[File, ...] = tuple(
    File(f"{name}_merged{ending}", "merged", partial(_merged, name), sizes, {"use_cache_branch": flag})
    for name in ("llama", "qwen2")
    for ending, flag, sizes in (("", "ones", _STEP), ("_prefill", "zeros", {**_PREFILL, "past_sequence_length": 1}))
)
