"""`fusewise compile`: compile a model, keep its kernels in the cache, say what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fusewise.cli.decisions import DecisionsFile, check_decisions_file, traced
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
    Shapes,
    Specialize,
    Strict,
    Symbols,
    Threads,
    Tune,
    Values,
    check_folder,
    model_of,
    options_of,
    source_of,
)
from fusewise.cli.reports import ReportFile, check_report, write_report
from fusewise.compiled import SUFFIX
from fusewise.errors import UsageError
from fusewise.words import size_text, sizes_text

__all__ = ["compile_model"]

Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help=f"Write the compiled model: a {SUFFIX} file, which is a program for this CPU, or for the GPUs of --device.",
    ),
]
Sign = Annotated[
    Path | None,
    typer.Option(
        "--sign",
        metavar="KEY",
        help="Sign the file, with an Ed25519 private key (openssl genpkey -algorithm ed25519 -out key.pem; its public half: "
        "openssl pkey -in key.pem -pubout -out public.pem).",
    ),
]
PassList = Annotated[
    str | None,
    typer.Option(
        "--passes",
        metavar="auto|FILE|NAME",
        help="Which passes run: those that matter for this model, a pipeline file, or a named pipeline (default: the clean-up).",
    ),
]


def compile_model(
    context: typer.Context,
    model: ModelName,
    output: Output = None,
    sign: Sign = None,
    exported: Exported = False,
    shape: Shapes = None,
    symbol: Symbols = None,
    value: Values = None,
    threads: Threads = None,
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
    passes: PassList = None,
    decisions: DecisionsFile = None,
    report: ReportFile = None,
    cache: Cache = True,
    json: Json = False,
) -> None:
    """Compile MODEL to native code; keep the kernels for the next time, or the whole in a file for `fusewise run`.

    For a GPU kernels are compiled by Triton (extra `gpu`), and no GPU is needed where an architecture is named: cuda:sm_90.

    Such a file is a program: whoever runs it runs your code. Sign it for those who run only what you made.
    """
    from fusewise import api
    from fusewise.cli.show import print_json, progress

    model, options = model_of(model, exported), options_of(context)
    if passes is not None:
        options = replace(options, passes=passes)
    if output is not None and output.suffix != SUFFIX:
        raise UsageError(f"the name of a compiled file must end in {SUFFIX}, not {output.name!r}")
    if sign is not None:
        from fusewise.runtime.signing import signer

        if output is None:
            raise UsageError("--sign signs a file; say which with --output")
        signer(sign)  # tells of a key that is none before the work is done
    check_decisions_file(decisions)
    check_folder(output, decisions)
    check_report(report)
    with progress() as tell, traced(decisions, options.disable) as trace:
        compiled = api.compile(source_of(model), options, trace=trace, progress=tell)
        if output is not None:
            tell("writing", 1.0)
            compiled.save(output, sign=sign)
        document = None if report is None else compiled.report(times=False).document
    summary = compiled.summary
    if json:
        print_json({"model": model, **summary, "output": None if output is None else str(output)})
    else:
        _show(model, summary, output)
    if report is not None and document is not None:
        write_report(context, report, model, "compile", document)


def _show(model: str, summary: Mapping[str, Any], output: Path | None) -> None:
    from fusewise.cli.show import facts, on_the_host, with_size

    facts(
        [
            ("model", model),
            *([] if output is None else [("file", with_size(output))]),
            *([("device", summary["device"])] if "device" in summary else []),
            ("compile time", f"{summary['compile_ms']:.0f} ms"),
            *_tuning(summary["tuning"]),
            *([("free dimensions", ", ".join(summary["symbols"]))] if summary["symbols"] else []),
            *(("  program for", sizes_text(one)) for one in _sizes(summary)),
            *_frozen(summary["frozen"]),
            ("groups", str(summary["groups"])),
            ("kernels", str(summary["kernels"])),
            *([("launches", str(summary["launches"]))] if "launches" in summary else []),
            ("arena", size_text(summary["arena_bytes"])),
            ("host steps", str(summary["host_steps"])),
            *(("  on the host", on_the_host(row)) for row in summary["host"]),
        ]
    )


def _sizes(summary: Mapping[str, Any]) -> list[dict[str, int]]:
    """The sizes that there are programs for, of a model for a GPU that has free dimensions."""
    return list(summary["specialized"]["sizes"]) if "device" in summary and summary["symbols"] else []


def _frozen(found: dict[str, Any]) -> list[tuple[str, str]]:
    """What the model leaves open and is the same in every run of the compiled one."""
    rows = []
    if found["sizes"]:
        rows.append(("frozen sizes", sizes_text(found["sizes"])))
    if found["values"]:
        rows.append(("frozen inputs", f"{', '.join(found['values'])} (constants, with the values given)"))
    if found["defaults"]:
        some, more = found["defaults"][:_MOST_NAMES], len(found["defaults"]) - _MOST_NAMES
        others = f" and {more} more" if more > 0 else ""
        rows.append(("folded inputs", f"{', '.join(some)}{others} (the model has a value for them)"))
    return rows


_MOST_NAMES = 6


def _tuning(found: dict[str, Any] | None) -> list[tuple[str, str]]:
    """What tuning found for this model, now or earlier."""
    if found is None:
        return []
    if found["kept"] == "default":
        return [("tuned", "nothing is faster than the default")]
    return [("tuned", f"{found['tuned_ms']:.2f} ms instead of {found['default_ms']:.2f} ms")]
