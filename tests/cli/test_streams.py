"""Nobody reads, the device is full, there is no stream: a quiet end or one sentence, and the right status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
WORDS = [sys.executable, "-m", "fusewise"]

needs_full = pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no /dev/full")


@pytest.mark.parametrize("words", [("zoo", "list"), ("zoo", "list", "--json"), ("--help",), ("passes", "--list")])
def test_a_reader_that_has_left_is_no_error(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        ended = subprocess.run([*WORDS, *words], stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (141, "")


@needs_full
@pytest.mark.parametrize("words", [("zoo", "list"), ("zoo", "list", "--json"), ("--help",)])
def test_a_full_device_is_one_sentence(words: tuple[str, ...]) -> None:
    with FULL.open("w") as full:
        ended = subprocess.run([*WORDS, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 5
    assert ended.stderr == "fusewise: cannot write to standard output: No space left on device\n"


@needs_full
def test_a_full_stderr_leaves_the_status(tmp_path: Path) -> None:
    with FULL.open("w") as full:
        ended = subprocess.run(
            [*WORDS, "inspect", tmp_path / "no.onnx"], stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert (ended.returncode, ended.stdout) == (2, b"")


@needs_full
def test_a_file_on_a_full_device_is_one_sentence(fusewise) -> None:
    ended = fusewise("zoo", "build", "squeezenet1_1", "-o", FULL)
    assert (ended.status, ended.out) == (5, "")
    assert ended.sentence.startswith("cannot write /dev/full: No space left on device")
    assert FULL.is_char_device()


def test_a_closed_stdout_is_one_sentence() -> None:
    closed = "exec >&-; exec " + " ".join(WORDS) + " zoo list"
    ended = subprocess.run(["sh", "-c", closed], stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 5
    assert ended.stderr == "fusewise: cannot write to standard output: it is closed\n"


def test_quiet_leaves_data_and_errors(fusewise, tiny_path) -> None:
    loud = fusewise("compile", tiny_path, "--disable", "product@nobody")
    quiet = fusewise("compile", tiny_path, "--disable", "product@nobody", "-q")
    assert "nothing in this model is decided by" in loud.sentence
    assert quiet.err == "" and quiet.out.startswith("model")
    assert "there is no file" in fusewise("compile", "nothing.onnx", "--quiet").sentence


def test_a_warning_is_a_sentence(fusewise, tiny_path) -> None:
    ended = fusewise("run", tiny_path, "--shape", "x=5x3")
    assert ended.sentence == "the model states float32[2,3] of its input 'x'; it is taken to be 5x3, as given"
    assert ended.status == 0 and ended.out.startswith("y  float32[5,4]")


@pytest.mark.parametrize(
    "verb, option, name",
    [
        ("compile", "-o", "m.fw"),
        ("optimize", "-o", "m.onnx"),
        ("gradient", "-o", "m.onnx"),
        ("run", "-o", "y.npz"),
        ("plan", "-o", "plan.json"),
        ("passes", "-o", "p.toml"),
        ("verify", "--decisions", "d.jsonl"),
        ("bench", "--trace", "t.json"),
    ],
)
def test_a_folder_that_is_not_there_is_told_of_before_the_work(fusewise, tmp_path, verb, option, name) -> None:
    there = tmp_path / "nowhere" / name
    refused = fusewise(verb, "zoo:vgg16", option, there)
    assert (refused.status, refused.out) == (2, "")
    assert refused.sentence == f"cannot write {there}: there is no folder {there.parent}"
