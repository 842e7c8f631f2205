"""What elementwise operators, reductions, normalisations and signal operators ask of their operands."""

from __future__ import annotations

from fusewise.ops.validity.rules import (
    at_least,
    axes,
    axes_of_operand,
    axis,
    axis_of_operand,
    between,
    dim,
    divides,
    element_type,
    flag,
    given,
    one_of,
    values_within,
)
from fusewise.ops.validity.use import Rule, Use, ValidityRow, shown

__all__ = ["PLAIN"]

_REDUCTIONS = ("Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
_BINARY = (
    *("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    *(
        "Equal",
        "Less",
        "LessOrEqual",
        "Greater",
        "GreaterOrEqual",
        "Max",
        "Min",
        "Sum",
        "Mean",
        "Where",
        "StringConcat",
    ),
)


def _broadcast(use: Use) -> str:
    """All operands broadcast together."""
    extents: list[int] = []
    for i in range(len(use.node.inputs)):
        for k, dim_ in enumerate(reversed(use.shape(i) or ())):
            if k == len(extents):
                extents.append(1)
            if not isinstance(dim_, int) or dim_ in (1, extents[k]):
                continue
            if extents[k] != 1:
                return (
                    f"{use.operand(i)} has the shape {shown(use.shape(i))}, which does not broadcast with those before"
                )
            extents[k] = dim_
    return ""


def _normalised(use: Use) -> str:
    """Scale and bias broadcast to what is normalised; they may not reach beyond, nor be larger."""
    data, along = use.shape(0), use.attribute("axis")
    if data is None:
        return ""
    for i in (1, 2):
        shape = use.shape(i)
        if shape is None:
            continue
        pairs = zip(reversed(shape), reversed(data), strict=False)
        if len(shape) <= len(data) and all(
            a == 1 or not isinstance(a, int) or not isinstance(b, int) or a == b for a, b in pairs
        ):
            continue
        return (
            f"{use.operand(i)} has the shape {shown(shape)}; it must broadcast to {use.operand(0)}, {shown(data)}, "
            f"normalised from axis {along} on"
        )
    return ""


def _some(use: Use) -> str:
    """There is a largest or smallest element only where there are any."""
    along = use.attribute("axis")
    empty = use.extent(0, along) == 0 and use.shape(0) is not None and (use.shape(0) or ()).count(0) == 1
    return f"axis {along} of {use.operand(0)} is empty, and nothing in it extreme" if empty else ""


def _mod(use: Use) -> str:
    kind = use.dtype(0)
    if kind is None or not kind.is_float or use.attribute("fmod") or use.opset >= 28:
        return ""
    return "its operands are floats, so before opset 28 its attribute fmod must be 1"


def _dft(use: Use) -> str:
    """The last dimension holds one real number or two, and is not transformed."""
    last, length = use.extent(0, -1), use.values(1)
    if last not in (None, 1, 2):
        return f"the last extent of {use.operand(0)} is {last}; it must be 1 for real or 2 for complex numbers"
    if use.rank(0) is not None and (use.rank(0) or 0) < 2:
        return f"{use.operand(0)} has {use.rank(0)} dimensions; it must have two or more"
    if length and length[0] < 1:
        return f"{use.operand(1)} is {length[0]}; it must be positive"
    if use.attribute("onesided") and last is not None and last != (2 if use.attribute("inverse") else 1):
        return f"it is one-sided, so the last extent of {use.operand(0)} must be {3 - last}, not {last}"
    return ""


def _stft(use: Use) -> str:
    """Frames as long as the window lie within the signal."""
    step, frame, window = use.values(1), use.values(3), use.extent(2, 0)
    last, signal = use.extent(0, -1), use.extent(0, 1)
    if last not in (None, 1, 2):
        return f"the last extent of {use.operand(0)} is {last}; it must be 1 for real or 2 for complex numbers"
    if last == 2 and use.attribute("onesided"):
        return "its signal is complex, so its attribute onesided must be 0"
    if step and step[0] < 1:
        return f"{use.operand(1)} is {step[0]}; it must be positive"
    if frame and (frame[0] < 1 or (window is not None and frame[0] != window)):
        return f"{use.operand(3)} is {frame[0]}; it must be positive" + (
            "" if window is None else f" and the window's {window}"
        )
    length = frame[0] if frame else window
    if window == 0:
        return f"{use.operand(2)} is empty"
    if length is not None and signal is not None and length > signal:
        return f"its frames have {length} elements, but {use.operand(0)} has only {signal}"
    return ""


def _seeded(op: str, *rules: Rule) -> ValidityRow:
    return ValidityRow(op, rules=(element_type("dtype"), *rules))


def _ngrams(use: Use) -> str:
    """The counts cut the pool into n-grams of each length; every one has a place in the output, and may have a weight."""
    counts, places, weights = (use.attribute(name) for name in ("ngram_counts", "ngram_indexes", "weights"))
    pool = use.attribute("pool_strings") or use.attribute("pool_int64s") or ()
    if list(counts) != sorted(counts) or max(counts, default=0) > len(pool):
        return f"its attribute ngram_counts is {shown(counts)}; it must grow, within a pool of {len(pool)} items"
    ends = (*counts, len(pool))[1:]
    sizes = [end - begin for begin, end in zip(counts, ends, strict=True)]
    if any(size % n for n, size in enumerate(sizes, 1)):
        return f"its attribute ngram_counts is {shown(counts)}, which does not cut a pool of {len(pool)} items into n-grams"
    total = sum(size // n for n, size in enumerate(sizes, 1))
    if len(places) != total:
        return f"its attribute ngram_indexes has {len(places)} items for {total} n-grams"
    if weights is not None and len(weights) != total:
        return f"its attribute weights has {len(weights)} items for {total} n-grams"
    least, most = use.attribute("min_gram_length"), use.attribute("max_gram_length")
    if not 1 <= least <= most <= len(counts):
        return f"its n-grams are {least} to {most} items long; ngram_counts has lengths 1 to {len(counts)}"
    return ""


_LOSS = "N C *S, N *S, C"
_CHOSEN = one_of("reduction", "none", "mean", "sum")
_WINDOW: tuple[Rule, ...] = (flag("periodic"), element_type("output_datatype"), values_within(0, 0))

PLAIN: tuple[ValidityRow, ...] = (
    *(ValidityRow(op, rules=(_broadcast,)) for op in _BINARY),
    ValidityRow("Mod", rules=(flag("fmod"), _mod, _broadcast)),
    ValidityRow("BitShift", rules=(one_of("direction", "LEFT", "RIGHT"), _broadcast)),
    ValidityRow("PRelu", "*X, <X"),
    ValidityRow("Clip", "_, one, one"),
    ValidityRow("Gelu", rules=(one_of("approximate", "none", "tanh"),)),
    ValidityRow("IsInf", rules=(flag("detect_negative", "detect_positive"),)),
    ValidityRow("Cast", rules=(element_type("to"), flag("saturate"), one_of("round_mode", "up", "down", "nearest"))),
    ValidityRow("CastLike", rules=(flag("saturate"),)),
    ValidityRow("BitCast", rules=(element_type("to"),)),
    ValidityRow("Dropout", "_, one, one"),
    *(
        ValidityRow(
            f"Reduce{kind}", "_, R", (flag("keepdims", "noop_with_empty_axes"), axes_of_operand(1, distinct=False))
        )
        for kind in _REDUCTIONS
    ),
    *(ValidityRow(op, rules=(flag("keepdims", "select_last_index"), axis(), _some)) for op in ("ArgMax", "ArgMin")),
    *(ValidityRow(op, rules=(axis(),)) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    ValidityRow("LpNormalization", rules=(axis(), one_of("p", 1, 2))),
    ValidityRow("LRN", "N C ...", (between("size", 1),)),
    ValidityRow("MeanVarianceNormalization", rules=(axes(),)),
    ValidityRow("BatchNormalization", "N C ... | N, C, C, C, C", (flag("training_mode"),)),
    ValidityRow("InstanceNormalization", "N C ..., C, C"),
    ValidityRow(
        "GroupNormalization",
        "N C ..., C, C",
        (
            between("num_groups", 1),
            divides(
                given("num_groups"), dim(0, 1), "its attribute num_groups must divide the number of channels evenly"
            ),
            element_type("stash_type", floats=True),
        ),
    ),
    *(
        ValidityRow(op, rules=(axis(), element_type("stash_type", floats=True), _normalised))
        for op in ("LayerNormalization", "RMSNormalization")
    ),
    ValidityRow("Det", "... M M"),
    ValidityRow("DFT", "_, one, one", (flag("inverse", "onesided"), axis_of_operand(2, last=1), _dft)),
    ValidityRow("STFT", "N L ., one, W, one", (flag("onesided"), _stft)),
    *(ValidityRow(op, "one", _WINDOW) for op in ("HannWindow", "HammingWindow", "BlackmanWindow")),
    ValidityRow(
        "MelWeightMatrix",
        "one, one, one, one, one",
        (element_type("output_datatype"), *(values_within(i, 0) for i in range(5))),
    ),
    *(ValidityRow(op, _LOSS, (_CHOSEN,)) for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")),
    _seeded("Bernoulli"),
    _seeded("RandomNormal", between("shape", 0)),
    _seeded("RandomUniform", between("shape", 0)),
    _seeded("RandomNormalLike"),
    _seeded("RandomUniformLike"),
    ValidityRow("Multinomial", "N C", (element_type("dtype"), between("sample_size", 0))),
    ValidityRow(
        "StringNormalizer",
        "C | 1 C",
        (one_of("case_change_action", "NONE", "LOWER", "UPPER"), flag("is_case_sensitive")),
    ),
    ValidityRow(
        "TfIdfVectorizer",
        "C | N C",
        (one_of("mode", "TF", "IDF", "TFIDF"), at_least(0, "ngram_counts", "ngram_indexes", "max_skip_count"), _ngrams),
    ),
    ValidityRow("ImageDecoder", "L", (one_of("pixel_format", "RGB", "BGR", "Grayscale"),)),
)
