"""Decoding with a growing cache beside ONNX Runtime: steps of one token at several lengths of the past, and a prompt.

    python -m benchmarks.decoding [MODEL ...] [--precision float16] [--layers N] [--past 128,1024] [--prompt 512] [--threads N]
                                  [--seconds S] [--folder F]

ONNX Runtime gets its past by io-binding: what one step gives is bound as the next one's input. Steps of both are taken in turn; a
step is timed at one length, to which the cache is cut back. What is said of memory is the bytes of weights that a step reads over
the time, as a share of what a copy reads and writes here.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.decoders import DECODERS, export
from benchmarks.zoo import machine

import fusewise
from fusewise.benchmarking.limits import machine_limits
from fusewise.benchmarking.timing import TimingBudget, race
from fusewise.runtime.host import worker_count

Step = Callable[[], object]


def _feeds(tokens: int, past: int, vocabulary: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(past)
    return {
        "input_ids": rng.integers(0, vocabulary, (1, tokens)),
        "attention_mask": np.ones((1, past + tokens), np.int64),
    }


def _ours(model: fusewise.Model, tokens: int, past: int, vocabulary: int) -> Step:
    """A run of so many tokens with a cache that holds so many."""
    cache = model.bind_cache(past + tokens)
    if past:
        cache.run(_feeds(past, 0, vocabulary), ["logits"])
    feeds = _feeds(tokens, past, vocabulary)

    def step() -> object:
        cache.truncate(past)
        return cache.run(feeds, ["logits"])

    return step


def _onnxruntime(session: Any, tokens: int, past: int, vocabulary: int) -> Step:
    """The same with ONNX Runtime, which makes the arrays of its outputs."""
    import onnxruntime

    given = [one for one in session.get_inputs() if len(one.shape) == 4]
    dtype = np.float16 if "float16" in given[0].type else np.float32
    ports = {one.name: np.zeros((1, one.shape[1], 0, one.shape[3]), dtype) for one in given}
    if past:
        found = session.run(None, {**_feeds(past, 0, vocabulary), **ports})
        ports = dict(zip(ports, found[1:], strict=True))
    binding = session.io_binding()
    held = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in ports.items()}
    for name, value in (
        held | {n: onnxruntime.OrtValue.ortvalue_from_numpy(a) for n, a in _feeds(tokens, past, vocabulary).items()}
    ).items():
        binding.bind_ortvalue_input(name, value)

    def step() -> object:
        binding.clear_binding_outputs()
        for one in session.get_outputs():
            binding.bind_output(one.name)
        session.run_with_iobinding(binding)
        return binding.get_outputs()[0].numpy()

    return step


def _session(path: Path, threads: int) -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads, settings.log_severity_level = threads, 1, 3
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def _bytes_read(model: fusewise.Model, hidden: int) -> int:
    """Of weights in a step of one token: all but the table of embeddings, of which it reads a row."""
    sizes = sorted((one.nbytes for one in model.executable.contents.constants.values()), reverse=True)
    return sum(sizes) - sizes[0]


def measure(name: str, path: Path, lengths: list[int], prompt: int, threads: int, budget: TimingBudget) -> None:
    """Print a line for each length, and one for the prompt."""
    row = DECODERS[name]
    model, session = fusewise.compile(path, threads=threads, grow=True), _session(path, threads)
    read, vocabulary = _bytes_read(model, row.sizes["hidden_size"]), row.sizes["vocab_size"]
    copy = machine_limits(threads).copy_gbs
    print(f"{path.stem}: a step reads {read / 1e9:.2f} GB of weights; a copy moves {copy:.1f} GB/s")
    for tokens, past in (*((1, length) for length in lengths), (prompt, 0)):
        steps = [_ours(model, tokens, past, vocabulary), _onnxruntime(session, tokens, past, vocabulary)]
        a, b = (np.asarray(step()).reshape(tokens, -1).astype(np.float32) for step in steps)
        difference = float(np.abs(a - b).max() / np.abs(b).max())
        ours, other = race(steps, budget)
        share = read / ours.p50_ms / 1e6 / copy
        speed = f"{ours.p50_ms:.1f} ms ({1e3 * tokens / ours.p50_ms:.1f} tokens/s, least {ours.min_ms:.1f} ms)"
        beside = f"ONNX Runtime {other.p50_ms:.1f} (least {other.min_ms:.1f}), ratio {other.p50_ms / ours.p50_ms:.2f}"
        read_share = f", {100 * share:.0f} % of a copy" if tokens == 1 else ""
        print(f"  {tokens} after {past}: {speed}; {beside}{read_share}; answers differ by {difference:.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=["qwen2.5-0.5b", "llama3.2-1b"], metavar="MODEL")
    parser.add_argument("--precision", default="float32", choices=["float32", "float16"], help="of the exported model")
    parser.add_argument("--layers", type=int, help="so many in place of all")
    parser.add_argument("--past", default="128,1024", help="lengths of the past, with commas")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seconds", type=float, default=6.0, help="for each runtime and length")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "fusewise-decoders")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    print(machine(asked.threads))
    budget = TimingBudget(runs=15, seconds=asked.seconds, limit_seconds=12 * asked.seconds)
    for name in asked.models:
        path = export(name, asked.folder, asked.layers, asked.precision)
        lengths = [int(one) for one in asked.past.split(",")]
        measure(name, path, lengths, asked.prompt, worker_count(asked.threads), budget)


if __name__ == "__main__":
    main()
