"""Products of symbols and of what is no polynomial of them: what sizes are sums of."""

from __future__ import annotations

from dataclasses import field

from fusewise.records import record

__all__ = [
    "LARGEST",
    "Atom",
    "Compound",
    "Monomial",
    "Symbol",
    "key_of",
    "lone_atom",
    "lone_quotient",
    "order",
    "over",
    "shares",
    "text_of_sum",
    "times",
]

LARGEST = 2**31 - 1
"""The largest size of a dimension of which nothing else is known."""


@record(frozen=True)
class Symbol:
    """A free dimension by name, from `low` to `high`; `hint` is the number to plan for where nobody asks for another."""

    name: str
    low: int = 0
    high: int = LARGEST
    hint: int = 0

    @property
    def key(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name


@record(frozen=True)
class Compound:
    """What is no polynomial: `floordiv` and `mod` of two sizes, `min` and `max` of several."""

    op: str
    args: tuple[int, ...]
    key: str = field(init=False, compare=False, repr=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self._text())

    def __str__(self) -> str:
        return self.key

    def _text(self) -> str:
        if self.op in ("min", "max"):
            return f"{self.op}({', '.join(map(str, self.args))})"
        left, right = (str(a) if isinstance(a, int) or getattr(a, "symbol", None) else f"({a})" for a in self.args)
        return f"{left}//{right}" if self.op == "floordiv" else f"{left}%{right}"


Atom = Symbol | Compound
Monomial = tuple[tuple[Atom, int], ...]
"""Atoms with their powers, in order."""


def key_of(monomial: Monomial) -> tuple[tuple[str, int], ...]:
    """Equal for equal products."""
    return tuple((atom.key, power) for atom, power in monomial)


def order(term: tuple[Monomial, int]) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Higher degrees first, then by names."""
    monomial = term[0]
    return -sum(power for _, power in monomial), key_of(monomial)


def times(a: Monomial, b: Monomial) -> Monomial:
    """a * b."""
    powers: dict[str, tuple[Atom, int]] = {}
    for atom, power in (*a, *b):
        before = powers.get(atom.key)
        powers[atom.key] = atom, power + (0 if before is None else before[1])
    return tuple(powers[key] for key in sorted(powers))


def over(a: Monomial, b: Monomial) -> Monomial | None:
    """a / b, where that is a monomial."""
    powers = {atom.key: (atom, power) for atom, power in a}
    for atom, power in b:
        before = powers.pop(atom.key, (atom, 0))[1] - power
        if before < 0:
            return None
        if before:
            powers[atom.key] = atom, before
    return tuple(powers[key] for key in sorted(powers))


def text_of_sum(constant: int, terms: tuple[tuple[Monomial, int], ...]) -> str:
    """How a sum is written: `2*batch*sequence - 1`."""
    parts = []
    for monomial, coefficient in terms:
        factors = [_text_of(atom, power) for atom, power in monomial]
        if abs(coefficient) != 1:
            factors.insert(0, str(abs(coefficient)))
        parts.append(("- " if coefficient < 0 else "+ ") + "*".join(factors))
    if constant:
        parts.append(f"{'-' if constant < 0 else '+'} {abs(constant)}")
    return " ".join(parts).removeprefix("+ ")


def _text_of(atom: Atom, power: int) -> str:
    text = f"({atom})" if isinstance(atom, Compound) and atom.op in ("floordiv", "mod") else str(atom)
    return text if power == 1 else f"{text}**{power}"


def shares(terms: tuple[tuple[Monomial, int], ...], by: int) -> list[tuple[Monomial, int]]:
    """What a number is contained in coefficients, to the nearest: those of the rest lie between -by / 2 and by / 2."""
    found = [(m, (c + (by if c < 0 else by - 1) // 2) // by) for m, c in terms]
    return [share for share in found if share[1]]


def lone_atom(constant: int, terms: tuple[tuple[Monomial, int], ...]) -> Atom | None:
    """The atom that a sum is, if it is one."""
    if constant or len(terms) != 1 or terms[0][1] != 1 or len(terms[0][0]) != 1:
        return None
    atom, power = terms[0][0][0]
    return atom if power == 1 else None


def lone_quotient(constant: int, terms: tuple[tuple[Monomial, int], ...]) -> Compound | None:
    """The only quotient in a sum, if nothing but 1 is before it: floor((floor(x / e) + r) / d) is floor((x + e r) / (e d)).

    Of a divisor that is no number it has to be all of the sum.
    """
    found = None
    for monomial, coefficient in terms:
        atom, power = monomial[0]
        if not isinstance(atom, Compound) or atom.op != "floordiv":
            continue
        if found is not None or len(monomial) != 1 or power != 1 or coefficient != 1:
            return None
        if not isinstance(atom.args[1], int) and (constant or len(terms) > 1):
            return None
        found = atom
    return found
