"""What a caller hands in and gets back: checks of names, element types and shapes, and the types' names.

The names of types are those of ONNX Runtime, so that code written for its sessions reads the same here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.errors import UsageError
from fusewise.ir.dtypes import dtype_of
from fusewise.ir.types import Dim, MapType, OptionalType, SequenceType, TensorType, ValueType
from fusewise.lower.program import Port
from fusewise.records import record
from fusewise.runtime.host import check_memory

__all__ = ["Inputs", "PortInfo", "chosen_outputs", "numbers_by_name", "port_info", "type_name"]

_ONNX_NAMES = {
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1",
}
"""Element types that ONNX calls something else than NumPy does."""


@record(frozen=True, slots=True)
class PortInfo:
    """An input or output as a user sees it: `type` is `tensor(float)` and the like."""

    name: str
    shape: tuple[Dim, ...]
    type: str


def port_info(port: Port) -> PortInfo:
    """The public description of a port."""
    shape = port.type.shape if isinstance(port.type, TensorType) else None
    return PortInfo(port.name, () if shape is None else shape, type_name(port.type))


def type_name(kind: ValueType) -> str:
    """`tensor(float)`, `seq(tensor(int64))`, `optional(...)`."""
    if isinstance(kind, SequenceType):
        return f"seq({type_name(kind.element)})"
    if isinstance(kind, OptionalType):
        return f"optional({type_name(kind.element)})"
    if isinstance(kind, MapType):
        return f"map({kind.key.name},{type_name(kind.element)})"
    return f"tensor({_ONNX_NAMES.get(kind.dtype.name, kind.dtype.name)})"


class Inputs:
    """Checks what is fed to a model. What is looked at of arrays that fit is gathered here once: between two runs everything else
    has left the caches."""

    def __init__(self, ports: Sequence[Port], open_shapes: Collection[int] = ()) -> None:
        """Of the ports with the numbers `open_shapes`, whoever plans for sizes looks at the shapes."""
        self._ports = tuple(ports)
        self._order = tuple(port.name for port in ports)
        self._plain = [
            (port.name, *_plain(port.type, number in open_shapes), _opened(port) if number in open_shapes else port)
            for number, port in enumerate(ports)
        ]

    def accepted(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The feeds in the order of the ports, tensors as C-contiguous arrays of exactly the type the port states.

        An array that fits is passed through as it is. Raises `UsageError` for an unknown or missing name, a wrong dtype or shape.
        """
        if type(feeds) is not dict and not isinstance(feeds, Mapping):
            raise UsageError(
                f"inputs are given as a mapping from name to value, not as {_kind_of(feeds)}; "
                f"the model's inputs are {_listed(port.name for port in self._ports)}"
            )
        if len(feeds) != len(self._plain):
            _check_names(self._ports, feeds)
        found, value_of = [], feeds.get
        for name, dtype, shape, port in self._plain:
            value = value_of(name)
            if type(value) is np.ndarray and value.dtype is dtype and value.shape == shape:
                flags = value.flags  # of which `carray` is three: what is asked here, and that it may be written to
                if flags.carray or (flags.c_contiguous and flags.aligned):
                    found.append(value)
                    continue
            if value is None:
                _check_names(self._ports, feeds)
            found.append(_fitted(port, value))
        return found

    def in_order(self, values: Iterable[Any]) -> list[Any]:
        """As `accepted`, of a value for each port."""
        return self.accepted(dict(zip(self._order, values, strict=True)))


class _AnyShape:
    """Equal to every shape."""

    __hash__ = None  # type: ignore[assignment]  # equal to too much

    def __eq__(self, other: object) -> bool:
        return True


_ANY_SHAPE = _AnyShape()


def _plain(kind: ValueType, is_open: bool) -> tuple[Any, Any]:
    """Element type and shape of most arrays for a port; nothing has those given for a port that states no shape."""
    if not isinstance(kind, TensorType):
        return None, None
    return kind.dtype.numpy, _ANY_SHAPE if is_open else kind.shape


def _opened(port: Port) -> Port:
    """A port that takes arrays of any shape."""
    return Port(
        port.name, TensorType(port.type.dtype, None) if isinstance(port.type, TensorType) else port.type, port.buffer
    )


def numbers_by_name(ports: Sequence[Port]) -> dict[str, int]:
    """The number of each port."""
    return {port.name: number for number, port in enumerate(ports)}


