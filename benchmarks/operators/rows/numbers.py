"""Reductions, normalisations, products, attention, quantization, losses and optimisers."""

from __future__ import annotations

from benchmarks.operators.row import Row, ids, k, one, w, x

_HIDDEN, _MAP = x(128, 768), x(1, 64, 112, 112)
_REDUCED = (
    "ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare".split()
)
_BYTE, _SCALE = one(128, "uint8"), one(0.05, "float32")

REDUCTIONS: tuple[Row, ...] = (
    *(Row(op, ((_HIDDEN, k(-1)), (_MAP, k(2, 3)))) for op in _REDUCED),
    Row("ReduceLogSum", ((x(128, 768, low=0.1), k(-1)), (x(1, 64, 112, 112, low=0.1), k(2, 3)))),
    Row("ReduceMax", ((_HIDDEN, k(0)), (x(8, 1024, 256), k(1))), note="of rows"),
    Row("ReduceSum", ((_HIDDEN, k(0)), (x(8, 1024, 256), k(1))), note="of rows"),
    Row("ArgMax", ((x(128, 1000),), (x(1, 512, 30522),)), {"axis": -1}),
    Row("ArgMin", ((x(128, 1000),), (x(1, 512, 30522),)), {"axis": -1}),
    Row("CumSum", ((x(1, 4096), one(1)), (x(8, 100000), one(1)))),
    Row("CumSum", ((x(1, 128, 256), one(1)), (x(1, 64, 112, 112), one(2))), note="of rows"),
    Row("CumProd", ((x(1, 4096, low=0.9, high=1.1), one(1)), (x(8, 100000, low=0.999, high=1.001), one(1)))),
    Row("TopK", ((x(1, 1000), k(5)), (x(1, 8400), k(300))), outputs=2),
    Row("TopK", ((x(1, 50257), k(50)), (x(256, 1024), k(10))), outputs=2, note="of many"),
    Row("Hardmax", ((x(128, 1000),), (x(512, 4096),))),
    Row("NonZero", ((x(128, 128, of="bool"),), (x(1024, 1024, of="bool"),))),
    Row("Unique", ((ids(100, 1000),), (ids(5000, 100000),)), outputs=4),
    Row("Det", ((x(64, 3, 3),), (x(8, 64, 64),))),
)

NORMS: tuple[Row, ...] = (
    Row(
        "BatchNormalization",
        tuple(
            (data, w(64, low=0.5, high=2), w(64), w(64), w(64, low=0.5, high=2)) for data in (x(1, 64, 28, 28), _MAP)
        ),
    ),
    Row(
        "GroupNormalization",
        ((x(1, 64, 28, 28), w(64), w(64)), (x(1, 320, 64, 64), w(320), w(320))),
        {"num_groups": 32},
    ),
    Row("InstanceNormalization", ((x(1, 64, 28, 28), w(64), w(64)), (_MAP, w(64), w(64)))),
    Row("LayerNormalization", ((_HIDDEN, w(768), w(768)), (x(1, 1024, 1024), w(1024), w(1024)))),
    Row("LpNormalization", ((_HIDDEN,), (x(1, 1024, 1024),))),
    Row("LRN", ((x(1, 64, 27, 27),), (x(1, 96, 55, 55),)), {"size": 5}),
    Row("MeanVarianceNormalization", ((x(1, 64, 28, 28),), (_MAP,))),
    Row("RMSNormalization", ((_HIDDEN, w(768)), (x(1, 1024, 2048), w(2048)))),
    Row("Softmax", ((x(128, 1000),), (x(12, 512, 512),))),
    Row("LogSoftmax", ((x(128, 1000),), (x(128, 30522),))),
)

