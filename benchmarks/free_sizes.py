"""What free dimensions cost: one compiled model for all sizes beside models compiled for one, and other runtimes.

    python -m benchmarks.free_sizes speed [MODEL ...] [--threads N] [--seconds S] [--only SIZES]
    python -m benchmarks.free_sizes stream [--requests N] [--more N]     random lengths through BERT-base, and resident memory
    python -m benchmarks.free_sizes overhead                             what a new size and one that comes back cost

Models are `transformers` architectures of their usual sizes with random weights, exported with free dimensions into a folder that
is kept (`--folder`). Runtimes take turns, in one process; every line has medians and, behind them, the shortest runs.
"""

from __future__ import annotations

import argparse
import gc
import resource
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.zoo import machine

from fusewise import api
from fusewise.benchmarking.timing import Timing, TimingBudget, race

__all__ = ["SUBJECTS", "Subject", "exported"]

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Subject:
    """A model by name: how the module is made of the package, which of its results is taken, and the sizes it is timed at.

    `ids`: it takes token numbers [batch, sequence], else images [batch, 3, height, width].
    """

    name: str
    make: Callable[[Any], Any]
    result: str
    ids: bool
    sizes: tuple[Sizes, ...]

    @property
    def axes(self) -> dict[int, str]:
        """The free dimensions of the input, by axis."""
        names = ("batch", "sequence") if self.ids else ("batch", "channels", "height", "width")
        return {axis: name for axis, name in enumerate(names) if name in self.sizes[0]}

    def feed(self, sizes: Sizes, seed: int = 0) -> dict[str, np.ndarray]:
        """An input of these sizes."""
        rng = np.random.default_rng(seed)
        if self.ids:
            return {"x": rng.integers(0, 1000, (sizes["batch"], sizes["sequence"]))}
        shape = (sizes["batch"], 3, sizes.get("height", 224), sizes.get("width", 224))
        return {"x": rng.standard_normal(shape, dtype=np.float32)}


def _tokens(*lengths: int) -> tuple[Sizes, ...]:
    return tuple({"batch": batch, "sequence": length} for batch in (1, 8) for length in lengths)


SUBJECTS = {
    one.name: one
    for one in (
        Subject("bert", lambda t: t.BertModel(t.BertConfig()), "last_hidden_state", True, _tokens(16, 128, 384)),
        Subject(
            "resnet50",
            lambda t: t.ResNetForImageClassification(t.ResNetConfig()),
            "logits",
            False,
            tuple({"batch": batch, "height": side, "width": side} for batch in (1, 8) for side in (224, 320)),
        ),
        Subject("gpt2", lambda t: t.GPT2LMHeadModel(t.GPT2Config(use_cache=False)), "logits", True, _tokens(16, 128)),
        Subject("vit", lambda t: t.ViTModel(t.ViTConfig()), "last_hidden_state", False, ({"batch": 1}, {"batch": 8})),
    )
}


def exported(subject: Subject, folder: Path) -> Path:
    """The model with free dimensions as a file, which is made unless it is there."""
    path = folder / f"{subject.name}.onnx"
    if path.exists():
        return path
    import torch
    import transformers

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = subject.make(transformers)

        def forward(self, x: Any) -> Any:
            return self.inside(x)[subject.result]

    torch.manual_seed(0)
    module = Wrapped().eval()
    example = torch.from_numpy(subject.feed({"batch": 2, "sequence": 17}).popitem()[1])
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        names = {"input_names": ["x"], "output_names": ["y"], "dynamic_shapes": (subject.axes,)}
        torch.onnx.export(module, (example,), str(path), dynamo=True, external_data=False, **names)
    return path


def _other(path: Path, name: str, threads: int) -> Callable[[Mapping[str, np.ndarray]], Any]:
    """Another runtime with shapes left free."""
    if name == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return lambda feed: session.run(None, dict(feed))
    import openvino

    hints = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(str(path), "CPU", hints).create_infer_request()
    return lambda feed: request.infer(dict(feed))


