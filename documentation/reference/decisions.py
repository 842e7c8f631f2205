"""Everything that `--disable` can name, by what it is."""

from __future__ import annotations

from documentation.markdown import code

__all__ = ["page"]

HEAD = """# Names of decisions

`--disable NAME` refuses every decision of that name, `--disable NAME@NODE` the one at a node; in Python,
`disable=[...]`. `verify` uses the same names when it says what is to blame, and `fusewise compile --decisions
FILE.jsonl` writes every decision with its reason."""


def page() -> str:
    """The names in groups; those of a group in order of the alphabet."""
    from fusewise.codegen.candidates import KERNELS, PLAIN_KERNELS
    from fusewise.decisions import LOCAL_RULES, OTHERS, names_of_decisions
    from fusewise.passes.published import step_names
    from fusewise.rewrite.rules.table import ALGEBRA, SUBSTITUTIONS
    from fusewise.trace import INTER_BLOCK, INTRA_BLOCK

    groups: list[tuple[str, str, set[str]]] = [
        (
            "Fusion and layouts",
            "Edges, blocks and steps.",
            {*OTHERS, INTRA_BLOCK, INTER_BLOCK},
        ),
        ("Kernels", "[What each does](kernels.md).", {one.name for row in KERNELS.values() for one in row}),
        ("Kernels of elementwise work", "", {one.name for one in PLAIN_KERNELS}),
        ("Passes", "[What each does](passes.md).", set(step_names())),
        ("Algebraic rules", "[What each replaces](../rules.md).", {rule.name for rule in ALGEBRA}),
        (
            "Substitutions of the search",
            "[What each replaces](../rules.md#for-the-search).",
            {r.name for r in SUBSTITUTIONS},
        ),
        ("Rules of single passes", "", set(LOCAL_RULES)),
    ]
    parts, said = [HEAD], set[str]()
    for title, about, names in groups:
        parts.append(_group(title, about, names - said))
        said |= names
    parts.append(_group("Operators written in others", "", set(names_of_decisions()) - said))
    return "\n".join(parts)


def _group(title: str, about: str, names: set[str]) -> str:
    listed = " ".join(map(code, sorted(names, key=str.lower)))
    return f"## {title}\n\n{about + chr(10) * 2 if about else ''}{listed}\n"
