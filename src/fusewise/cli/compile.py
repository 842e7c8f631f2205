"""`fusewise compile`: compile a model, keep its kernels in the cache, say what came of it."""

from __future__ import annotations

from fusewise.cli.options import (
    Cache,
    Disable,
    Exact,
    Json,
    ModelName,
    Shapes,
    Strict,
    Symbols,
    Threads,
    options_of,
)

__all__ = ["compile_model"]


def compile_model(
    model: ModelName,
    shape: Shapes = None,
    symbol: Symbols = None,
    threads: Threads = None,
    exact: Exact = False,
    strict: Strict = False,
    disable: Disable = None,
    cache: Cache = True,
    json: Json = False,
) -> None:
    """Compile MODEL to native code and keep the kernels for the next time."""
    from fusewise import api
    from fusewise.cli.show import facts, print_json, progress

    options = options_of(
        shapes=shape, symbols=symbol, threads=threads, exact=exact, strict=strict, cache=cache, disable=disable
    )
    with progress() as report:
        summary = api.compile(model, options, progress=report).summary
    if json:
        print_json({"model": model, **summary})
        return
    facts(
        [
            ("model", model),
            ("compile time", f"{summary['compile_ms']:.0f} ms"),
            ("groups", str(summary["groups"])),
            ("kernels", str(summary["kernels"])),
            ("arena", f"{summary['arena_bytes'] / 1e6:.1f} MB"),
            ("host steps", str(summary["host_steps"])),
            *(("  on the host", f"{row['op']} {row['node']}: {row['reason']}") for row in summary["host"]),
        ]
    )
