"""Other initializers than a model's own: replaced, or left out so that they are inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fusewise.ops.proto import tensor_to_proto

if TYPE_CHECKING:
    import onnx

    from fusewise.frontend.stored import StoredBytes

__all__ = ["replaced"]

Raw = Mapping[int, "memoryview | StoredBytes"]


def replaced(graph: onnx.GraphProto, raw: Raw, values: Mapping[str, np.ndarray | None]) -> Raw:
    """Put the `values` in place of the graph's initializers of these names, and leave out those of None. `raw` has the data of
    initializers by position; what it is now is returned. Names that no initializer has are nothing."""
    kept: list[onnx.TensorProto] = []
    data: dict[int, memoryview | StoredBytes] = {}
    for number, tensor in enumerate(graph.initializer):
        value = values.get(tensor.name)
        if tensor.name not in values:
            if number in raw:
                data[len(kept)] = raw[number]
            copied = type(tensor)()
            copied.CopyFrom(tensor)
            kept.append(copied)
        elif value is not None:
            kept.append(tensor_to_proto(value, tensor.name))
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return data
