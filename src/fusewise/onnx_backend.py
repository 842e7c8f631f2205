"""Fusewise as an ONNX backend: `prepare`, `run_model`, `run_node`, `supports_device`, `is_compatible`.

Inputs and outputs are positional. A model whose shapes are not stated is compiled once for all shapes; where that cannot be, for
the shapes it is first run with, and again for other shapes. So is one with inputs whose contents decide shapes or axes, for their
contents. The latest few compilations are kept.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import BackendRep, namedtupledict

from fusewise import api
from fusewise.errors import FusewiseError, UnsupportedModel, UsageError
from fusewise.frontend.deciding import deciding_inputs
from fusewise.ir.graph import Graph
from fusewise.ir.types import TensorType

__all__ = ["Representation", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]

SPECIALISATIONS = 8

_MOST_CONTENTS = 64
"""Elements of an input whose contents a model is compiled for; larger ones are data."""

_Key = tuple[tuple[tuple[int, ...] | None, ...], tuple[tuple[str, bytes], ...]]
"""The shapes of the inputs whose shapes are not stated, and the contents of those that decide."""


_ALL_SHAPES: tuple[tuple[int, ...] | None, ...] = ((-1,),)
"""In place of the shapes of inputs where one compilation is for all."""


class Representation(BackendRep):
    """A model that compiles itself for the shapes it is given, and for contents that decide shapes while these are few."""

    def __init__(self, graph: Graph, options: api.Options) -> None:
        self.graph = graph
        self.options = options
        self.deciding = deciding_inputs(graph)
        self._compiled: OrderedDict[_Key, api.Model] = OrderedDict()
        self._contents: Counter[tuple[tuple[int, ...] | None, ...]] = Counter()  # how many were met for these shapes
        self._lock = Lock()

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """All outputs, in order. `inputs` are arrays, lists for sequences, None for an absent optional."""
        names = self.graph.inputs
        if isinstance(inputs, Mapping):
            values = [inputs[name] for name in names]
        elif isinstance(inputs, list | tuple):
            values = list(inputs)
        else:
            values = [inputs]
        if len(values) > len(names):
            raise UsageError(f"the model has {len(names)} inputs, but {len(values)} were given")
        values += [None] * (len(names) - len(values))
        model = self.model_for(values)
        wanted = {port.name for port in model.get_inputs()}
        outputs = model.run(None, {name: value for name, value in zip(names, values, strict=True) if name in wanted})
        return tuple(namedtupledict("Outputs", list(self.graph.outputs))(*outputs))

    @property
    def host_steps(self) -> int:
        """Host steps of the latest compilation; 0 for a model that is native as a whole, or not yet compiled."""
        latest = next(reversed(self._compiled.values()), None)
        return 0 if latest is None else int(latest.summary["host_steps"])

    def model_for(self, values: Sequence[Any]) -> api.Model:
        """The compiled model for these inputs: kept from before, or made now."""
        given = dict(zip(self.graph.inputs, values, strict=True))
        shapes = tuple(np.shape(value) if self._is_open(k) else None for k, value in enumerate(values))
        contents = {name: np.asarray(given[name]) for name in self.deciding if np.size(given[name]) <= _MOST_CONTENTS}
        contents = {name: array for name, array in contents.items() if self._fits(name, array)}
        with self._lock:
            if not contents and any(shape is not None for shape in shapes) and self._for_all_shapes is not None:
                shapes = _ALL_SHAPES
            key = shapes, tuple((name, array.tobytes()) for name, array in contents.items())
            found = self._compiled.get(key)
            if found is None and contents and self._contents[shapes] >= SPECIALISATIONS:  # they are data after all
                contents, key = {}, (shapes, ())
                found = self._compiled.get(key)
            if found is None:
                self._contents[shapes] += bool(contents)
                found = self._made(shapes, contents)
                self._compiled[key] = found
                while len(self._compiled) > SPECIALISATIONS:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(key)
            return found

    def _made(self, shapes: Sequence[tuple[int, ...] | None], contents: Mapping[str, np.ndarray]) -> api.Model:
        if shapes == _ALL_SHAPES and self._for_all_shapes is not None:
            return self._for_all_shapes
        inputs = self.graph.inputs
        stated = {inputs[k]: shape for k, shape in enumerate(shapes) if shape is not None}
        try:
            return api.compile(self.graph, self.options, shapes=stated, values=contents)
        except UsageError:
            if not contents:
                raise
        return api.compile(self.graph, self.options, shapes=stated)  # the run says what is wrong with the data

    @cached_property
    def _for_all_shapes(self) -> api.Model | None:
        """The model compiled with free dimensions, where that can be."""
        if self.options.on_gpu:
            return None
        try:
            found = api.compile(self.graph, self.options, warn=lambda sentence: None)
        except FusewiseError:
            return None
        return found if found.summary["symbols"] else None

    def _fits(self, name: str, array: np.ndarray) -> bool:
        """Is it what the model wants of that input? What does not fit is told of when it is run."""
        kind = self.graph.tensor(name)
        stated = kind.shape or ()
        sizes = zip(stated, array.shape, strict=False)
        same_rank = kind.shape is None or len(stated) == array.ndim
        return array.dtype == kind.dtype.numpy and same_rank and all(a == b for a, b in sizes if isinstance(a, int))

    def _is_open(self, k: int) -> bool:
        """Is input number `k` a tensor whose shape the model does not state?"""
        kind = self.graph.types[self.graph.inputs[k]]
        return isinstance(kind, TensorType) and not kind.is_static


def supports_device(device: str) -> bool:
    """`CPU`, and where NVIDIA's driver can be opened, `CUDA` (number 0) and `CUDA:1`."""
    kind = device.split(":")[0].upper()
    if kind != "CUDA":
        return kind == "CPU"
    from fusewise.runtime.gpu import drivers

    try:
        drivers.opened(device.lower()).close()
    except FusewiseError:
        return False
    return True


