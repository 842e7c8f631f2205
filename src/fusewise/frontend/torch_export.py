"""PyTorch's ONNX exporter, asked quietly, and its refusals in one sentence: the innermost cause, the user's line, a hint."""

from __future__ import annotations

import logging
import re
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from fusewise.errors import UnsupportedModel, UsageError
from fusewise.records import record

__all__ = ["Refusal", "exported", "line_of", "quietly", "refusal_of"]


@record(frozen=True)
class Refusal:
    """Why PyTorch does not write a program as ONNX: the innermost `cause`, the `operator` it is about, the `line` of the user's
    code, and a `hint` what to do; empty where they are not known."""

    cause: str
    operator: str = ""
    line: str = ""
    hint: str = ""

    def __str__(self) -> str:
        line = f" (at {self.line})" if self.line else ""
        return f"{self.cause}{line}{'; ' if self.hint else ''}{self.hint}"


def exported(program: Any, args: Sequence[Any] = (), *, named: str, **settings: Any) -> Any:
    """What `torch.onnx.export` makes of a module or an `ExportedProgram`, in memory.

    `settings` are the exporter's. Raises `UsageError` when the `torch` extra is missing, and `UnsupportedModel`, which says what
    was `named`, with PyTorch's reason.
    """
    try:
        import onnxscript  # noqa: F401 - the exporter needs it, and says so less clearly
        import torch
    except ImportError as error:
        raise UsageError(
            f"importing a PyTorch module needs the package {error.name!r}; install fusewise[torch]"
        ) from None
    try:
        with torch.no_grad(), quietly():
            found = torch.onnx.export(program, tuple(args), dynamo=True, verbose=False, optimize=False, **settings)
            _folded(found.model)
            return found
    except Exception as error:  # the exporter raises many kinds, its own and those of the traced code
        raise UnsupportedModel(f"PyTorch cannot export {named} to ONNX: {refusal_of(error)}") from error


_FOLDED_TIMES = 2


def _folded(model: Any) -> None:
    """Functions written out, and what follows from shapes and constants computed, in place, as the exporter's own optimiser does.

    Its rewrite rules are left out: what they find our passes find, and each rule looks at all nodes for every node.
    """
    from onnx_ir.passes import common
    from onnxscript.optimizer import fold_constants_ir

    common.InlinePass()(model)
    for _ in range(_FOLDED_TIMES):
        is_changed = fold_constants_ir(model, onnx_shape_inference=True).modified
        common.RemoveUnusedNodesPass()(model)
        if not is_changed:
            break
    for tidy in (common.DeduplicateInitializersPass, common.OutputFixPass, common.NameFixPass):
        tidy()(model)


@contextmanager
def quietly() -> Iterator[None]:
    """What PyTorch and its exporter tell developers, by warnings, prints and logs, is no news to users. Loggers that somebody has
    asked to say more than warnings are left alone; those that are made meanwhile, by modules that are imported, are quiet too."""
    heads = [one for name in _TELLERS if (one := logging.getLogger(name)).getEffectiveLevel() >= logging.WARNING]
    levels = [one.level for one in heads]
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _TELLERS]
    silenced = [
        one
        for name in names
        if not (one := logging.getLogger(name)).disabled and one.getEffectiveLevel() >= logging.WARNING
    ]
    try:
        for one in silenced:
            one.disabled = True
        for head in heads:
            head.setLevel(logging.CRITICAL + 1)
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for one in silenced:
            one.disabled = False
        for head, level in zip(heads, levels, strict=True):
            head.setLevel(level)


_TELLERS = ("onnx_ir", "onnxscript", "torch")


# --- what a refusal says -------------------------------------------------------------------------------------------

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_OPERATOR = re.compile(r"OpOverload\(op='([\w.]+)', overload='(\w+)'\)")
_STACK_LINE = re.compile(r'File "([^"]+)", line (\d+)')

_HINTS: tuple[tuple[str, str], ...] = (
    (r"data-dependent|data dependent|\bu\d+\b", "what is done may not depend on values: use torch.where or torch.cond"),
    (r"no ONNX form", "write it with other operators"),
    (
        r"positional argument|unexpected keyword|missing a required|multiple values for",
        "give an example of each input that forward takes",
    ),
    (r"Constraints violated|dynamic_shapes|Dim\.", "say less of this dimension: leave it out, or give Dim.AUTO"),
    (r"mat1 and mat2|size mismatch|must match|Expected .*dim", "the example inputs do not fit the module"),
)
"""What to do, by what stands in a cause; the first that fits."""


def refusal_of(error: BaseException) -> Refusal:
    """Why the exporter failed, by what it raised."""
    chain = _chain(error)
    texts = [_plain(str(one)) for one in chain]
    found = next((match for text in reversed(texts) if (match := _OPERATOR.search(text))), None)
    operator = f"{found[1]}.{found[2]}" if found is not None else ""
    if operator and any("No ONNX function found" in text for text in texts):
        cause = f"the operator {operator} has no ONNX form"
    else:
        cause = next((first for text in reversed(texts) if (first := _first_line(text))), type(chain[-1]).__name__)
    line = next((where for one in reversed(chain) if (where := _users_line(one))), "")
    return Refusal(cause, operator, line, next((hint for sign, hint in _HINTS if re.search(sign, cause)), ""))


def _chain(error: BaseException) -> list[BaseException]:
    """An error and what caused it, the innermost last."""
    found: list[BaseException] = []
    now: BaseException | None = error
    while now is not None and now not in found:
        found.append(now)
        now = now.__cause__ or (None if now.__suppress_context__ else now.__context__)
    return found


def _plain(text: str) -> str:
    return _COLOURS.sub("", text)


def _first_line(text: str) -> str:
    return next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "").rstrip(".")


def _users_line(error: BaseException) -> str:
    """`file.py:12: code` of the user's own code that an error is about; empty where none can be told."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("node") if frame.f_globals.get("__name__", "").startswith("torch.onnx") else None
        if getattr(node, "stack_trace", None):  # the operator that was being written
            return line_of(str(node.stack_trace))  # type: ignore[union-attr]
    own = [one for one in traceback.extract_tb(error.__traceback__) if _is_users(one.filename)]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}: {own[-1].line}" if own else line_of(str(error))


def line_of(stack: str) -> str:
    """The innermost line of the user's own code in a stack as PyTorch keeps it as a text: `file.py:12: code`."""
    lines = _plain(stack).splitlines()
    for number in range(len(lines) - 1, -1, -1):
        found = _STACK_LINE.search(lines[number])
        if found is not None and _is_users(found[1]):
            code = lines[number + 1].strip() if number + 1 < len(lines) else ""
            return f"{Path(found[1]).name}:{found[2]}: {code}".rstrip(": ")
    return ""


def _is_users(file: str) -> bool:
    """Is it neither of Python, nor of PyTorch and what it is built on, nor ours?"""
    if file.startswith("<"):
        return False
    names = (__name__.partition(".")[0], "onnx", "onnx_ir", "onnxscript", "sympy", "torch")
    folders = [str(Path(found).parent) for name in names if (found := getattr(sys.modules.get(name), "__file__", None))]
    if any(file.startswith(f"{folder}/") for folder in folders):
        return False
    return "site-packages" in file or not file.startswith(sysconfig.get_path("stdlib"))
