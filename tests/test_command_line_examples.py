"""What the examples about verbs do, on a small model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import plan_network, why_not_fused

import fusewise
from fusewise.ops.build import GraphBuilder


def convolutions(path: Path) -> Path:
    """Two convolutions with a MaxPool between them, and a product."""
    b, rng = GraphBuilder(), np.random.default_rng(0)
    x = b.input("x", (1, 4, 16, 16))
    weights = [b.constant(rng.standard_normal(shape, np.float32)) for shape in ((8, 4, 3, 3), (8, 8, 3, 3), (8, 10))]
    h = b.op("Relu", b.op("Conv", x, weights[0], pads=[1, 1, 1, 1], name="first"), name="bound")
    h = b.op("MaxPool", h, kernel_shape=[2, 2], strides=[2, 2], name="pool")
    h = b.op("GlobalAveragePool", b.op("Conv", h, weights[1], pads=[1, 1, 1, 1], name="second"))
    fusewise.save(b.finish(b.op("MatMul", b.op("Flatten", h), weights[2])), path)
    return path


def run(example: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, *words: object) -> str:
    monkeypatch.setattr("sys.argv", ["example", *map(str, words)])
    example.main()
    return str(capsys.readouterr().out)


def test_why_two_nodes_are_not_one_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    path = convolutions(tmp_path / "m.onnx")
    said = run(why_not_fused, monkeypatch, capsys, path, "bound", "pool")
    assert "bound -> pool: two kernels; the table says break: the types do not fuse" in said
    assert "they are one kernel" in run(why_not_fused, monkeypatch, capsys, path, "first", "bound")
    through = run(why_not_fused, monkeypatch, capsys, path, "second", "first")
    assert [line.split(":")[0].strip() for line in through.splitlines()[1:]] == [
        "first -> bound",
        "bound -> pool",
        "pool -> second",
    ]
    assert run(why_not_fused, monkeypatch, capsys, path).startswith("bound: group ")
    with pytest.raises(SystemExit):
        run(why_not_fused, monkeypatch, capsys, path, "bound", "nobody")


def test_a_plan_and_its_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    path, page = convolutions(tmp_path / "m.onnx"), tmp_path / "plan.html"
    said = run(plan_network, monkeypatch, capsys, path, "--buffer", "256KiB", "-o", page)
    assert said.startswith("lbdf: ") and "brr: " in said and "proven optimal" in said
    assert 'data-name="document"' in page.read_text() and "Groups of the plan" in page.read_text()
    assert (tmp_path / "plan.json").exists()


def test_integers_beside_floats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    pytest.importorskip("onnxruntime")
    from examples import quantise_and_compare

    monkeypatch.setenv("FUSEWISE_CACHE_DIR", str(tmp_path / "cache"))
    path = convolutions(tmp_path / "m.onnx")
    words = (path, "--samples", 2, "--seconds", 0, "--threads", 1)
    lines = run(quantise_and_compare, monkeypatch, capsys, *words).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "float",
        "integers",
        *(f"{form} in {name}" for form in ("float", "integers") for name in ("fusewise", "onnxruntime")),
    ]
    errors = {line.partition(":")[0]: float(line.split(" by ")[1].split()[0]) for line in lines[2:]}
    assert errors["float in fusewise"] <= 1e-5
    assert 1e-5 < errors["integers in onnxruntime"] < 0.2 and 1e-5 < errors["integers in fusewise"] < 0.2
