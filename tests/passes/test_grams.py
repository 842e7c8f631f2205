"""Counting words by comparisons gives what ONNX Runtime gives, natively where no words are skipped."""

from __future__ import annotations

import numpy as np
from tests.ops.options.numbers import NUMBERS
from tests.ops.options.ways import by_onnx_runtime, difference, model_of

import fusewise

CASES = [case for case in NUMBERS if case.op == "TfIdfVectorizer" and np.asarray(case.inputs[0]).dtype != object]


def test_numbers_are_counted_natively() -> None:
    tried = [case for case in CASES if not case.attributes["max_skip_count"]][::3]
    assert len(tried) > 10
    for case in tried:
        right, (model, feeds) = by_onnx_runtime(case), model_of([case])
        assert not isinstance(right, str)
        found = fusewise.compile(model, cache=False, threads=1, strict=True).run(None, feeds)
        assert difference(found, right) is None, case.label
