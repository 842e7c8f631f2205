"""A model that is run as one of ONNX Runtime's sessions is."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fusewise.codegen.gpu.device import CPU as CPU_DEVICE
from fusewise.errors import FusewiseError, NamesContradicted, ShapeContradicted, UsageError
from fusewise.ir.types import SequenceType, TensorType
from fusewise.onnxruntime import opening
from fusewise.onnxruntime.binding import IOBinding
from fusewise.onnxruntime.errors import (
    Fail,
    MissingInputs,
    NotImplemented,  # noqa: A004 - the name that programs catch
    RefusedUse,
    SessionError,
    loading_error,
    running_error,
)
from fusewise.onnxruntime.log import WARNING, sayer
from fusewise.onnxruntime.options import RunOptions, SessionOptions
from fusewise.onnxruntime.ports import ModelMetadata, NodeArg, described, metadata, node_arg, overridable
from fusewise.onnxruntime.profiling import Profile
from fusewise.onnxruntime.providers import CPU, CUDA, warn_of_others
from fusewise.onnxruntime.texts import has_texts, texts_in, texts_out
from fusewise.onnxruntime.values import OrtValue

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from fusewise.api import Model
    from fusewise.runtime.feeds import PortInfo

__all__ = ["InferenceSession"]

Callback = Callable[[list[Any], Any, str], None]


class InferenceSession:
    """A compiled model; methods are those of `onnxruntime.InferenceSession`, and `model` is what `fusewise.compile` gives.

    `path_or_bytes`: an ONNX file or its contents, or a compiled file (`.fw`). `providers`: others than the CPU are told of.
    `run` may be called from several threads. Raises the errors of `onnxruntime.errors`.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(path_or_bytes, str | bytes | os.PathLike):
            raise TypeError(f"a model is a path or bytes, not a value of the type {type(path_or_bytes).__name__}")
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(f"the options of a session are SessionOptions, not {type(sess_options).__name__}")
        try:
            warn_of_others(providers, provider_options)
        except ValueError as error:
            if not int(settings.get("enable_fallback", 1)):
                raise
            warnings.warn(f"{error}; the model runs on {CPU}", UserWarning, stacklevel=2)
        self._source = path_or_bytes if isinstance(path_or_bytes, bytes) else os.fspath(path_or_bytes)
        self._options = SessionOptions() if sess_options is None else sess_options
        self._say = sayer(self._options.log_severity_level, self._options.logid)
        self._lock = threading.Lock()
        self._profile = Profile(self._options.profile_file_prefix) if self._options.enable_profiling else None
        opening.tell_ignored(self._options, self._say)
        self._open()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a session can be neither pickled nor copied: open the model again where it is wanted, or pickle `session.model`"
        )

    def _open(self) -> None:
        begin = time.monotonic_ns()
        source = self._source
        try:
            self.model = self._opened()
        except SessionError:
            raise
        except FusewiseError as error:
            raise loading_error(error, source) from error
        program = self.model.runs.program
        self.input_names = tuple(port.name for port in program.inputs)
        self._check_device()
        self._call = self._chosen()
        if self._profile is not None:
            name = "model_loading_array" if isinstance(source, bytes) else "model_loading_uri"
            self._profile.add(name, begin, time.monotonic_ns())

    def _check_device(self) -> None:
        """`NotImplemented` for what is not noted of a run on a GPU; says which sizes are fixed there."""
        if self.model.device == CPU_DEVICE:
            return
        if self._profile is not None:
            raise NotImplemented.of("steps of a run on a GPU are not noted: leave enable_profiling out")
        sizes = (self.model.summary.get("frozen") or {}).get("sizes") or {}
        taken = [f"{name} = {size}" for name, size in sizes.items() if name not in self._options.sizes]
        if taken:
            hint = "add_free_dimension_override_by_name takes others"
            self._say(WARNING, f"a program for {self.model.device} is for one size, {', '.join(taken)}: {hint}")

    def _opened(self) -> Model:
        if isinstance(self._source, str) and self._source.endswith(".fw"):
            from fusewise.compiled import open_compiled

            return open_compiled(self._source, threads=self._options.intra_op_num_threads or None)
        if isinstance(self._source, str) and self._source.endswith(".ort"):
            raise NotImplemented.of(
                f"{self._source} is in ONNX Runtime's own format: give the ONNX model it was made from"
            )
        made = opening.compiled(self._source, self._options, self._say)
        opening.write_optimized(self._source, self._options)
        return made

    def _chosen(self) -> Callable[[Sequence[str] | None, Mapping[str, Any]], list[Any]]:
        """What makes a run, for inputs that fit."""
        program = self.model.runs.program
        run = self.model.run if self._profile is None else partial(_profiled, self.model, self._profile)
        if not has_texts(port.type for port in (*program.inputs, *program.outputs)):
            return run
        inputs = {port.name: port.type for port in program.inputs}

        def with_texts(names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
            return texts_out(run(names, texts_in(inputs, feeds)))

        return with_texts

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """The named outputs, all of them for None or an empty list, given inputs by name: arrays, lists of numbers, `OrtValue`s.

        `InvalidArgument` for what does not fit the model, `MissingInputs`, a `ValueError`, where inputs are missing.
        """
        if run_options is not None:
            _require_going_on(run_options)
        try:
            return self._call(output_names or None, input_feed)
        except UsageError as error:
            return self._run_otherwise(output_names or None, input_feed, error)
        except FusewiseError as error:
            raise running_error(error) from error

    def _run_otherwise(self, names: Sequence[str] | None, feeds: Any, error: UsageError) -> list[Any]:
        """A run with lists as arrays of the type that the model wants, or with initializers given; else what it raises."""
        if not isinstance(feeds, Mapping):
            raise AttributeError(f"inputs are given as a dictionary, not as {type(feeds).__name__}") from error
        missing = [name for name in self._required if name not in feeds]
        if missing:
            raise self._missing(missing, feeds) from error
        if isinstance(names, str):
            raise TypeError(f"names of outputs are a list, not the text {names!r}") from error
        try:
            fitted = self._fitted(feeds)
            if any(name in self._overridable for name in feeds):
                return self._overridden.run(names, {**self._defaults, **fitted})
            if all(fitted[name] is feeds[name] for name in feeds):
                raise running_error(error) from error
            return self._call(names, fitted)
        except SessionError:
            raise
        except FusewiseError as again:
            raise running_error(again) from again

    def _missing(self, missing: Sequence[str], feeds: Mapping[str, Any]) -> MissingInputs:
        """The error about inputs that are not given, with names among those given that the model has not."""
        known = {*self.input_names, *self._overridable}
        others = [repr(name) for name in feeds if name not in known]
        given = f"; the model has no input {' or '.join(others)}" if others else ""
        return MissingInputs(f"these inputs are not given: {', '.join(missing)}{given}")

    def _fitted(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The same feeds with lists as arrays of the type that their inputs have, and values as what they hold."""
        kinds = {port.name: port.type for port in self.model.runs.program.inputs}
        found: dict[str, Any] = {}
        for name, value in feeds.items():
            kind = kinds.get(name)
            if isinstance(value, OrtValue):
                value = value.contents
            elif isinstance(value, list | tuple) and isinstance(kind, TensorType):
                try:
                    value = np.asarray(value, kind.dtype.numpy)
                except (TypeError, ValueError) as error:
                    raise RefusedUse(
                        f"input {name!r}: the list cannot be an array of {kind.dtype.name}: {error}"
                    ) from error
            elif isinstance(kind, SequenceType) and isinstance(value, list | tuple):
                value = [one.contents if isinstance(one, OrtValue) else one for one in value]
            found[name] = value
        return found

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in another thread, which calls `callback(results, user_data, error)` when it is done: with the outputs and an empty
        text, or an empty list and what went wrong. Missing inputs are told of at once."""
        if not callable(callback):
            raise TypeError(f"the callback is a function, not a value of the type {type(callback).__name__}")
        missing = [name for name in self._required if name not in input_feed]
        if missing:
            raise self._missing(missing, input_feed)
        self._threads.submit(self._run_for, callback, user_data, (output_names, dict(input_feed), run_options))

    def _run_for(self, callback: Callback, user_data: Any, asked: tuple[Any, ...]) -> None:
        try:
            try:
                results, said = self.run(*asked), ""
            except Exception as error:
                results, said = [], str(error) or type(error).__name__
            callback(results, user_data, said)
        except BaseException as error:  # nobody waits for it
            about = (type(error), error, error.__traceback__, threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(about))

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(max(2, self.model.runs.workers), "fusewise-session")

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As `run`, with values in and out."""
        feeds = {name: value.contents for name, value in input_dict_ort_values.items()}
        chosen = list(output_names or self._output_types)
        results = self.run(chosen, feeds, run_options)
        return [OrtValue(result, self._output_types[name]) for name, result in zip(chosen, results, strict=True)]

    def io_binding(self) -> IOBinding:
        """Nothing bound yet."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on what is bound, and into it: a result lies in the memory that its output is bound to.

        `RefusedUse`, a `RuntimeError`, for what does not fit. `ValueError` for what another session's inputs are bound by.
        """
        if iobinding.session is not self:
            raise ValueError("what is bound is bound for another session")
        if run_options is not None:
            _require_going_on(run_options)
        if not iobinding.outputs:
            raise RefusedUse("no output is bound: bind those that are wanted")
        into = {name: None if value is None else value.contents for name, value in iobinding.outputs.items()}
        begin = time.monotonic_ns()
        try:
            results = self.model.run_into(iobinding.inputs, into)
        except FusewiseError as error:
            raise RefusedUse(f"the model cannot be run as it is bound: {error}") from error
        if self._profile is not None:
            self._profile.add("model_run", begin, time.monotonic_ns())
        for (name, value), result in zip(iobinding.outputs.items(), results, strict=True):
            if value is None:
                iobinding.outputs[name] = OrtValue(result, self._output_types[name])

    def get_inputs(self) -> list[NodeArg]:
        """Name, shape and type of each input that has no initializer."""
        return list(self._ports[0])

    def get_outputs(self) -> list[NodeArg]:
        """Name, shape and type of each output."""
        return list(self._ports[1])

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Name, shape and type of each input that has an initializer."""
        return list(self._overridable.values())

    def get_modelmeta(self) -> ModelMetadata:
        """Who made the model; nothing of a compiled file."""
        return self._said[1]

    def get_session_options(self) -> SessionOptions:
        """The options that the session was opened with."""
        return self._options

    def get_providers(self) -> list[str]:
        """The CPU, and before it CUDA where the model is for a GPU (the entry `fusewise.device`)."""
        return [CPU] if self.model.device == CPU_DEVICE else [CUDA, CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """None, of either."""
        return {name: {} for name in self.get_providers()}

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[dict[Any, Any]] | None = None
    ) -> None:
        """Tell of others than the CPU."""
        warn_of_others(providers, provider_options)

    def disable_fallback(self) -> None:
        """Nothing: there is one provider."""

    def enable_fallback(self) -> None:
        """Nothing, as above."""

    def end_profiling(self) -> str:
        """Write what was noted; the name of the file, or nothing where nothing is noted (`enable_profiling`)."""
        return "" if self._profile is None else self._profile.end()

    def get_profiling_start_time_ns(self) -> int:
        """When noting began, by `time.monotonic_ns`; 0 where nothing is noted."""
        return 0 if self._profile is None else self._profile.start_ns

    @cached_property
    def _said(self) -> tuple[Any, ModelMetadata]:
        """What the model's file says of itself: its message and who made it."""
        if isinstance(self._source, str) and self._source.endswith(".fw"):
            return None, ModelMetadata()
        from fusewise.frontend.onnx_import import message

        found = message(self._source)
        return found, metadata(found)

    @cached_property
    def _ports(self) -> tuple[list[NodeArg], list[NodeArg]]:
        inputs, outputs = self.model.get_inputs(), self.model.get_outputs()
        said = self._said[0]
        if said is None:
            return _plain(inputs), _plain(outputs)
        return described(inputs, said.graph.input, said), described(outputs, said.graph.output, said)

    @cached_property
    def _output_types(self) -> dict[str, str]:
        return {port.name: port.type for port in self.model.get_outputs()}

    @cached_property
    def _required(self) -> tuple[str, ...]:
        return tuple(port.name for port in self.model.get_inputs() if not port.type.startswith("optional"))

    @cached_property
    def _overridable(self) -> dict[str, NodeArg]:
        """Inputs that have an initializer."""
        said = self._said[0]
        found = {} if said is None else overridable(said)
        return {name: node_arg(value) for name, value in found.items()}

    @cached_property
    def _overridden(self) -> Model:
        """The model that takes these as inputs; compiled when they are first given."""
        with self._lock:
            return opening.compiled_open(self._source, self._options, self._say)

    @cached_property
    def _defaults(self) -> dict[str, np.ndarray]:
        return opening.default_values(self._source, self._options)


def _profiled(model: Model, profile: Profile, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
    """The results of a run whose steps are noted."""
    begin = time.monotonic_ns()
    try:
        results, timings = model.executable.run_with_timings(names, feeds)
    except (NamesContradicted, ShapeContradicted):
        results, timings = model.run(names, feeds), []
    profile.add_steps(timings)
    profile.add("model_run", begin, time.monotonic_ns())
    return results


def _plain(ports: Sequence[PortInfo]) -> list[NodeArg]:
    return [NodeArg(port.name, port.type, list(port.shape)) for port in ports]


def _require_going_on(options: RunOptions) -> None:
    if not isinstance(options, RunOptions):
        raise TypeError(f"the options of a run are RunOptions, not {type(options).__name__}")
    if options.terminate:
        raise Fail.of("the run was asked to terminate before it began")
