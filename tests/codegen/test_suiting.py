"""Passes are those asked for, but where the machine has a better one."""

from __future__ import annotations

from dataclasses import replace

from fusewise.codegen.suiting import suited
from fusewise.codegen.target import TARGETS
from fusewise.passes.drop_dead import drop_dead
from fusewise.passes.pipeline import CLEAN
from fusewise.passes.quantized_to_integer import every_quantized_to_integer, quantized_to_integer

AVX2 = next(target for target in TARGETS if target.name == "avx2")
VNNI = replace(AVX2, features="+avx2,+avxvnni")


def test_machines_that_add_four_products_of_bytes_convolve_integers_everywhere() -> None:
    found = suited(True, VNNI)
    assert found == tuple(every_quantized_to_integer if step is quantized_to_integer else step for step in CLEAN)
    assert found != CLEAN


def test_others_and_passes_asked_for_stay_as_they_are() -> None:
    assert suited(True, AVX2) is True
    assert suited(True, VNNI, {"quantized_to_integer"}) == CLEAN
    assert suited(False, VNNI) is False
    assert suited((drop_dead,), VNNI) == (drop_dead,)
