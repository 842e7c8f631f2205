"""Files of ONNX Runtime's quantisers (`onnxruntime.quantization`): 8 bits, dynamic and static, and blocks of 2 to 8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.files.optimized import optimize
from benchmarks.files.row import VOCABULARY, File
from benchmarks.files.sources import HIDDEN, LENGTH, SOURCES, export

__all__ = ["BLOCKS", "DYNAMIC", "STATIC"]

EIGHT_BITS = 2e-2
IMAGES = 4


def _plain(source: str, folder: Path, optimized: bool = False, dynamo: bool = False) -> Path:
    """The float32 model to quantise, beside the folder's `model.onnx`."""
    path = folder / "plain.onnx"
    if source == "lstm":
        _lstm(path)
    elif optimized:
        optimize(source, folder)
        (folder / "model.onnx").rename(path)
    else:
        export(source, path, dynamo)
    return path


def _lstm(path: Path) -> None:
    import torch

    torch.manual_seed(0)

    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.LSTM(128, HIDDEN, 2, batch_first=True)
            self.last = torch.nn.Linear(HIDDEN, 100)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.layers(x)[0])

    with torch.no_grad():
        given = torch.randn(1, LENGTH, 128)
        torch.onnx.export(Recurrent().eval(), (given,), str(path), input_names=["x"], dynamo=False, opset_version=17)


def _dynamic(source: str, optimized: bool, settings: Mapping[str, Any], folder: Path) -> None:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    plain = _plain(source, folder, optimized)
    kind = QuantType.from_string(settings.get("weight_type", "QInt8"))
    others = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # of what operators give whose types ONNX does not know
    quantize_dynamic(plain, folder / "model.onnx", **{**settings, "weight_type": kind}, extra_options=others)
    plain.unlink()


def _calibration(source: str) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    def one(seed: int) -> dict[str, np.ndarray]:
        rng, found = np.random.default_rng(seed), {}
        for port, what in SOURCES[source].inputs.items():
            if what == "tokens":
                found[port] = rng.integers(3, VOCABULARY, (1, LENGTH))
            elif isinstance(what, str):
                found[port] = np.full((1, LENGTH), what == "mask", np.int64)
            else:
                found[port] = rng.standard_normal(what, dtype=np.float32)
        return found

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left: Iterator[dict[str, np.ndarray]] = map(one, range(IMAGES))

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    return Reader()


def _static(source: str, form: str, types: str, settings: Mapping[str, Any], folder: Path) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, prepared = _plain(source, folder), folder / "prepared.onnx"
    quant_pre_process(plain, prepared, skip_symbolic_shape=True)
    activation, weight = (QuantType.QInt8 if one == "S8" else QuantType.QUInt8 for one in (types[:2], types[2:]))
    method = CalibrationMethod[settings.get("method", "MinMax")]
    others = {name: value for name, value in settings.items() if name != "method"}
    quantize_static(
        *(prepared, folder / "model.onnx", _calibration(source)),
        quant_format=QuantFormat[form],
        activation_type=activation,
        weight_type=weight,
        calibrate_method=method,
        **others,
    )
    plain.unlink()
    prepared.unlink()


def _dynamic_row(source: str, ending: str, optimized: bool = False, **settings: Any) -> File:
    make = partial(_dynamic, source, optimized, settings)
    return File(f"{source}_dynamic_{ending}", "dynamic", make, tolerance=EIGHT_BITS)


def _static_row(source: str, form: str, types: str, ending: str = "", **settings: Any) -> File:
    make = partial(_static, source, form, types, settings)
    name = f"{source}_{form.lower()}_{types.lower()}{ending}"
    return File(name, "static", make, tolerance=EIGHT_BITS)


