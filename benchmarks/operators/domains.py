"""The part of the page of operators about domains beside ONNX's: what is written in ONNX's operators, and what is refused, and why.

`python -m benchmarks.operators.domains` writes it anew into the page, without the rest.
"""

from __future__ import annotations

from pathlib import Path

from fusewise.frontend.domains.refused import REFUSED
from fusewise.frontend.domains.row import MICROSOFT, DomainRow
from fusewise.frontend.domains.table import ROWS

__all__ = ["HEADING", "domains_section"]

HEADING = "\n## Operators of ONNX Runtime\n"

_HEAD = """
These are written in ONNX's operators while a model is read, and run as those do ({rows} operators). An operand or output with `?`
may be absent, one with `*` is any number of them. Others are added by `fusewise.register_domain`: written in the same way, and then
compiled, or computed on the host by a function of NumPy arrays, beside one of their types.

```python
import numpy as np
import fusewise
from fusewise.ir.types import TensorType

fusewise.register_domain(
    "org.example",
    fusewise.DomainOperator(
        "Swish",
        ("x",),
        attributes={{"beta": 1.0}},
        write=lambda g, call: call["x"] * g.Sigmoid(call["x"] * call.attribute("beta")),
    ),
    fusewise.DomainOperator(
        "Median",
        ("x",),
        compute=lambda x: np.median(x, -1).astype(x.dtype),
        types=lambda x: TensorType(x.dtype, x.shape[:-1]),
    ),
)
model = fusewise.compile("model.onnx")
```

A model with such operators is not kept in the cache of compiled models. One that NumPy computes has to be registered before a
compiled file that needs it is opened. `fusewise optimize --target onnxruntime` writes some of the table back where they stand for
several nodes.

| operator | operands | outputs | attributes |
| --- | --- | --- | --- |
"""

_REFUSED = """
These are refused:

| operator | why |
| --- | --- |
"""


def domains_section() -> str:
    """The section, with its heading."""
    rows = sorted(ROWS, key=lambda row: (row.domain, row.op))
    lines = "\n".join(map(_line, rows))
    refused = "\n".join(f"| {MICROSOFT}.{op} | {why} |" for op, why in sorted(REFUSED.items()))
    return f"{HEADING}{_HEAD.format(rows=len(rows))}{lines}\n{_REFUSED}{refused}\n"


def _line(row: DomainRow) -> str:
    name = f"{row.domain}.{row.op}".lstrip(".")
    attributes = ", ".join(sorted(attribute.name for attribute in row.attributes))
    return f"| {name} | {', '.join(row.operands)} | {', '.join(row.outputs)} | {attributes} |".replace("*", "\\*")


if __name__ == "__main__":
    page = Path(__file__).parents[2] / "docs" / "operators.md"
    page.write_text(page.read_text().partition(HEADING)[0] + domains_section())
