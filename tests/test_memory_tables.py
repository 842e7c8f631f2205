"""The tables of what fusion saves in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.memory import DEFAULT, factors, table, variant_named

from fusewise.counting import Variant

ROOT = Path(__file__).parent.parent


def variant(times: int, misses: int, host_steps: int = 0) -> dict[str, Any]:
    counts = dict.fromkeys(
        ("loads", "stores", "needed_bytes", "loaded_bytes", "stored_bytes", "peak_bytes"), times * 10**6
    )
    use = {"ms": 2.0 * times, "busy": 0.5, "of_peak": 0.25}
    return {"steps": times, "misses": {"L1": misses, "L2": 0}, "host_steps": host_steps, **counts, **use}


def result() -> dict[str, Any]:
    caches = [{"name": name, "bytes": 1 << 15, "ways": 8} for name in ("L1", "L2")]
    return {"model": "gpt2", "caches": caches, "variants": {"none": variant(3, 9000), "dnnfusion": variant(1, 2000, 4)}}


def test_a_row_for_each_variant() -> None:
    lines = table([result(), {"model": "lost", "error": "no such file"}]).splitlines()
    assert lines[0].startswith(
        "| model | variant | steps | needed MB | accesses M | moved MB | L1 misses k | L2 misses k |"
    )
    assert lines[2] == "| gpt2 | none | 3 | 3.0 | 6.00 | 6 | 9 | 0 | 3.0 | 6.00 | 50% | 25% |  |"
    assert lines[3] == "| gpt2 | dnnfusion | 1 | 1.0 | 2.00 | 2 | 2 | 0 | 1.0 | 2.00 | 50% | 25% | 4 |"
    assert lines[4] == "| lost | no such file |"


def test_factors_beside_what_is_printed() -> None:
    assert factors([result()]).splitlines()[2:] == [
        "| gpt2 | 3.00x | 3.00x | 3.00x | 4.50x 1.00x | 3.00x | 3.00x | 1389 to 356 |"
    ]


def test_variants_are_those_of_the_ablation() -> None:
    assert [variant_named(name).fusion for name in DEFAULT] == ["none", "dnnfusion"]
    assert isinstance(variant_named("OurB"), Variant) and variant_named("OurB").disable


def test_wrong_words_are_said() -> None:
    for words in (("--variants", "best"), ("--caches", "none")):
        ended = subprocess.run(
            [sys.executable, "-m", "benchmarks.memory", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 2
        assert words[1] in ended.stderr
