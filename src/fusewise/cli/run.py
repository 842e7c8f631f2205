"""`fusewise run`: run a model on inputs from files, or on random ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusewise.cli.options import (
    Cache,
    Device,
    Disable,
    Exact,
    Exported,
    Fusion,
    Json,
    MemoryLimit,
    ModelName,
    Precision,
    Sanitize,
    Seed,
    Shapes,
    Specialize,
    Strict,
    Symbols,
    Threads,
    Tune,
    Values,
    bytes_given,
    check_folder,
    is_given,
    model_of,
    numbers_of,
    options_of,
    sizes_of,
    source_of,
    threads_of,
)
from fusewise.compiled import SUFFIX
from fusewise.errors import UsageError
from fusewise.files import written_whole

if TYPE_CHECKING:
    import numpy as np

    from fusewise.api import Model, Options, Progress

__all__ = ["run"]

Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", metavar="NAME=FILE.npy", help="An input; those not given are random."),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write outputs: one to a .npy file, any number to an .npz file."),
]
Trust = Annotated[
    Path | None,
    typer.Option(
        "--trust",
        metavar="PUBLIC_KEY",
        help="Run a compiled file only if it was signed with the private key to this one (`fusewise compile --sign`).",
    ),
]


def run(
    context: typer.Context,
    model: ModelName,
    inputs: Inputs = None,
    output: Output = None,
    trust: Trust = None,
    exported: Exported = False,
    shape: Shapes = None,
    symbol: Symbols = None,
    value: Values = None,
    threads: Threads = None,
    seed: Seed = 0,
    exact: Exact = False,
    strict: Strict = False,
    disable: Disable = None,
    fusion: Fusion = "dnnfusion",
    precision: Precision = "float32",
    device: Device = "cpu",
    tune: Tune = 0.0,
    sanitize: Sanitize = False,
    memory_limit: MemoryLimit = None,
    specialize: Specialize = 0,
    cache: Cache = True,
    json: Json = False,
) -> None:
    """Run MODEL, or a file that `fusewise compile -o` wrote, once; print what its outputs look like, or write them to a file.

    A compiled file is a program, and may do what any program can: run only those you trust, or say by --trust whose these are.
    An ONNX model is data, whoever it comes from. A file for GPUs runs on the first one here, or on that of --device.
    """
    from fusewise import api
    from fusewise.cli.show import facts, print_json, progress

    if output is not None and output.suffix not in (".npy", ".npz"):
        raise UsageError(f"the output file must end in .npy or .npz, not {output.name!r}")
    check_folder(output)
    if sizes_of(symbol)[1]:
        raise UsageError("a run is of one size: give --symbol one number for each dimension")
    model, given = model_of(model, exported), _arrays(inputs)
    with progress() as report:
        if Path(model).suffix == SUFFIX:
            narrow = precision != "float32"
            _refuse_settings(
                shape=shape,
                value=value,
                exact=exact,
                strict=strict,
                disable=disable,
                tune=tune,
                precision=narrow,
                sanitize=sanitize,
                specialize=specialize,
            )
            compiled = api.open_compiled(
                model,
                threads=threads_of(threads),
                trust=trust,
                memory_limit=bytes_given(memory_limit),
                device=device if is_given(context, "device") else None,
            )
        else:
            if trust is not None:
                raise UsageError(f"--trust asks for a compiled file that is signed, and {model} is none")
            options = options_of(context)
            compiled = _compiled(model, options, given, report)
        report("running", 1.0)
        names = [port.name for port in compiled.get_outputs()]
        sizes = _sizes(compiled, given) | (numbers_of(symbol) if Path(model).suffix == SUFFIX else {})
        answers = dict(zip(names, compiled.run(None, compiled.random_inputs(seed, sizes) | given), strict=True))
    if output is not None:
        _write(output, answers)
    described = [_described(name, value) for name, value in answers.items()]
    if json:
        print_json({"model": model, "outputs": described})
    else:
        facts([(row["name"], _said(row)) for row in described])


def _sizes(compiled: Model, given: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The sizes of free dimensions that the arrays given have."""
    named = set(compiled.summary["symbols"])
    ports = [(port.shape, given[port.name].shape) for port in compiled.get_inputs() if port.name in given]
    return {dim: size for shape, found in ports for dim, size in zip(shape, found, strict=False) if dim in named}


