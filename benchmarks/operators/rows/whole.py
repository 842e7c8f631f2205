"""Text, sequences, optionals and control flow."""

from __future__ import annotations

from benchmarks.operators.row import Operand, Row, k, one, words, x

_PARTS: tuple[list[Operand], ...] = ([x(1, 64)] * 4, [x(1, 256, 56, 56)] * 4)
_HIDDEN, _MAP = x(128, 768), x(1, 64, 56, 56)

TEXT: tuple[Row, ...] = (
    Row("RegexFullMatch", ((words(100),), (words(10000),)), {"pattern": "[a-z ]*"}),
    Row("StringConcat", ((words(100), words(100)), (words(10000), words(10000)))),
    Row(
        "StringNormalizer",
        ((words(100),), (words(10000),)),
        {"case_change_action": "LOWER", "is_case_sensitive": 0, "locale": "C", "stopwords": ["monday"]},
    ),
    Row("StringSplit", ((words(100),), (words(10000),)), {"delimiter": " "}, outputs=2),
    Row(
        "TfIdfVectorizer",
        ((x(1, 64, of="int64", low=0, high=50),), (x(64, 256, of="int64", low=0, high=50),)),
        {
            "mode": "TFIDF",
            "min_gram_length": 1,
            "max_gram_length": 2,
            "max_skip_count": 0,
            "ngram_counts": [0, 50],
            "ngram_indexes": list(range(100)),
            "pool_int64s": [*range(50), *(n for a in range(50) for n in (a, (a + 1) % 50))],
            "weights": [0.5] * 100,
        },
    ),
)

SEQUENCES: tuple[Row, ...] = (
    Row("ConcatFromSequence", tuple((part,) for part in _PARTS), {"axis": 0}),
    Row("SequenceAt", tuple((part, one(1)) for part in _PARTS)),
    Row("SequenceConstruct", tuple(tuple(part) for part in _PARTS)),
    Row("SequenceEmpty", ((), ())),
    Row("SequenceErase", tuple((part, one(1)) for part in _PARTS)),
    Row("SequenceInsert", tuple((part, part[0], one(1)) for part in _PARTS)),
    Row("SequenceLength", tuple((part,) for part in _PARTS)),
    Row("SplitToSequence", ((_HIDDEN, one(32)), (x(64, 56, 56), one(16)))),
    Row("Optional", ((_HIDDEN,), (_MAP,))),
    Row("OptionalGetElement", ((_HIDDEN,), (_MAP,))),
    Row("OptionalHasElement", ((_HIDDEN,), (_MAP,))),
    Row(
        "SequenceMap", tuple((part,) for part in _PARTS), {"body": "body (float[N] e) => (float[N] r) { r = Relu(e) }"}
    ),
)

_BRANCHES = {
    "then_branch": "body () => (float[N, M] r) { c = Constant<value = float[2, 2] {1, 2, 3, 4}>() r = Relu(c) }",
    "else_branch": "body () => (float[N, M] r) { c = Constant<value = float[2, 2] {1, 2, 3, 4}>() r = Neg(c) }",
}
_LOOP = "body (int64 n, bool go, float[N, M] s) => (bool on, float[N, M] r) { on = Identity(go) r = Relu(s) }"
_SCAN = "body (float[M] s, float[M] e) => (float[M] r, float[M] q) { r = Add(s, e) q = Identity(r) }"

CONTROL: tuple[Row, ...] = (
    Row("If", ((x(of="bool"),), (x(of="bool"),)), _BRANCHES),
    Row("Loop", ((k(10), one(True, "bool"), x(16, 64)), (k(100), one(True, "bool"), x(128, 768))), {"body": _LOOP}),
    Row("Scan", ((x(64), x(16, 64)), (x(512), x(128, 512))), {"body": _SCAN, "num_scan_inputs": 1}, outputs=2),
)
