"""Shapes of operands as text, and whether given shapes follow it: `N C *S, M C/group *K, M` is a convolution's.

Operands are separated by commas. Of one operand stand there its dimensions, or several such lists between bars, of which one must
fit:

- `3` is that extent, `.` any extent, `N` one extent wherever the name occurs; a name in small letters is an attribute of the node;
- `4*H`, `C/group`: a product or quotient of these, which must be a whole number;
- `*S`: any number of dimensions, the same wherever the name occurs; `<S`: dimensions that broadcast to those of `*S` and leave them
  as they are; `...`: any number of any dimensions;
- `()`: no dimensions; `one`: one element, with or without a dimension; `_`: not looked at.

Dimensions that are not numbers yet fit everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from fusewise.ir.types import Dim
from fusewise.ops.validity.use import Use, shown
from fusewise.records import record

__all__ = ["misfit"]

Shape = tuple[Dim, ...]


@record(frozen=True)
class _Term:
    """One dimension: the product of `over` by the product of `under`, of numbers and names. Neither: any extent."""

    text: str
    over: tuple[int | str, ...] = ()
    under: tuple[int | str, ...] = ()


@record(frozen=True)
class _Form:
    """One list of dimensions: those before and those after a run of any number of them. `run` is None without one."""

    head: tuple[_Term, ...]
    run: str | None = None
    tail: tuple[_Term, ...] = ()


@record(frozen=True)
class _Bound:
    """What names stand for so far: extents, and runs of dimensions."""

    extents: dict[str, int]
    runs: dict[str, Shape]

    def copy(self) -> _Bound:
        return _Bound(dict(self.extents), dict(self.runs))


def misfit(text: str, use: Use, sizes: Mapping[str, int]) -> str:
    """Which operand of `use` does not follow the signatures in `text`, and what it must be; empty when all do.

    `sizes` are extents that are known beforehand.
    """
    bound = _Bound(dict(sizes), {})
    for i, forms in enumerate(_parsed(text)):
        shape = use.shape(i)
        if shape is None or not forms:
            continue
        for form in forms:
            trial = bound.copy()
            if _fits(form, shape, trial, use):
                bound = trial
                break
        else:
            return f"{use.operand(i)} has the shape {shown(shape)}; it must have the shape {_wanted(forms, bound, use)}"
    return ""


@cache
def _parsed(text: str) -> tuple[tuple[_Form, ...], ...]:
    """The forms that each operand may have; none for one that is not looked at."""
    return tuple(_forms(operand.strip()) for operand in text.split(","))


def _forms(text: str) -> tuple[_Form, ...]:
    if text in ("_", ""):
        return ()
    return tuple(_form(part) for choice in text.split("|") for part in _spelt(choice.strip()))


def _spelt(choice: str) -> tuple[str, ...]:
    return ("()", "1") if choice == "one" else (choice,)


def _form(text: str) -> _Form:
    words = [] if text == "()" else text.split()
    runs = [i for i, word in enumerate(words) if word[0] in "*<" or word == "..."]
    assert len(runs) <= 1, text
    if not runs:
        return _Form(tuple(map(_term, words)))
    at = runs[0]
    return _Form(tuple(map(_term, words[:at])), words[at], tuple(map(_term, words[at + 1 :])))


def _term(word: str) -> _Term:
    if word == ".":
        return _Term(word)
    over, _, under = word.partition("/")
    return _Term(word, _atoms(over), _atoms(under))


def _atoms(text: str) -> tuple[int | str, ...]:
    return tuple(int(part) if part.isdigit() else part for part in text.split("*") if part)


def _fits(form: _Form, shape: Shape, bound: _Bound, use: Use) -> bool:
    """Can `shape` have this form? Notes in `bound` what the names stand for then."""
    head, tail = len(form.head), len(form.tail)
    if len(shape) != head if form.run is None else len(shape) < head + tail:
        return False
    end = len(shape) - tail
    pairs = zip(form.head + form.tail, shape[:head] + shape[end:], strict=True)
    if form.run is not None and not _run_fits(form.run, shape[head:end], bound):
        return False
    return all(_term_fits(term, dim, bound, use) for term, dim in pairs)


def _run_fits(run: str, dims: Shape, bound: _Bound) -> bool:
    name = run[1:]
    if run == "..." or (run[0] == "<" and name not in bound.runs):
        return True
    if name not in bound.runs:
        bound.runs[name] = dims
        return True
    known = bound.runs[name]
    if run[0] == "<":
        pairs = zip(reversed(dims), reversed(known), strict=False)
        return len(dims) <= len(known) and all(a == 1 or _alike(a, b) for a, b in pairs)
    if len(dims) != len(known) or not all(_alike(a, b) for a, b in zip(dims, known, strict=True)):
        return False
    bound.runs[name] = tuple(a if isinstance(a, int) else b for a, b in zip(known, dims, strict=True))
    return True


def _alike(a: Dim, b: Dim) -> bool:
    return not isinstance(a, int) or not isinstance(b, int) or a == b


def _term_fits(term: _Term, dim: Dim, bound: _Bound, use: Use) -> bool:
    """Is `dim` what the term says? The one name in it that stands for nothing yet is solved for."""
    if not isinstance(dim, int) or not term.over:
        return True
    over, free = _product(term.over, bound, use)
    under, lower = _product(term.under, bound, use)
    if lower or len(free) > 1:
        return True
    if not free:
        return over == dim * under
    if over == 0 or dim * under % over:
        return over == 0 == dim
    bound.extents[free[0]] = dim * under // over
    return True


def _product(atoms: tuple[int | str, ...], bound: _Bound, use: Use) -> tuple[int, list[str]]:
    """The product of what is known, and the names of what is not."""
    product, free = 1, []
    for atom in atoms:
        value = _value(atom, bound, use)
        if value is None:
            free.append(str(atom))
        else:
            product *= value
    return product, free


def _value(atom: int | str, bound: _Bound, use: Use) -> int | None:
    if isinstance(atom, int):
        return atom
    if atom in bound.extents:
        return bound.extents[atom]
    value = use.attribute(atom) if atom.islower() else None
    return value if isinstance(value, int) else None


def _wanted(forms: tuple[_Form, ...], bound: _Bound, use: Use) -> str:
    """The forms as a message gives them, with the extents known so far."""
    names = " or ".join(dict.fromkeys(_written(form, None, use) for form in forms))
    values = " or ".join(dict.fromkeys(_written(form, bound, use) for form in forms))
    return names if names == values else f"{names}, here {values}"


def _written(form: _Form, bound: _Bound | None, use: Use) -> str:
    words = [_term_written(term, bound, use) for term in form.head]
    if form.run is not None:
        words += _run_written(form.run, bound)
    words += [_term_written(term, bound, use) for term in form.tail]
    return "[" + ", ".join(words) + "]"


def _term_written(term: _Term, bound: _Bound | None, use: Use) -> str:
    if bound is None or not term.over:
        return "?" if term.text == "." else term.text
    over, free = _product(term.over, bound, use)
    under, lower = _product(term.under, bound, use)
    return term.text if free or lower or under == 0 or over % under else str(over // under)


def _run_written(run: str, bound: _Bound | None) -> list[str]:
    name = run[1:]
    if run == "...":
        return ["..."]
    if run[0] == "<":
        known = None if bound is None else bound.runs.get(name)
        return ["what broadcasts to " + (f"*{name}" if known is None else shown(known))]
    if bound is None or name not in bound.runs:
        return [run]
    return ["?" if dim is None else str(dim) for dim in bound.runs[name]]
