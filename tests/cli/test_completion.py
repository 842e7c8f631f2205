"""What shells complete, by the protocol that their scripts speak, and in bash itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def completed(line: str) -> list[str]:
    words = line.split(" ")
    asked = {"_FUSEWISE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "fusewise"], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    "line, some",
    [
        ("fusewise ins", {"inspect"}),
        ("fusewise inspect zoo:resn", {"zoo:resnet18", "zoo:resnet50"}),
        ("fusewise zoo build resn", {"resnet18", "resnet50"}),
        ("fusewise compile x --disable winog", {"winograd-convolution"}),
        ("fusewise compile x --disable fold_c", {"fold_constants"}),
        ("fusewise optimize x --search g", {"greedy"}),
        ("fusewise inspect x --fusion p", {"patterns", "published"}),
    ],
)
def test_names_are_completed(line: str, some: set[str]) -> None:
    found = completed(line)
    assert some <= set(found)
    assert all(name.startswith(line.rpartition(" ")[2]) for name in found)


def test_files_are_left_to_the_shell() -> None:
    assert completed("fusewise inspect model") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_script_completes_in_bash(tmp_path: Path, fusewise) -> None:
    script, program = tmp_path / "completion.bash", tmp_path / "fusewise"
    script.write_text(fusewise("completion", "bash").out)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m fusewise "$@"\n')
    program.chmod(0o755)
    line = "fusewise inspect zoo:resnet1"
    asked = f'COMP_LINE="{line}"; COMP_POINT={len(line)}; _fusewise_completion {program}; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", f"source {script}; {asked}"], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.split() == ["resnet18", "resnet101", "resnet152"], "what is behind the colon is replaced"


def test_scripts_are_for_shells_that_there_are(fusewise) -> None:
    assert "complete -c fusewise" in fusewise("completion", "fish").out
    assert "compdef _fusewise_completion fusewise" in fusewise("completion", "zsh").out
    refused = fusewise("completion", "bahs")
    assert refused.status == 2 and "did you mean 'bash'?" in refused.sentence
