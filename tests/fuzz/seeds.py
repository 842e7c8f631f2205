"""What a fuzzer starts from: the models of ONNX's own node tests, one for nearly every option of every operator."""

from __future__ import annotations

import functools
import warnings

__all__ = ["MOST_BYTES", "seed_models"]

MOST_BYTES = 1 << 16
"""Larger models are left out: they take long and hold nothing that the smaller ones do not."""


@functools.cache
def seed_models() -> tuple[bytes, ...]:
    """Serialized models, in the order of their tests' names."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite makes its own data, infinities and all
        cases = [case for kind in ("node", "simple") for case in load_model_tests(kind=kind)]
    models = {case.name: case.model for case in cases if case.model is not None}
    found = [models[name].SerializeToString(deterministic=True) for name in sorted(models)]
    return tuple(data for data in found if len(data) <= MOST_BYTES)
