"""The modules of `tests.free.architectures`, small: each a function of positional tensors that returns tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["MODULES"]

_TOKENS = {
    "vocab_size": 128,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
_VISION = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
_ROPE = {**_TOKENS, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512}
_ONE = {"num_hidden_layers": 1}
"""For architectures whose layers are those of another one here, which has two; an export takes as long as there are layers."""


def _named(model: Any, pick: Callable[[Any], Any], *names: str, **fixed: Any) -> Any:
    """The model as a function of positional tensors, called `names`, that returns what `pick` takes of its outputs."""
    import torch

    class Single(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            return pick(self.model(**dict(zip(names, inputs, strict=True)), **fixed))

    return Single()


def _hidden(result: Any) -> Any:
    return result.last_hidden_state


def _logits(result: Any) -> Any:
    return result.logits


def _text(kind: str, hidden: bool = True, **sizes: Any) -> Callable[[], Any]:
    """`KindModel` of `transformers` on tokens and a mask."""

    def make() -> Any:
        import transformers

        config = getattr(transformers, f"{kind}Config")(**{**_TOKENS, **sizes})
        config.use_cache = False
        model = getattr(transformers, f"{kind}Model" if hidden else f"{kind}ForCausalLM")(config)
        return _named(model, _hidden if hidden else _logits, "input_ids", "attention_mask")

    return make


def _vision(kind: str, pick: Callable[[Any], Any] = _hidden, fixed: dict[str, Any] | None = None, **sizes: Any) -> Any:
    """`kind` of `transformers` on an image."""

    def make() -> Any:
        import transformers

        model_class = getattr(transformers, kind)
        model = model_class(model_class.config_class(**sizes))
        return _named(model, pick, "pixel_values", **(fixed or {}))

    return make


def _with_past(kind: str, layers: int, **sizes: Any) -> Callable[[], Any]:
    """A decoder that takes and returns keys and values of earlier tokens."""

    def make() -> Any:
        import torch
        import transformers

        config = getattr(transformers, f"{kind}Config")(**sizes)
        model = getattr(transformers, f"{kind}LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM")(config)

        class Cached(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, tokens: Any, mask: Any, *past: Any) -> Any:
                cache = transformers.DynamicCache([(past[2 * n], past[2 * n + 1]) for n in range(layers)])
                result = self.model(input_ids=tokens, attention_mask=mask, past_key_values=cache, use_cache=True)
                present = result.past_key_values
                return (result.logits, *(part for layer in present.layers for part in (layer.keys, layer.values)))

        return Cached()

    return make


def _t5(decoder: bool) -> Callable[[], Any]:
    def make() -> Any:
        import torch
        from transformers import T5Config, T5ForConditionalGeneration

        config = T5Config(vocab_size=128, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, use_cache=False)
        model = T5ForConditionalGeneration(config)
        if not decoder:
            return _named(model.encoder, _hidden, "input_ids", "attention_mask")

        class Decoder(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, tokens: Any, hidden: Any, mask: Any) -> Any:
                result = self.model.decoder(
                    input_ids=tokens, encoder_hidden_states=hidden, encoder_attention_mask=mask, use_cache=False
                )
                return self.model.lm_head(result.last_hidden_state)

        return Decoder()

    return make


def _bart() -> Any:
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=128,
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_position_embeddings=128,
    )
    model = BartForConditionalGeneration(config)
    return _named(model, _logits, "input_ids", "attention_mask", "decoder_input_ids", use_cache=False)


def _whisper(decoder: bool) -> Callable[[], Any]:
    def make() -> Any:
        from transformers import WhisperConfig, WhisperModel

        config = WhisperConfig(
            vocab_size=128,
            num_mel_bins=20,
            d_model=64,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=128,
            decoder_ffn_dim=128,
            max_source_positions=30,
            max_target_positions=128,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
        model = WhisperModel(config)
        if decoder:
            return _named(model.decoder, _hidden, "input_ids", "encoder_hidden_states", use_cache=False)
        return _named(model.encoder, _hidden, "input_features")

    return make


def _speech(kind: str) -> Callable[[], Any]:
    def make() -> Any:
        import transformers

        sizes = {**_TOKENS, **_ONE, "conv_dim": (32, 32, 32), "conv_kernel": (10, 3, 3), "conv_stride": (5, 2, 2)}
        config = getattr(transformers, f"{kind}Config")(
            **sizes, num_feat_extract_layers=3, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4
        )
        model = getattr(transformers, f"{kind}Model")(config)
        return _named(model, _hidden, "input_values")

    return make


def _detr() -> Any:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        encoder_layers=1,
        decoder_layers=1,
        d_model=64,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_queries=10,
    )
    return _named(DetrForObjectDetection(config), _logits, "pixel_values")


def _sam() -> Any:
    from transformers import SamConfig, SamModel

    return SamModel(
        SamConfig(
            vision_config={
                "hidden_size": 64,
                "output_channels": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "image_size": 64,
                "patch_size": 8,
                "mlp_dim": 128,
                "window_size": 3,
                "num_pos_feats": 16,
                "global_attn_indexes": [1],
            },
            prompt_encoder_config={
                "hidden_size": 32,
                "image_size": 64,
                "patch_size": 8,
                "mask_input_channels": 8,
            },
            mask_decoder_config={
                "hidden_size": 32,
                "mlp_dim": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "iou_head_hidden_dim": 32,
            },
        )
    )


def _sam_encoder() -> Any:
    return _named(_sam().vision_encoder, _hidden, "pixel_values")


def _sam_decoder() -> Any:
    return _named(
        _sam(),
        lambda result: result.pred_masks,
        "image_embeddings",
        "input_points",
        "input_labels",
        multimask_output=True,
    )


def _pair(kind: str, *names: str) -> Callable[[], Any]:
    """CLIP and SigLIP: how much each image is like each text."""

    def make() -> Any:
        import transformers

        text = {**_TOKENS, "max_position_embeddings": 32}
        vision = {**_VISION, "image_size": 32, "patch_size": 8}
        config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=vision)
        return _named(getattr(transformers, f"{kind}Model")(config), lambda r: r.logits_per_image, *names)

    return make


def _mamba() -> Any:
    from transformers import MambaConfig, MambaModel

    config = MambaConfig(vocab_size=128, hidden_size=64, num_hidden_layers=1, state_size=8, use_cache=False)
    return _named(MambaModel(config), _hidden, "input_ids", use_cache=False)


def _vits() -> Any:
    from transformers import VitsConfig, VitsModel

    config = VitsConfig(
        vocab_size=128,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=128,
        flow_size=64,
        spectrogram_bins=33,
        upsample_initial_channel=32,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        prior_encoder_num_wavenet_layers=2,
        posterior_encoder_num_wavenet_layers=2,
        noise_scale=0.0,
        noise_scale_duration=0.0,
    )
    return _named(VitsModel(config), lambda result: result.waveform, "input_ids", "attention_mask")


def _vae_decoder() -> Any:
    from tests.free.diffusion import VaeDecoder

    return VaeDecoder(4, (64, 32))


def _unet() -> Any:
    from tests.free.diffusion import Denoiser

    return Denoiser(4, (32, 64), 32)


MODULES: dict[str, Callable[[], Any]] = {
    "bert": _text("Bert"),
    "gpt2": _text("GPT2", n_embd=64, n_layer=1, n_head=4, n_positions=128),
    "resnet": _vision(
        "ResNetForImageClassification", _logits, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], num_labels=50
    ),
    "vit": _vision("ViTModel", fixed={"interpolate_pos_encoding": True}, **_VISION, image_size=32, patch_size=8),
    "llama": _text("Llama", hidden=False, **_ROPE),
    "gpt2_past": _with_past("GPT2", 2, vocab_size=128, n_embd=64, n_layer=2, n_head=4, n_positions=128),
    "distilbert": _text("DistilBert", dim=64, n_layers=2, n_heads=4, hidden_dim=128),
    "roberta": _text("Roberta", max_position_embeddings=130, **_ONE),
    "albert": _text("Albert", embedding_size=32),
    "electra": _text("Electra", embedding_size=32, **_ONE),
    "mobilebert": _text(
        "MobileBert",
        intra_bottleneck_size=32,
        embedding_size=32,
        intermediate_size=64,
        num_feedforward_networks=2,
        **_ONE,
    ),
    "deberta": _text("DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8),
    "qwen2": _text("Qwen2", hidden=False, **{**_ROPE, **_ONE}),
    "qwen3": _text("Qwen3", hidden=False, **{**_ROPE, **_ONE}),
    "gemma2": _text("Gemma2", hidden=False, **_ROPE, sliding_window=8),
    "mistral": _text("Mistral", hidden=False, **{**_ROPE, **_ONE}, sliding_window=8),
    "phi": _text("Phi", hidden=False, max_position_embeddings=512, **_ONE),
    "opt": _text("OPT", ffn_dim=128, word_embed_proj_dim=64, max_position_embeddings=128, **_ONE),
    "bloom": _text("Bloom", n_layer=1, n_head=4),
    "gpt_neox": _text("GPTNeoX", max_position_embeddings=512, **_ONE),
    "llama_past": _with_past("Llama", 1, **{**_ROPE, **_ONE}),
    "t5_encoder": _t5(decoder=False),
    "t5_decoder": _t5(decoder=True),
    "bart": _bart,
    "whisper_encoder": _whisper(decoder=False),
    "whisper_decoder": _whisper(decoder=True),
    "wav2vec2": _speech("Wav2Vec2"),
    "hubert": _speech("Hubert"),
    "deit": _vision("DeiTModel", **{**_VISION, **_ONE}, image_size=32, patch_size=8),
    "swin": _vision("SwinModel", image_size=64, embed_dim=32, depths=[2, 1], num_heads=[2, 4], window_size=4),
    "beit": _vision("BeitModel", **{**_VISION, **_ONE}, image_size=32, patch_size=8, use_relative_position_bias=True),
    "convnext": _vision("ConvNextForImageClassification", _logits, hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 2, 1]),
    "segformer": _vision(
        "SegformerForSemanticSegmentation",
        _logits,
        num_encoder_blocks=3,
        hidden_sizes=[16, 16, 32],
        depths=[1, 1, 1],
        num_attention_heads=[1, 2, 4],
        sr_ratios=[4, 2, 1],
        decoder_hidden_size=32,
        num_labels=7,
    ),
    "detr": _detr,
    "sam_encoder": _sam_encoder,
    "sam_decoder": _sam_decoder,
    "clip": _pair("CLIP", "input_ids", "pixel_values", "attention_mask"),
    "siglip": _pair("Siglip", "input_ids", "pixel_values"),
    "mamba": _mamba,
    "vae_decoder": _vae_decoder,
    "unet": _unet,
    "vits": _vits,
}