DYNAMIC: tuple[File, ...] = (
    _dynamic_row("bert", "int8"),
    _dynamic_row("bert", "uint8", weight_type="QUInt8"),
    _dynamic_row("bert", "per_channel", per_channel=True, reduce_range=True),
    _dynamic_row("bert", "optimized", optimized=True),
    _dynamic_row("gpt2", "int8"),
    _dynamic_row("vit", "uint8", weight_type="QUInt8"),
    _dynamic_row("t5_encoder", "int8", per_channel=True),
    _dynamic_row("qwen3", "int8"),
    _dynamic_row("whisper_encoder", "optimized", optimized=True),
    _dynamic_row("lstm", "int8"),
)
STATIC: tuple[File, ...] = (
    _static_row("resnet", "QDQ", "U8S8", per_channel=True),
    _static_row("resnet", "QDQ", "S8S8", "_entropy", method="Entropy"),
    _static_row("resnet", "QOperator", "U8S8", per_channel=True),
    _static_row("resnet", "QOperator", "U8U8"),
    _static_row("mobilenet_v2", "QDQ", "U8U8", "_percentile", method="Percentile"),
    _static_row("mobilenet_v2", "QOperator", "S8S8", per_channel=True),
    _static_row("convnext", "QDQ", "U8S8"),
    _static_row("vit", "QDQ", "U8S8", per_channel=True),
    _static_row("vit", "QOperator", "U8U8"),
    _static_row("bert", "QDQ", "S8S8"),
    _static_row("bert", "QOperator", "U8S8"),
    _static_row("bert", "QOperator", "S8S8"),
)


def _blocks(source: str, settings: Mapping[str, Any], folder: Path) -> None:
    """Weights of products in blocks of a few bits by `MatMulNBitsQuantizer`."""
    import onnx
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization import matmul_nbits_quantizer as quantizers

    form = QuantFormat[settings.get("form", "QOperator")]
    plain = _plain(
        source, folder, dynamo=form is QuantFormat.QDQ
    )  # what it writes is of opset 21, without changing other nodes
    config = None
    others = {name: value for name, value in settings.items() if name not in ("form", "algorithm")}
    if "algorithm" in settings:
        config = getattr(quantizers, f"{settings['algorithm']}WeightOnlyQuantConfig")(**others)
        others = {}
    made = quantizers.MatMulNBitsQuantizer(
        onnx.load(plain), **others, **({} if config else {"quant_format": form}), algo_config=config
    )
    made.process()
    for left in folder.iterdir():
        left.unlink()
    made.model.save_model_to_file(str(folder / "model.onnx"))


def _bnb4(source: str, kind: int, block: int, folder: Path) -> None:
    """Weights of products as normal floats (1) or floats (0) of four bits by `MatMulBnb4Quantizer`."""
    import onnx
    from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

    plain = _plain(source, folder)
    made = MatMulBnb4Quantizer(onnx.load(plain), kind, block)
    made.process()
    made.model.save_model_to_file(str(folder / "model.onnx"))
    plain.unlink()


def _blocks_row(source: str, ending: str, tolerance: float = 1e-5, **settings: Any) -> File:
    return File(f"{source}_blocks_{ending}", "blocks", partial(_blocks, source, settings), tolerance=tolerance)


BLOCKS: tuple[File, ...] = (
    _blocks_row("qwen3", "default"),
    _blocks_row("qwen3", "symmetric_32", is_symmetric=True, block_size=32),
    _blocks_row("qwen3", "accuracy_4", EIGHT_BITS, accuracy_level=4, block_size=32),
    _blocks_row("qwen3", "8_bits", bits=8),
    _blocks_row("qwen3", "2_bits", bits=2, block_size=32),
    _blocks_row("qwen3", "qdq", form="QDQ", is_symmetric=True, block_size=32),
    _blocks_row("bert", "hqq", algorithm="HQQ", block_size=64),
    _blocks_row("bert", "gather", op_types_to_quantize=("MatMul", "Gather"), block_size=32),
    _blocks_row("bert", "qdq_zero_points", form="QDQ", block_size=32),
    File("qwen3_bnb4_nf4", "blocks", partial(_bnb4, "qwen3", 1, 64)),
    File("bert_bnb4_fp4", "blocks", partial(_bnb4, "bert", 0, 32)),
)
