"""The verbs of the program `fusewise` in one list."""

from __future__ import annotations

from typing import Annotated

import typer

from fusewise.cli.bench import bench
from fusewise.cli.cache import cache
from fusewise.cli.compile import compile_model
from fusewise.cli.completion import completion
from fusewise.cli.examples import examples
from fusewise.cli.explain import explain
from fusewise.cli.gradient import gradient
from fusewise.cli.inspect import inspect
from fusewise.cli.optimize import optimize
from fusewise.cli.passes import passes
from fusewise.cli.plan import plan
from fusewise.cli.profile import profile
from fusewise.cli.report import report
from fusewise.cli.run import run
from fusewise.cli.verify import verify
from fusewise.cli.zoo import zoo

__all__ = ["app"]

app = typer.Typer(
    name="fusewise",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compile ONNX models to native code for this machine, and say why.\n\n"
    "MODEL is a path to an .onnx file or zoo:NAME (see: fusewise zoo list).",
)

for _name, _verb in (
    ("inspect", inspect),
    ("optimize", optimize),
    ("compile", compile_model),
    ("run", run),
    ("bench", bench),
    ("verify", verify),
    ("passes", passes),
    ("gradient", gradient),
    ("plan", plan),
    ("report", report),
    ("explain", explain),
):
    app.command(_name, epilog=examples(_name))(_verb)
app.add_typer(zoo, name="zoo")
app.add_typer(cache, name="cache")
app.add_typer(profile, name="profile")
app.command("completion", epilog=examples("completion"))(completion)


def _version(wanted: bool) -> None:
    if wanted:
        from fusewise.version import VERSION

        typer.echo(f"fusewise {VERSION}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Say nothing but data and errors. May stand anywhere on the line.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Say on stderr what is decided, and what stages take. May stand anywhere."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback when something goes wrong. May stand anywhere.")
    ] = False,
) -> None:
    """Compile ONNX models to native code for this machine, and say why."""
