"""PyTorch modules that are named on the command line, beside PyTorch itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.torch_net import written

pytest.importorskip("torch")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return written(tmp_path)


def test_peers_that_run_modules_want_one(fusewise, tiny_path) -> None:
    for peer in ("torch", "torch.compile"):
        refused = fusewise("bench", tiny_path, "--vs", peer)
        assert refused.status == 2
        assert f"{peer} runs PyTorch modules: name one as file.py:NAME" in refused.sentence


def test_a_module_is_compared_with_itself_in_pytorch(fusewise, net: Path) -> None:
    words = ("--vs", "torch", "--runs", "2", "--seconds", "0", "--no-weigh", "--json")
    ended = fusewise("bench", f"{net}:make", *words)
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert found["model"] == f"{net}:make" and set(found["runtimes"]) == {"fusewise", "torch"}
    assert found["max_rel_error"] <= 1e-5


def test_every_verb_takes_a_module(fusewise, net: Path, tmp_path: Path) -> None:
    name = f"{net}:make"
    for words in (
        ("inspect", name),
        ("compile", name, "-o", tmp_path / "m.fw"),
        ("run", name),
        ("verify", name),
        ("optimize", name, "-o", tmp_path / "m.onnx"),
    ):
        ended = fusewise(*words)
        assert ended.status == 0, (words, ended.err)


def test_no_function_of_the_package_runs_a_file(net: Path) -> None:
    import fusewise

    with pytest.raises(fusewise.FusewiseError, match="there is no file"):
        fusewise.load(f"{net}:make")
