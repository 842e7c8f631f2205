"""What the examples do, on small models."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from benchmarks.torch_models import import_timm
from examples import generate, web_service
from onnx import TensorProto, helper, numpy_helper
from tests.runtime.test_growing import decoder

import fusewise

VOCABULARY = 64


def of_tokens() -> onnx.ModelProto:
    """A decoder of `input_ids` and an `attention_mask`, whose results are taken for logits."""
    model = decoder()
    graph = model.graph
    for name in ("x", "mask"):
        graph.input.remove(next(port for port in graph.input if port.name == name))
    graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", length])
        for name, length in (("input_ids", "tokens"), ("attention_mask", "past + tokens"))
    )
    table = np.random.default_rng(1).standard_normal((VOCABULARY, 64), dtype=np.float32)
    constants = {"table": table, "one": np.float32(1), "never": np.float32(1e9), "axes": np.array([1, 2])}
    graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items())
    before = [
        helper.make_node("Gather", ["table", "input_ids"], ["x"]),
        helper.make_node("Cast", ["attention_mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["kept", "one"], ["dropped"]),
        helper.make_node("Mul", ["dropped", "never"], ["low"]),
        helper.make_node("Unsqueeze", ["low", "axes"], ["mask"]),
    ]
    nodes = [*before, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def test_generating_with_a_cache_and_without_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = tmp_path / "decoder.onnx"
    onnx.save(of_tokens(), path)
    monkeypatch.setattr("sys.argv", ["generate", str(path), "--prompt", "3,1,4", "--tokens", "9", "--threads", "1"])
    generate.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["with a cache", "without"]
    tokens = [line.partition("tokens/s: ")[2] for line in lines]
    assert tokens[0] == tokens[1]
    assert tokens[0].count(",") == 8


def test_a_step_takes_the_inputs_that_there_are() -> None:
    model = fusewise.compile(of_tokens(), cache=False, threads=1)
    found = generate.inputs_of(model, np.array([[1, 2]]), 3)
    assert {name: array.shape for name, array in found.items()} == {"input_ids": (1, 2), "attention_mask": (1, 5)}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")
def test_a_model_of_timm_is_compiled(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    import_timm()
    from examples import compile_timm

    monkeypatch.setattr("sys.argv", ["compile_timm", "test_resnet", "--size", "64"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # nothing is left to PyTorch
        compile_timm.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["difference", "first call", "run"]
    assert float(lines[0].split()[1]) <= 1e-5


def test_the_web_service_answers_as_on_onnx_runtime(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    pytest.importorskip("onnxruntime")
    arguments = ["--clients", "3", "--requests", "2", "--rounds", "1", "--threads", "1"]
    monkeypatch.setattr("sys.argv", ["web_service", *arguments])
    web_service.main()
    first, *rows = capsys.readouterr().out.splitlines()
    assert float(first.rpartition(" ")[2]) < 1e-5
    assert [row.split()[0] for row in rows] == ["fusewise", "onnxruntime"]
    assert all(float(row.split()[2]) > 0 for row in rows)


def test_the_web_service_says_what_is_wrong_with_a_request(tmp_path: Path) -> None:
    with web_service.served("fusewise", web_service.network(tmp_path / "n.onnx"), 1) as (port, row):
        connection = web_service.HTTPConnection("127.0.0.1", port)
        with pytest.raises(RuntimeError, match="reshape"):
            web_service.ask(connection, np.zeros(5, np.float32))
        assert web_service.ask(connection, np.zeros((2, *row), np.float32)).shape == (20,)


def test_the_web_service_says_that_a_model_cannot_be_served(tmp_path: Path) -> None:
    (tmp_path / "n.onnx").write_bytes(b"nothing")
    with pytest.raises(SystemExit, match=r"n\.onnx cannot be served at port 0: .*not an ONNX model"):
        web_service.serve("fusewise", str(tmp_path / "n.onnx"), 1, 0)
