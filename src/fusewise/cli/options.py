"""The options that verbs share: their names, help texts, and how their texts are read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Container, Iterable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusewise.cli.completion import decision_names, model_names, one_of
from fusewise.cli.streams import note
from fusewise.errors import UsageError

if TYPE_CHECKING:
    from fusewise.api import Options
    from fusewise.ir.graph import Graph

__all__ = [
    "Cache",
    "Device",
    "Disable",
    "Exact",
    "Exported",
    "Fusion",
    "Json",
    "MemoryLimit",
    "ModelName",
    "Precision",
    "Sanitize",
    "Seed",
    "Shapes",
    "Strict",
    "Symbols",
    "Threads",
    "Tune",
    "Values",
    "bytes_given",
    "check_folder",
    "check_for_cpu",
    "is_given",
    "model_of",
    "numbers_of",
    "options_of",
    "shapes_of",
    "sizes_of",
    "source_of",
    "symbols_of",
    "threads_of",
    "values_of",
]

ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A path to an .onnx file, zoo:NAME, or file.py:NAME of a PyTorch module: the file is run.",
        autocompletion=model_names,
    ),
]
Exported = Annotated[
    bool,
    typer.Option(
        "--exported",
        help="Take zoo:NAME as exporters of 2020 wrote it, in primitives and shape arithmetic (zoo:NAME@exported).",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=1x3x224x224", help="The shape of an input; may be given for several."),
]
Symbols = Annotated[
    list[str] | None,
    typer.Option(
        "--symbol",
        metavar="NAME=N",
        help="The size of a symbolic dimension, or, of one that stays free, its range and the size to plan for: NAME=1..2048,128. "
        "For a GPU several: NAME=1,8,32.",
    ),
]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="NAME=[1,2]",
        help="The contents of an input, as JSON, for good: it is none of the compiled model; may be given for several.",
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", "-t", min=1, help="Workers (default: what this machine offers).")
]
Exact = Annotated[
    bool, typer.Option("--exact", help="Refuse rewrites that may change a rounding, Winograd and Strassen.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Fail if an operator has no native code.")]
Disable = Annotated[
    list[str] | None,
    typer.Option(
        "--disable",
        metavar="NAME[@NODE]",
        help="A pass, rule or kernel not to use; may be repeated.",
        autocompletion=decision_names,
    ),
]
Cache = Annotated[bool, typer.Option("--cache/--no-cache", help="Keep compiled kernels for the next time.")]
Fusion = Annotated[
    str,
    typer.Option(
        "--fusion",
        metavar="PLANNER",
        autocompletion=one_of("fusewise.fusion.plan", "PLANNERS"),
        help="How nodes are fused: dnnfusion, published (grown in the order of its paper), patterns (fixed ones) or none.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="TYPE",
        help="Convolutions and products compute on float32, bfloat16 (approximate), on GPUs tf32; with float16 by rounded weights.",
        autocompletion=one_of("fusewise.codegen.gpu.legal", "GPU_PRECISIONS"),
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="cpu|cuda[:N]|cuda:sm_90",
        help="What it is for: this CPU, the GPU that is here, or GPUs of an architecture, with or without one.",
        autocompletion=one_of("fusewise.codegen.gpu.device", "DEVICE_TEXTS"),
    ),
]
Sanitize = Annotated[
    bool,
    typer.Option(
        "--sanitize", help="Kernels look at every load and store, and say which is outside of its operands: slow."
    ),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="SIZE",
        help="The most that weights, intermediate results and outputs may take together, such as 512MiB.",
    ),
]
Specialize = Annotated[
    int,
    typer.Option(
        "--specialize",
        min=0,
        metavar="N",
        help="Of free dimensions, give at most N sizes that keep coming back in this process a program of their own.",
    ),
]
Tune = Annotated[
    float,
    typer.Option("--tune", min=0.0, metavar="SECONDS", help="Measure what is fastest here, and keep it for later."),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the random inputs.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

THREADS_VARIABLE = "FUSEWISE_THREADS"


def model_of(model: str, exported: bool) -> str:
    """The name of MODEL in the form that was asked for; `UsageError` where it has none but its own."""
    if not exported:
        return model
    from fusewise.api import ZOO
    from fusewise.zoo.styles import AS_EXPORTED

    if not model.startswith(ZOO):
        raise UsageError(f"--exported is a form of zoo models, and {model} is as its exporter wrote it; leave it out")
    name, _, style = model.partition("@")
    if style not in ("", AS_EXPORTED):
        raise UsageError(f"{model} is to be written as by {style}; leave out that or --exported")
    return f"{name}@{AS_EXPORTED}"


def source_of(model: str) -> str | Graph:
    """What MODEL names: a module in a file of Python as its graph, everything else by its name.

    The file is run, so only the command line, where a user names a program, has this form.
    """
    from fusewise.frontend.torch_file import graph_in, is_module_name

    return graph_in(model) if is_module_name(model) else model


def shapes_of(texts: Iterable[str] | None) -> dict[str, tuple[int, ...]]:
    """`x=1x3x224x224` as {"x": (1, 3, 224, 224)}; `x=` is a scalar. `UsageError` for anything else."""
    found: dict[str, tuple[int, ...]] = {}
    for text in texts or ():
        name, _, dims = text.rpartition("=")
        if not name or not re.fullmatch(r"(\d+([x,]\d+)*)?", dims):
            raise UsageError(f"--shape {text!r} is not of the form NAME=1x3x224x224")
        _require_once("--shape", name, found)
        found[name] = tuple(int(dim) for dim in re.split("[x,]", dims)) if dims else ()
    return found


def symbols_of(texts: Iterable[str] | None) -> dict[str, int | str]:
    """`batch=4` as {"batch": 4}, `batch=1..64,8` as {"batch": "1..64,8"} and `batch=1,8` as {"batch": "1,8"}; `UsageError` for
    anything else."""
    found: dict[str, int | str] = {}
    for text in texts or ():
        name, _, size = text.rpartition("=")
        if not name or not re.fullmatch(r"\d+(\.\.\d*)?(,\d+)*", size):
            raise UsageError(f"--symbol {text!r} is not of the form NAME=N, or NAME=1..2048,128, or NAME=1,8")
        _require_once("--symbol", name, found)
        found[name] = int(size) if size.isdecimal() else size
    return found


def _require_once(option: str, name: str, found: Container[str]) -> None:
    if name in found:
        raise UsageError(f"{option} is given twice for {name!r}; give it once")


def numbers_of(texts: Iterable[str] | None) -> dict[str, int]:
    """As `symbols_of`, where a range will not do."""
    found: dict[str, int] = {}
    for name, size in symbols_of(texts).items():
        if isinstance(size, str):
            raise UsageError(f"--symbol {name}={size}: every dimension must have a size here; give one number")
        found[name] = size
    return found


def sizes_of(texts: Iterable[str] | None) -> tuple[list[str], list[dict[str, int]]]:
    """Of `batch=1,8` and `sequence=16,128` the sizes to be tried, each with each; and the texts that are no such lists."""
    lists: dict[str, list[int]] = {}
    others: list[str] = []
    symbols_of(texts)
    for text in texts or ():
        name, _, sizes = text.rpartition("=")
        if name and re.fullmatch(r"\d+(,\d+)+", sizes):
            lists[name] = [int(size) for size in sizes.split(",")]
        else:
            others.append(text)
    return others, [dict(zip(lists, chosen, strict=True)) for chosen in product(*lists.values())] if lists else []


def values_of(texts: Iterable[str] | None) -> dict[str, Any]:
    """`axes=[1]` as {"axes": [1]}; `UsageError` for anything else."""
    found: dict[str, Any] = {}
    for text in texts or ():
        name, _, contents = text.partition("=")
        _require_once("--value", name, found)
        try:
            found[name] = json.loads(contents)
        except (ValueError, RecursionError):
            name = ""
        if not name or isinstance(found[name], dict):
            raise UsageError(f"--value {text!r} is not of the form NAME=[1,2], a number or list as JSON has them")
    return found


def threads_of(given: int | None) -> int | None:
    """The thread count: from the command line, else from the environment, else None."""
    named = os.environ.get(THREADS_VARIABLE, "")
    if given is not None:
        _tell_of_too_many(given)
        return given
    if not named:
        return None
    if not named.isdecimal() or int(named) < 1:
        raise UsageError(f"{THREADS_VARIABLE} is {named!r}; it must be a number of threads")
    return int(named)


def _tell_of_too_many(threads: int) -> None:
    """Say what comes of more workers than there are cores for."""
    from fusewise.runtime.host import worker_count

    offered = worker_count(None)
    if threads > offered:
        note(
            f"{threads} threads share {offered} core{'s' if offered > 1 else ''} here: they wait for each other, and runs"
            f" take longer than with --threads {offered}"
        )


def options_of(context: typer.Context) -> Options:
    """Those words of the command line that are compile options; a verb that does not take one of them leaves its default."""
    from fusewise.api import Options

    words = context.params
    given = {
        name: words[name]
        for name in ("exact", "strict", "fusion", "tune", "precision", "sanitize", "specialize", "device")
        if name in words
    }
    return Options(
        shapes=shapes_of(words.get("shape")),
        symbols=symbols_of(words.get("symbol")),
        values=values_of(words.get("value")),
        threads=threads_of(words.get("threads")),
        cache=words.get("cache", True),
        memory_limit=bytes_given(words.get("memory_limit")),
        disable=tuple(words.get("disable") or ()),
        warn=_once(),
        **given,
    )


def is_given(context: typer.Context, name: str) -> bool:
    """Does the command line say it?"""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def check_for_cpu(device: str, **given: object) -> None:
    """`UsageError` for options that say something of code for a CPU, and are given beside another device."""
    from fusewise.codegen.gpu.device import CPU

    names = [name for name, value in given.items() if value not in (None, False)]
    if names and device != CPU:
        raise UsageError(f"--{names[0]} is about code for a CPU, not for {device}; leave it out")


def check_folder(*paths: Path | None) -> None:
    """`UsageError` for a file to write in a folder that is not there: said before the work, which may be long."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"cannot write {path}: there is no folder {path.parent}")


def bytes_given(text: str | None) -> int | None:
    """The bytes that `--memory-limit` says."""
    from fusewise.words import bytes_of

    return None if text is None else bytes_of(text)


def _once() -> Callable[[str], None]:
    """A function that says a sentence on stderr, each only once."""
    said: set[str] = set()

    def warn(sentence: str) -> None:
        if sentence not in said:
            said.add(sentence)
            note(sentence)

    return warn
