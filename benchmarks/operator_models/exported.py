"""Models of the `transformers` package that need more than convolutions and products: detectors, masks, speech."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.operator_models.build import Build, picked

__all__ = ["deformable_detr", "mask2former", "rt_detr", "speech_encoder", "vits"]


def _resnet() -> Any:
    from transformers import ResNetConfig

    return ResNetConfig(
        embedding_size=32,
        hidden_sizes=[32, 64, 128, 256],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )


def rt_detr() -> Build:
    """A small RT-DETR: GridSample in the decoder's deformable attention, TopK over all places for its queries."""
    from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrResNetConfig

    backbone = RTDetrResNetConfig(
        embedding_size=32,
        hidden_sizes=[32, 64, 128, 256],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = RTDetrConfig(
        backbone_config=backbone,
        encoder_in_channels=[64, 128, 256],
        encoder_hidden_dim=128,
        encoder_ffn_dim=256,
        d_model=128,
        decoder_in_channels=[128, 128, 128],
        decoder_ffn_dim=256,
        decoder_layers=3,
        num_queries=100,
        num_labels=80,
        hidden_expansion=0.5,
    )
    names = ("logits", "pred_boxes")
    return Build(picked(RTDetrForObjectDetection(config), names), {"pixel_values": torch.randn(1, 3, 320, 320)}, names)


def deformable_detr() -> Build:
    from transformers import DeformableDetrConfig, DeformableDetrForObjectDetection

    config = DeformableDetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=_resnet(),
        d_model=128,
        encoder_layers=2,
        decoder_layers=2,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
        num_queries=100,
        num_labels=91,
    )
    names = ("logits", "pred_boxes")
    module = picked(DeformableDetrForObjectDetection(config), names)
    return Build(module, {"pixel_values": torch.randn(1, 3, 320, 320)}, names)


def mask2former() -> Build:
    from transformers import Mask2FormerConfig, Mask2FormerForUniversalSegmentation, SwinConfig

    backbone = SwinConfig(
        embed_dim=32,
        depths=[1, 1, 2, 1],
        num_heads=[1, 2, 4, 8],
        window_size=4,
        image_size=256,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = Mask2FormerConfig(
        backbone_config=backbone,
        feature_size=128,
        mask_feature_size=128,
        hidden_dim=128,
        encoder_feedforward_dim=256,
        dim_feedforward=256,
        encoder_layers=2,
        decoder_layers=4,
        num_attention_heads=4,
        num_queries=50,
        num_labels=80,
    )
    names = ("class_queries_logits", "masks_queries_logits")
    module = picked(Mask2FormerForUniversalSegmentation(config), names)
    return Build(module, {"pixel_values": torch.randn(1, 3, 256, 256)}, names)


def vits() -> Build:
    """Text to speech: how long the waveform is depends on the durations that it predicts."""
    from transformers import VitsConfig, VitsModel

    config = VitsConfig(
        vocab_size=40,
        hidden_size=64,
        num_hidden_layers=2,
        ffn_dim=128,
        flow_size=64,
        spectrogram_bins=65,
        upsample_initial_channel=64,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        prior_encoder_num_flows=2,
        prior_encoder_num_wavenet_layers=2,
        posterior_encoder_num_wavenet_layers=2,
        duration_predictor_num_flows=2,
        use_stochastic_duration_prediction=False,
        noise_scale=0.0,
    )
    model = VitsModel(config)
    model.noise_scale = 0.0
    inputs = {"input_ids": torch.randint(1, 40, (1, 24)), "attention_mask": torch.ones(1, 24, dtype=torch.long)}
    return Build(picked(model, ("waveform",), tuple(inputs)), inputs, ("waveform",))


def speech_encoder() -> Build:
    """A spectrogram by STFT, mel bands and logarithm, and Whisper's encoder on it."""
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        d_model=128,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=512,
        num_mel_bins=80,
        max_source_positions=250,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=128,
        vocab_size=100,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )

    class Front(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = WhisperModel(config).encoder
            self.register_buffer("window", torch.hann_window(400))
            self.register_buffer("bands", torch.rand(80, 201) / 201)

        def forward(self, waveform: torch.Tensor) -> torch.Tensor:
            spectrum = torch.stft(
                waveform, 400, 160, window=self.window, return_complex=False, onesided=True, center=False
            )
            power = spectrum.square().sum(-1)
            mel = torch.log10((self.bands @ power).clamp(min=1e-10))
            out: torch.Tensor = self.encoder(mel, return_dict=True).last_hidden_state
            return out

    return Build(Front(), {"waveform": torch.randn(1, 400 + 160 * 499)}, ("features",))