PRODUCTS: tuple[Row, ...] = (
    Row("Gemm", ((_HIDDEN, w(768, 768), w(768)), (x(512, 1024), w(1024, 4096), w(4096)))),
    Row("MatMul", ((_HIDDEN, w(768, 768)), (x(512, 1024), w(1024, 4096)))),
    Row("MatMul", ((x(12, 128, 64), x(12, 64, 128)), (x(16, 512, 64), x(16, 64, 512))), note="of two inputs"),
    Row(
        "Einsum",
        ((x(1, 128, 12, 64), x(1, 128, 12, 64)), (x(1, 512, 16, 64), x(1, 512, 16, 64))),
        {"equation": "bqhd,bkhd->bhqk"},
    ),
    Row(
        "MatMulInteger",
        (
            (x(128, 768, of="uint8", low=0, high=255), w(768, 768, of="int8", low=-128, high=127), _BYTE),
            (x(512, 1024, of="uint8", low=0, high=255), w(1024, 4096, of="int8", low=-128, high=127), _BYTE),
        ),
    ),
    Row(
        "QLinearMatMul",
        tuple(
            (
                x(n, d, of="uint8", low=0, high=255),
                _SCALE,
                _BYTE,
                w(d, m, of="int8", low=-128, high=127),
                _SCALE,
                one(0, "int8"),
                one(9.0, "float32"),
                _BYTE,
            )
            for n, d, m in ((128, 768, 768), (512, 1024, 4096))
        ),
    ),
    Row(
        "Attention",
        (
            (x(1, 12, 128, 64), x(1, 12, 128, 64), x(1, 12, 128, 64)),
            (x(1, 16, 512, 64), x(1, 16, 512, 64), x(1, 16, 512, 64)),
        ),
        opset=23,
    ),
    Row(
        "Attention",
        tuple(
            (x(1, h, 1, 64), x(1, h, 1, 64), x(1, h, 1, 64), None, x(1, h, past, 64), x(1, h, past, 64))
            for h, past in ((12, 127), (16, 1023))
        ),
        outputs=3,
        note="with past keys",
        opset=23,
    ),
    Row(
        "FlexAttention",
        tuple((x(1, h, n, 64), x(1, h, n, 64), x(1, h, n, 64)) for h, n in ((12, 128), (16, 512))),
        domain="ai.onnx.preview",
    ),
    Row(
        "LinearAttention",
        tuple((x(1, n, 4 * 64), x(1, n, 4 * 64), x(1, n, 4 * 64)) for n in (16, 128)),
        {"q_num_heads": 4, "kv_num_heads": 4, "update_rule": "linear"},
        outputs=2,
        opset=27,
    ),
    Row(
        "CausalConvWithState",
        tuple((x(1, c, n), w(c, 1, 4), w(c), x(1, c, 3)) for c, n in ((256, 64), (2048, 512))),
        outputs=2,
        opset=27,
    ),
    Row(
        "RotaryEmbedding",
        (
            (x(1, 12, 128, 64), w(512, 32), w(512, 32), ids(512, 1, 128)),
            (x(1, 32, 1024, 128), w(2048, 64), w(2048, 64), ids(2048, 1, 1024)),
        ),
    ),
)

QUANTIZED: tuple[Row, ...] = (
    Row("QuantizeLinear", tuple((data, _SCALE, _BYTE) for data in (_HIDDEN, _MAP))),
    Row(
        "DequantizeLinear",
        tuple((x(*dims, of="uint8", low=0, high=255), _SCALE, _BYTE) for dims in (_HIDDEN.dims, _MAP.dims)),
    ),
    Row("DynamicQuantizeLinear", ((_HIDDEN,), (_MAP,)), outputs=3),
)

TRAINED: tuple[Row, ...] = (
    Row(
        "NegativeLogLikelihoodLoss",
        ((x(32, 1000, low=-9, high=0), ids(1000, 32)), (x(2, 21, 128, 128, low=-9, high=0), ids(21, 2, 128, 128))),
    ),
    Row("SoftmaxCrossEntropyLoss", ((x(32, 1000), ids(1000, 32)), (x(2, 21, 128, 128), ids(21, 2, 128, 128)))),
    *(
        Row(
            op,
            tuple(
                (one(0.01, "float32"), one(3), *(x(*dims, low=0.1) for _ in range(parts)))
                for dims in ((768, 768), (1024, 4096))
            ),
            attributes,
            outputs=outputs,
            domain="ai.onnx.preview.training",
        )
        for op, parts, outputs, attributes in (
            ("Adagrad", 3, 2, {}),
            ("Adam", 4, 3, {}),
            ("Momentum", 3, 2, {"alpha": 0.9, "beta": 1.0, "norm_coefficient": 0.001, "mode": "standard"}),
        )
    ),
)
