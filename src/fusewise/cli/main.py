"""The program `fusewise`: the verbs in one list, and every way to end with its exit status.

0 done, 1 our fault, 2 usage, 3 model invalid or unsupported, 4 answers differ, 5 a resource limit, 6 no feasible plan,
130 interrupted. Data goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from fusewise.cli.bench import bench
from fusewise.cli.cache import cache
from fusewise.cli.compile import compile_model
from fusewise.cli.inspect import inspect
from fusewise.cli.run import run
from fusewise.cli.verify import verify
from fusewise.cli.zoo import zoo
from fusewise.errors import FusewiseError

__all__ = ["app", "main"]

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
    ("compile", compile_model),
    ("run", run),
    ("bench", bench),
    ("verify", verify),
):
    app.command(_name)(_verb)
app.add_typer(zoo, name="zoo")
app.add_typer(cache, name="cache")


def _version(wanted: bool) -> None:
    if wanted:
        from fusewise import __version__

        typer.echo(f"fusewise {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")] = False,
) -> None:
    """Compile ONNX models to native code for this machine, and say why."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and leave with its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given  # allowed anywhere, so that it can be added to the end of a line that failed
    try:
        app([word for word in given if word != "--debug"], prog_name="fusewise")
    except KeyboardInterrupt:
        _leave("interrupted", 130)
    except FusewiseError as error:
        _leave(str(error), error.exit_status, debug)
    except MemoryError:
        _leave("memory is full; give the model smaller shapes or the machine more memory", 5, debug)
    except BrokenPipeError:
        # Whoever read our output has left; there is nobody to tell. Python must not flush into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        about = " ".join(str(error).split()) or type(error).__name__
        _leave(f"internal error: {type(error).__name__}: {about[:300]} (use --debug to see where)", 1, debug)
    sys.exit(0)


def _leave(sentence: str, status: int, debug: bool = False) -> NoReturn:
    if debug:
        import traceback

        traceback.print_exc()
    sys.stderr.write(f"fusewise: {' '.join(sentence.split())}\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
