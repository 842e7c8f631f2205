"""The form exporters wrote around 2020: as many operators as were published, the same shapes, the same answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fusewise.ir.verify import verify
from fusewise.passes import pipeline
from fusewise.zoo.catalogue import build
from fusewise.zoo.exported import EXPORTED

QUICK = {"efficientnet_b0", "mobilenet_v1_ssd", "s3d", "tinybert", "distilbert", "mobilebert"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in EXPORTED]
)
def test_operators_are_within_fifteen_percent_of_the_published(name: str) -> None:
    graph = build(name, decomposed=True)
    verify(graph)
    assert len(graph.nodes) == pytest.approx(EXPORTED[name].operators, rel=0.15)
    assert all(graph.tensor(v).is_static for node in graph.nodes for v in node.writes) or "rcnn" in name
    assert dict(graph.pruned().constants).keys() == dict(graph.constants).keys()


@pytest.mark.parametrize(
    "name",
    [
        "distilbert",
        "mobilenet_v1_ssd",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("mobilebert", "unet", "mask_rcnn_resnet50_fpn")),
    ],
)
def test_answers_are_those_of_the_plain_form(
    name: str,
    run_reference: Callable[..., list[list[np.ndarray]]],
    feeds_of: Callable[..., dict[str, np.ndarray]],
) -> None:
    plain, decomposed = build(name), build(name, decomposed=True)
    assert (plain.inputs, plain.outputs) == (decomposed.inputs, decomposed.outputs)
    feeds = feeds_of(plain, 3)
    for a, b in zip(run_reference(plain, feeds)[0], run_reference(decomposed, feeds)[0], strict=True):
        assert a.shape == b.shape
        assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max()


def test_a_batch_is_read_at_run_time(
    run_reference: Callable[..., list[list[np.ndarray]]], feeds_of: Callable[..., dict[str, np.ndarray]]
) -> None:
    graph = build("tinybert", batch=2, decomposed=True)
    feeds = feeds_of(graph, 0)
    plain = run_reference(build("tinybert", batch=2), feeds)[0]
    for a, b in zip(plain, run_reference(graph, feeds)[0], strict=True):
        assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max()


@pytest.mark.parametrize("name", ["tinybert", "distilbert"])
def test_with_known_shapes_the_arithmetic_on_them_folds_away(name: str) -> None:
    clean = pipeline.run(build(name, decomposed=True))
    assert not {"Shape", "Range", "Slice"} & {node.op for node in clean.nodes}
    assert len(clean.nodes) == len(pipeline.run(build(name)).nodes)