def is_compatible(model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
    """Can this model be compiled here?"""
    try:
        prepare(model, device, **kwargs)
    except FusewiseError:
        return False
    return True


def prepare(model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Representation:
    """A model ready to run on a `CPU`, or on a GPU (`CUDA`, `CUDA:1`). `kwargs` are fields of `api.Options`; others, such as
    tolerances, are ignored.

    A model whose shapes are all stated, and which no contents decide, is compiled at once, so that what is wrong with it is
    found here.
    """
    if not supports_device(device):
        raise UnsupportedModel(
            f"device {device!r} is not supported here: CPU is, and CUDA where there is a GPU of NVIDIA's"
        )
    from fusewise.frontend import onnx_import

    known = {key: value for key, value in kwargs.items() if key in api.Options.__dataclass_fields__}
    if not device.upper().startswith("CPU"):
        known["device"] = device.lower()
    found = Representation(onnx_import.load(model), api.Options(**known))
    if not found.deciding and not any(found._is_open(k) for k in range(len(found.graph.inputs))):
        found.model_for([None] * len(found.graph.inputs))
    return found


def run_model(model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
    """Prepare a model and run it once."""
    return prepare(model, device, **kwargs).run(inputs)


def run_node(
    node: onnx.NodeProto,
    inputs: Any,
    device: str = "CPU",
    outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """Run one node on arrays. `opset_version` chooses the operator's version, the newest known by default.

    `outputs_info` is accepted as the interface has it; the types are inferred.
    """
    names = [name for name in node.input if name]
    values = [inputs[name] for name in names] if isinstance(inputs, Mapping) else list(inputs)
    if len(values) != len(names):
        raise UsageError(f"node {node.op_type} reads {len(names)} values, but {len(values)} were given")
    version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version() if not node.domain else 1)
    arrays = [np.asarray(value) for value in values]
    graph = onnx.GraphProto(name="node", node=[node])
    for name, array in dict(zip(names, arrays, strict=True)).items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    model = onnx.ModelProto(graph=graph, ir_version=onnx.IR_VERSION)
    model.opset_import.append(onnx.helper.make_opsetid(node.domain, version))
    feeds = dict(zip(names, arrays, strict=True))
    return run_model(model, [feeds[value.name] for value in graph.input], device, **kwargs)
