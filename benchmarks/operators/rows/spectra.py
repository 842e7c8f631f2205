"""Transforms, windows and random numbers."""

from __future__ import annotations

from benchmarks.operators.row import Row, one, w, x

_WINDOWS = tuple((one(n),) for n in (400, 16384))
_LIKE = ((x(128, 768),), (x(1, 64, 112, 112),))
_SHAPES = ((128, 768), (1, 64, 112, 112))

SPECTRA: tuple[Row, ...] = (
    Row("DFT", ((x(1, 80, 512, 1), None, one(2)), (x(16, 1024, 2), None, one(1)))),
    Row(
        "DFT",
        ((x(1, 80, 400, 1), None, one(2)), (x(1, 1, 48000, 1), None, one(2))),
        {"onesided": 1},
        note="mixed radix",
    ),
    Row("DFT", ((x(1, 16, 251, 2), None, one(2)), (x(1, 4, 10007, 2), None, one(2))), note="primes"),
    Row(
        "STFT",
        (
            (x(1, 4000, 1), one(160), w(400, low=0.1, high=1), one(400)),
            (x(1, 160000, 1), one(160), w(400, low=0.1, high=1), one(400)),
        ),
        {"onesided": 1},
    ),
    Row(
        "MelWeightMatrix",
        tuple(
            (one(bins), one(n), one(16000), one(0.0, "float32"), one(8000.0, "float32"))
            for bins, n in ((40, 400), (128, 2048))
        ),
    ),
    *(Row(op, _WINDOWS) for op in ("BlackmanWindow", "HammingWindow", "HannWindow")),
)

RANDOM: tuple[Row, ...] = (
    Row("Bernoulli", tuple((x(*dims, low=0, high=1),) for dims in _SHAPES), random=True, opset=21),
    Row("Multinomial", ((x(1, 1000),), (x(32, 1000),)), {"sample_size": 64}, random=True, opset=21),
    *(Row(op, ((), ()), {"shape": [64, 112, 112]}, random=True, opset=21) for op in ("RandomNormal", "RandomUniform")),
    *(Row(op, _LIKE, random=True, opset=21) for op in ("RandomNormalLike", "RandomUniformLike")),
)