def _refuse_settings(**settings: object) -> None:
    """A compiled file was compiled with settings; others cannot be given now."""
    given = [name for name, value in settings.items() if value]
    if given:
        raise UsageError(f"--{given[0]} has no meaning for a compiled file; give it to `fusewise compile`")


def _compiled(model: str, options: Options, given: Mapping[str, np.ndarray], report: Progress) -> Model:
    """The model compiled for the shapes of the arrays given and those stated."""
    from fusewise import api

    if options.on_gpu:
        from fusewise.runtime.gpu import drivers

        drivers.opened(options.device).close()  # what is missing is told before anything is compiled
    shapes = {name: array.shape for name, array in given.items()} | dict(options.shapes)
    return api.compile(source_of(model), replace(options, shapes=shapes), progress=report)


def _arrays(texts: Iterable[str] | None) -> dict[str, np.ndarray]:
    import numpy as np

    from fusewise.runtime.host import check_memory

    found: dict[str, np.ndarray] = {}
    for text in texts or ():
        name, _, file = text.partition("=")
        if not name or not file:
            raise UsageError(f"--input {text!r} is not of the form NAME=FILE.npy")
        try:
            check_memory(Path(file).stat().st_size, f"input {name!r}")
            found[name] = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError, MemoryError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UsageError(f"input {name!r}: {file} cannot be read as a .npy file: {reason}") from error
        if not isinstance(found[name], np.ndarray):
            raise UsageError(f"input {name!r}: {file} is an archive; give a .npy file with one array")
    return found


def _described(name: str, value: Any) -> dict[str, Any]:
    """Name, dtype, shape and the range of an output."""
    import numpy as np

    if not isinstance(value, np.ndarray):
        return {"name": name, "type": "absent" if value is None else type(value).__name__}
    row: dict[str, Any] = {"name": name, "dtype": str(value.dtype), "shape": list(value.shape)}
    if value.size and value.dtype.kind in "fiu":
        wide = value.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        row |= {"min": float(finite.min()), "max": float(finite.max())} if finite.size else {}
        row |= {"mean": float(finite.mean())} if finite.size else {}
        row["not_finite"] = int(wide.size - finite.size)
    return row


def _said(row: Mapping[str, Any]) -> str:
    """The same in a line for people: `float32[2,4], 0 to 6, mean 3`."""
    if "type" in row:
        return str(row["type"])
    parts = [f"{row['dtype']}[{','.join(map(str, row['shape']))}]"]
    if "min" in row:
        parts += [f"{row['min']:.6g} to {row['max']:.6g}", f"mean {row['mean']:.6g}"]
    if row.get("not_finite"):
        parts.append(f"{row['not_finite']} not finite")
    return ", ".join(parts)


def _write(path: Path, answers: Mapping[str, Any]) -> None:
    """Outputs into one file, which appears whole or not at all."""
    import numpy as np

    arrays = {name: value for name, value in answers.items() if isinstance(value, np.ndarray) and value.dtype != object}
    if len(arrays) != len(answers):
        raise UsageError("outputs that are sequences, absent or text cannot be written to a file; leave --output out")
    if path.suffix == ".npz":
        with written_whole(path) as (draft,), draft.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    elif len(arrays) == 1:
        with written_whole(path) as (draft,), draft.open("wb") as file:
            np.save(file, next(iter(arrays.values())))
    else:
        raise UsageError(f"the model has {len(arrays)} outputs; write them to an .npz file")
