"""The interface in Python: every public name, by what it is for. The texts are the docstrings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from documentation.reference.examples import EXAMPLES

__all__ = ["SECTIONS", "page"]

SECTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Read and write": ("load", "save", "to_onnx", "from_torch", "open_compiled"),
        "Optimize, compile, run": ("compile", "Model", "optimize", "gradient"),
        "Look and compare": ("inspect", "explain", "verify", "bench", "report", "Report"),
        "Plan for an accelerator": ("plan",),
        "Options, decisions, errors": ("Options", "Trace", "FusewiseError"),
        "Operators of your own": ("register_domain", "DomainOperator"),
        "In place of ONNX Runtime": ("InferenceSession", "SessionOptions"),
    }
)
"""The names of `fusewise.__all__`; a test holds them to it. Those of later versions stand in the last section."""

MORE = ("api.read", "api.profile", "api.cache_folder", "dynamo.backend")
"""What is public in modules that users name."""

HEAD = """# Python

`import fusewise` gives these names; nothing heavy is loaded before one is used. [In Python](../python.md) shows how
they go together. Every error is a `FusewiseError` ([which, and when](statuses.md))."""


def page() -> str:
    """Sections of directives, which mkdocstrings replaces by what it reads in the package."""
    import fusewise

    public = set(fusewise.__all__)
    sections = [(title, [name for name in names if name in public]) for title, names in SECTIONS.items()]
    named = {name for _, names in sections for name in names}
    sections.append(("More", sorted(public - named)))
    parts = [HEAD]
    for title, names in sections:
        parts += [f"## {title}", *map(_entry, names)] if names else []
    parts += ["## In modules", *(f"::: fusewise.{name}" for name in MORE)]
    return "\n\n".join(parts) + "\n"


def _entry(name: str) -> str:
    """What is read of a name, and the example behind it."""
    example = EXAMPLES.get(name, "").strip()
    return f"::: fusewise.{name}" + (f"\n\n```pycon\n{example}\n```" if example else "")
