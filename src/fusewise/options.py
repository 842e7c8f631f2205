"""How a model is compiled: the options that verbs share."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, TypedDict

from fusewise.cards import Card, carded, one_line
from fusewise.errors import UsageError
from fusewise.records import record
from fusewise.words import no_such

if TYPE_CHECKING:
    from fusewise.ir.size import Symbol
    from fusewise.passes.pipeline import Pass

__all__ = ["Options", "OptionsDict", "options_from", "portable", "settings_of", "texts_of"]


def _warn(sentence: str) -> None:
    warnings.warn(sentence, RuntimeWarning, stacklevel=2)


def _card(options: Options) -> Card:
    rows = ((name, shortened(getattr(options, name))) for name in Options.__dataclass_fields__)
    return Card(repr(options), tuple(row for row in rows if row[0] != "warn"))


@dataclass(frozen=True)
@carded(_card)
class Options:
    """How a model is compiled.

    `shapes` gives inputs their shape, `symbols` gives symbolic dimensions their size, or the range of one that stays free, with
    the size to plan for: "1..2048,128", or several: "1,8,32". What nobody gives a size stays free, and the model takes all
    sizes: on a CPU by one program, which is planned for the first, on a GPU by a program for each sizes, which those to plan
    for have beforehand. Without `free`, it is 1 where it is a batch, and has to be given elsewhere. `values` gives inputs their
    contents, for good: they are no inputs of the compiled model, which is code for these contents. `memory_limit`: bytes that
    weights, intermediate results and outputs may take together. `specialize`: at most so many sizes of a model with free
    dimensions that keep coming back are compiled in the background, each to a program of its own, which shares the weights that
    it packs alike; the one used longest ago leaves. Its answers are those of the model compiled for that size alone: they may
    differ from those before by the order of additions, and by rewrites that change roundings, so it does not go with `exact`.
    On a GPU, where every program is for sizes, so many are on it at a time; 0 is 8 there. Nothing to a model of one size, or a
    compiled file. `threads`: None for what the machine offers. `exact` refuses rewrites that may change a rounding, Winograd
    and Strassen. `strict` makes operators without native code an error. `cache`: False for none, a folder, or True for the
    user's cache folder. `disable` names passes, rules and kernels not to use, as `name` or `name@node`. `fusion` is the
    planner: `dnnfusion`, `published` (the same grown in the order of its paper), `patterns` (the fixed patterns of other
    compilers) or `none`. `tune`: seconds to spend on measuring what is fastest; what is found is kept in the cache and used
    from then on. `passes`: False for none, True for the clean-up passes, the passes to run, or as a text what
    `outcomes.outcome_of` takes. `precision`, of convolutions and products: `float32`, `bfloat16`, or `float16` for float32 with
    weights of products rounded to float16. `sanitize`: kernels look at every load and store, and say what they touch that is
    none of their operands, many times more slowly. `grow`: outputs that only extend inputs, as a decoder's keys and values, are
    written behind these; the model runs with a cache only (`Model.bind_cache`). `device` is what it runs on: `cpu`, `cuda` (the
    GPU that is here), `cuda:1`, or `cuda:sm_90` (compiled for such GPUs, here or elsewhere); kernels for one are compiled by as
    many processes as `threads` says, and `precision` may be `tf32` there. `warn` is told, as a sentence, what went wrong
    without stopping the work. None is what nobody says, for each of them.
    """

    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    symbols: Mapping[str, int | str | Symbol] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None
    exact: bool = False
    strict: bool = False
    cache: bool | str | Path = True
    disable: Iterable[str] = ()
    fusion: str = "dnnfusion"
    tune: float = 0.0
    passes: bool | str | Sequence[Pass] = True
    precision: str = "float32"
    sanitize: bool = False
    free: bool = True
    memory_limit: int | None = None
    specialize: int = 0
    grow: bool = False
    device: str = "cpu"
    warn: Callable[[str], None] = _warn

    @property
    def on_gpu(self) -> bool:
        """Is it to run on a GPU?"""
        return self.device != "cpu"

    @property
    def is_sized(self) -> bool:
        """Must every dimension be a number?"""
        return not self.free or bool(self.tune)

    def __repr__(self) -> str:
        """What is not as it is by default, on one line."""
        said = [(one, getattr(self, one.name)) for one in fields(self)]
        plain = [one.default if one.default is not MISSING else {} for one, _ in said]
        other = [
            f"{one.name}={shortened(value)}"
            for (one, value), kept in zip(said, plain, strict=True)
            if _differ(value, kept)
        ]
        return one_line(f"Options({', '.join(other)})", 1000)


def _differ(value: Any, kept: Any) -> bool:
    """Is an option another than it is by default? Arrays among values compare to arrays, and are another."""
    if value is kept:
        return False
    return bool(value) or bool(kept) if isinstance(value, Mapping) else type(value) is not type(kept) or value != kept


class OptionsDict(TypedDict, total=False):
    """`Options`, given one by one as keywords."""

    shapes: Mapping[str, Sequence[int]] | None
    symbols: Mapping[str, int | str | Symbol] | None
    values: Mapping[str, Any] | None
    threads: int | None
    exact: bool | None
    strict: bool | None
    cache: bool | str | Path | None
    disable: Iterable[str] | None
    fusion: str | None
    tune: float | None
    passes: bool | str | Sequence[Pass] | None
    precision: str | None
    sanitize: bool | None
    free: bool | None
    memory_limit: int | None
    specialize: int | None
    grow: bool | None
    device: str | None
    warn: Callable[[str], None] | None


def options_from(options: Options | None, settings: Mapping[str, Any]) -> Options:
    """`options` with the fields that `settings` has; `UsageError` for one that there is not, for what cannot be one, and for what
    does not go together."""
    known = Options.__dataclass_fields__
    for name in settings:
        if name not in known:
            raise no_such("option", name, known, f"the options are {', '.join(known)}")
    said = [] if options is None else [(name, getattr(options, name)) for name in known]
    given = {name: value for name, value in (*said, *settings.items()) if value is not None}
    found = Options(**{name: _checked(name, value) for name, value in given.items()})
    if not 0 <= found.tune < float("inf"):
        raise UsageError(f"the seconds to tune for must be a number from 0 on, not {found.tune}")
    if found.memory_limit is not None and found.memory_limit < 1:
        raise UsageError(f"the limit of memory must be a number of bytes, not {found.memory_limit}")
    if found.specialize < 0:
        raise UsageError(f"the number of sizes to specialize for must be 0 or more, not {found.specialize}")
    if found.specialize and found.exact and not found.on_gpu:
        raise UsageError(
            "programs for sizes that come back may differ by the order of additions, which exact refuses; allow one"
        )
    if found.grow and (found.tune or found.specialize or not found.free):
        raise UsageError(
            "what grows has free dimensions, which go neither with tuning nor with programs for sizes that come back"
        )
    if found.tune and found.cache is False:
        raise UsageError("tuning keeps what it measures in the cache, which is switched off; allow one")
    _check_device(found)
    return found


def _check_device(found: Options) -> None:
    """Raise `UsageError` for a device that there is not, and for what does not go together with it."""
    if not found.on_gpu:
        if found.precision == "tf32":
            raise UsageError(
                "tf32 is a precision of GPUs, and the model is compiled for a CPU: give a device, such as cuda"
            )
        return
    from fusewise.codegen.gpu.device import device_choice
    from fusewise.codegen.gpu.legal import check_gpu_precision

    device_choice(found.device)
    for name in ("sanitize", "grow"):
        if getattr(found, name):
            raise UsageError(f"{name} is for models that run on a CPU, not on {found.device}; leave it out")
    check_gpu_precision(found.precision, found.exact)


def portable(options: Options, shapes: Mapping[str, list[int]]) -> dict[str, Any]:
    """The options a child process needs, as plain JSON values."""
    cache = options.cache if isinstance(options.cache, bool) else str(options.cache)
    symbols = {} if shapes else _plain_symbols(options)
    chosen = {
        name: getattr(options, name)
        for name in ("exact", "fusion", "precision", "sanitize", "free", "specialize", "grow", "device")
    }
    return {"shapes": shapes, "symbols": symbols, "cache": cache, "disable": sorted(options.disable), **chosen}


def _plain_symbols(options: Options) -> dict[str, int | str]:
    if not options.symbols:
        return {}
    from fusewise.frontend.given import text_of

    return {name: text_of(given) for name, given in options.symbols.items()}


def settings_of(options: Options) -> dict[str, Any]:
    """What a compiled model depends on, as plain JSON values; its passes are those by name."""
    plain = ("exact", "strict", "fusion", "passes", "precision", "sanitize", "free", "grow", "device")
    return {
        "shapes": {name: list(shape) for name, shape in options.shapes.items()},
        "symbols": _plain_symbols(options),
        "values": texts_of(options.values),
        "disable": sorted(options.disable),
        **{name: getattr(options, name) for name in plain},
    }


def texts_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Contents of inputs as texts that are equal only for equal ones."""
    if not values:
        return {}
    import numpy as np

    try:
        return {name: repr(np.asarray(value).tolist()) for name, value in values.items()}
    except ValueError as error:
        raise UsageError(f"the values given for inputs must be arrays: {error}") from None


