"""Options of compilation, and variables of the environment that the program reads."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from documentation.markdown import code, plain, table

__all__ = ["VARIABLES", "page"]

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "FUSEWISE_CACHE_DIR": "The folder of the cache: compiled kernels and models, and what was measured on this machine."
        " By default a folder `fusewise` in the user's cache folder. Only one that nobody else may write to is used.",
        "FUSEWISE_THREADS": "How many workers the command line uses where `--threads` is not given."
        " By default what the machine offers.",
        "_FUSEWISE_COMPLETE": "Set by a shell that completes a line (`fusewise completion`).",
        "COLUMNS": "How wide tables may be where standard output is no terminal.",
    }
)
"""A test holds the names to those that the sources read."""

HEAD = """# Options and environment

## Options

Fields of `fusewise.Options`, keywords of `fusewise.compile`, `verify` and `bench`, and options of the verbs. What
each does: [`Options`](python.md#fusewise.Options).

"""


def page() -> str:
    """Options with types, defaults and their names on the command line, and variables."""
    variables = table(("variable", "what it does"), [(code(name), text) for name, text in VARIABLES.items()])
    return f"{HEAD}{_options()}\n## Variables of the environment\n\n{variables}"


def _options() -> str:
    from dataclasses import MISSING

    from fusewise.options import Options

    flags = _flags()
    rows = []
    for name, field in Options.__dataclass_fields__.items():
        default = "" if name == "warn" else code("{}" if field.default is MISSING else repr(field.default))
        rows.append((code(name), code(field.type), default, flags.get(name, "")))
    return table(("option", "type", "default", "on the command line"), rows)


def _flags() -> dict[str, str]:
    """How the option is called by the verb `compile`."""
    from documentation.reference.command_line import verbs

    names = {"shapes": "shape", "symbols": "symbol", "values": "value"}
    compile_ = dict(verbs())["compile"]
    by_name = {
        one.opts[0].removeprefix("--").replace("-", "_"): one.opts[0]
        for one in compile_.params
        if one.opts[0].startswith("--")
    }
    from fusewise.options import Options

    found = {name: by_name.get(names.get(name, name)) for name in Options.__dataclass_fields__}
    return {name: code(plain(flag)) for name, flag in found.items() if flag}