def speed(subjects: Sequence[Subject], folder: Path, threads: int, seconds: float) -> None:
    """Free beside specialised and others, at the same sizes."""
    ratios: dict[str, list[float]] = {}
    for subject in subjects:
        path = exported(subject, folder)
        free, compiling = _compiled(path, threads, {})
        others = {name: _other(path, name, threads) for name in ("onnxruntime", "openvino")}
        for sizes in subject.sizes:
            one, fixed = _compiled(path, threads, sizes)
            feed = subject.feed(sizes)
            calls = {"specialised": lambda one=one, feed=feed: one.run(None, feed)}
            calls |= {name: lambda run=run, feed=feed: run(feed) for name, run in others.items()}
            calls = {"free": lambda run=free.run, feed=feed: run(None, feed), **calls}
            found = race(list(calls.values()), _budget(seconds))
            told = [f"free {_told(found[0])}"]
            for name, timing in list(zip(calls, found, strict=True))[1:]:
                ratio = timing.p50_ms / found[0].p50_ms
                ratios.setdefault(name, []).append(ratio)
                told.append(f"{name} {_told(timing)} {ratio:.2f}x (least {timing.min_ms / found[0].min_ms:.2f}x)")
            print(subject.name, *(f"{k}={v}" for k, v in sizes.items()), "|", "; ".join(told), flush=True)
            print(f"    compiled in {compiling:.2f} s free, {fixed:.2f} s for one size", flush=True)
            del one
            gc.collect()
    for name, found in ratios.items():
        mean = float(np.exp(np.mean(np.log(found))))
        print(f"{name} / free: geometric mean {mean:.3f}, least {min(found):.3f}, of {len(found)}")


def _compiled(path: Path, threads: int, sizes: Sizes) -> tuple[Any, float]:
    begin = time.perf_counter()
    model = api.compile(path, threads=threads, cache=False, symbols=dict(sizes))
    return model, time.perf_counter() - begin


def _budget(seconds: float) -> TimingBudget:
    return TimingBudget(runs=20, seconds=seconds, limit_seconds=20 * seconds)


def _told(timing: Timing) -> str:
    return f"{timing.p50_ms:.2f} ms [{timing.min_ms:.2f}]"


def stream(folder: Path, threads: int, requests: int, more: int) -> None:
    """Requests of random lengths, one after the other."""
    subject = SUBJECTS["bert"]
    path = exported(subject, folder)
    lengths = np.random.default_rng(1).integers(1, 385, requests)
    feeds = [subject.feed({"batch": 1, "sequence": int(n)}) for n in lengths]
    model = _compiled(path, threads, {})[0]
    model.run(None, subject.feed({"batch": 1, "sequence": 384}))
    largest = _resident_mb()
    for feed in feeds:
        model.run(None, feed)
    before = _resident_mb()
    small = [feed for feed in feeds if feed["x"].shape[1] <= 32] or feeds[:1]
    for number in range(more):
        model.run(None, small[number % len(small)])
    print(
        f"resident {largest:.0f} MB after the largest size; {before:.0f} and {_resident_mb():.0f} MB around {more} more"
    )
    other = _other(path, "onnxruntime", threads)
    other(feeds[0])
    ours, theirs = [], []
    for begin in range(0, requests, 10):
        some = feeds[begin : begin + 10]
        ours.append(_seconds(lambda some=some: [model.run(None, feed) for feed in some]))
        theirs.append(_seconds(lambda some=some, run=other: [run(feed) for feed in some]))
    print(f"{requests} requests: {sum(ours):.2f} s, onnxruntime {sum(theirs):.2f} s, {sum(theirs) / sum(ours):.2f} x")


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def overhead(folder: Path, threads: int) -> None:
    """A small model: the first run at a size, beside the same run again and one where sizes are known."""
    subject = SUBJECTS["bert"]
    path = exported(subject, folder)
    model = _compiled(path, threads, {})[0]
    firsts, agains = [], []
    for length in range(3, 67):
        feed = subject.feed({"batch": 1, "sequence": length})
        firsts.append(_seconds(lambda feed=feed: model.run(None, feed)))
        agains.append(min(_seconds(lambda feed=feed: model.run(None, feed)) for _ in range(5)))
    extra = np.median(np.array(firsts) - np.array(agains)) * 1e6
    print(f"a new size takes {extra:.0f} us more than the same again (median of {len(firsts)}), with caches gone cold")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "stream", "overhead"))
    parser.add_argument("models", nargs="*", default=list(SUBJECTS))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "free-sizes")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--more", type=int, default=10_000)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    print(machine(given.threads))
    if given.what == "speed":
        speed([SUBJECTS[name] for name in given.models], given.folder, given.threads, given.seconds)
    elif given.what == "stream":
        stream(given.folder, given.threads, given.requests, given.more)
    else:
        overhead(given.folder, given.threads)


if __name__ == "__main__":
    main()
