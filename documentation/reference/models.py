"""The architectures that `zoo:NAME` can name."""

from __future__ import annotations

from documentation.markdown import code, plain, table

__all__ = ["page"]

HEAD = """# Models of the zoo

Built-in architectures with seeded random weights: `zoo:NAME` wherever a model is named, `zoo:NAME@exported` as
exporters of 2020 wrote them. `fusewise zoo build NAME -o FILE.onnx` writes one.

"""


def page() -> str:
    """A table: what it is, and how large."""
    from fusewise.cli.show import count
    from fusewise.zoo.catalogue import MODELS

    rows = [
        (
            code(one.name),
            plain(one.family),
            plain(one.task),
            plain(one.input),
            count(one.parameters),
            count(one.macs),
            plain(one.source),
        )
        for one in MODELS
    ]
    return HEAD + table(("name", "family", "task", "input", "parameters", "MACs", "after"), rows, right=(4, 5))
