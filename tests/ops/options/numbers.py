"""Reductions, normalisations, products, attention, quantization, losses, transforms, generators and text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.ops.options.case import Case, cases, i64, scalar, x

from fusewise.ir.graph import Constant

_AXES = (None, 0, 1, -1, -3)


def reductions() -> Iterator[Case]:
    data = x(2, 3, 4, low=0.5, high=3)
    axes = (None, i64(), i64(1), i64(-1, 0), i64(0, 1, 2))
    for name in ("Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"):
        op = f"Reduce{name}"
        yield from cases(
            op, [(data, a) for a in axes], known=[1], keepdims=(None, 0, 1), noop_with_empty_axes=(None, 0, 1)
        )
        yield from cases(
            op, [(x(3, 4, dtype=d, low=1, high=5), i64(1)) for d in ("int32", "int64", "float64", "float16")], known=[1]
        )
        yield from cases(op, [(x(), None), (x(1, 1), i64(0)), (x(0, 3), i64(1)), (x(2, 3, low=-2), i64(1))], known=[1])
        yield from cases(op, [(x(2, 0, 3), i64(1))], known=[1])
    for name in ("Max", "Min"):
        yield from cases(
            f"Reduce{name}",
            [(x(3, 4, dtype=d, low=-100, high=100), i64(0)) for d in ("int8", "uint8", "bool")],
            known=[1],
            keepdims=(0, 1),
        )
        yield from cases(f"Reduce{name}", [(np.array([[1, -np.inf], [np.inf, 2]], np.float32), i64(0))], known=[1])
    yield from cases(
        "ReduceLogSumExp",
        [(np.array([[1, -np.inf], [1000, 999], [-np.inf, -np.inf], [np.inf, 1]], np.float32), i64(1))],
        known=[1],
    )
    for d in ("float32", "float64", "int32", "int64"):
        yield from cases(
            "CumSum",
            [(x(3, 4, dtype=d, low=-9, high=9), scalar(a, "int64")) for a in (0, 1, -1)],
            known=[1],
            exclusive=(None, 1),
            reverse=(None, 1),
        )
    yield from cases("CumSum", [(x(3, 0), scalar(1, "int32")), (x(3, 0), scalar(0, "int32"))], known=[1])


def norms() -> Iterator[Case]:
    data = x(2, 3, 4, low=-8, high=8)
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        yield from cases(op, [(data,), (x(3, 0, 2),)], axis=_AXES)
        yield from cases(op, [(x(2, 5, dtype=d, low=-8, high=8),) for d in ("float16", "float64")])
        yield from cases(
            op, [(np.array([[100, -100, 0], [3, 3, 3]], np.float32),), (np.array([[60, -60, 0]], np.float16),)]
        )
    yield from cases(
        "LpNormalization",
        [(data,), (x(2, 3, 4, dtype="float64"),), (np.zeros((1, 3, 1), np.float32),)],
        p=(None, 1, 2),
        axis=_AXES,
    )
    images = (x(2, 5, 3, 3), x(3, 4, 5), x(1, 2, 2, 2, 2), x(2, 6))
    yield from cases(
        "LRN", [(i,) for i in images], size=(1, 2, 3, 4, 5, 9), alpha=(None, 0.5), beta=(None, 0.5), bias=(None, 2.0)
    )
    statistics = tuple(x(3, seed=k, low=0.5, high=2) for k in range(4))
    yield from cases(
        "BatchNormalization",
        [(x(*s), *statistics) for s in ((2, 3, 4), (2, 3), (0, 3, 2), (2, 3, 2, 2, 2))],
        epsilon=(None, 0.5),
        momentum=(None, 0.5),
    )
    yield from cases(
        "BatchNormalization",
        [(x(4, 3, 2), *statistics)],
        outputs=3,
        training_mode=(1,),
        epsilon=(None, 0.5),
        momentum=(None, 0.3),
    )
    yield from cases(
        "InstanceNormalization", [(x(2, 3, 4, 2), x(3), x(3, seed=1)), (x(1, 3, 5), x(3), x(3))], epsilon=(None, 0.5)
    )
    yield from cases(
        "GroupNormalization",
        [(x(2, 6, 3), x(6), x(6, seed=1)), (x(1, 6, 2, 2), x(6), x(6, seed=1))],
        num_groups=(1, 2, 6),
        epsilon=(None, 0.5),
        stash_type=(None, 1),
    )
    for axis, shape in ((None, (4,)), (-1, (4,)), (1, (3, 4)), (0, (2, 3, 4)), (-2, (3, 4))):
        operands = [(data, x(*shape)), (data, x(*shape), x(*shape, seed=1))]
        yield from cases(
            "LayerNormalization", operands, outputs=1, axis=(axis,), epsilon=(None, 0.5), stash_type=(None, 1)
        )
        yield from cases("LayerNormalization", operands, outputs=3, axis=(axis,))
        yield from cases("RMSNormalization", operands[:1], axis=(axis,), epsilon=(None, 0.5), stash_type=(None, 1))
    yield from cases(
        "LayerNormalization", [(x(2, 4, dtype=d), x(4, dtype=d)) for d in ("float16", "float64")], outputs=1
    )
    yield from cases("MeanVarianceNormalization", [(x(2, 3, 4, 2),)], axes=(None, (0,), (1, -1), (0, 1, 2, 3)))
    for op in ("Dropout",):
        yield from cases(
            op,
            [(data,), (data, scalar(0.5)), (data, scalar(0.5), np.array(False))],
            outputs=2,
            known=[1, 2],
            seed=(None, 3),
        )


def products() -> Iterator[Case]:
    for ta in (None, 0, 1):
        for tb in (None, 0, 1):
            a, b = x(*((3, 2) if ta else (2, 3))), x(*((4, 3) if tb else (3, 4)), seed=1)
            addends = (None, x(2, 4, seed=2), x(4, seed=2), x(2, 1, seed=2), scalar(1.5), x(1, seed=2))
            yield from cases(
                "Gemm",
                [(a, b, c) for c in addends],
                transA=(ta,),
                transB=(tb,),
                alpha=(None, 0.5),
                beta=(None, 0.25, 0.0),
            )
    yield from cases("Gemm", [(x(0, 3), x(3, 2), x(2)), (x(2, 0), x(0, 2), x(2))])
    shapes = (
        ((2, 3), (3, 4)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((3,), (3,)),
        ((5, 2, 3), (3, 4)),
        ((5, 1, 2, 3), (2, 3, 4)),
        ((0, 3), (3, 4)),
        ((2, 0), (0, 4)),
    )
    yield from cases("MatMul", [(x(*a), x(*b, seed=1)) for a, b in shapes])
    yield from cases(
        "MatMul",
        [
            (x(2, 3, dtype=d, low=-9, high=9), x(3, 4, dtype=d, seed=1, low=-9, high=9))
            for d in ("int32", "int64", "uint32", "float64", "float16")
        ],
    )
    for d in ("uint8", "int8"):
        a, b = x(2, 3, dtype="uint8", low=0, high=255), x(3, 4, dtype=d, low=-128, high=255, seed=1)
        zeros = (
            (None, None),
            (scalar(7, "uint8"), None),
            (scalar(7, "uint8"), scalar(3, d)),
            (None, x(4, dtype=d, low=0, high=9)),
        )
        yield from cases("MatMulInteger", [(a, b, *z) for z in zeros])
        yield from cases(
            "QLinearMatMul",
            [
                (
                    a,
                    scalar(0.02),
                    scalar(7, "uint8"),
                    b,
                    scalar(0.01),
                    scalar(3, d),
                    scalar(0.05),
                    scalar(100, "uint8"),
                ),
                (
                    a,
                    scalar(0.02),
                    scalar(7, "uint8"),
                    b,
                    x(4, low=0.01, high=0.03),
                    x(4, dtype=d, low=0, high=5),
                    scalar(0.05),
                    scalar(100, "uint8"),
                ),
            ],
            opset=20,
        )
    for equation in (
        "ij,jk->ik",
        "ij,jk",
        "bij,bjk->bik",
        "ij->ji",
        "ii->i",
        "ij->",
        "i,j->ij",
        "...ij,...jk->...ik",
        "ij,ij->i",
        " ij , jk -> ik ",
    ):
        shape = {"b": 2, "i": 3, "j": 3, "k": 3}
        operands = [term.strip() for term in equation.split("->")[0].split(",")]
        yield from cases(
            "Einsum",
            [tuple(x(*(shape[c] for c in term.replace("...", "b")), seed=n) for n, term in enumerate(operands))],
            equation=(equation,),
        )


def attention() -> Iterator[Case]:
    q, k, v = x(2, 4, 3, 6), x(2, 2, 5, 6, seed=1), x(2, 2, 5, 8, seed=2)
    masks = (None, x(3, 5), x(3, 5, dtype="bool"), x(2, 1, 3, 5, seed=4), x(2, 4, 3, 5, seed=5))
    yield from cases(
        "Attention", [(q, k, v, m) for m in masks], is_causal=(None, 1), scale=(None, 0.3), softcap=(None, 2.0)
    )
    yield from cases(
        "Attention",
        [
            (q, k, v, None, x(2, 2, 4, 6, seed=6), x(2, 2, 4, 8, seed=7)),
            (q, k, v, x(3, 9), x(2, 2, 4, 6, seed=6), x(2, 2, 4, 8, seed=7)),
        ],
        outputs=3,
        is_causal=(None, 1),
    )
    yield from cases(
        "Attention",
        [(q, k, v), (q, k, v, x(3, 5))],
        outputs=4,
        qk_matmul_output_mode=(0, 1, 2, 3),
        is_causal=(None, 1),
        softcap=(None, 2.0),
    )
    flat = (x(2, 3, 24), x(2, 5, 12, seed=1), x(2, 5, 16, seed=2))
    yield from cases(
        "Attention", [flat], q_num_heads=(4,), kv_num_heads=(2,), is_causal=(None, 1), softmax_precision=(None, 1)
    )
    cos, sin = x(8, 3), x(8, 3, seed=1)
    places = x(2, 4, dtype="int64", low=0, high=7)
    yield from cases(
        "RotaryEmbedding",
        [(x(2, 3, 4, 6), cos, sin, places), (x(2, 3, 4, 6), x(2, 4, 3), x(2, 4, 3, seed=1), None)],
        interleaved=(None, 0, 1),
    )
    yield from cases("RotaryEmbedding", [(x(2, 4, 18), cos, sin, places)], interleaved=(None, 1), num_heads=(3,))
    yield from cases(
        "RotaryEmbedding", [(x(2, 3, 4, 8), cos, sin, places)], interleaved=(None, 1), rotary_embedding_dim=(6,)
    )


def quantization() -> Iterator[Case]:
    data = x(3, 4, low=-9, high=9)
    for d in ("uint8", "int8", "uint16", "int16"):
        yield from cases(
            "QuantizeLinear",
            [(data, scalar(0.05), scalar(3, d)), (data, x(3, low=0.05, high=0.2), x(3, dtype=d, low=0, high=9))],
            axis=(0,),
        )
        yield from cases(
            "QuantizeLinear", [(data, x(4, low=0.05, high=0.2), x(4, dtype=d, low=0, high=9))], axis=(None, 1, -1)
        )
        quantized = x(3, 4, dtype=d, low=-100, high=100)
        yield from cases(
            "DequantizeLinear",
            [
                (quantized, scalar(0.05), None),
                (quantized, scalar(0.05), scalar(3, d)),
                (quantized, x(4, low=0.05), x(4, dtype=d, low=0, high=9)),
            ],
            axis=(None, 1, -1),
        )
        yield from cases(
            "DequantizeLinear",
            [(quantized, x(3, 2, low=0.05, high=1), x(3, 2, dtype=d, low=0, high=9))],
            axis=(1,),
            block_size=(2,),
        )
        yield from cases(
            "QuantizeLinear",
            [(data, x(3, 2, low=0.05, high=1), x(3, 2, dtype=d, low=0, high=9))],
            axis=(1,),
            block_size=(2,),
        )
    yield from cases("QuantizeLinear", [(data, scalar(0.05), None)], output_dtype=(None, 2, 3, 4, 5))
    whole = (data, scalar(0.5), scalar(3, "int8"))
    yield from cases("QuantizeLinear", [whole], saturate=(0, 1), precision=(None, 0, 1))
    small = (x(3, 4, dtype="int8", low=-9, high=9), scalar(0.5), None)
    yield from cases("DequantizeLinear", [small], output_dtype=(None, 0, 1))
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9, np.inf, -np.inf], np.float32)
    yield from cases("QuantizeLinear", [(halves, scalar(1.0), scalar(0, d)) for d in ("uint8", "int8", "int16")])
    yield from cases("DequantizeLinear", [(x(5, dtype="int32", low=-999, high=999), scalar(0.5), None)])
    yield from cases(
        "DynamicQuantizeLinear", [(x(3, 4),), (x(5, low=1),), (x(5, high=-1),), (np.zeros(4, np.float32),)], outputs=3
    )


def losses() -> Iterator[Case]:
    labels = i64(0, 2, -1, 1)
    for op, scores in (("NegativeLogLikelihoodLoss", x(4, 3, low=-3, high=0)), ("SoftmaxCrossEntropyLoss", x(4, 3))):
        for weights in (None, x(3, low=0.1, high=2)):
            yield from cases(op, [(scores, labels.clip(0), weights)], reduction=(None, "none", "sum", "mean"))
            yield from cases(
                op, [(scores, labels, weights)], ignore_index=(-1,), reduction=(None, "none", "sum", "mean")
            )
            deep = (x(2, 3, 4, 2), x(2, 4, 2, dtype="int64", low=0, high=2), weights)
            yield from cases(op, [deep], reduction=(None, "none", "sum"), ignore_index=(None, 1))
    yield from cases(
        "SoftmaxCrossEntropyLoss",
        [(x(4, 3), labels.clip(0)), (x(2, 3, 4), x(2, 4, dtype="int64", low=0, high=2))],
        outputs=2,
        reduction=(None, "none"),
    )


def transforms() -> Iterator[Case]:
    real, pair = x(2, 8, 1), x(2, 8, 3, 2)
    axis = [scalar(a, "int64") for a in (1, -2)]
    yield from cases(
        "DFT",
        [
            (real, None, None),
            *((real, None, a) for a in axis),
            (real, scalar(6, "int64"), axis[0]),
            (real, scalar(11, "int64"), axis[0]),
            (pair[..., :2], None, axis[0]),
        ],
        known=[1, 2],
        onesided=(None, 0),
        inverse=(None, 0, 1),
    )
    yield from cases("DFT", [(real, None, axis[0]), (real, scalar(7, "int64"), axis[0])], known=[1, 2], onesided=(1,))
    yield from cases("DFT", [(pair, None, scalar(a, "int64")) for a in (0, 1, 2, -3)], known=[1, 2], inverse=(None, 1))
    signal, window = x(2, 20, 1), x(6, low=0.1, high=1)
    step = scalar(3, "int64")
    yield from cases(
        "STFT",
        [
            (signal, step, window, None),
            (signal, step, window, scalar(6, "int64")),
            (signal, step, None, scalar(8, "int64")),
        ],
        known=[1, 3],
        onesided=(None, 0, 1),
    )
    for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        yield from cases(
            op,
            [(scalar(n, "int64"),) for n in (1, 2, 7, 8)],
            known=[0],
            periodic=(None, 0, 1),
            output_datatype=(None, 1, 11),
        )
    yield from cases(
        "MelWeightMatrix",
        [(scalar(8, "int64"), scalar(16, "int64"), scalar(8000, "int64"), scalar(100.0), scalar(3000.0))],
        known=[0, 1, 2, 3, 4],
        output_datatype=(None, 1, 11),
    )
    yield from cases("Det", [(x(3, 3),), (x(2, 2, 4, 4),), (x(1, 1),), (np.zeros((2, 3, 3), np.float32),)])


def generators() -> Iterator[Case]:
    yield from cases(
        "EyeLike", [(x(3, 4),), (x(4, 2, dtype="int32"),), (x(0, 3),)], k=(None, 1, -1, 9), dtype=(None, 1, 7, 11)
    )
    yield from cases(
        "Range",
        [
            tuple(scalar(v, d) for v in bounds)
            for d in ("int32", "int64", "float32", "float64")
            for bounds in ((0, 5, 1), (5, 0, -2), (3, 3, 1), (0, 5, -1), (1, 8, 3))
        ],
        known=[0, 1, 2],
    )
    values = (None, *(Constant(np.array([3], d)) for d in ("int64", "float32", "float64", "bool", "int8", "float16")))
    yield from cases("ConstantOfShape", [(i64(2, 3),), (i64(),), (i64(0, 2),)], known=[0], value=values)


def text() -> Iterator[Case]:
    words = np.array(["Monday", "tuesday", "WEDNESDAY", "thursday"], object)
    yield from cases(
        "StringNormalizer",
        [(words,), (words.reshape(1, 4),)],
        case_change_action=(None, "NONE", "LOWER", "UPPER"),
        is_case_sensitive=(None, 0, 1),
        stopwords=(None, ("monday",), ("Monday", "thursday")),
        locale=(None, "C"),
    )
    yield from cases("StringConcat", [(words, words), (words.reshape(2, 2), words[:2]), (words, np.array("!", object))])
    lines = np.array(["a b  c", "", "one,two,,three", " x "], object)
    yield from cases(
        "StringSplit",
        [(lines,), (lines.reshape(2, 2),)],
        outputs=2,
        delimiter=(None, "", ",", " "),
        maxsplit=(None, 1, 2),
    )
    yield from cases("RegexFullMatch", [(np.array(["a1", "b", "", "aa"], object),)], pattern=("a.", "[a-z]*", ".*1"))
    tokens = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int32)
    for mode in ("TF", "IDF", "TFIDF"):
        for low, high in ((1, 1), (2, 2), (1, 2)):
            for skips in (0, 5):
                yield from cases(
                    "TfIdfVectorizer",
                    [(tokens,), (tokens[1],)],
                    mode=(mode,),
                    min_gram_length=(low,),
                    max_gram_length=(high,),
                    max_skip_count=(skips,),
                    ngram_counts=((0, 4),),
                    ngram_indexes=((0, 1, 2, 3, 4, 5, 6),),
                    pool_int64s=((2, 3, 5, 4, 5, 6, 7, 8, 6, 7),),
                    weights=(None, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)),
                )


def grams() -> Iterator[Case]:
    """Pools of words, and of other sizes than those above."""
    words = np.array(["a", "b", "c", "b", "a", "b"], object)
    pool = {"pool_strings": (("a", "c", "a", "b", "b", "a"),), "ngram_counts": ((0, 2),)}
    orders = {"ngram_indexes": ((0, 1, 2, 3), (3, 1, 0, 2))}
    lengths = {"min_gram_length": (1, 2), "max_gram_length": (2,), "max_skip_count": (0, 1)}
    yield from cases(
        "TfIdfVectorizer", [(words,), (words.reshape(2, 3),)], mode=("TF", "IDF"), **lengths, **pool, **orders
    )
    single = {"min_gram_length": (1,), "max_gram_length": (1,), "max_skip_count": (0,), "ngram_counts": ((0,),)}
    pool = {"ngram_indexes": ((0, 1),), "pool_int64s": ((1, 7),)}
    yield from cases("TfIdfVectorizer", [(i64(1, 5, 1, 7),)], mode=("TF",), **single, **pool)


NUMBERS = (
    *reductions(),
    *norms(),
    *products(),
    *attention(),
    *quantization(),
    *losses(),
    *transforms(),
    *generators(),
    *text(),
    *grams(),
)