# --- what each option must be --------------------------------------------------------------------------------------


@record(frozen=True)
class _Kind:
    """`what` an option must be, as a sentence has it; does a value fit; and as what it is kept."""

    what: str
    fits: Callable[[Any], bool]
    kept: Callable[[Any], Any] = lambda value: value


def _are_names(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and _are_names(value)


def _shapes(value: Mapping[str, Any]) -> Mapping[str, Any]:
    if not value:
        return {}
    from fusewise.frontend.given import given_shapes

    return given_shapes(value)


def _symbols(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Numbers as such, ranges as they were said."""
    if not value:
        return {}
    from fusewise.frontend.given import given_symbols

    known = given_symbols(value)
    return {name: size if isinstance(size, int) else value[name] for name, size in known.items()}


_SWITCH = _Kind("True or False", lambda value: isinstance(value, bool))
_NAME = _Kind("a name", lambda value: isinstance(value, str))
_COUNT = _Kind("a whole number", lambda value: isinstance(value, Integral) and not isinstance(value, bool), int)
_SECONDS = _Kind("a number of seconds", lambda value: isinstance(value, Real) and not isinstance(value, bool), float)
_FOLDER = _Kind(
    "True, False or a folder",
    lambda value: isinstance(value, bool | str | os.PathLike) and value != "",
    lambda value: value if isinstance(value, bool) else Path(value),
)
_NAMES = _Kind("several names", lambda value: isinstance(value, tuple) and _are_names(value))
_PASSES = _Kind(
    "True, False, a text or a list of passes",
    lambda value: isinstance(value, bool | str) or (isinstance(value, Sequence) and all(map(callable, value))),
)
_SENTENCE = _Kind("a function that takes a sentence", callable)

_KINDS: Mapping[str, _Kind] = {
    "shapes": _Kind("a mapping from names to shapes", _is_mapping, _shapes),
    "symbols": _Kind("a mapping from names to sizes", _is_mapping, _symbols),
    "values": _Kind("a mapping from names to arrays", _is_mapping),
    **dict.fromkeys(("exact", "strict", "sanitize", "free", "grow"), _SWITCH),
    **dict.fromkeys(("threads", "memory_limit", "specialize"), _COUNT),
    **dict.fromkeys(("fusion", "precision", "device"), _NAME),
    "cache": _FOLDER,
    "disable": _NAMES,
    "passes": _PASSES,
    "tune": _SECONDS,
    "warn": _SENTENCE,
}


def _checked(name: str, value: Any) -> Any:
    """The value of an option as it is kept; `UsageError` for what cannot be one."""
    kind = _KINDS[name]
    if kind is _NAMES and isinstance(value, Iterable) and not isinstance(value, str | bytes):
        value = tuple(value)
    if not kind.fits(value):
        raise UsageError(f"{name} must be {kind.what}, not {shortened(value)}")
    return kind.kept(value)