def chosen_outputs(known: Mapping[str, int], names: Sequence[str] | None) -> list[int]:
    """Which of the outputs `known` by name are asked for; all, in order, for None. Raises `UsageError` for an unknown name."""
    if names is None:
        return list(range(len(known)))
    if type(names) is not list and (isinstance(names, str) or not isinstance(names, Sequence)):
        raise UsageError(f"output names are given as a list, or None for all, not as {_kind_of(names)}")
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise UsageError(f"the model has no output {name!r}; its outputs are {_listed(known)}")
    return [known[name] for name in names]


def _check_names(ports: Sequence[Port], feeds: Mapping[str, Any]) -> None:
    known = {port.name for port in ports}
    for name in feeds:
        if name not in known:
            raise UsageError(f"the model has no input {name!r}; its inputs are {_listed(port.name for port in ports)}")
    missing = [port for port in ports if port.name not in feeds]
    if missing:
        wanted = ", ".join(f"{port.name!r} ({port.type})" for port in missing)
        raise UsageError(f"no value was given for input{'s' if len(missing) > 1 else ''} {wanted}")


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "none"


def _fitted(port: Port, value: Any) -> Any:
    if type(value) is list and isinstance(port.type, SequenceType) and _lie_ready(value, port.type.element):
        return list(value)
    return _of_kind(f"input {port.name!r}", port.type, value)


def _of_kind(where: str, kind: ValueType, value: Any) -> Any:
    """A value of the type `kind`, its arrays C-contiguous; `where` says whose it is."""
    if isinstance(kind, OptionalType):
        return None if value is None else _of_kind(where, kind.element, value)
    if isinstance(kind, SequenceType):
        if not isinstance(value, list | tuple):
            raise UsageError(f"{where}: expected a list of {kind.element}, found {_kind_of(value)}")
        return [_of_kind(f"{where}, element {number}", kind.element, one) for number, one in enumerate(value)]
    if isinstance(kind, MapType):
        if not isinstance(value, Mapping):
            raise UsageError(f"{where}: expected a mapping, {kind}, found {_kind_of(value)}")
        return dict(value)
    array = value if type(value) is np.ndarray else _as_array(where, kind, value)
    if array.dtype != kind.dtype.numpy and not (kind.dtype.kind == "string" and array.dtype.kind in "OSU"):
        raise UsageError(f"{where}: expected {kind.dtype.name}, found {_found(array)}")
    shape = kind.shape
    if shape is not None and array.shape != shape and not _matches(array.shape, shape):
        raise UsageError(f"{where}: expected shape {_dims(shape)}, found {_dims(array.shape)}")
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    if array.nbytes > _WORTH_ASKING_BYTES:
        check_memory(array.nbytes, f"a copy of {where}, which does not lie in memory as it is read,")
    return np.array(array, order="C", copy=True)


_WORTH_ASKING_BYTES = 1 << 26
"""Smaller arrays are there before the system has said how much memory there is."""


def _lie_ready(values: list[Any], kind: ValueType) -> bool:
    """Are all of them arrays that are passed through as they are? So it mostly is."""
    if not isinstance(kind, TensorType) or kind.dtype.kind == "string":
        return False
    dtype, shape = kind.dtype.numpy, kind.shape
    for value in values:
        if type(value) is not np.ndarray or value.dtype is not dtype or (shape is not None and value.shape != shape):
            return False
        flags = value.flags
        if not (flags.c_contiguous and flags.aligned):
            return False
    return True


def _kind_of(value: Any) -> str:
    return "None" if value is None else f"a value of the type {type(value).__name__}"


def _as_array(where: str, kind: TensorType, value: Any) -> np.ndarray:
    """An array that shares memory where the object allows it."""
    try:
        if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except Exception as error:
        raise UsageError(
            f"{where}: expected an array of {kind}, found {type(value).__name__}, which NumPy cannot read ({error})"
        ) from error


def _matches(found: tuple[int, ...], wanted: tuple[Dim, ...]) -> bool:
    """Equal where the port states a number."""
    return len(found) == len(wanted) and all(
        not isinstance(want, int) or have == want for have, want in zip(found, wanted, strict=True)
    )


def _dims(shape: tuple[Dim, ...]) -> str:
    return "x".join("?" if dim is None else str(dim) for dim in shape) if shape else "() (a scalar)"


def _found(array: np.ndarray) -> str:
    try:
        row = dtype_of(array)
    except KeyError:
        return str(array.dtype)
    return row.name if row.name == "string" or row.numpy == array.dtype else str(array.dtype)
