"""Inputs and outputs that stay where they are over several runs: outputs are written into memory that the caller has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from fusewise.onnxruntime.errors import RefusedUse
from fusewise.onnxruntime.values import OrtValue, array_at, require_cpu

__all__ = ["IOBinding"]


class Bindable(Protocol):
    """A session, which knows its inputs by name."""

    input_names: tuple[str, ...]


class IOBinding:
    """What one session's inputs and outputs are; methods are those of `onnxruntime.IOBinding`.

    An output bound without memory gets some when it is first run, and keeps it: bind it again for another shape.
    """

    def __init__(self, session: Bindable) -> None:
        self.session = session
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, OrtValue | None] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """An array; what is in it when the model is run counts. `RefusedUse` for another name, and for what is no array."""
        if not isinstance(arr_on_cpu, np.ndarray):
            raise RefusedUse(
                f"an array is wanted for input {name!r}, not a value of the type {type(arr_on_cpu).__name__}"
            )
        self._bind(name, arr_on_cpu)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Memory at an address, which the caller keeps for as long as it is bound. `RefusedUse` for another name."""
        require_cpu(device_type)
        self._bind(name, _array_at(buffer_ptr, element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """A value. `RefusedUse` for another name."""
        self._bind(name, ortvalue.contents)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """An output, at an address if that is given with shape and type of elements. The caller keeps that memory for as long as it
        is bound. `ValueError` for an address alone."""
        require_cpu(device_type)
        if buffer_ptr is None:
            self.outputs[name] = None
            return
        if element_type is None or shape is None:
            raise ValueError(f"output {name!r} is bound to an address: give the type of elements and the shape, too")
        self.outputs[name] = OrtValue(_array_at(buffer_ptr, element_type, shape))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """An output, in the memory of a tensor."""
        self.outputs[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Nothing: memory of the CPU is there at once."""

    def synchronize_outputs(self) -> None:
        """Nothing, as above."""

    def get_outputs(self) -> list[OrtValue]:
        """The bound outputs that there are, in the order in which they were bound first."""
        return [value for value in self.outputs.values() if value is not None]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """As `get_outputs`."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Copies of the bound outputs, as a run gives them."""
        return [_copied(value.contents) for value in self.get_outputs()]

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self.outputs.clear()

    def _bind(self, name: str, value: Any) -> None:
        if name not in self.session.input_names:
            raise RefusedUse(
                f"the model has no input {name!r}; its inputs are {', '.join(self.session.input_names) or 'none'}"
            )
        self.inputs[name] = value


def _array_at(address: int, element_type: Any, shape: Sequence[int]) -> np.ndarray:
    """The array of this type and shape that lies at an address, which nobody can check."""
    dtype = OrtValue.ortvalue_from_shape_and_type((0,), element_type).numpy().dtype
    dims: tuple[int, ...] = tuple(int(dim) for dim in shape)
    if any(dim < 0 for dim in dims) or (not address and 0 not in dims):
        raise RefusedUse(f"no tensor of the shape {list(dims)} lies at the address {address}")
    return array_at(address, dtype, dims, None)


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(one) for one in value]
    return value.copy() if isinstance(value, np.ndarray | dict) else value
