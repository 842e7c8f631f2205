"""From a model and the options of a session to a compiled model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fusewise.codegen.gpu.device import CPU
from fusewise.onnxruntime.errors import Fail, InvalidArgument
from fusewise.onnxruntime.log import INFO, WARNING
from fusewise.onnxruntime.options import FIELDS, GraphOptimizationLevel, SessionOptions
from fusewise.onnxruntime.ports import overridable, sizes_denoted

if TYPE_CHECKING:
    import numpy as np

    from fusewise.api import Model

__all__ = ["compiled", "compiled_open", "default_values", "tell_ignored", "write_optimized"]

_SPECIALIZED = 8
"""So many sizes that keep coming back have programs of their own, unless an entry or deterministic computing says otherwise."""

_OURS = "fusewise."
"""How entries begin that are options of `fusewise.compile`."""

_WORDS = {"0": False, "1": True, "false": False, "true": True}

Say = Callable[[int, str], None]


def compiled(source: str | bytes, options: SessionOptions, say: Say) -> Model:
    """The model at a path, or as bytes."""
    from fusewise import api

    values = _replaced(source, options)
    settings = _settings(source, options, say)
    if not values:
        return api.compile(source, **settings)
    from fusewise.frontend import onnx_import

    return api.compile(onnx_import.load(source, initializers=values), **settings)


def compiled_open(source: str | bytes, options: SessionOptions, say: Say) -> Model:
    """The same, with every initializer that may be given as an input one."""
    from fusewise import api
    from fusewise.frontend import onnx_import

    names = overridable(onnx_import.message(source))
    given = {**_replaced(source, options), **dict.fromkeys(names)}
    return api.compile(onnx_import.load(source, initializers=given), **_settings(source, options, say))


def default_values(source: str | bytes, options: SessionOptions) -> dict[str, np.ndarray]:
    """What inputs have that are not given, by name."""
    from fusewise.frontend import onnx_import

    graph = onnx_import.load(source, initializers=_replaced(source, options))
    names = overridable(onnx_import.message(source))
    return {name: graph.constants[name].array for name in names if name in graph.constants}


def write_optimized(source: str | bytes, options: SessionOptions) -> None:
    """Write the optimised graph where the options say, if they do. `InvalidArgument` where that cannot be written to."""
    from fusewise import api
    from fusewise.errors import UsageError

    if not options.optimized_model_filepath:
        return
    passes = options.graph_optimization_level != GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        api.save(api.optimize(source, passes=passes), options.optimized_model_filepath)
    except UsageError as error:
        raise InvalidArgument.of(error) from error


def tell_ignored(options: SessionOptions, say: Say) -> None:
    """Say which options have another value than the usual, and no effect."""
    ignored = [name for name, row in FIELDS.items() if not row.heeded and getattr(options, name) != row.usual]
    ignored += [key for key in options.entries if not key.startswith(_OURS)]
    if ignored:
        say(INFO, f"these options have no effect here: {', '.join(ignored)}")


def _replaced(source: str | bytes, options: SessionOptions) -> dict[str, np.ndarray | None]:
    """Initializers that the options give. `Fail` for one of those in files that is none."""
    external = options.external
    if external:
        from fusewise.frontend.onnx_import import message

        outside = {one.name for one in message(source).graph.initializer if one.data_location == one.EXTERNAL}
        for name in external:
            if name not in outside:
                raise Fail.of(f"initializer {name!r} does not lie in a file of its own: replace it by add_initializer")
    return {**options.initializers, **external}


def _settings(source: str | bytes, options: SessionOptions, say: Say) -> dict[str, Any]:
    """The options of `fusewise.compile`."""
    threads = options.intra_op_num_threads
    if threads < 0:
        raise InvalidArgument.of(f"intra_op_num_threads must be 0, for what the machine offers, or more, not {threads}")
    found: dict[str, Any] = {"threads": threads or None, "warn": lambda sentence: say(WARNING, sentence)}
    found["specialize"] = 0 if options.use_deterministic_compute else _SPECIALIZED
    if options.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL:
        found |= {"passes": False, "fusion": "none"}
    found |= {key.removeprefix(_OURS): _word(text) for key, text in options.entries.items() if key.startswith(_OURS)}
    if found.get("exact") or (found.get("device", CPU) != CPU and f"{_OURS}specialize" not in options.entries):
        found["specialize"] = 0
    if options.sizes or options.denotations:
        found["symbols"] = _sizes(source, options)
    return found


def _word(text: str) -> Any:
    """An option as a text: a switch or a number where it can be one."""
    plain = text.strip()
    if plain.lower() in _WORDS and plain not in ("0", "1"):
        return _WORDS[plain.lower()]
    return int(plain) if plain.isdecimal() else plain


def _sizes(source: str | bytes, options: SessionOptions) -> Mapping[str, int]:
    """Sizes by the names that dimensions of inputs have; others are nothing."""
    from fusewise.frontend.onnx_import import message

    model = message(source)
    known = {dim.dim_param for each in model.graph.input for dim in each.type.tensor_type.shape.dim if dim.dim_param}
    found = {**options.sizes, **sizes_denoted(model, options.denotations)}
    for name, size in found.items():
        if name in known and size < 0:
            raise InvalidArgument.of(f"dimension {name!r} cannot have the size {size}")
    return {name: size for name, size in found.items() if name in known}
