"""Code is what it was. Where it is meant to change, measure, and then write the digests anew (`tests.codegen.emitted`)."""

from __future__ import annotations

import pytest
from tests.codegen.emitted import SUBJECTS, digests, recorded


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_is_emitted_is_what_it_was(subject: str) -> None:
    found = {(name, target): rest for name, target, *rest in digests(subject)}
    assert found == {key: list(rest) for key, rest in recorded().items() if key[0] == subject}
