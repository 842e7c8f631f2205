# ruff: noqa: T201
"""Greedy decoding: a prompt goes through a decoder once, then every token that comes out is the next one that goes in.

    python examples/generate.py MODEL [--prompt 1,2,3] [--tokens 64] [--threads N]

MODEL is an ONNX file that takes `input_ids`, an `attention_mask`, perhaps `position_ids`, and what is past, and gives logits first;
or the name of a decoder of `benchmarks.decoders`, which is made with random weights. Tokens are numbers: what they stand for is a
tokenizer's business. Both ways are shown and timed: with a cache that grows in place, and by handing outputs back as inputs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fusewise

Step = Callable[[np.ndarray], np.ndarray]
"""Takes tokens (1, n), gives logits (1, n, vocabulary)."""


def inputs_of(model: fusewise.Model, tokens: np.ndarray, past: int) -> dict[str, np.ndarray]:
    """All inputs but what is past, for tokens that come after so many."""
    count = tokens.shape[1]
    found = {
        "input_ids": tokens,
        "attention_mask": np.ones((1, past + count), np.int64),
        "position_ids": np.arange(past, past + count)[None],
    }
    wanted = {port.name for port in model.get_inputs()}
    return {name: array for name, array in found.items() if name in wanted}


def with_cache(model: fusewise.Model, capacity: int) -> Step:
    """Keys and values stay where they are; a step writes those of its own tokens behind them."""
    cache = model.bind_cache(capacity)
    first = model.get_outputs()[0].name

    def step(tokens: np.ndarray) -> np.ndarray:
        logits: np.ndarray = cache.run(inputs_of(model, tokens, cache.length), [first])[0]
        return logits

    return step


def without_cache(model: fusewise.Model) -> Step:
    """Keys and values are outputs that the next step takes, and are copied by each."""
    ports = [port for port in model.get_inputs() if len(port.shape) == 4]
    past = {port.name: np.zeros((1, int(port.shape[1]), 0, int(port.shape[3])), np.float32) for port in ports}

    def step(tokens: np.ndarray) -> np.ndarray:
        length = next(iter(past.values())).shape[2]
        logits, *present = model.run(None, {**inputs_of(model, tokens, length), **past})
        past.update(zip(past, present, strict=True))
        return np.asarray(logits)

    return step


def generate(step: Step, prompt: list[int], count: int) -> tuple[list[int], float, float]:
    """So many tokens after a prompt, the seconds that the prompt took, and those that the other tokens took."""
    begin = time.perf_counter()
    found = [int(step(np.array([prompt]))[0, -1].argmax())]
    first = time.perf_counter()
    while len(found) < count:
        found.append(int(step(np.array([found[-1:]]))[0, -1].argmax()))
    return found, first - begin, time.perf_counter() - first


def model_file(name: str) -> Path:
    """A file that is there, or a decoder that is made."""
    if Path(name).is_file():
        return Path(name)
    from benchmarks.decoders import export

    folder = Path(tempfile.gettempdir()) / "fusewise-decoders"
    folder.mkdir(exist_ok=True)
    return export(name, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--prompt", default="1,2,3,4,5,6,7,8", help="numbers of tokens, with commas")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    prompt = [int(one) for one in asked.prompt.split(",")]
    model = fusewise.compile(model_file(asked.model), threads=asked.threads)
    steps = {
        "with a cache": with_cache(model, len(prompt) + asked.tokens),
        "without": without_cache(model),
    }
    for name, step in steps.items():
        tokens, first, rest = generate(step, prompt, asked.tokens)
        print(f"{name}: the first after {first * 1e3:.1f} ms, then {(len(tokens) - 1) / rest:.1f} tokens/s: {tokens}")


if __name__ == "__main__":
    main()
