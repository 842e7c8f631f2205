"""Every verb of the command line: its use, what it does, its options, examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from documentation.markdown import code, plain, table

__all__ = ["page", "verbs"]

HEAD = """# Command line

`MODEL` is a path to an `.onnx` file, `zoo:NAME` ([the models](models.md)) or `file.py:NAME` of a PyTorch module,
which is run. Data go to standard output, everything else to standard error. How the program ends is [its exit
status](statuses.md).

"""


def page() -> str:
    """A section for each verb, in the order of `fusewise --help`."""
    named = list(verbs())
    first = table(("verb", "what it does"), [(f"[{verb}](#{_anchor(verb)})", _first(one)) for verb, one in named])
    return HEAD + first + _anywhere() + "".join(_section(verb, command) for verb, command in named)


def verbs(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every verb by its words."""
    for name, inner in (_root() if command is None else command).commands.items():
        if hasattr(inner, "commands"):
            yield from verbs(inner, (*path, name))
        else:
            yield " ".join((*path, name)), inner


def _root() -> Any:
    import typer

    from fusewise.cli.app import app

    return typer.main.get_command(app)


def _anchor(verb: str) -> str:
    return f"fusewise-{verb.replace(' ', '-')}"


def _first(command: Any) -> str:
    return plain(" ".join(command.help.split("\n\n")[0].split()))


def _anywhere() -> str:
    rows = [
        (", ".join(map(code, option.opts)), plain(option.help)) for option in _root().params if option.name != "help"
    ]
    return f"\n## For every verb\n\n{table(('option', 'what it does'), rows)}"


def _section(verb: str, command: Any) -> str:
    context = command.make_context(f"fusewise {verb}", [], resilient_parsing=True)
    usage = command.get_usage(context).removeprefix("Usage: ")
    about = "\n\n".join(plain(" ".join(part.split())) for part in command.help.split("\n\n"))
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    rows = [_row(one, context) for one in (*arguments, *options)]
    return f"\n## fusewise {verb}\n\n```text\n{usage}\n```\n\n{about}\n\n{table(('name', 'what it is'), rows)}{_examples(verb)}"


def _row(one: Any, context: Any) -> tuple[str, str]:
    names, text = one.get_help_record(context)
    return code(names), plain(text)


def _examples(verb: str) -> str:
    from fusewise.cli.examples import EXAMPLES

    return f"\n```sh\n{chr(10).join(EXAMPLES[verb])}\n```\n"
