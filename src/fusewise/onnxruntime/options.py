"""How sessions and runs are asked for: the options of ONNX Runtime, with its checks of types, and what becomes of each here.

`FIELDS` and `RUN_FIELDS` have a row for each: an option is heeded, or kept and not looked at, in which case a session that was
given another value than the usual says so in its log.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from fusewise.onnxruntime.errors import InvalidArgument, NotImplemented, RefusedUse  # noqa: A004 - the name that programs catch
from fusewise.onnxruntime.values import OrtValue
from fusewise.records import record

if TYPE_CHECKING:
    pass

__all__ = [
    "FIELDS",
    "RUN_FIELDS",
    "ExecutionMode",
    "ExecutionOrder",
    "Field",
    "GraphOptimizationLevel",
    "RunOptions",
    "SessionOptions",
]


class GraphOptimizationLevel(IntEnum):
    """How much a graph is made better before it is run."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether nodes that do not need each other may run at the same time."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """In which order nodes are run."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


@record(frozen=True)
class Field:
    """An option: of which `kind` it must be, its usual value, and is it `heeded`?"""

    kind: type
    usual: Any
    heeded: bool = False


FIELDS: Mapping[str, Field] = {
    "enable_cpu_mem_arena": Field(bool, True),
    "enable_mem_pattern": Field(bool, True),
    "enable_mem_reuse": Field(bool, True),
    "enable_profiling": Field(bool, False, heeded=True),
    "execution_mode": Field(ExecutionMode, ExecutionMode.ORT_SEQUENTIAL),
    "execution_order": Field(ExecutionOrder, ExecutionOrder.DEFAULT),
    "graph_optimization_level": Field(GraphOptimizationLevel, GraphOptimizationLevel.ORT_ENABLE_ALL, heeded=True),
    "inter_op_num_threads": Field(int, 0),
    "intra_op_num_threads": Field(int, 0, heeded=True),
    "log_severity_level": Field(int, -1, heeded=True),
    "log_verbosity_level": Field(int, 0),
    "logid": Field(str, "", heeded=True),
    "optimized_model_filepath": Field(str, "", heeded=True),
    "profile_file_prefix": Field(str, "onnxruntime_profile_", heeded=True),
    "use_deterministic_compute": Field(bool, False, heeded=True),
    "use_per_session_threads": Field(bool, True),
}
"""The options of a session."""

RUN_FIELDS: Mapping[str, Field] = {
    "log_severity_level": Field(int, -1),
    "log_verbosity_level": Field(int, 0),
    "logid": Field(str, ""),
    "only_execute_path_to_fetches": Field(bool, False),
    "terminate": Field(bool, False, heeded=True),
}
"""The options of a run."""


class _Fields:
    """Attributes by a table; `AttributeError` for another name, `TypeError` for a value of another kind."""

    _fields: Mapping[str, Field] = {}

    def __init__(self) -> None:
        for name, field in self._fields.items():
            object.__setattr__(self, name, field.usual)
        object.__setattr__(self, "_entries", {})

    def __setattr__(self, name: str, value: Any) -> None:
        field = self._fields.get(name)
        if field is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}; it has {', '.join(self._fields)}")
        object.__setattr__(self, name, _kept(name, field.kind, value))

    @property
    def entries(self) -> dict[str, str]:
        """The entries by name, for whoever reads the options."""
        found: dict[str, str] = dict(self.__dict__["_entries"])
        return found

    def _add_entry(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"an entry is a text by a name, not {value!r} by {key!r}")
        self.__dict__["_entries"][key] = value

    def _entry(self, key: str) -> str:
        try:
            found: str = self.__dict__["_entries"][key]
        except KeyError:
            raise RefusedUse(f"{type(self).__name__} has no entry {key!r}") from None
        return found


def _kept(name: str, kind: type, value: Any) -> Any:
    if kind is bool and isinstance(value, bool | int | np.bool_):
        return bool(value)
    if kind is int and hasattr(value, "__index__"):
        return int(value)
    if kind is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name} must be of the type {kind.__name__}, not {value!r}")
    return value


class SessionOptions(_Fields):
    """How a model is opened; attributes and methods are those of `onnxruntime.SessionOptions`."""

    _fields = FIELDS

    if TYPE_CHECKING:
        enable_profiling: bool
        graph_optimization_level: GraphOptimizationLevel
        intra_op_num_threads: int
        log_severity_level: int
        logid: str
        optimized_model_filepath: str
        profile_file_prefix: str
        use_deterministic_compute: bool

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_sizes"] = {}
        self.__dict__["_denotations"] = {}
        self.__dict__["_initializers"] = {}
        self.__dict__["_external"] = {}

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of free dimensions by name."""
        return dict(self.__dict__["_sizes"])

    @property
    def denotations(self) -> dict[str, int]:
        """Sizes of free dimensions by what they denote."""
        return dict(self.__dict__["_denotations"])

    @property
    def initializers(self) -> dict[str, np.ndarray]:
        """What initializers are replaced by."""
        return dict(self.__dict__["_initializers"])

    @property
    def external(self) -> dict[str, np.ndarray]:
        """What initializers that lie in files are replaced by."""
        return dict(self.__dict__["_external"])

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep a text by a name. Those that begin with `fusewise.` are options of `fusewise.compile`; no other has an effect."""
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The text by that name. `RefusedUse`, a `RuntimeError`, where there is none."""
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """The dimension of that name has this size; nothing where no input has one."""
        self.__dict__["_sizes"][name] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Free dimensions that denote this, such as `DATA_BATCH`, have this size."""
        self.__dict__["_denotations"][denotation] = int(size)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """The initializer of that name is this tensor; nothing where the model has none."""
        self.__dict__["_initializers"][name] = _tensor(value)

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Initializers that lie in files are these tensors instead."""
        if len(names) != len(values):
            raise RefusedUse(f"{len(names)} names of initializers are given for {len(values)} values")
        self.__dict__["_external"].update(zip(names, map(_tensor, values), strict=True))

    def register_custom_ops_library(self, path: str) -> None:
        """`NotImplemented`: such a library is written for ONNX Runtime's own kernels."""
        raise NotImplemented.of(
            f"{path} holds kernels for ONNX Runtime, which cannot be run here: describe the operators by "
            "fusewise.register_domain instead"
        )

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Nothing for the CPU, which is the one provider; `InvalidArgument` for another."""
        if name != "CPUExecutionProvider":
            raise InvalidArgument.of(f"there is no provider {name!r}; there is CPUExecutionProvider")

    def has_providers(self) -> bool:
        """False: sessions run on the CPU."""
        return False


def _tensor(value: object) -> np.ndarray:
    if not isinstance(value, OrtValue) or not value.is_tensor():
        raise RefusedUse(
            f"an initializer is an OrtValue that holds a tensor, not a value of the type {type(value).__name__}"
        )
    return value.numpy()


class RunOptions(_Fields):
    """How a model is run; attributes and methods are those of `onnxruntime.RunOptions`. A run that is asked to `terminate` before
    it begins does not; one that has begun goes on."""

    _fields = RUN_FIELDS

    if TYPE_CHECKING:
        terminate: bool

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep a text by a name. None has an effect."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The text by that name. `RefusedUse`, a `RuntimeError`, where there is none."""
        return self._entry(key)
