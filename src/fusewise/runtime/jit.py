"""Turns LLVM IR text into machine code in this process: text -> object file (bytes, cacheable) -> addresses.

Objects are position independent and linked all at once, by `elf` where it knows how and else by LLVM. Symbols that kernels do not
define (`memset`, `memcpy`) are looked up in the process, conversions of float16 and bfloat16 in `narrow_code`.
Kernels arrive vectorised and unrolled: LLVM's own vectorisers and unroller stay off, since undoing or repeating that work
costs time and registers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import count
from types import MappingProxyType
from typing import Any

from fusewise.codegen.target import InstructionSet
from fusewise.errors import FusewiseError
from fusewise.records import record
from fusewise.runtime import elf
from fusewise.runtime.narrow_code import NARROW_IR, NARROW_SYMBOLS

__all__ = [
    "LEVELS",
    "Library",
    "OptimizationPipeline",
    "compile_assembly",
    "compile_object",
    "load",
    "optimized",
    "warm_up",
]


def compile_object(ir_text: str, target: InstructionSet, level: str = "full") -> bytes:
    """Compile one module of LLVM IR for `target` into an object file.

    `level` is a key of `LEVELS`. Raises `FusewiseError` when the text is not valid IR, which is a fault of the generator.
    """
    return bytes(_machine(target, LEVELS[level].codegen).emit_object(_optimized(ir_text, target, level)))


def compile_assembly(ir_text: str, target: InstructionSet, level: str = "full") -> str:
    """The assembly of what `compile_object` gives, to be read."""
    return str(_machine(target, LEVELS[level].codegen).emit_assembly(_optimized(ir_text, target, level)))


def optimized(ir_text: str, target: InstructionSet, level: str = "full") -> str:
    """One module of LLVM IR as the passes of a level leave it; of that, the level `bare` makes the code that this level would."""
    return str(_optimized(ir_text, target, level))


def warm_up() -> None:
    """Load LLVM and have it compile something, so that the first kernel takes no longer than others: about 0.15 s."""
    _narrow_conversions()


class Library:
    """Machine code in memory. The addresses stay valid for as long as this object lives."""

    __slots__ = ("_tracker", "addresses")

    def __init__(self, tracker: Any, addresses: Mapping[str, int]) -> None:
        self._tracker = tracker
        self.addresses = addresses


def load(objects: Sequence[bytes], symbols: Sequence[str], *, keep: bool = False) -> Library:
    """Link object files together and give the addresses of `symbols`, which must be distinct and defined.

    `keep` leaves the code in memory until the process ends, for code that threads may be running at any time. Raises
    `elf.Unlinkable` when a symbol is missing or defined twice.
    """
    if not symbols:
        return Library(None, MappingProxyType({}))
    images = list(objects)
    if any(name.encode() in image for image in objects for name in NARROW_SYMBOLS):
        images.append(_narrow_conversions())
    code = elf.loaded(images)
    if code is None:
        return _linked(images, symbols, keep)
    missing = sorted(set(symbols) - code.addresses.keys())
    if missing:
        raise elf.Unlinkable(f"generated code could not be linked: there is no function {missing[0]}")
    if keep:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(code.pages))
    return Library(code, MappingProxyType({symbol: code.addresses[symbol] for symbol in symbols}))


def _linked(images: Sequence[bytes], symbols: Sequence[str], keep: bool) -> Library:
    """What `load` gives, by LLVM's linker."""
    import llvmlite.binding as llvm

    linker = llvm.JITLibraryBuilder()
    for image in images:
        linker.add_object_img(image)
    linker.add_current_process()
    for symbol in symbols:
        linker.export_symbol(symbol)
    try:
        tracker = linker.link(_linker(), f"library{next(_LIBRARY_NUMBERS)}")
    except RuntimeError as error:
        raise elf.Unlinkable(f"generated code could not be linked: {error}") from error
    addresses = {symbol: tracker[symbol] for symbol in symbols}
    if keep:
        tracker.detach()
    return Library(tracker, MappingProxyType(addresses))


# --- the pipelines ----------------------------------------------------------------------------------------------------


@record(frozen=True)
class OptimizationPipeline:
    """An optimisation pipeline: `passes` runs on a module for a machine, `codegen` is the effort of LLVM's back end (0 to 3)."""

    passes: Callable[[Any, Any], None]
    codegen: int


def _simplified(module: Any, machine: Any) -> None:
    """What -O1 does to every function by itself, after functions that ask for it are inlined.

    Code as it is generated leaves nothing for the rest of -O1 and -O2: models run as fast, and LLVM takes two thirds of the time.
    """
    import llvmlite.binding as llvm

    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_unrolling = options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    _inlined(module, machine)
    _run(builder.getFunctionPassManager(), module, builder)


def _inlined(module: Any, machine: Any) -> None:
    """Functions that ask for it, inlined."""
    import llvmlite.binding as llvm

    manager = llvm.create_new_module_pass_manager()
    manager.add_always_inliner_pass()
    manager.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2)))


def _tidied(module: Any, machine: Any) -> None:
    """What is left to do where code was written out register by register: common subexpressions, and addresses put together."""
    import llvmlite.binding as llvm

    _inlined(module, machine)
    manager = llvm.create_new_function_pass_manager()
    manager.add_sroa_pass()
    manager.add_instruction_combine_pass()
    manager.add_new_gvn_pass()
    manager.add_simplify_cfg_pass()
    _run(manager, module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2)))


def _run(manager: Any, module: Any, builder: Any) -> None:
    """The passes of a function pass manager, on every function."""
    for function in module.functions:
        if not function.is_declaration:
            manager.run(function, builder)


LEVELS: Mapping[str, OptimizationPipeline] = MappingProxyType(
    {
        "full": OptimizationPipeline(_simplified, codegen=2),
        "tidy": OptimizationPipeline(_tidied, codegen=2),
        "bare": OptimizationPipeline(_inlined, codegen=2),
        "quick": OptimizationPipeline(_inlined, codegen=0),
    }
)
"""Pipelines by name. `tidy` has four passes where `full` has some thirty, and `bare` none: for code that needs no more. `quick` is
for code that waits, not computes."""


def _optimized(ir_text: str, target: InstructionSet, level: str) -> Any:
    import llvmlite.binding as llvm

    machine = _machine(target, LEVELS[level].codegen)
    try:
        module = llvm.parse_assembly(ir_text)
        module.verify()
    except RuntimeError as error:
        raise FusewiseError(f"generated code is not valid LLVM IR: {str(error).strip()}") from error
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    LEVELS[level].passes(module, machine)
    return module


# --- LLVM's own objects, made once --------------------------------------------------------------------------------------

_LIBRARY_NUMBERS = count()


@cache
def _initialize() -> None:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@cache
def _machine(target: InstructionSet, codegen: int) -> Any:
    import llvmlite.binding as llvm

    _initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=codegen, reloc="pic", codemodel="small"
    )


@cache
def _narrow_conversions() -> bytes:
    """The support routines for float16 and bfloat16, for any processor of this family."""
    import llvmlite.binding as llvm

    return compile_object(
        NARROW_IR, InstructionSet("generic", llvm.get_process_triple(), "", "", 128, 16, fma=False), "tidy"
    )


@cache
def _linker() -> Any:
    """The one linker of the process, on a machine description of its own since it takes ownership of it."""
    import llvmlite.binding as llvm

    _initialize()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        opt=2, reloc="pic", codemodel="small"
    )
    return llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)
