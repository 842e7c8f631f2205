"""How the program ends: every exit status, and every error of the package with the status it ends the program with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from documentation.markdown import code, table

__all__ = ["MEANINGS", "errors", "page"]

MEANINGS: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        0: ("done", ""),
        1: ("a fault of this program", "Report it: `--debug` shows where; `--disable` may go around it."),
        2: (
            "wrong use: an option, a name, a shape, data",
            "The sentence names what is wrong, and the nearest right name.",
        ),
        3: ("the model is broken, or asks for what is not supported", "`fusewise inspect` lists what is not known."),
        4: ("answers differ by more than the tolerance", "`fusewise verify` names the decision or node to blame."),
        5: (
            "a limit on memory, size or time would be passed",
            "Smaller shapes, another `--memory-limit`, or more memory.",
        ),
        6: ("no plan satisfies the constraints", "A larger `--buffer`, another scheme."),
        130: ("interrupted (Ctrl-C)", ""),
        141: ("nobody reads standard output any more", ""),
    }
)
"""What each status means, and what to do. A test holds it to the errors and to the program's own two."""


def errors() -> dict[str, type[Exception]]:
    """Every error that reaches a user, by name."""
    from fusewise import errors as module

    named = {name: getattr(module, name) for name in module.__all__}
    return {name: one for name, one in named.items() if isinstance(one, type) and issubclass(one, Exception)}


def page() -> str:
    """Two tables, and the errors as they are documented."""
    statuses = table(
        ("status", "meaning", "what to do"), [(status, *said) for status, said in MEANINGS.items()], right=(0,)
    )
    named = errors()
    rows = [
        (f"[{name}](#fusewise.errors.{name})", code(one.__bases__[0].__name__), getattr(one, "exit_status", ""))
        for name, one in named.items()
    ]
    listed = table(("error", "is a", "status"), rows, right=(2,))
    told = "\n\n".join(f"::: fusewise.errors.{name}" for name in named)
    return f"""# Errors and exit statuses

An error is one sentence on standard error: what is wrong, where, and what to do. `--debug` adds a traceback.

## Exit statuses

{statuses}
## Errors

In Python the same is raised; all are in `fusewise.errors`.

{listed}
{told}
"""
