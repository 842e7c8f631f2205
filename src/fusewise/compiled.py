"""A compiled model as its user holds it: run it, ask what it takes, keep it in a file, open it again."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

from fusewise.cards import Card, carded, counted, listed, one_line
from fusewise.codegen.gpu.device import CPU
from fusewise.errors import NamesContradicted, ResourceLimit, ShapeContradicted, UsageError, within_memory
from fusewise.version import VERSION
from fusewise.words import size_text, sizes_text

if TYPE_CHECKING:
    import numpy as np

    from fusewise.ir.graph import Graph
    from fusewise.ir.types import TensorType, ValueType
    from fusewise.lower.program import Port
    from fusewise.runtime.artefact import Artefact
    from fusewise.runtime.executable import Executable
    from fusewise.runtime.gpu.dlpack import DeviceArray
    from fusewise.runtime.gpu.runner import GpuRunner
    from fusewise.runtime.gpu.sized import SizedPrograms
    from fusewise.runtime.growing import Cache
    from fusewise.runtime.signing import Key
    from fusewise.runtime.specialist import Specialist
    from fusewise.trace import Trace

__all__ = ["SUFFIX", "Model", "open_compiled", "opened", "restored"]

SUFFIX = ".fw"
"""How names of compiled files end."""


def _card(model: Model) -> Card:
    figures = model.summary
    if model.is_closed:
        return Card("Model, closed")
    if model.device != CPU:
        return _gpu_card(model)
    program = model.executable.program
    workers, steps = figures["workers"], figures["host_steps"]
    operators = Counter(name for one in program.accounts for name in one.operators.split("+") if name)
    why = (f"{row['op']} ({row['reason']})" for row in figures["host"])
    return Card(
        f"Model: {figures['groups']:,} groups on {workers} thread{'' if workers == 1 else 's'}, "
        f"{size_text(figures['constant_bytes'])} of weights, {size_text(figures['arena_bytes'])} of results between, "
        f"ready in {figures['compile_ms']:,.0f} ms",
        (
            ("operators", counted(operators)),
            ("inputs", listed(f"{one_line(port.name)}: {port.type}" for port in program.inputs)),
            ("outputs", listed(f"{one_line(port.name)}: {port.type}" for port in program.outputs)),
            ("on the host", f"{steps:,} steps: {listed(why)}" if steps else "nothing"),
        ),
    )


def _gpu_card(model: Model) -> Card:
    figures, program = model.summary, model.runs.program
    return Card(
        f"Model for {model.device}: kernels {figures['kernels']:,}, launches {figures['launches']:,}, "
        f"{size_text(figures['constant_bytes'])} of weights, {size_text(figures['arena_bytes'])} of results between, "
        f"ready in {figures['compile_ms']:,.0f} ms",
        (
            ("inputs", listed(f"{one_line(port.name)}: {port.type}" for port in program.inputs)),
            ("outputs", listed(f"{one_line(port.name)}: {port.type}" for port in program.outputs)),
            *_programs(model.specialized),
            ("on the host", f"{figures['host_steps']:,} steps" if figures["host_steps"] else "nothing"),
        ),
    )


def _programs(specialized: Mapping[str, Any] | None) -> tuple[tuple[str, str], ...]:
    """A row of the sizes that a model for a GPU has programs for; none where it has one program."""
    if specialized is None:
        return ()
    return (("programs for", listed((sizes_text(one) for one in specialized["sizes"]), separator="; ")),)


@carded(_card)
class Model:
    """A compiled model, ready to run: by `run`, as `onnxruntime.InferenceSession` is, or called as a function.

    `summary` has the figures: `compile_ms` and what each of the `stages` took of it, `groups`, `kernels`, `arena_bytes`,
    `host_steps` and `host` (which nodes run on the host, and why), `specialized` those of sizes that have a program of their own.
    `run` may be called from several threads.
    `again` compiles the model without what it states of its values, and if it is told so with dimensions of one name apart; it may
    give None.

    A model can be pickled and copied: what travels is the compiled file (`save`), and what comes back is a model as `open_compiled`
    gives it, on as many workers. It holds no graph, and raises `UnsupportedModel` where this CPU lacks what it needs.

    A model for a GPU is loaded there by its first run, or when it is compiled for the GPU that is here. Arrays on the device are
    read and written where they are, by DLPack.
    """

    def __init__(
        self,
        executable: Executable | GpuRunner | SizedPrograms,
        planned: Callable[[], tuple[Graph, Trace]] | None,
        summary: Mapping[str, Any],
        bounds: Mapping[str, int | None] | None = None,
        again: Callable[[bool], Model | None] | None = None,
    ) -> None:
        self._executable: Executable | GpuRunner | SizedPrograms | None = executable
        self._again = again
        self._left_aside: set[type] = set()
        self._lock = Lock()
        self._summary = dict(summary)
        self._planned = planned
        self._bounds = bounds
        self.specialist: Specialist | None = None
        self.grow: Callable[[], Model] | None = None
        self.report_again: Callable[[bool, int], Any] | None = None
        self._growing: Model | None = None

    @property
    def runs(self) -> Executable | GpuRunner | SizedPrograms:
        """What runs it, on whatever device. `UsageError` when the model is closed."""
        found = self._executable
        if found is None:
            raise UsageError("the model is closed: compile it or open it again")
        return found

    @property
    def executable(self) -> Executable:
        """Program, machine code and memory of a model for a CPU. `UsageError` when the model is closed, or for a GPU."""
        found = self.runs
        if found.device != CPU:
            raise UsageError(f"this needs a model for a CPU, and this one is for {found.device}")
        return cast("Executable", found)

    @property
    def device(self) -> str:
        """What it was compiled for: `cpu`, or the GPUs of an architecture, as `cuda:sm_90`."""
        return self.runs.device

    @property
    def graph(self) -> Graph:
        """What was compiled; of a model that came from the cache, planned again when first asked for.

        `UsageError` for a model that was opened from a file, which holds only machine code.
        """
        return self._plan[0]

    @property
    def trace(self) -> Trace:
        """The decisions; found and refused as the graph is."""
        return self._plan[1]

    @cached_property
    def _plan(self) -> tuple[Graph, Trace]:
        self.runs  # noqa: B018 - refuses when closed
        if self._planned is None:
            raise UsageError("a compiled file holds no graph; give the model it was compiled from")
        return self._planned()

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any], run_options: Any = None) -> list[Any]:
        """The named outputs, all of them for None, given every input by name. `UsageError` for feeds that do not fit.

        Where a value has another shape than the model states, the model is compiled anew, with a warning, for what follows from its
        inputs alone; so it is for dimensions of one name that differ, where control flow may read some of them and not others.
        `ShapeContradicted` and `UsageError` for a compiled file, which has no model to compile.
        """
        for _ in (1, 2):  # sooner than a range
            used = self.runs
            try:
                return used.run(output_names, feeds)
            except (NamesContradicted, ShapeContradicted) as contradiction:
                if not self._compile_again(used, contradiction):
                    raise
        return self.runs.run(output_names, feeds)

    def __call__(self, /, *values: Any, **feeds: Any) -> Any:
        """What the model gives for arrays in the order of its inputs, or by their names: one array where it has one output, a list
        of them otherwise. A mapping alone has all inputs by name. Tensors of PyTorch are read in place, and outputs are tensors
        where an input is, on a GPU where one lies there. Raises what `run` raises."""
        ports = self.runs.program.inputs
        if len(values) == 1 and not feeds and isinstance(values[0], Mapping) and not _takes_a_map(ports):
            return self(**values[0])
        if len(values) > len(ports):
            inputs = f"{len(ports)} input{'' if len(ports) == 1 else 's'}"
            raise UsageError(f"the model is called with {len(values)} arrays and has {inputs}")
        for port, value in zip(ports, values, strict=False):
            if port.name in feeds:
                raise UsageError(f"input {port.name!r} is given twice: in its place, and by its name")
            feeds[port.name] = value
        results = self._called(feeds)
        return results[0] if len(results) == 1 else results

    def _called(self, feeds: Mapping[str, Any]) -> list[Any]:
        """All outputs for feeds of which some may be tensors of PyTorch."""
        from fusewise.tensors import array_of, is_tensor, tensor_like, tensor_of

        tensors = [value for value in feeds.values() if is_tensor(value)]
        if not tensors:
            return self.run(None, feeds)
        if there := [value for value in tensors if not value.is_cpu]:
            if self.device == CPU:
                raise UsageError(f"the model runs on a CPU, and a tensor lies on {there[0].device}: give tensor.cpu()")
            given = {name: _detached(value) for name, value in feeds.items()}
            ports = cast("GpuRunner", self.runs).outputs_for(given)
            kinds = {port.name: cast("TensorType", port.type) for port in ports}
            into = {name: tensor_like(kind.dims, kind.dtype.name, there[0]) for name, kind in kinds.items()}
            return self.run_into(given, into)
        given = {name: array_of(value) if is_tensor(value) else value for name, value in feeds.items()}
        return list(map(tensor_of, self.run(None, given)))

    def run_into(self, feeds: Mapping[str, Any], into: Mapping[str, np.ndarray | None]) -> list[Any]:
        """As `run`, of the outputs that `into` names, each written into the array given for it, which is returned; None for a new
        one. `UsageError` for an array of another shape or type."""
        for _ in range(2):
            used = self.runs
            try:
                return used.run_into(feeds, into)
            except (NamesContradicted, ShapeContradicted) as contradiction:
                if not self._compile_again(used, contradiction):
                    raise
        return self.runs.run_into(feeds, into)

    def run_on_device(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[DeviceArray]:
        """As `run`, of a model for a GPU: outputs stay there, for PyTorch, CuPy and others to read by DLPack. They lie in the
        model's memory, so the next run overwrites them. `UsageError` for a model for a CPU."""
        found = self.runs
        if found.device == CPU:
            raise UsageError("the model runs on a CPU, so there is no device for outputs to stay on: call run")
        return cast("GpuRunner", found).run_on_device(output_names, feeds)

    def bind_cache(self, capacity: int, batch: int = 1) -> Cache:
        """An empty cache of keys and values for a decoder that takes what is past and gives what is past then: what is new is
        written behind what is there, and nothing is copied. `capacity`: how many tokens there is room for.

        The first time the model is compiled once more, to grow in place, on the same weights; one that was compiled so
        (`Options.grow`) is taken as it is. Raises `UsageError` where no output extends an input, and for a compiled file that does
        not grow.
        """
        from fusewise.runtime.growing import Cache

        with self._lock:
            if self._growing is None and self.executable.program.growth is None:
                if self.grow is None:
                    raise UsageError("this model was not compiled to grow: compile it with grow=True, and save that")
                self._growing = self.grow()
            used = self if self._growing is None else self._growing
        return Cache(used.executable, capacity, batch)

    def _compile_again(
        self, used: Executable | GpuRunner | SizedPrograms, contradiction: NamesContradicted | ShapeContradicted
    ) -> bool:
        """Take the place of the executable that was `used`, unless another thread has done so; is there another now?"""
        with self._lock:
            if self._executable is not used:
                return True
            if self._again is None or type(contradiction) in self._left_aside:
                return False
            other = self._again(NamesContradicted in (type(contradiction), *self._left_aside))
            if other is None:
                return False
            names = isinstance(contradiction, NamesContradicted)
            left = "each is taken to be as given" if names else "what it states is left aside"
            warnings.warn(f"{contradiction}: {left} from here on", RuntimeWarning, stacklevel=4)
            self._executable, self._summary, self._planned = other.runs, other._summary, other._planned
            self.specialist = other.specialist
            self.__dict__.pop("_plan", None)
            self._left_aside.add(type(contradiction))
            return True

    @property
    def summary(self) -> dict[str, Any]:
        """The figures, as plain JSON."""
        found = self.specialized
        return dict(self._summary) if found is None else {**self._summary, "specialized": found}

    @property
    def specialized(self) -> dict[str, Any] | None:
        """Which `sizes` have a program of their own now, `bytes` that these take beside what they share with the program for
        all sizes, `shared_bytes`, how many were `made`, and how many could not be (`failed`). None where none are asked for. On
        a GPU every program is for sizes: those that are on it now."""
        if self.specialist is not None:
            return self.specialist.figures
        return None if self.is_closed or self.device == CPU else cast("GpuRunner", self.runs).specialized

    def close(self) -> None:
        """End work in the background, and let go of code, weights and memory. Runs that are under way in other threads end as
        they would, and caches that were bound keep what they need; whatever else is asked of the model is a `UsageError`. Closing
        twice is closing once. Models are also let go of when nobody has them."""
        if self.specialist is not None:
            self.specialist.close()
        with self._lock:
            if self._executable is not None and self._executable.device != CPU:
                cast("GpuRunner", self._executable).close()
            self._executable = self._planned = self._again = self.grow = self._growing = self.report_again = None
            self.__dict__.pop("_plan", None)

    @property
    def is_closed(self) -> bool:
        """Has `close` been called?"""
        return self._executable is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        from fusewise.runtime import artefact

        own = self.runs
        return restored, (artefact.as_bytes(own, self.notes, VERSION), own.workers, own.memory_limit)

    def get_inputs(self) -> list[Any]:
        """Name, shape and type of each input."""
        return list(self.runs.get_inputs())

    def get_outputs(self) -> list[Any]:
        """Name, shape and type of each output."""
        return list(self.runs.get_outputs())

    def random_inputs(self, seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
        """A value for every input, by name; integers that are indexes stay within what they index. Free dimensions have the
        `sizes` given by their names, and others those that were planned for."""
        from fusewise.benchmarking.inputs import random_values

        return random_values(self._input_types(sizes or {}), self._index_bounds(), seed)

    def _input_types(self, sizes: Mapping[str, int]) -> dict[str, ValueType]:
        from fusewise.ir.at_sizes import type_at
        from fusewise.ir.deciding import hint
        from fusewise.ir.size import size_of

        program = self.runs.program
        symbols = self.runs.program.symbols
        names = [symbol.name for symbol in symbols]
        for name in sizes:
            if name not in names:
                raise UsageError(
                    f"a size is given for dimension {name!r}, but the model's free ones are {', '.join(names) or 'none'}"
                )
        values = {symbol.name: hint(size_of(symbol)) for symbol in symbols} | dict(sizes)
        return {port.name: type_at(port.type, values) for port in program.inputs}

    def save(self, path: str | Path, *, sign: Key | None = None) -> None:
        """Write machine code and packed weights as one file, which `open_compiled` runs without compiling anything.

        `sign`: an Ed25519 private key in PEM, as a path or as bytes; `open_compiled` can then be told to trust its files alone.
        Raises `ResourceLimit` when there is no room, `UsageError` when the place may not be written to or the key is none.
        """
        from fusewise.runtime import artefact
        from fusewise.runtime.signing import signer

        signing = None if sign is None else signer(sign)
        artefact.write(Path(path), self.runs, self.notes, VERSION, sign=signing)

    def report(self, *, times: bool = False, seed: int = 0) -> Any:
        """What was done with the model when it was compiled, as a `reporting.report.Report`, which makes pages and files of it;
        with `times` of runs on random inputs from `seed`. The model is planned once more for that. One for a GPU has estimates, and
        times where that GPU is here.

        `UsageError` for a model that was opened from a file, which holds only machine code.
        """
        self.runs  # noqa: B018 - refuses when closed
        if self.report_again is None:
            raise UsageError("a compiled file holds no graph; give the model it was compiled from")
        return self.report_again(times, seed)

    @property
    def notes(self) -> dict[str, Any]:
        """What a file says of the model beside the code, as plain JSON."""
        return {"summary": self._summary, "bounds": self._index_bounds()}

    def _index_bounds(self) -> Mapping[str, int | None]:
        from fusewise.benchmarking.inputs import index_bounds

        return index_bounds(self.graph) if self._bounds is None else self._bounds


def _detached(value: Any) -> Any:
    """A tensor without the gradients that it would hand on, which DLPack refuses."""
    return value.detach() if getattr(value, "requires_grad", False) else value


def _takes_a_map(ports: Sequence[Port]) -> bool:
    """Is the first input a mapping itself?"""
    from fusewise.ir.types import MapType

    return bool(ports) and isinstance(ports[0].type, MapType)


@within_memory("a compiled file is opened")
def open_compiled(
    path: str | Path,
    *,
    threads: int | None = None,
    trust: Key | None = None,
    memory_limit: int | None = None,
    device: str | None = None,
) -> Model:
    """A model that `Model.save` wrote, on as many workers as it was compiled for, or fewer. `memory_limit`: see `Options`.

    One for a GPU is loaded there; where there is none that it runs on, it can be looked at, and `run` says what is missing.
    `device` may say which GPU: `cuda:1`; and it is a `UsageError` where the file is for another device.

    Such a file is a program: its machine code does in this process whatever its maker wants. Open only files that you would
    run as programs. With `trust`, an Ed25519 public key in PEM (a path or bytes), one is opened only if it was signed with the
    private key to it and not a byte was changed since. Without it, checksums find damage and nothing else, and what the file
    states of its buffers, kernels and constants is checked to be consistent.

    Raises `UsageError` when there is no such file or key, `InvalidModel` when it is damaged or not signed by the key,
    `UnsupportedModel` when another version wrote it or this CPU lacks what it needs.
    """
    from fusewise.runtime.container import Container
    from fusewise.runtime.signing import verifier

    begin = time.perf_counter()
    trusted = None if trust is None else verifier(trust)
    with Container(Path(path), VERSION, trusted) as container:
        from fusewise.runtime import artefact  # and NumPy, while the file is read

        found = artefact.read(container, threads=threads, device=device)
    found.executable.limit_memory(memory_limit)
    if found.executable.device != CPU:
        cast("GpuRunner", found.executable).load_if_there()
    return opened(found, None, begin)


def restored(data: bytes, threads: int | None = None, memory_limit: int | None = None) -> Model:
    """The model whose compiled file these bytes are: what unpickling one calls. They are a program, as such a file is."""
    from fusewise.runtime.container import Container

    begin = time.perf_counter()
    with Container(Path("the pickled model"), VERSION, file=_file_of(data)) as container:
        from fusewise.runtime import artefact

        found = artefact.read(container, threads=threads)
        found.executable.limit_memory(memory_limit)
        return opened(found, None, begin)


def _file_of(data: bytes) -> BinaryIO:
    """An open file in memory, or where the system has none, in the folder for temporary ones. `ResourceLimit` without room."""
    import os
    import tempfile

    make = getattr(os, "memfd_create", None)
    file: BinaryIO = tempfile.TemporaryFile() if make is None else os.fdopen(make("fusewise"), "w+b")  # noqa: SIM115
    try:
        file.write(data)
        file.flush()
    except OSError as error:
        file.close()
        raise ResourceLimit(f"no room for the bytes of a pickled model: {error.strerror}") from None
    return file


def opened(
    found: Artefact,
    planned: Callable[[], tuple[Graph, Trace]] | None,
    begin: float,
    again: Callable[[bool], Model | None] | None = None,
) -> Model:
    """The model of an artefact that was asked for at `begin`, in seconds of the performance counter."""
    elapsed = (time.perf_counter() - begin) * 1e3
    own = {"compile_ms": elapsed, "stages": [{"name": "opening", "ms": elapsed}]}
    summary = {**found.notes["summary"], **asdict(found.executable.figures), **own}
    return Model(found.executable, planned, summary, found.notes["bounds"], again)
