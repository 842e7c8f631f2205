"""What comes of comparing a compiled model with a reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fusewise.cards import Card, carded, listed, one_line

__all__ = ["Case", "Fault", "Verification"]


@dataclass(frozen=True)
class Case:
    """One set of inputs by its name: the relative error of each output, and what each may be.

    `refused` says why there are no answers; the case agrees where the reference gives none either.
    """

    inputs: str
    agrees: bool
    errors: Mapping[str, float]
    tolerances: Mapping[str, float]
    refused: str | None = None

    @property
    def worst(self) -> str | None:
        """The output that is furthest beyond what it may differ by."""
        return max(self.errors, key=lambda name: _excess(self.errors[name], self.tolerances[name]), default=None)


def _excess(error: float, tolerance: float) -> float:
    return error / tolerance if tolerance else float("inf") if error else 0.0


@dataclass(frozen=True)
class Fault:
    """The first node whose output differs while its operands agree; `node` is empty where no node does.

    `part` is what of the program is at fault: `definition`, `native code`, `row` (one of these, which cannot be told), `host step`,
    `shape`, `import`, or `combination` (nothing differs once every value is kept). Or the node is right: `rounding` (for the
    operands it got, whose roundings it makes larger), `chance` (it draws at random), `witness` (ONNX's evaluator agrees with
    it). `witness` is whose answer is taken for right.
    """

    node: str
    op: str
    value: str
    part: str
    witness: str
    error: float
    tolerance: float

    def __str__(self) -> str:
        if self.part == "import":
            return f"the import: {self.witness} gives other answers for the graph as it was read than for the file"
        if self.part == "combination":
            return "what is done between nodes (fusion, layout or memory): no node differs once every value is kept"
        how = _OTHERS.get(self.part) or f"though its operands agree; at fault: {_PARTS[self.part]}"
        return (
            f"node {self.node!r} ({self.op}): {self.value!r} is {self.error:.2e} from {self.witness}'s answer,"
            f" more than {self.tolerance:.0e}, {how}"
        )


_PARTS: Mapping[str, str] = {
    "definition": "the operator's definition",
    "native code": "the operator's native code",
    "row": "the operator's row, its definition or its native code",
    "host step": "the operator's host step",
    "shape": "the shape or type that was inferred for it",
}

_OTHERS: Mapping[str, str] = {
    "rounding": "which is right for the operands it got: it makes their roundings larger",
    "chance": "as it draws at random: no two runtimes agree on it",
    "witness": "but ONNX's evaluator agrees with this program: the witness stands alone",
}


def _card(found: Verification) -> Card:
    def output(name: str) -> str:
        return f"{one_line(name)} by {found.errors[name]:.1e} (may be {found.tolerances[name]:.0e})"

    order = sorted(found.errors, key=lambda name: -_excess(found.errors[name], found.tolerances[name]))
    rows = [("differs", listed(map(output, order), 2))]
    rows += [("to blame", found.blame)] if found.blame else []
    rows += [("look at", str(found.fault))] if found.fault else []
    rows += [("compiled", f"{found.builds:,} time{'' if found.builds == 1 else 's'}, {found.decisions:,} decisions")]
    return Card(f"Verification: {found.sentence}", tuple(rows))


@dataclass(frozen=True)
@carded(_card)
class Verification:
    """Whether the compiled model gives the answers of `reference`, on every set of inputs.

    `errors` has one relative error per output, `tolerances` what it may be, both of the set `inputs`: the first that differs,
    else the one with the largest error. `blame` is the decision found by bisection, as a sentence, and `blamed` its event,
    when answers differ because of one; `fault` the first node that differs where no single decision is to blame. `ran_on` says
    what ran the model where that was not a CPU.
    """

    agrees: bool
    reference: str
    errors: Mapping[str, float]
    tolerances: Mapping[str, float]
    decisions: int
    blame: str | None = None
    blamed: Any = None
    builds: int = 1
    confirmed: bool = False
    inputs: str = "random"
    cases: tuple[Case, ...] = ()
    fault: Fault | None = None
    ran_on: str = ""

    @property
    def sentence(self) -> str:
        """What it comes to: that answers agree, or which output differs, by how much, and where to look."""
        return f"{self._verdict}; run on {self.ran_on}" if self.ran_on else self._verdict

    @property
    def _verdict(self) -> str:
        if self.agrees:
            sets = ", ".join(case.inputs for case in self.cases if case.refused is None) or self.inputs
            refused = ", ".join(case.inputs for case in self.cases if case.refused is not None)
            rest = f"; no reference takes {refused}" if refused else ""
            worst = Case(self.inputs, True, self.errors, self.tolerances).worst
            figures = "" if worst is None else f"{self.errors[worst]:.2e}, at most {self.tolerances[worst]:.0e}"
            far = "" if worst is None else f": output {worst!r} differs by {figures}"
            return f"answers agree with {self.reference}'s{far} (inputs: {sets}{rest})"
        case = next((case for case in self.cases if case.inputs == self.inputs), None)
        case = case or Case(self.inputs, False, self.errors, self.tolerances)
        look = "; ".join(
            f"{word}: {what}" for word, what in (("to blame", self.blame), ("look at", self.fault)) if what
        )
        where = f"; {look}" if look else ""
        if case.refused or case.worst is None:
            return f"answers differ for inputs of {case.inputs}: {case.refused}{where}"
        return (
            f"answers differ: output {case.worst!r} differs from {self.reference}'s by {case.errors[case.worst]:.2e}, "
            f"more than {case.tolerances[case.worst]:.0e} (inputs: {case.inputs}){where}"
        )

    @property
    def summary(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return {
            "agrees": self.agrees,
            "sentence": self.sentence,
            "reference": self.reference,
            "inputs": self.inputs,
            "max_rel_error": max(self.errors.values(), default=0.0),
            "errors": dict(self.errors),
            "tolerances": dict(self.tolerances),
            "decisions": self.decisions,
            "blame": self.blame,
            "confirmed": self.confirmed,
            "builds": self.builds,
            "fault": None if self.fault is None else {**asdict(self.fault), "sentence": str(self.fault)},
            "cases": [asdict(case) for case in self.cases],
            **({"ran_on": self.ran_on} if self.ran_on else {}),
        }
