"""The table of architectures: every name, what it says of the inputs, and how wrong names are refused."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from fusewise.errors import UsageError
from fusewise.zoo.catalogue import MODELS, build, model_named

NAMES = """
    resnet18 resnet34 resnet50 resnet101 resnet152 resnext50 vgg16 squeezenet1_1 mobilenet_v1 mobilenet_v2
    mobilenet_v3_small mobilenet_v3_large efficientnet_b0 efficientnet_b3 inception_v3 convnext_tiny densenet121
    deeplabv3_mobilenet_v3_large unet yolo_v4 mobilenet_v1_ssd ssd_resnet50
    faster_rcnn_resnet50_fpn mask_rcnn_resnet50_fpn c3d s3d bert_base distilbert tinybert albert
    mobilebert gpt2 vit_b_16 nasrnn nasnet_a_mobile
""".split()


def test_every_architecture_has_one_row() -> None:
    assert sorted(row.name for row in MODELS) == sorted(NAMES)


@pytest.mark.parametrize("wrong, nearest", [("resnet_50", "resnet50"), ("bert", "bert_base"), ("yolov4", "yolo_v4")])
def test_an_unknown_name_is_refused_with_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=f"no model called '{wrong}'; did you mean '{nearest}'"):
        build(wrong)


def test_a_name_like_no_other_points_to_the_list() -> None:
    with pytest.raises(UsageError, match="zoo list"):
        model_named("§§§")


def test_a_batch_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1, not 0"):
        build("squeezenet1_1", batch=0)


def test_the_two_stage_detectors_take_one_image() -> None:
    with pytest.raises(UsageError, match="written for one image, not for a batch of 2"):
        build("faster_rcnn_resnet50_fpn", batch=2)


def test_reading_the_table_imports_nothing_heavy() -> None:
    code = "import sys, fusewise.zoo.catalogue; print(*(m for m in ('numpy', 'onnx', 'torch') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_weights_follow_from_the_seed_alone() -> None:
    first, again, other = build("mobilenet_v3_small"), build("mobilenet_v3_small"), build("mobilenet_v3_small", seed=1)
    assert first.nodes == again.nodes == other.nodes
    assert dict(first.constants) == dict(again.constants)
    name = "features.0.conv.weight"
    assert not np.array_equal(first.constants[name].array, other.constants[name].array)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v1_ssd", "s3d", "tinybert", "mobilebert", "nasrnn"])
def test_the_batch_leads_every_input_and_output(name: str) -> None:
    graph = build(name, batch=3)
    assert {graph.tensor(value).dims[0] for value in graph.inputs + graph.outputs} == {3}


def test_the_exported_form_has_a_name() -> None:
    named, asked, plain = build("tinybert@exported"), build("tinybert", decomposed=True), build("tinybert")
    assert named.nodes == asked.nodes
    assert len(named.nodes) > 2 * len(plain.nodes)
    with pytest.raises(UsageError, match="no framework style is called 'exportd'; did you mean 'exported'"):
        build("tinybert@exportd")
