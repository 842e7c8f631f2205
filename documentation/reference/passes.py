"""Passes by name, and the orders in which they run that have one."""

from __future__ import annotations

from documentation.markdown import code, plain, table

__all__ = ["page"]

HEAD = """# Passes and pipelines

What `fusewise passes --list` prints. `exact` leaves every bit, `reassociating` may change a rounding, `approximate`
more; `--exact` refuses the last two. Any pass can be refused by name (`--disable NAME`). [Passes that
matter](../passes.md) says which do, and when.

"""


def page() -> str:
    """Two tables."""
    from fusewise.passes.published import step_named, step_names
    from fusewise.select.pipeline import LEVELS, PAPER

    steps = [step_named(name) for name in step_names()]
    rows = [
        (code(one.name), one.numeric_class, plain(f"nothing: {one.idle}" if one.idle else one.summary)) for one in steps
    ]
    orders = [
        (code(one.name), len(one.passes), plain(one.about), " ".join(map(code, one.passes)))
        for one in (*PAPER, *LEVELS)
    ]
    return (
        HEAD
        + table(("pass", "answers", "what it does"), rows)
        + "\n## Pipelines\n\nFor `--passes NAME`.\n\n"
        + table(("pipeline", "passes", "about", "in order"), orders, right=(1,))
    )
