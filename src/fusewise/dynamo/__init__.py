"""The compiler behind `torch.compile(model, backend="fusewise")`.

Dynamo hands over a graph of PyTorch for each piece of a program that it can capture; AOTAutograd makes a pure one of it, in which
mutated inputs are outputs (`compiler`); PyTorch's exporter writes that as ONNX, without a weight (`captured`); it is compiled with
the parameters that it is first called with as constants (`running`). PyTorch is imported when a function is called.
"""

from __future__ import annotations

from fusewise.dynamo.compiler import backend

__all__ = ["backend"]
