"""A few mutants and random graphs in the checked build on every run of the tests; many more by `python -m tests.fuzz.run`."""

from __future__ import annotations

import onnx
import pytest
from tests.fuzz.mutate import mutant
from tests.fuzz.run import Case, run_cases
from tests.fuzz.seeds import seed_models

SHARDS, MUTANTS, GRAPHS = 4, 60, 15
"""Each shard tries so many of each kind."""


def test_mutants_are_the_same_every_time_and_mostly_models():
    seeds = seed_models()
    found = [mutant(seeds, number) for number in range(40)]
    assert found == [mutant(seeds, number) for number in range(40)]
    assert len(set(found)) == 40

    def parses(data: bytes) -> bool:
        try:
            onnx.ModelProto.FromString(data)
        except Exception:
            return False
        return True

    assert sum(map(parses, found)) > 30


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_mutants_run_or_are_refused(shard):
    """No signal, no internal error, no timeout, no memory above the limit, no access outside of operands."""
    cases = [Case("mutant", 1_000_000 + shard * MUTANTS + k) for k in range(MUTANTS)]
    cases += [Case("graph", shard * GRAPHS + k) for k in range(GRAPHS)]
    results = list(run_cases(iter(cases)))
    wrong = [f"{r.case}: {r.ending}: {r.text}" for r in results if r.ending not in ("ran", "refused")]
    assert not wrong, "\n".join(wrong)
    assert any(r.ending == "refused" for r in results)
    assert any(r.ending == "ran" for r in results)
