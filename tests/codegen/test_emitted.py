"""Code is what it was. Where it is meant to change, measure, and then write the digests anew (`tests.codegen.emitted`)."""

from __future__ import annotations

import pytest
from tests.codegen.emitted import OPERATORS, SUBJECTS, digests, recorded

from fusewise.codegen.target import TARGETS, Target

NETWORKS = [subject for subject in SUBJECTS if subject != OPERATORS]

HALVES = TARGETS[::2], TARGETS[1::2]
"""Every other network is looked at for one half: those that are alike stand side by side. Their digests for the other half
are on file, too, and are what the module's own run shows."""


@pytest.mark.parametrize(
    "subject, targets",
    [
        *((subject, HALVES[number % 2]) for number, subject in enumerate(NETWORKS)),
        *((OPERATORS, (target,)) for target in TARGETS),
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(target.name for target in given),
)
def test_what_is_emitted_is_what_it_was(subject: str, targets: tuple[Target, ...]) -> None:
    found = {(name, target): rest for name, target, *rest in digests(subject, targets)}
    assert found == {(subject, target.name): list(recorded()[subject, target.name]) for target in targets}


def test_digests_on_file_are_of_what_is_looked_at() -> None:
    assert set(recorded()) == {(subject, target.name) for subject in SUBJECTS for target in TARGETS}
